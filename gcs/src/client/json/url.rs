//! The URLs of a bucket's resources.

use std::fmt::{self, Write};

use bytes::Bytes;
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::Endpoint;
use crate::store::Preconditions;
use crate::{BucketName, FolderName, ObjectName};

/// Everything but RFC 3986 "unreserved": correct in a path segment and in a query alike.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The URLs of one bucket.
#[derive(Debug)]
pub(super) struct Urls {
    bucket: String,
    upload: String,
    name: BucketName,
}

impl Urls {
    pub(super) fn new(endpoint: &Endpoint, bucket: &BucketName) -> Self {
        let base = endpoint.base();
        Self {
            bucket: format!("{base}/storage/v1/b/{bucket}"),
            upload: format!("{base}/upload/storage/v1/b/{bucket}/o"),
            name: bucket.clone(),
        }
    }

    pub(super) fn bucket(&self) -> Url {
        Url::new(&self.bucket)
    }

    pub(super) fn permissions(&self) -> Url {
        Url::new(&self.bucket).segment("iam/testPermissions")
    }

    pub(super) fn list(&self) -> Url {
        Url::new(&self.bucket).segment("o")
    }

    pub(super) fn object(&self, name: &ObjectName) -> Url {
        self.list().escaped(name.as_str())
    }

    pub(super) fn compose(&self, target: &ObjectName) -> Url {
        self.object(target).segment("compose")
    }

    pub(super) fn rewrite(&self, source: &ObjectName, target: &ObjectName) -> Url {
        self.object(source)
            .segment("rewriteTo/b")
            .segment(self.name.as_str())
            .segment("o")
            .escaped(target.as_str())
    }

    pub(super) fn rename(&self, source: &ObjectName, target: &ObjectName) -> Url {
        self.object(source)
            .segment("moveTo/o")
            .escaped(target.as_str())
    }

    pub(super) fn layout(&self) -> Url {
        Url::new(&self.bucket).segment("storageLayout")
    }

    pub(super) fn folders(&self) -> Url {
        Url::new(&self.bucket).segment("folders")
    }

    pub(super) fn folder(&self, name: &FolderName) -> Url {
        self.folders().escaped(name.as_str())
    }

    pub(super) fn rename_folder(&self, source: &FolderName, target: &FolderName) -> Url {
        self.folder(source)
            .segment("renameTo/folders")
            .escaped(target.as_str())
    }

    /// A long-running operation of the bucket.
    pub(super) fn operation(&self, id: &str) -> Url {
        Url::new(&self.bucket).segment("operations").escaped(id)
    }

    pub(super) fn upload(&self, kind: &str) -> Url {
        Url::new(&self.upload).query("uploadType", kind)
    }
}

/// A URL being written: the path first, then the query.
pub(super) struct Url {
    text: String,
    queried: bool,
}

impl Url {
    fn new(base: &str) -> Self {
        // Most names and queries fit, and then a URL is one allocation.
        let mut text = String::with_capacity(base.len() + 192);
        text.push_str(base);
        Self {
            text,
            queried: false,
        }
    }

    fn segment(mut self, segment: &str) -> Self {
        self.text.push('/');
        self.text.push_str(segment);
        self
    }

    fn escaped(mut self, segment: &str) -> Self {
        self.text.push('/');
        self.text.extend(utf8_percent_encode(segment, ESCAPED));
        self
    }

    /// Adds a parameter of any text.
    pub(super) fn query(mut self, key: &str, value: &str) -> Self {
        self.key(key);
        self.text.extend(utf8_percent_encode(value, ESCAPED));
        self
    }

    /// Adds a number, where there is one.
    pub(super) fn number(mut self, key: &str, value: Option<impl fmt::Display>) -> Self {
        if let Some(value) = value {
            self.key(key);
            // Writing to a String cannot fail.
            let _ = write!(self.text, "{value}");
        }
        self
    }

    /// Adds preconditions on the object that the call is about.
    pub(super) fn conditions(self, on: &Preconditions) -> Self {
        self.number("ifGenerationMatch", on.generation)
            .number("ifGenerationNotMatch", on.generation_not)
            .number("ifMetagenerationMatch", on.metageneration)
            .number("ifMetagenerationNotMatch", on.metageneration_not)
    }

    /// Adds preconditions on the source of a transfer.
    pub(super) fn source_conditions(self, on: &Preconditions) -> Self {
        self.number("ifSourceGenerationMatch", on.generation)
            .number("ifSourceGenerationNotMatch", on.generation_not)
            .number("ifSourceMetagenerationMatch", on.metageneration)
            .number("ifSourceMetagenerationNotMatch", on.metageneration_not)
    }

    fn key(&mut self, key: &str) {
        self.text.push(if self.queried { '&' } else { '?' });
        self.queried = true;
        self.text.push_str(key);
        self.text.push('=');
    }

    /// The URL, or `None` where it is longer than any server takes.
    pub(super) fn build(self) -> Option<Uri> {
        Uri::from_maybe_shared(Bytes::from(self.text)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Generation;

    #[test]
    fn names_are_escaped_as_one_segment() {
        let bucket = BucketName::parse("bkt").unwrap();
        let urls = Urls::new(&"127.0.0.1:9000/x".parse().unwrap(), &bucket);
        let (odd, other) = ("../a b%#?+é", "~n_1-2.x");
        let (odd, other) = (
            ObjectName::parse(odd).unwrap(),
            ObjectName::parse(other).unwrap(),
        );
        assert_eq!(
            urls.object(&odd).build().unwrap(),
            "http://127.0.0.1:9000/x/storage/v1/b/bkt/o/..%2Fa%20b%25%23%3F%2B%C3%A9"
        );
        let url = urls
            .rename(&other, &odd)
            .conditions(&Preconditions::absent())
            .source_conditions(&Preconditions::generation(Generation(7)));
        assert_eq!(
            url.build().unwrap().path_and_query().unwrap(),
            "/x/storage/v1/b/bkt/o/~n_1-2.x/moveTo/o/..%2Fa%20b%25%23%3F%2B%C3%A9\
             ?ifGenerationMatch=0&ifSourceGenerationMatch=7"
        );
    }
}
