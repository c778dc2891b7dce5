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
    /// Google's common form, where the older one is left out.
    #[serde(default)]
    details: Vec<Detail>,
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
    pub(super) request_id: Option<String>,
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
                error
                    .errors
                    .into_iter()
                    .chain(error.details)
                    .find_map(|detail| detail.reason),
                error.message,
            ),
            None if is(headers, "application/xml") => xml(body),
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
        if let Some(advice) = advice(status, reason.as_deref(), conditional) {
            message.push_str(advice);
        }
        Self {
            kind,
            reason,
            message,
            retry_after: retry_after(headers),
            request_id: request_id(headers),
        }
    }
}

/// What the store's own words do not say.
fn advice(status: StatusCode, reason: Option<&str>, conditional: bool) -> Option<&'static str> {
    match (status.as_u16(), reason) {
        (412, _) if !conditional => Some(
            " (no precondition was sent: a federated identity needs a bucket with uniform bucket-level access)",
        ),
        (400, Some("userProjectMissing" | "UserProjectMissing")) => {
            Some(" (the bucket's requesters pay: name a billing project)")
        }
        (407, _) => Some(" (the HTTP proxy wants a user name and a password in its URL)"),
        _ => None,
    }
}

/// Google's id of the request: what its support can look up. Anything but a plain word is no id.
fn request_id(headers: &HeaderMap) -> Option<String> {
    const LONGEST: usize = 256;
    let id = headers
        .get("x-guploader-uploadid")
        .or_else(|| headers.get("x-request-id"))?
        .to_str()
        .ok()?;
    let plain = |c: char| c.is_ascii_graphic();
    (!id.is_empty() && id.len() <= LONGEST && id.chars().all(plain)).then(|| id.to_owned())
}

fn is(headers: &HeaderMap, kind: &str) -> bool {
    headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value.as_bytes().starts_with(kind.as_bytes()))
}

/// Code and message of an error of the XML API, as front ends answer in its place. Nothing more of XML is understood.
fn xml(body: &[u8]) -> (Option<String>, String) {
    let text = String::from_utf8_lossy(body);
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (inner, _) = rest.split_once(&format!("</{name}>"))?;
        Some(inner.to_owned())
    };
    (element("Code"), element("Message").unwrap_or_default())
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
    fn reasons_come_in_three_forms() {
        let details = r#"{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED","details":[{"@type":"t"},{"reason":"RATE_LIMIT_EXCEEDED"}]}}"#;
        let detailed = refusal(403, details, false);
        assert_eq!(detailed.reason.as_deref(), Some("RATE_LIMIT_EXCEEDED"));
        assert_eq!(detailed.kind, Kind::Throttled);

        let mut headers = HeaderMap::new();
        let kind = "application/xml; charset=UTF-8".parse().unwrap();
        headers.insert(header::CONTENT_TYPE, kind);
        let body = b"<?xml version='1.0'?><Error><Code>PreconditionFailed</Code><Message>At least\none.</Message></Error>";
        let parse = |body, conditional| {
            Refusal::parse(StatusCode::PRECONDITION_FAILED, &headers, body, conditional)
        };
        let unmet = parse(body, true);
        assert_eq!(unmet.reason.as_deref(), Some("PreconditionFailed"));
        assert_eq!(
            (unmet.kind, &*unmet.message),
            (Kind::Precondition, "At least one.")
        );
        let bare = parse(b"<html>", true);
        assert_eq!((bare.reason, &*bare.message), (None, "Precondition Failed"));
    }

    #[test]
    fn what_the_store_leaves_out_is_added() {
        let body = r#"{"error":{"message":"No user project.","errors":[{"reason":"userProjectMissing"}]}}"#;
        let refused = refusal(400, body, true);
        assert_eq!(refused.kind, Kind::Denied);
        assert_eq!(
            refused.message,
            "No user project. (the bucket's requesters pay: name a billing project)"
        );
        assert!(refusal(407, "", false).message.contains("proxy"));
    }

    #[test]
    fn a_request_id_is_a_plain_word() {
        let longest = "x".repeat(256);
        let too_long = "x".repeat(257);
        for (name, value, expected) in [
            ("x-guploader-uploadid", "AB-c_1", Some("AB-c_1")),
            ("x-request-id", "7", Some("7")),
            ("x-guploader-uploadid", &*longest, Some(&*longest)),
            ("x-guploader-uploadid", &*too_long, None),
            ("x-guploader-uploadid", "a b", None),
            ("x-guploader-uploadid", "", None),
            ("x-other", "7", None),
        ] {
            let name = header::HeaderName::from_static(name);
            let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
            assert_eq!(request_id(&headers).as_deref(), expected, "{value}");
        }
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
