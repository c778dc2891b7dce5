//! Names of buckets and objects, with the rules that GCS has for them.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Why a name was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NameError {
    #[error(
        "Invalid bucket name: it must be 3 to 63 of a-z, 0-9, '-', '_' and '.', with a letter or digit at both ends."
    )]
    Bucket,
    #[error("Invalid object name: it must be 1 to 1024 bytes of UTF-8.")]
    Length,
    #[error("Invalid object name: it must not contain a carriage return or a line feed.")]
    LineBreak,
    #[error("Invalid object name: it must not be '.' or '..'.")]
    Dots,
    #[error("Invalid object name: it must not start with '.well-known/acme-challenge/'.")]
    Acme,
}

/// An object's name. Ordered by its bytes, as listings are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BucketName(Arc<str>);

impl BucketName {
    pub(crate) fn parse(text: &str) -> Result<Self, NameError> {
        let ordinary = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let bytes = text.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        let valid = (3..=63).contains(&text.len())
            && bytes.iter().all(|&c| ordinary(c) || b"-_.".contains(&c))
            && ends.into_iter().flatten().all(|&c| ordinary(c));
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
    fn bucket_names() {
        for name in ["abc", "a-b_c.d", "0x0"] {
            assert!(BucketName::parse(name).is_ok(), "{name}");
        }
        for name in ["", "ab", "-ab", "ab-", "Abc", "a b", &"x".repeat(64)] {
            assert!(BucketName::parse(name).is_err(), "{name}");
        }
    }
}
