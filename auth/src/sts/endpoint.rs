//! The address of a token service.

use std::fmt;
use std::net::IpAddr;

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

use crate::error::{Error, Kind};

/// The URL to which exchanges are posted: Google's own, that of another universe, a private
/// endpoint or an emulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(Uri);

const GOOGLE: &str = "https://sts.googleapis.com/v1/token";
const PATH: &str = "/v1/token";

impl Endpoint {
    /// Reads an absolute `https` or `http` URL. Without a path it gets `/v1/token`.
    ///
    /// # Errors
    /// [`Kind::Config`] with the accepted form.
    pub fn parse(url: &str) -> Result<Self, Error> {
        // Only the reason is told: a URL with a password in it is one of the things refused.
        let refuse = |reason: &str| {
            let message = format!(
                "--sts-endpoint {reason}; it takes a URL such as {GOOGLE} or http://127.0.0.1:8080"
            );
            Error::new(Kind::Config, message)
        };
        let mut parts = url
            .parse::<Uri>()
            .map_err(|_| refuse("is not a URL"))?
            .into_parts();
        match parts.scheme.as_ref().map(Scheme::as_str) {
            Some("https" | "http") => {}
            _ => return Err(refuse("does not begin with https:// or http://")),
        }
        match &parts.authority {
            Some(authority) if authority.as_str().contains('@') => {
                return Err(refuse("has a user name in it"));
            }
            Some(authority) if !authority.host().is_empty() => {}
            _ => return Err(refuse("names no host")),
        }
        if parts
            .path_and_query
            .as_ref()
            .is_none_or(|path| path.as_str() == "/")
        {
            parts.path_and_query = Some(PathAndQuery::from_static(PATH));
        }
        Uri::from_parts(parts)
            .map(Self)
            .map_err(|_| refuse("is not a URL"))
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.0
    }

    pub(crate) fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }

    /// Whether a subject token sent here crosses a network that others may read.
    pub(crate) fn is_cleartext(&self) -> bool {
        let host = self.host().trim_start_matches('[').trim_end_matches(']');
        let loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        self.0.scheme() == Some(&Scheme::HTTP) && !loopback
    }
}

impl Default for Endpoint {
    fn default() -> Self {
        Self(Uri::from_static(GOOGLE))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (url, meant) in [
            (GOOGLE, GOOGLE),
            ("http://127.0.0.1:80", "http://127.0.0.1:80/v1/token"),
            ("http://127.0.0.1:80/", "http://127.0.0.1:80/v1/token"),
            ("https://sts.example/x?y=1", "https://sts.example/x?y=1"),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().to_string(), meant);
        }
        assert_eq!(Endpoint::default(), Endpoint::parse(GOOGLE).unwrap());
    }

    #[test]
    fn what_is_no_url_is_refused_without_being_repeated() {
        for url in [
            "",
            "/v1/token",
            "sts.googleapis.com",
            "ftp://h/x",
            "https://",
            "https://u:pw@h/x",
            "http://a b",
        ] {
            let error = Endpoint::parse(url).unwrap_err();
            assert_eq!(error.kind(), Kind::Config, "{url}");
            assert!(!error.to_string().contains("pw"), "{error}");
        }
    }

    #[test]
    fn only_plain_http_to_elsewhere_is_cleartext() {
        for (url, cleartext) in [
            (GOOGLE, false),
            ("http://localhost:1", false),
            ("http://127.0.0.9:1", false),
            ("http://[::1]:1", false),
            ("http://10.0.0.1:1", true),
            ("http://sts.example", true),
        ] {
            assert_eq!(
                Endpoint::parse(url).unwrap().is_cleartext(),
                cleartext,
                "{url}"
            );
        }
    }
}
