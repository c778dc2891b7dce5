//! From an answer that is no grant to the one sentence that an operator needs: what was asked, what
//! was said, what the likely cause is. Pure.

use std::time::SystemTime;

use http::StatusCode;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use zeroize::Zeroizing;

use super::answer::{Code, Fault, fault, retry_after};
use crate::claims::Claims;
use crate::error::{Error, Kind, Refusal, SourceFault};
use crate::secret::quotable;
use crate::transport::Answer;

/// What was asked for, to be named in a sentence.
pub(crate) struct Asked<'a> {
    pub(crate) host: &'a str,
    pub(crate) audience: &'a str,
    pub(crate) source: &'a str,
    pub(crate) claims: &'a Claims,
    /// What was sent and must not come back in a sentence.
    pub(crate) secrets: &'a [&'a str],
    pub(crate) now: SystemTime,
}

const FLAGS: &str = "--identity-pool and --identity-provider";

impl Asked<'_> {
    /// The error that an unsuccessful answer means.
    pub(crate) fn explain(&self, answer: &Answer) -> Error {
        let (host, status) = (self.host, answer.status.as_u16());
        let fault = fault(&answer.body);
        let said = self.said(&fault);
        let error = match answer.status {
            StatusCode::TOO_MANY_REQUESTS => Error::new(
                Kind::Throttled,
                format!("the token service at {host} asks for fewer requests ({status}{said})"),
            ),
            StatusCode::REQUEST_TIMEOUT => self.unavailable(status, &said),
            code if code.is_server_error() => self.unavailable(status, &said),
            code if code.is_client_error() => self.refused(code, &fault, &said),
            _ => Error::new(
                Kind::BadAnswer,
                format!(
                    "the token service at {host} answers {status}, which is neither a token nor a \
                     refusal: is --sts-endpoint right?"
                ),
            ),
        };
        error.with_retry_after(retry_after(&answer.headers, self.now))
    }

    fn unavailable(&self, status: u16, said: &str) -> Error {
        let message = format!(
            "the token service at {} has trouble ({status}{said})",
            self.host
        );
        Error::new(Kind::Unavailable, message)
    }

    fn refused(&self, status: StatusCode, fault: &Fault, said: &str) -> Error {
        let Self {
            host,
            audience,
            source,
            ..
        } = self;
        let number = status.as_u16();
        let refusal = match fault.code {
            Code::InvalidTarget => Refusal::Audience,
            Code::InvalidGrant => Refusal::Grant,
            Code::AccessDenied | Code::UnauthorizedClient | Code::InvalidClient => Refusal::Denied,
            Code::InvalidRequest | Code::InvalidScope | Code::UnsupportedGrantType => {
                Refusal::Request
            }
            Code::Unknown if status == StatusCode::FORBIDDEN => Refusal::Denied,
            Code::Unknown => Refusal::Request,
        };
        // A token past its end is refused under more than one code; the pool's trouble is its own.
        if refusal != Refusal::Audience
            && let Some(at) = self.expired_at()
        {
            return Error::new(
                Kind::Source(SourceFault::Expired),
                format!(
                    "the projected token at {source} expired at {at}, and the token service at \
                     {host} refuses it ({number}{said}): kubelet replaces it well before that, so is \
                     the volume stale, or the clock of this machine wrong?"
                ),
            );
        }
        let made = self.made_for();
        let message = match refusal {
            Refusal::Audience => format!(
                "the token service at {host} does not know the audience {audience} ({number}{said}): \
                 its pool or provider does not exist, is disabled or was deleted; check {FLAGS}"
            ),
            Refusal::Grant => format!(
                "the token service at {host} does not accept the token at {source} for the audience \
                 {audience} ({number}{said}): {made}; if another pool or provider is meant, give {FLAGS}"
            ),
            Refusal::Denied => format!(
                "the token service at {host} denies a token for the audience {audience} \
                 ({number}{said}): {made}; check the conditions of the provider, or {FLAGS}"
            ),
            Refusal::Request => format!(
                "the token service at {host} refuses the exchange for the audience {audience} \
                 ({number}{said}); check {FLAGS} and --sts-endpoint"
            ),
        };
        Error::new(Kind::Refused(refusal), message)
    }

    /// The server's own words after a colon, if it had any.
    fn said(&self, fault: &Fault) -> String {
        // Secrets are looked for in the pieces between their dots.
        let secrets = Zeroizing::new(self.secrets.join("."));
        fault
            .description
            .as_deref()
            .map_or_else(String::new, |words| {
                format!(": {}", quotable(words, &secrets))
            })
    }

    fn expired_at(&self) -> Option<String> {
        let at = self.claims.expires_at.filter(|at| *at <= self.now)?;
        let at = OffsetDateTime::from(at);
        Some(at.format(&Rfc3339).unwrap_or_else(|_| at.to_string()))
    }

    fn made_for(&self) -> String {
        let or_nobody = |claim: Option<&str>| quotable(claim.unwrap_or("nobody"), "");
        let claims = self.claims;
        format!(
            "it was made for {} by {}",
            or_nobody(claims.audiences.first().map(String::as_str)),
            or_nobody(claims.issuer.as_deref())
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::header::RETRY_AFTER;
    use http::{HeaderMap, HeaderValue};

    use super::*;

    fn explain(status: u16, body: &str, expires_at: Option<SystemTime>) -> Error {
        let claims = Claims {
            audiences: vec!["p.svc.id.goog".to_owned()],
            issuer: Some("https://issuer".to_owned()),
            expires_at,
            ..Claims::default()
        };
        let asked = Asked {
            host: "sts.example",
            audience: "identitynamespace:the-audience",
            source: "/var/token",
            claims: &claims,
            secrets: &["key-in-a-query", "headerheader.payloadpayload.signature"],
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
        };
        asked.explain(&Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("3"))]),
            body: body.as_bytes().to_vec().into(),
        })
    }

    #[test]
    fn each_answer_has_its_kind() {
        let refused = |code: &str| format!(r#"{{"error":"{code}","error_description":"words"}}"#);
        for (status, body, kind) in [
            (
                400,
                refused("invalid_target"),
                Kind::Refused(Refusal::Audience),
            ),
            (400, refused("invalid_grant"), Kind::Refused(Refusal::Grant)),
            (
                400,
                refused("invalid_request"),
                Kind::Refused(Refusal::Request),
            ),
            (
                400,
                refused("invalid_scope"),
                Kind::Refused(Refusal::Request),
            ),
            (
                400,
                refused("unsupported_grant_type"),
                Kind::Refused(Refusal::Request),
            ),
            (
                401,
                refused("invalid_client"),
                Kind::Refused(Refusal::Denied),
            ),
            (
                403,
                refused("access_denied"),
                Kind::Refused(Refusal::Denied),
            ),
            (403, "<html>".to_owned(), Kind::Refused(Refusal::Denied)),
            (404, "<html>".to_owned(), Kind::Refused(Refusal::Request)),
            (408, String::new(), Kind::Unavailable),
            (429, refused("quota_exceeded"), Kind::Throttled),
            (500, String::new(), Kind::Unavailable),
            (503, refused("temporarily_unavailable"), Kind::Unavailable),
            (302, String::new(), Kind::BadAnswer),
        ] {
            let error = explain(status, &body, None);
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
            assert!(error.to_string().contains("sts.example"), "{error}");
            if let Kind::Refused(_) = kind {
                for named in [
                    "identitynamespace:the-audience",
                    "--identity-pool",
                    "--identity-provider",
                ] {
                    assert!(error.to_string().contains(named), "{error}");
                }
                assert!(error.is_permanent_for_mount());
            }
        }
    }

    #[test]
    fn an_expired_token_is_the_sources_fault_and_the_sentence_says_when_it_expired() {
        let past = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(999));
        let error = explain(400, r#"{"error":"invalid_grant"}"#, past);
        assert_eq!(error.kind(), Kind::Source(SourceFault::Expired));
        let sentence = error.to_string();
        assert!(
            sentence.contains("/var/token expired at 1970-01-01T00:16:39Z"),
            "{sentence}"
        );
    }

    #[test]
    fn an_unknown_pool_is_the_fault_also_of_an_expired_token() {
        let error = explain(
            400,
            r#"{"error":"invalid_target"}"#,
            Some(SystemTime::UNIX_EPOCH),
        );
        assert_eq!(error.kind(), Kind::Refused(Refusal::Audience));
    }

    #[test]
    fn an_echo_of_the_subject_token_is_not_repeated() {
        let body = r#"{"error":"invalid_grant","error_description":"bad key-in-a-query headerheader.payloadpayload.signature"}"#;
        let error = explain(400, body, None);
        for piece in [
            "key-in-a-query",
            "headerheader",
            "payloadpayload",
            "signature",
        ] {
            assert!(!format!("{error} {error:?}").contains(piece), "{error}");
        }
    }
}
