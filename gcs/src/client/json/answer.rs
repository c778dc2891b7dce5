//! Errors as the store words them.
//!
//! Source of the form: <https://cloud.google.com/storage/docs/json_api/v1/status-codes>.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use crate::Kind;

/// Longest message that is passed on, in characters.
const MESSAGE: usize = 300;

#[derive(Deserialize)]
struct Envelope {
    error: Body,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    message: String,
    #[serde(default)]
    errors: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    reason: Option<String>,
}

/// What an answer that is not a success says.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: Kind,
    pub(super) reason: Option<String>,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
}

impl Refusal {
    /// Reads the answer to a request that carried a precondition, or did not.
    pub(super) fn parse(
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        conditional: bool,
    ) -> Self {
        let parsed = serde_json::from_slice::<Envelope>(body).ok();
        let (reason, message) = match parsed {
            Some(Envelope { error }) => (
                error.errors.into_iter().find_map(|detail| detail.reason),
                error.message,
            ),
            None => (None, plain(headers, body)),
        };
        let kind = Kind::of(status.as_u16(), reason.as_deref(), conditional);
        let mut message = one_line(&message);
        if message.is_empty() {
            status
                .canonical_reason()
                .unwrap_or("an unknown status")
                .clone_into(&mut message);
        }
        if status == StatusCode::PRECONDITION_FAILED && !conditional {
            message.push_str(
                " (no precondition was sent: a federated identity needs a bucket with uniform bucket-level access)",
            );
        }
        Self {
            kind,
            reason,
            message,
            retry_after: retry_after(headers),
        }
    }
}

/// A body that is not JSON is shown where it is meant for people: media requests answer in plain text, and a page of
/// some proxy says less than its status.
fn plain(headers: &HeaderMap, body: &[u8]) -> String {
    let is_text = headers
        .get(header::CONTENT_TYPE)
        .is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if is_text {
        String::from_utf8_lossy(&body[..body.len().min(4 * MESSAGE)]).into_owned()
    } else {
        String::new()
    }
}

fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if let Some((end, _)) = line.char_indices().nth(MESSAGE) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The form in seconds; dates, which Google does not send, count as none.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, body: &str, conditional: bool) -> Refusal {
        let status = StatusCode::from_u16(status).unwrap();
        Refusal::parse(status, &HeaderMap::new(), body.as_bytes(), conditional)
    }

    #[test]
    fn json_says_reason_and_message() {
        let body = r#"{"error":{"code":403,"message":"You may\n not.","errors":[{"domain":"x","reason":"forbidden"}]}}"#;
        let refusal = refusal(403, body, false);
        assert_eq!(refusal.kind, Kind::Denied);
        assert_eq!(refusal.reason.as_deref(), Some("forbidden"));
        assert_eq!(refusal.message, "You may not.");
    }

    #[test]
    fn other_bodies_are_text_or_nothing() {
        assert_eq!(
            refusal(404, "No such object: b/o", false).message,
            "No such object: b/o"
        );
        assert_eq!(refusal(503, "", false).message, "Service Unavailable");
        assert_eq!(refusal(304, "", true).kind, Kind::Precondition);
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, "text/html".parse().unwrap());
        let page = Refusal::parse(StatusCode::BAD_GATEWAY, &headers, b"<html>", false);
        assert_eq!(page.message, "Bad Gateway");
    }

    #[test]
    fn messages_end() {
        let refusal = refusal(400, &"é".repeat(5000), false);
        assert_eq!(refusal.message.chars().count(), MESSAGE + 1);
    }

    #[test]
    fn a_412_without_precondition_is_explained() {
        let body = r#"{"error":{"message":"Request violates constraint.","errors":[{"reason":"conditionNotMet"}]}}"#;
        let refused = refusal(412, body, false);
        assert_eq!(refused.kind, Kind::Denied);
        assert!(refused.message.contains("uniform bucket-level access"));
        let unmet = refusal(412, body, true);
        assert_eq!(unmet.kind, Kind::Precondition);
        assert_eq!(unmet.message, "Request violates constraint.");
    }

    #[test]
    fn retry_after_counts_seconds() {
        for (value, expected) in [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, value.parse().unwrap())]);
            assert_eq!(
                retry_after(&headers),
                expected.map(Duration::from_secs),
                "{value}"
            );
        }
    }
}
