//! The address of a token service.

use std::fmt;

use http::Uri;
use http::uri::Authority;

use crate::error::Error;
use crate::transport::target;

/// The URL to which exchanges are posted: Google's own, that of another universe, a private
/// endpoint or an emulator.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint(Uri);

const GOOGLE: &str = "https://sts.googleapis.com/v1/token";
const PATH: &str = "/v1/token";

impl Endpoint {
    /// Reads an absolute `https` or `http` URL. Without a path it gets `/v1/token`.
    ///
    /// # Errors
    /// [`Kind::Config`](crate::error::Kind::Config) with the accepted form.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let example = format!("{GOOGLE} or http://127.0.0.1:8080");
        target::parse(url, "--sts-endpoint", &example, PATH).map(Self)
    }

    pub(crate) fn uri(&self) -> &Uri {
        &self.0
    }

    /// What may be a key in it.
    pub(crate) fn secrets(&self) -> Vec<&str> {
        target::secrets(self.0.query())
    }

    /// Host and port, as they were given.
    pub(crate) fn authority(&self) -> &str {
        self.0.authority().map_or("", Authority::as_str)
    }

    /// Whether a subject token sent here crosses a network that others may read.
    pub(crate) fn is_cleartext(&self) -> bool {
        target::is_cleartext(&self.0)
    }
}

impl Default for Endpoint {
    fn default() -> Self {
        Self(Uri::from_static(GOOGLE))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

impl fmt::Display for Endpoint {
    /// Without the query, which may hold a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&target::shown(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn urls_are_read() {
        for (url, meant) in [
            (GOOGLE, GOOGLE),
            ("http://127.0.0.1:80", "http://127.0.0.1:80/v1/token"),
            ("http://127.0.0.1:80/", "http://127.0.0.1:80/v1/token"),
            ("https://sts.example/x?y=1", "https://sts.example/x?y=1"),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().uri().to_string(), meant);
        }
        assert_eq!(Endpoint::default(), Endpoint::parse(GOOGLE).unwrap());
    }

    #[test]
    fn a_query_is_asked_and_not_shown() {
        let endpoint = Endpoint::parse("https://sts.example/x?key=hidden").unwrap();
        assert_eq!(endpoint.to_string(), "https://sts.example/x");
        assert_eq!(format!("{endpoint:?}"), "Endpoint(https://sts.example/x)");
        assert_eq!(endpoint.secrets(), ["hidden"]);
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
