//! What an answer that is no success means, of a service about which there is no more to tell than
//! who it is and where to look. Pure. The token service itself has its own, closer reading.

use std::time::SystemTime;

use http::StatusCode;
use zeroize::Zeroizing;

use crate::error::{Error, Kind, Refusal};
use crate::secret::quotable;
use crate::sts::answer::{Code, fault, retry_after};
use crate::transport::{Answer, Peer};

/// Where an operator is sent when the service says no.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advice<'a> {
    /// To a refusal for want of a right, such as 403.
    pub(crate) denied: &'a str,
    /// To any other refusal.
    pub(crate) refused: &'a str,
}

/// The error that `answer` means. The `secrets` that were sent are taken out of what it says.
pub(crate) fn explain(
    answer: &Answer,
    peer: Peer<'_>,
    advice: Advice<'_>,
    secrets: &[&str],
) -> Error {
    let status = answer.status;
    let fault = fault(&answer.body);
    // Secrets are looked for in the pieces between their dots.
    let secrets = Zeroizing::new(secrets.join("."));
    let said = fault
        .description
        .as_deref()
        .map_or_else(String::new, |words| {
            format!(": {}", quotable(words, &secrets))
        });
    let (name, number) = (peer.name, status.as_u16());
    let refusal = match fault.code {
        Code::InvalidTarget => Refusal::Audience,
        Code::InvalidGrant => Refusal::Grant,
        Code::AccessDenied | Code::UnauthorizedClient | Code::InvalidClient => Refusal::Denied,
        Code::InvalidRequest | Code::InvalidScope | Code::UnsupportedGrantType => Refusal::Request,
        Code::Unknown => match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Refusal::Denied,
            _ => Refusal::Request,
        },
    };
    let (kind, message) = match status {
        StatusCode::TOO_MANY_REQUESTS => (
            Kind::Throttled,
            format!("{name} asks for fewer requests ({number}{said})"),
        ),
        StatusCode::REQUEST_TIMEOUT => (
            Kind::Unavailable,
            format!("{name} has trouble ({number}{said})"),
        ),
        status if status.is_server_error() => (
            Kind::Unavailable,
            format!("{name} has trouble ({number}{said})"),
        ),
        status if status.is_client_error() => {
            let advice = match refusal {
                Refusal::Denied => advice.denied,
                Refusal::Audience | Refusal::Grant | Refusal::Request => advice.refused,
            };
            let message = format!("{name} refuses a token ({number}{said}): {advice}");
            (Kind::Refused(refusal), message)
        }
        _ => (
            Kind::BadAnswer,
            format!(
                "{name} answers {number}, which is neither a token nor a refusal: is {} right?",
                peer.setting
            ),
        ),
    };
    Error::new(kind, message).with_retry_after(retry_after(&answer.headers, SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;

    #[test]
    fn each_answer_has_its_kind_and_its_advice() {
        for (status, body, kind, part) in [
            (429, "", Kind::Throttled, "fewer"),
            (408, "", Kind::Unavailable, "trouble (408)"),
            (
                503,
                r#"{"error":"x","error_description":"down"}"#,
                Kind::Unavailable,
                "503: down",
            ),
            (401, "", Kind::Refused(Refusal::Denied), "look at rights"),
            (
                403,
                r#"{"error":{"message":"no"}}"#,
                Kind::Refused(Refusal::Denied),
                "look at rights",
            ),
            (
                400,
                r#"{"error":"invalid_grant","error_description":"bad hidden-secret"}"#,
                Kind::Refused(Refusal::Grant),
                "bad [secret]): look at request",
            ),
            (
                400,
                r#"{"error":"invalid_target"}"#,
                Kind::Refused(Refusal::Audience),
                "request",
            ),
            (
                400,
                r#"{"error":"invalid_client"}"#,
                Kind::Refused(Refusal::Denied),
                "rights",
            ),
            (
                400,
                r#"{"error":"invalid_scope"}"#,
                Kind::Refused(Refusal::Request),
                "request",
            ),
            (
                404,
                "<html>",
                Kind::Refused(Refusal::Request),
                "look at request",
            ),
            (302, "", Kind::BadAnswer, "is --setting right?"),
        ] {
            let answer = Answer {
                status: StatusCode::from_u16(status).unwrap(),
                headers: HeaderMap::new(),
                body: body.as_bytes().to_vec().into(),
            };
            let peer = Peer {
                name: "the service at s",
                setting: "--setting",
            };
            let advice = Advice {
                denied: "look at rights",
                refused: "look at request",
            };
            let error = explain(&answer, peer, advice, &["other-one", "hidden-secret"]);
            assert_eq!(error.kind(), kind, "{status} {body}");
            let sentence = error.to_string();
            assert!(
                sentence.starts_with("the service at s ") && sentence.contains(part),
                "{sentence}"
            );
        }
    }
}
