//! Where a credential file may have a subject token sent. A file from elsewhere that names a
//! server of its own would otherwise take the workload's identity along. Pure.

use http::Uri;

use crate::error::{Error, Kind};
use crate::transport::target;
use crate::universe::Universe;

/// The servers that may be sent a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hosts<'a> {
    pub(super) universe: &'a Universe,
    pub(super) allowed: &'a [String],
}

impl Hosts<'_> {
    /// The URL, if its server is one of Google's or was allowed. `field` is what named it.
    pub(super) fn check(&self, url: &str, field: &str) -> Result<Uri, Error> {
        let uri = target::parse(url, field, "https://sts.googleapis.com/v1/token", "/")?;
        let host = target::host(&uri);
        let allowed = self
            .allowed
            .iter()
            .any(|name| name.eq_ignore_ascii_case(host));
        if allowed || self.universe.owns(&uri) || Universe::default().owns(&uri) {
            return Ok(uri);
        }
        let flag = match field {
            "service_account_impersonation_url" => "--iam-endpoint",
            _ => "--sts-endpoint",
        };
        let shown = crate::secret::quotable(host, "");
        let message = format!(
            "the credential file would send a token to {shown} ({field}), which is neither a \
             server of {} over HTTPS nor an allowed host; if it is meant, name it with {flag}",
            self.universe
        );
        Err(Error::new(Kind::Config, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_google_and_allowed_hosts_are_sent_tokens() {
        let universe = Universe::parse("other.goog").unwrap();
        let allowed = ["127.0.0.1".to_owned(), "Private.Example".to_owned()];
        let hosts = Hosts {
            universe: &universe,
            allowed: &allowed,
        };
        for (url, fine) in [
            ("https://sts.googleapis.com/v1/token", true),
            ("https://sts.other.goog/v1/token", true),
            ("http://127.0.0.1:80/token", true),
            ("https://private.example/token", true),
            ("http://sts.googleapis.com/v1/token", false),
            ("https://sts.googleapis.com.evil.example/", false),
            ("https://evil.example/", false),
            ("https://sub.private.example/", false),
            ("https://sts.googleapis.com@evil.example/", false),
            ("nonsense", false),
        ] {
            let checked = hosts.check(url, "token_url");
            assert_eq!(checked.is_ok(), fine, "{url}");
            if let Err(error) = checked {
                assert_eq!(error.kind(), Kind::Config);
                assert!(error.message().contains("token_url"), "{error}");
            }
        }
        for (field, flag) in [
            ("token_url", "--sts-endpoint"),
            ("service_account_impersonation_url", "--iam-endpoint"),
        ] {
            let error = hosts.check("https://evil.example/", field).unwrap_err();
            assert!(error.message().ends_with(flag), "{error}");
        }
    }
}
