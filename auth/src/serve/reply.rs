//! What the socket answers. Pure. A token is told in the form of an OAuth client library
//! (`access_token`, `token_type`, `expiry`), with the `expires_in` of RFC 6749 section 5.1 beside
//! it; a failure as in its section 5.2, with a status that says who is at fault.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::{Error, Kind, Refusal, SourceFault};
use crate::schedule::LONGEST_RETRY_AFTER;
use crate::secret::zeroed_on_drop;

pub(super) type Reply = Response<Full<Bytes>>;

/// The parts of a token that is told.
pub(super) struct Told<'a> {
    pub(super) token: &'a str,
    /// How long it still lives.
    pub(super) left: Duration,
    pub(super) now: SystemTime,
}

#[derive(Serialize)]
struct Success<'a> {
    access_token: &'a str,
    token_type: &'static str,
    expiry: &'a str,
    expires_in: u64,
}

#[derive(Serialize)]
struct Failure<'a> {
    error: &'static str,
    error_description: &'a str,
}

impl Told<'_> {
    /// The reply with a token.
    pub(super) fn reply(&self) -> Reply {
        // No sooner than it ends, a client would use it; a second early costs nothing.
        let expires_in = self.left.as_secs();
        // From the exact life, so that each telling of a token has the same.
        let ends = OffsetDateTime::from(self.now + self.left).truncate_to_second();
        let expiry = ends.format(&Rfc3339).unwrap_or_else(|_| ends.to_string());
        let success = Success {
            access_token: self.token,
            token_type: "Bearer",
            expiry: &expiry,
            expires_in,
        };
        // Room for every character escaped: a buffer that grows leaves copies of the token behind.
        let mut body = Vec::with_capacity(2 * self.token.len() + 256);
        let written = serde_json::to_writer(&mut body, &success);
        debug_assert!(written.is_ok(), "text and numbers go into memory");
        reply(StatusCode::OK, zeroed_on_drop(body))
    }
}

/// The reply to a request that gets no token because of `error`. Where the service behind asked to be
/// left alone, the client is told when the broker asks again, which is in `next`: to come earlier is
/// of no use, and what the service said was said a while ago, perhaps by mistake.
pub(super) fn failure(error: &Error, next: Option<Duration>) -> Reply {
    let kind = error.kind();
    let mut reply = refusal(status(kind), kind.code(), error.message());
    if let Some(asked) = error.retry_after() {
        retry_in(&mut reply, next.unwrap_or(asked.min(LONGEST_RETRY_AFTER)));
    }
    reply
}

/// The reply to one who would have to wait for a token among too many of the same identity.
pub(super) fn crowded(waiters: usize) -> Reply {
    let what = format!(
        "{waiters} requests wait for a token of this identity already, and others of this socket \
         need their places; ask again"
    );
    let mut reply = refusal(
        StatusCode::SERVICE_UNAVAILABLE,
        Kind::Unavailable.code(),
        &what,
    );
    retry_in(&mut reply, Duration::from_secs(1));
    reply
}

fn retry_in(reply: &mut Reply, after: Duration) {
    // Rounded up: who comes a fraction of a second early has come in vain.
    let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
    reply
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
}

/// The most paths that are named to who asks for another one.
const NAMED: usize = 8;

/// The reply to a path that has no identity, with the first of the `paths` that have one. Whoever may
/// ask may have the tokens of all of them, so there is nothing to hide.
pub(super) fn no_such_path<'a>(paths: impl ExactSizeIterator<Item = &'a str>) -> Reply {
    let more = match paths.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named: Vec<_> = paths.take(NAMED).map(bounded).collect();
    let has = match &*named {
        [] => "none at any".to_owned(),
        named => format!("one at {}{more}", named.join(", ")),
    };
    let what = format!("this token socket has no identity at this path; it has {has}");
    refusal(StatusCode::NOT_FOUND, "not_found", &what)
}

fn bounded(path: &str) -> String {
    const LONGEST: usize = 80;
    match path.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    }
}

/// The reply to a method that asks for no token.
pub(super) fn no_such_method() -> Reply {
    let what = "ask for a token with GET or POST";
    let mut reply = refusal(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", what);
    reply
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static("GET, POST"));
    reply
}

/// The reply to a peer who may not ask.
pub(super) fn not_allowed(uid: Option<u32>) -> Reply {
    let what = format!(
        "{} is not among those who may ask this token socket",
        who(uid)
    );
    refusal(StatusCode::FORBIDDEN, "access_denied", &what)
}

/// Makes it the last on its connection.
pub(super) fn close(reply: &mut Reply) {
    reply
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
}

/// A peer in words.
pub(super) fn who(uid: Option<u32>) -> String {
    uid.map_or_else(
        || "a peer without a uid".to_owned(),
        |uid| format!("uid {uid}"),
    )
}

/// Who is at fault: 4xx is for what the identity may not, 500 for a setting or a file of this
/// machine, 502 to 504 for the services behind. What passes by itself is in the range that clients
/// retry (429, 5xx).
fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Source(SourceFault::Empty) | Kind::Unavailable | Kind::Stopped => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Kind::Source(
            SourceFault::Missing
            | SourceFault::Unreadable
            | SourceFault::Malformed
            | SourceFault::TooLarge
            | SourceFault::Expired,
        )
        | Kind::Config
        | Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::Refused(Refusal::Denied) => StatusCode::FORBIDDEN,
        Kind::Refused(Refusal::Audience | Refusal::Grant | Refusal::Request) => {
            StatusCode::BAD_REQUEST
        }
        Kind::Throttled => StatusCode::TOO_MANY_REQUESTS,
        Kind::Unreachable(_) | Kind::BadAnswer => StatusCode::BAD_GATEWAY,
        Kind::Timeout => StatusCode::GATEWAY_TIMEOUT,
    }
}

fn refusal(status: StatusCode, error: &'static str, error_description: &str) -> Reply {
    let failure = Failure {
        error,
        error_description,
    };
    let body = serde_json::to_vec(&failure).unwrap_or_default();
    reply(status, body.into())
}

fn reply(status: StatusCode, body: Bytes) -> Reply {
    let mut reply = Response::new(Full::new(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use super::*;
    use crate::error::Reach;

    async fn body(reply: Reply) -> Value {
        let bytes = reply.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn a_token_is_told_with_the_life_that_is_left() {
        let told = Told {
            token: r#"ya29."\"#,
            left: Duration::from_millis(61_900),
            now: SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5),
        };
        let reply = told.reply();
        assert_eq!(reply.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(
            body(reply).await,
            json!({
                "access_token": r#"ya29."\"#,
                "token_type": "Bearer",
                "expiry": "2001-09-09T01:47:41Z",
                "expires_in": 61,
            })
        );
    }

    #[tokio::test]
    async fn a_path_without_an_identity_is_told_a_few_that_have_one() {
        let long = format!("/{}", "ü".repeat(200));
        let many: Vec<_> = (0..9).map(|number| format!("/{number}")).collect();
        for (paths, told) in [
            (&[][..], "it has none at any".to_owned()),
            (
                &["/a".to_owned(), "/b".to_owned()],
                "it has one at /a, /b".to_owned(),
            ),
            (&many[..8], "/6, /7".to_owned()),
            (&many, "/6, /7 and 1 more".to_owned()),
            (&[long], format!("/{}…", "ü".repeat(79))),
        ] {
            let reply = no_such_path(paths.iter().map(String::as_str));
            assert_eq!(reply.status(), StatusCode::NOT_FOUND);
            let body = body(reply).await;
            let said = body["error_description"].as_str().unwrap();
            assert!(said.ends_with(&told), "{said}");
        }
    }

    #[tokio::test]
    async fn a_token_is_told_with_the_same_end_at_any_moment() {
        let ends = SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_000_500);
        for left in [900, 1_499, 1_500, 1_501, 60_700] {
            let left = Duration::from_millis(left);
            let told = Told {
                token: "t",
                left,
                now: ends - left,
            };
            let body = body(told.reply()).await;
            assert_eq!(body["expiry"], "1970-01-12T13:46:40Z", "{left:?}");
        }
    }

    #[test]
    fn the_delay_that_is_told_is_the_brokers_own() {
        let seconds = Duration::from_secs;
        for (asked, next, told) in [
            (None, Some(seconds(7)), None),
            (Some(seconds(99_999)), Some(seconds(80)), Some("80")),
            (Some(seconds(99_999)), None, Some("120")),
            (Some(seconds(u64::MAX)), None, Some("120")),
            (Some(seconds(3)), None, Some("3")),
            (
                Some(seconds(3)),
                Some(Duration::from_millis(1001)),
                Some("2"),
            ),
            (Some(seconds(3)), Some(Duration::ZERO), Some("1")),
        ] {
            let error = Error::new(Kind::Throttled, "why").with_retry_after(asked);
            let reply = failure(&error, next);
            let header = reply.headers().get(RETRY_AFTER);
            assert_eq!(
                header.map(|value| value.to_str().unwrap()),
                told,
                "{asked:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_failure_says_who_is_at_fault() {
        for (kind, status, code) in [
            (
                Kind::Source(SourceFault::Missing),
                500,
                "subject_token_missing",
            ),
            (
                Kind::Source(SourceFault::Unreadable),
                500,
                "subject_token_unreadable",
            ),
            (Kind::Source(SourceFault::Empty), 503, "subject_token_empty"),
            (
                Kind::Source(SourceFault::Malformed),
                500,
                "subject_token_malformed",
            ),
            (
                Kind::Source(SourceFault::TooLarge),
                500,
                "subject_token_too_large",
            ),
            (
                Kind::Source(SourceFault::Expired),
                500,
                "subject_token_expired",
            ),
            (Kind::Refused(Refusal::Audience), 400, "invalid_target"),
            (Kind::Refused(Refusal::Grant), 400, "invalid_grant"),
            (Kind::Refused(Refusal::Request), 400, "invalid_request"),
            (Kind::Refused(Refusal::Denied), 403, "access_denied"),
            (Kind::Throttled, 429, "quota_exceeded"),
            (
                Kind::Unreachable(Reach::Network),
                502,
                "service_unreachable",
            ),
            (Kind::BadAnswer, 502, "bad_answer"),
            (Kind::Unavailable, 503, "temporarily_unavailable"),
            (Kind::Timeout, 504, "timeout"),
            (Kind::Stopped, 503, "stopped"),
            (Kind::Config, 500, "misconfigured"),
            (Kind::Internal, 500, "server_error"),
        ] {
            let error = Error::new(kind, "why").with_retry_after(Some(Duration::from_secs(7)));
            let reply = failure(&error, Some(Duration::from_secs(7)));
            assert_eq!(reply.status().as_u16(), status, "{kind:?}");
            assert_eq!(reply.headers()[RETRY_AFTER], "7");
            let told = json!({"error": code, "error_description": "why"});
            assert_eq!(body(reply).await, told);
            // What passes by itself is retried by clients that go by the status.
            let retried = status == 429 || status >= 500;
            assert!(retried || !error.is_transient(), "{kind:?}");
        }
    }
}
