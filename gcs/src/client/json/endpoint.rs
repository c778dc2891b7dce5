//! Where the store is, and the URLs of its resources.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::store::Preconditions;
use crate::{BucketName, ObjectName};

/// Everything but RFC 3986 "unreserved": correct in a path segment and in a query alike.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The base URL of the service.
///
/// Taken with or without a trailing slash and with or without the API's own `/storage/v1`, as `gcsfuse
/// --custom-endpoint` has it; `HOST:PORT` alone means plain HTTP, as `STORAGE_EMULATOR_HOST` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `scheme://host:port/path`, no slash at the end.
    base: String,
    authority: Arc<str>,
    secure: bool,
}

/// Why a string is not an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// Not a URL.
    #[error("an endpoint is a URL such as https://storage.googleapis.com or http://127.0.0.1:9000")]
    Url,
    /// Another scheme than HTTP's.
    #[error("an endpoint begins with https:// or http://")]
    Scheme,
    /// A user name or password, which would end up in logs.
    #[error("an endpoint holds no user name or password")]
    UserInfo,
    /// A query, which no resource below could keep.
    #[error("an endpoint has no query")]
    Query,
}

impl Default for Endpoint {
    /// The public service.
    fn default() -> Self {
        Self {
            base: "https://storage.googleapis.com".to_owned(),
            authority: "storage.googleapis.com".into(),
            secure: true,
        }
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let uri = if text.contains("://") {
            text.parse::<Uri>()
        } else {
            format!("http://{text}").parse()
        };
        let uri = uri.map_err(|_| InvalidEndpoint::Url)?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(InvalidEndpoint::Scheme),
        };
        let authority = uri.authority().ok_or(InvalidEndpoint::Url)?.as_str();
        if authority.contains('@') {
            return Err(InvalidEndpoint::UserInfo);
        }
        if uri.query().is_some() {
            return Err(InvalidEndpoint::Query);
        }
        let path = uri.path().trim_end_matches('/');
        let path = path.strip_suffix("/storage/v1").unwrap_or(path);
        let scheme = if secure { "https" } else { "http" };
        Ok(Self {
            base: format!("{scheme}://{authority}{path}"),
            authority: authority.into(),
            secure,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

impl Endpoint {
    /// Host and port, for messages.
    pub(super) fn authority(&self) -> &Arc<str> {
        &self.authority
    }

    /// Whether `uri` is served here, so that it may see our token.
    pub(super) fn serves(&self, uri: &Uri) -> bool {
        self.same_scheme(uri)
            && uri
                .authority()
                .is_some_and(|a| a.as_str() == &*self.authority)
    }

    /// Whether `uri` is as protected on its way as this endpoint is.
    pub(super) fn same_scheme(&self, uri: &Uri) -> bool {
        uri.scheme_str() == Some(if self.secure { "https" } else { "http" })
    }
}

/// The URLs of one bucket.
#[derive(Debug)]
pub(super) struct Urls {
    bucket: String,
    upload: String,
    name: BucketName,
}

impl Urls {
    pub(super) fn new(endpoint: &Endpoint, bucket: &BucketName) -> Self {
        let base = &endpoint.base;
        Self {
            bucket: format!("{base}/storage/v1/b/{bucket}"),
            upload: format!("{base}/upload/storage/v1/b/{bucket}/o"),
            name: bucket.clone(),
        }
    }

    pub(super) fn bucket(&self) -> Url {
        Url::new(&self.bucket)
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
    fn endpoints_are_taken_in_every_usual_form() {
        for (text, base, authority) in [
            (
                "https://storage.googleapis.com",
                "https://storage.googleapis.com",
                "storage.googleapis.com",
            ),
            (
                "http://127.0.0.1:9000",
                "http://127.0.0.1:9000",
                "127.0.0.1:9000",
            ),
            (
                "http://127.0.0.1:9000/",
                "http://127.0.0.1:9000",
                "127.0.0.1:9000",
            ),
            ("127.0.0.1:9000", "http://127.0.0.1:9000", "127.0.0.1:9000"),
            (
                "http://[::1]:9000/storage/v1/",
                "http://[::1]:9000",
                "[::1]:9000",
            ),
            ("https://h/storage/v1", "https://h", "h"),
            ("https://h/gcs/storage/v1/", "https://h/gcs", "h"),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), base, "{text}");
            assert_eq!(&**endpoint.authority(), authority, "{text}");
        }
        assert_eq!(
            "https://storage.googleapis.com/".parse(),
            Ok(Endpoint::default())
        );
        for (text, why) in [
            ("", InvalidEndpoint::Url),
            ("http://", InvalidEndpoint::Url),
            ("ftp://h", InvalidEndpoint::Scheme),
            ("http://user:word@h", InvalidEndpoint::UserInfo),
            ("http://h?a=b", InvalidEndpoint::Query),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(why), "{text}");
        }
    }

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

    #[test]
    fn only_the_endpoint_sees_the_token() {
        let endpoint: Endpoint = "https://h:8443".parse().unwrap();
        for (url, serves, same) in [
            ("https://h:8443/upload", true, true),
            ("https://h/upload", false, true),
            ("http://h:8443/upload", false, false),
        ] {
            let uri = url.parse().unwrap();
            assert_eq!(endpoint.serves(&uri), serves, "{url}");
            assert_eq!(endpoint.same_scheme(&uri), same, "{url}");
        }
    }
}
