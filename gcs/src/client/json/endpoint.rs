//! Where the store is.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::Uri;

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
    /// `scheme://host:port/path`, without a slash at the end.
    pub(super) fn base(&self) -> &str {
        &self.base
    }

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

#[cfg(test)]
mod tests {
    use super::*;

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
