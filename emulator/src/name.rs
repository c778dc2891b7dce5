//! Names of buckets and objects, with the rules that GCS has for them.

use std::borrow::Borrow;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    #[error(
        "Invalid bucket name: it must be 3 to 63 of a-z, 0-9, '-', '_' and '.' (222 with dots, 63 between them), with a \
         letter or digit at both ends and beside each dot, and no address of four numbers."
    )]
    Bucket,
    #[error("Invalid bucket name: it must not begin with 'goog' nor contain 'google'.")]
    Google,
    #[error("Invalid object name: it must be 1 to 1024 bytes of UTF-8.")]
    Length,
    #[error("Invalid object name: it must not contain a carriage return or a line feed.")]
    LineBreak,
    #[error("Invalid object name: it must not be '.' or '..'.")]
    Dots,
    #[error("Invalid object name: it must not start with '.well-known/acme-challenge/'.")]
    Acme,
    #[error("Invalid folder name: it must be 1 to 512 bytes of UTF-8.")]
    FolderLength,
    #[error("Invalid folder name: it must end with '/'.")]
    NoSlash,
    #[error(
        "Invalid object name: in a bucket with a hierarchical namespace, what comes after the last '/' has at most 512 \
         bytes."
    )]
    BaseLength,
}

/// The longest folder name, and the longest name in a folder, in bytes.
const HIERARCHICAL: usize = 512;

/// An object's name. Ordered by its bytes, as listings are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ObjectName(Arc<str>);

impl ObjectName {
    pub(crate) fn parse(text: &str) -> Result<Self, NameError> {
        match text {
            "." | ".." => Err(NameError::Dots),
            _ if text.is_empty() || text.len() > 1024 => Err(NameError::Length),
            _ if text.contains(['\r', '\n']) => Err(NameError::LineBreak),
            _ if text.starts_with(".well-known/acme-challenge/") => Err(NameError::Acme),
            _ => Ok(Self(Arc::from(text))),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A folder's name: a path that ends with a slash. Ordered by its bytes, as listings are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct FolderName(Arc<str>);

impl FolderName {
    pub(crate) fn parse(text: &str) -> Result<Self, NameError> {
        match text {
            _ if text.is_empty() || text.len() > HIERARCHICAL => Err(NameError::FolderLength),
            _ if text.contains(['\r', '\n']) => Err(NameError::LineBreak),
            _ if !text.ends_with('/') => Err(NameError::NoSlash),
            _ => Ok(Self(Arc::from(text))),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder that it is in; none for one at the top.
    pub(crate) fn parent(&self) -> Option<Self> {
        let inner = &self.0[..self.0.len() - 1];
        let end = inner.rfind('/')?;
        Some(Self(Arc::from(&inner[..=end])))
    }

    /// The folders that an object is in, the outermost first. Every slash of a name ends one.
    pub(crate) fn above(object: &ObjectName) -> Result<Vec<Self>, NameError> {
        let name = object.as_str();
        let base = name.rfind('/').map_or(0, |slash| slash + 1);
        if name.len() - base > HIERARCHICAL {
            return Err(NameError::BaseLength);
        }
        let ends = name.match_indices('/').map(|(end, _)| &name[..=end]);
        ends.map(Self::parse).collect()
    }
}

impl Borrow<[u8]> for FolderName {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for FolderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `str` and its bytes have the same order, so maps can be searched by any byte string.
impl Borrow<[u8]> for ObjectName {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A bucket's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct BucketName(Arc<str>);

impl BucketName {
    pub(crate) fn parse(text: &str) -> Result<Self, NameError> {
        let ordinary = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_part = |part: &str| {
            let ends = [part.bytes().next(), part.bytes().last()];
            let inner = part.bytes().all(|c| ordinary(c) || b"-_".contains(&c));
            inner && part.len() <= 63 && ends.into_iter().all(|c| c.is_some_and(ordinary))
        };
        let is_address = text.parse::<Ipv4Addr>().is_ok();
        let valid = (3..=222).contains(&text.len()) && text.split('.').all(is_part) && !is_address;
        if text.starts_with("goog") || text.contains("google") {
            return Err(NameError::Google);
        }
        valid
            .then(|| Self(Arc::from(text)))
            .ok_or(NameError::Bucket)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for BucketName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BucketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Names are texts in a journal, and are checked when they come back.
macro_rules! texts {
    ($($name:ident),+) => {$(
        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }
    )+};
}

texts!(BucketName, FolderName, ObjectName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_that_gcs_takes() {
        let longest = "x".repeat(1024);
        for name in [
            "a",
            "a//b",
            "/",
            "./x",
            "../y",
            "a/.",
            "#?+%2F",
            "ü",
            "a\tb",
            longest.as_str(),
        ] {
            assert!(ObjectName::parse(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn object_names_that_gcs_refuses() {
        let long = "x".repeat(1025);
        for (name, why) in [
            ("", NameError::Length),
            (long.as_str(), NameError::Length),
            ("a\nb", NameError::LineBreak),
            ("a\rb", NameError::LineBreak),
            (".", NameError::Dots),
            ("..", NameError::Dots),
            (".well-known/acme-challenge/x", NameError::Acme),
        ] {
            assert_eq!(ObjectName::parse(name), Err(why), "{name:?}");
        }
    }

    #[test]
    fn folder_names_and_what_is_above() {
        for (text, parsed) in [
            ("a/", Ok(None)),
            ("/", Ok(None)),
            ("a/b/", Ok(Some("a/"))),
            ("a//", Ok(Some("a/"))),
            ("", Err(NameError::FolderLength)),
            (&("x".repeat(512) + "/"), Err(NameError::FolderLength)),
            ("a", Err(NameError::NoSlash)),
            ("a\n/", Err(NameError::LineBreak)),
        ] {
            let parent = FolderName::parse(text).map(|name| name.parent());
            let parent = parent.map(|name| name.map(|name| name.to_string()));
            assert_eq!(parent, parsed.map(|p| p.map(str::to_owned)), "{text}");
        }
        let above = |name: &str| FolderName::above(&ObjectName::parse(name).unwrap());
        for (name, folders) in [
            ("o", &[][..]),
            ("a/o", &["a/"]),
            ("/a//o", &["/", "/a/", "/a//"]),
            ("a/b/", &["a/", "a/b/"]),
        ] {
            let above = above(name).unwrap();
            assert!(
                above
                    .iter()
                    .map(FolderName::as_str)
                    .eq(folders.iter().copied())
            );
        }
        let long = "x".repeat(513);
        assert_eq!(above(&format!("a/{long}")), Err(NameError::BaseLength));
        assert_eq!(above(&format!("{long}/a")), Err(NameError::FolderLength));
    }

    #[test]
    fn bucket_names() {
        let dotted = format!("{}.{}", "x".repeat(63), "y".repeat(63));
        for name in ["abc", "a-b_c.d", "0x0", "1.2.3", &dotted] {
            assert!(BucketName::parse(name).is_ok(), "{name}");
        }
        let dots = vec!["x".repeat(63); 4].join(".");
        for name in [
            "",
            "ab",
            "-ab",
            "ab-",
            "Abc",
            "a b",
            "a..b",
            "a-.b",
            "192.168.5.4",
            "goog-x",
            "my-google",
            &"x".repeat(64),
            &dots,
        ] {
            assert!(BucketName::parse(name).is_err(), "{name}");
        }
    }
}
