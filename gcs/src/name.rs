//! Names of buckets and objects, parsed once at the edge and carried as proof afterwards.
//!
//! The rules are Google's: <https://cloud.google.com/storage/docs/objects#naming> and
//! <https://cloud.google.com/storage/docs/buckets#naming>.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The longest object name that the store takes, in bytes of UTF-8.
pub const MAX_OBJECT_NAME: usize = 1024;

/// Why a string is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Names hold at least one byte.
    #[error("a name cannot be empty")]
    Empty,
    /// Object names end at 1,024 bytes.
    #[error("an object name cannot be longer than 1,024 bytes")]
    TooLong,
    /// Object names are UTF-8.
    #[error("an object name must be UTF-8")]
    NotUtf8,
    /// The store refuses CR and LF in object names.
    #[error("an object name cannot hold a line break")]
    LineBreak,
    /// The store refuses `.`, `..` and names below `.well-known/acme-challenge/`.
    #[error("the store reserves this object name")]
    Reserved,
    /// Bucket names are 3 to 222 of `a-z 0-9 - _ .`, beginning and ending with a letter or digit.
    #[error(
        "a bucket name has 3 to 222 characters of a-z, 0-9, '-', '_' and '.', and begins and ends with a letter or a digit"
    )]
    Bucket,
}

/// Why a string is not the name of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFolder {
    /// It is not the name of an object either.
    #[error(transparent)]
    Name(#[from] Invalid),
    /// Folder names end with a slash.
    #[error("a folder name ends with '/'")]
    NoSlash,
}

/// The name of a bucket.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketName(Arc<str>);

impl BucketName {
    /// Takes `name` if it has the form of a bucket name.
    ///
    /// # Errors
    /// [`Invalid::Empty`] and [`Invalid::Bucket`].
    pub fn parse(name: &str) -> Result<Self, Invalid> {
        let edge = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let inner = |b: u8| edge(&b) || matches!(b, b'-' | b'_' | b'.');
        let bytes = name.as_bytes();
        match (bytes.first(), bytes.last()) {
            (None, _) | (_, None) => Err(Invalid::Empty),
            (Some(first), Some(last))
                if (3..=222).contains(&bytes.len())
                    && edge(first)
                    && edge(last)
                    && bytes.iter().all(|b| inner(*b)) =>
            {
                Ok(Self(name.into()))
            }
            _ => Err(Invalid::Bucket),
        }
    }

    /// The name as it stands in a URL path, where none of its characters needs an escape.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The full name of an object: its key in the bucket, `/` being an ordinary character of it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectName(Arc<str>);

impl ObjectName {
    /// Takes `name` if the store would.
    ///
    /// # Errors
    /// Every [`Invalid`] but [`Invalid::Bucket`].
    pub fn parse(name: impl AsRef<[u8]>) -> Result<Self, Invalid> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Invalid::Empty);
        }
        if name.len() > MAX_OBJECT_NAME {
            return Err(Invalid::TooLong);
        }
        let name = std::str::from_utf8(name).map_err(|_| Invalid::NotUtf8)?;
        if name.contains(['\r', '\n']) {
            return Err(Invalid::LineBreak);
        }
        if matches!(name, "." | "..") || name.starts_with(".well-known/acme-challenge/") {
            return Err(Invalid::Reserved);
        }
        Ok(Self(name.into()))
    }

    /// The name, unescaped.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The full name of a folder in a bucket with a hierarchical namespace, its `/` at the end included.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FolderName(Arc<str>);

impl FolderName {
    /// Takes `name` if the store would.
    ///
    /// # Errors
    /// Both of [`InvalidFolder`].
    pub fn parse(name: impl AsRef<[u8]>) -> Result<Self, InvalidFolder> {
        let name = ObjectName::parse(name)?;
        match name.as_str() {
            "./" | "../" => Err(Invalid::Reserved.into()),
            folder if folder.ends_with('/') => Ok(Self(name.0)),
            _ => Err(InvalidFolder::NoSlash),
        }
    }

    /// The name, unescaped.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder that this one is in; `None` at the top.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let inner = self.0.strip_suffix('/')?;
        let end = inner.rfind('/')? + 1;
        Some(Self(self.0[..end].into()))
    }
}

macro_rules! text_newtype {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    )*};
}
text_newtype!(BucketName, FolderName, ObjectName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_are_what_the_store_takes() {
        let longest = "x".repeat(MAX_OBJECT_NAME);
        for good in [
            "a", "a//b", "/a", "a/./b", "../y", "50% #1?+", "é", &longest,
        ] {
            assert_eq!(ObjectName::parse(good).unwrap().as_str(), good);
        }
        let too_long = "x".repeat(MAX_OBJECT_NAME + 1);
        let bad: [(&[u8], Invalid); 8] = [
            (b"", Invalid::Empty),
            (too_long.as_bytes(), Invalid::TooLong),
            (b"\xff", Invalid::NotUtf8),
            (b"a\nb", Invalid::LineBreak),
            (b"a\r", Invalid::LineBreak),
            (b".", Invalid::Reserved),
            (b"..", Invalid::Reserved),
            (b".well-known/acme-challenge/x", Invalid::Reserved),
        ];
        for (name, why) in bad {
            assert_eq!(ObjectName::parse(name), Err(why));
        }
    }

    #[test]
    fn folder_names_end_with_a_slash() {
        for (name, parent) in [
            ("a/", None),
            ("a/b/", Some("a/")),
            ("é /../x/", Some("é /../")),
        ] {
            let folder = FolderName::parse(name).unwrap();
            assert_eq!(folder.as_str(), name);
            assert_eq!(folder.parent().as_ref().map(FolderName::as_str), parent);
        }
        for (name, why) in [
            ("", Invalid::Empty.into()),
            ("a", InvalidFolder::NoSlash),
            ("../", Invalid::Reserved.into()),
            ("a\n/", Invalid::LineBreak.into()),
        ] {
            assert_eq!(FolderName::parse(name), Err(why), "{name}");
        }
    }

    #[test]
    fn bucket_names_have_a_form() {
        for good in ["abc", "my-bucket_1.example.org", "0ab"] {
            assert!(BucketName::parse(good).is_ok(), "{good}");
        }
        for bad in ["ab", "-abc", "abc-", "Abc", "a b", "a/b", "a,b", "_"] {
            assert_eq!(BucketName::parse(bad), Err(Invalid::Bucket), "{bad}");
        }
        assert_eq!(BucketName::parse(""), Err(Invalid::Empty));
    }
}
