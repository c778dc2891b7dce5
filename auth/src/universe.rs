//! A universe: the domain below which Google Cloud's services live. `googleapis.com` is the public
//! one; sovereign clouds have their own.

use std::fmt;

use http::Uri;

use crate::error::{Error, Kind};
use crate::sts::Endpoint;
use crate::transport::target;

const PUBLIC: &str = "googleapis.com";

/// The domain of a universe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Universe(String);

impl Default for Universe {
    fn default() -> Self {
        Self(PUBLIC.to_owned())
    }
}

impl Universe {
    /// Reads a domain name such as `googleapis.com`. An empty one is the public universe.
    ///
    /// # Errors
    /// [`Kind::Config`] for what is no domain name.
    pub fn parse(domain: &str) -> Result<Self, Error> {
        if domain.is_empty() {
            return Ok(Self::default());
        }
        let is_label = |label: &str| {
            !label.is_empty()
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        let labels = domain.split('.').count();
        match labels >= 2 && domain.len() <= 253 && domain.split('.').all(is_label) {
            true => Ok(Self(domain.to_owned())),
            false => Err(Error::new(
                Kind::Config,
                "the universe domain is not a domain name; it takes one such as googleapis.com",
            )),
        }
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.0
    }

    /// The same for Google's client libraries: `None` for the public one.
    #[must_use]
    pub fn unusual(&self) -> Option<String> {
        (self.0 != PUBLIC).then(|| self.0.clone())
    }

    /// Its token service.
    #[must_use]
    pub fn sts(&self) -> Endpoint {
        // A checked domain makes a URL, so the default is only for the type.
        Endpoint::parse(&format!("https://sts.{}", self.0)).unwrap_or_default()
    }

    /// The base URL of its IAM Credentials API.
    #[must_use]
    pub fn iam_credentials(&self) -> String {
        format!("https://iamcredentials.{}", self.0)
    }

    /// Whether the server is one of this universe: HTTPS, and below its domain.
    pub(crate) fn owns(&self, uri: &Uri) -> bool {
        let host = target::host(uri).to_ascii_lowercase();
        uri.scheme_str() == Some("https")
            && host
                .strip_suffix(&self.0)
                .is_some_and(|name| name.ends_with('.'))
    }
}

impl fmt::Display for Universe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_universe_has_its_services_and_its_servers() {
        let public = Universe::default();
        assert_eq!(public.sts(), Endpoint::default());
        assert_eq!(public.unusual(), None);
        assert_eq!(Universe::parse("").unwrap(), public);
        let other = Universe::parse("apis-berlin-build0.goog").unwrap();
        assert_eq!(
            other.sts().to_string(),
            "https://sts.apis-berlin-build0.goog/v1/token"
        );
        assert_eq!(other.unusual().as_deref(), Some(other.domain()));
        assert_eq!(
            other.iam_credentials(),
            "https://iamcredentials.apis-berlin-build0.goog"
        );
    }

    #[test]
    fn only_servers_below_the_domain_are_its_own() {
        for (url, owned) in [
            ("https://sts.googleapis.com/v1/token", true),
            ("https://STS.GoogleAPIs.com/", true),
            ("https://us-east1-sts.googleapis.com:443/x", true),
            ("http://sts.googleapis.com/", false),
            ("https://googleapis.com/", false),
            ("https://evilgoogleapis.com/", false),
            ("https://sts.googleapis.com.evil.example/", false),
            ("https://evil.example/sts.googleapis.com", false),
        ] {
            let uri = url.parse().unwrap();
            assert_eq!(Universe::default().owns(&uri), owned, "{url}");
        }
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for domain in [
            "com",
            "a..b",
            ".a.b",
            "a.b/",
            "a b.c",
            "A.b",
            "https://a.b",
            "a.b:1",
        ] {
            assert_eq!(
                Universe::parse(domain).unwrap_err().kind(),
                Kind::Config,
                "{domain}"
            );
        }
    }
}
