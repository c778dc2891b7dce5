//! Reading what a token service answered: a grant, or the parts of a refusal. Pure, and careful
//! that no message repeats a part of the body, since the body may be a token.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::{Rfc2822, Rfc3339};

use crate::exchange::Grant;
use crate::secret::AccessSecret;
use crate::transport::Answer;

/// Why a successful answer is of no use, to follow "the token service ".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Useless(pub(crate) &'static str);

const DEAD: Useless = Useless("gives a token that has no life left");

/// What the lifetime is taken to be when the answer has none, which RFC 8693 allows. Short, since
/// asking too often costs little and a token that is taken for alive costs a failed request.
const ASSUMED_LIFETIME: Duration = Duration::from_secs(300);

/// No token lives longer (the organisation policy of IAM allows twelve hours); what is above is a
/// mistake and would put off the next exchange for as long.
const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// STS documents tokens of up to 12 KB; a longer one than this is sent with each request in vain.
const LONGEST_TOKEN: usize = 64 << 10;

#[derive(Deserialize)]
struct Success<'a> {
    #[serde(borrow)]
    access_token: Cow<'a, str>,
    token_type: Option<Cow<'a, str>>,
    expires_in: Option<Seconds>,
    expiry: Option<Cow<'a, str>>,
}

/// A number of seconds, which some servers send as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(f64),
    Text(String),
}

impl Seconds {
    fn duration(&self) -> Option<Duration> {
        let seconds = match self {
            Self::Number(seconds) => *seconds,
            Self::Text(text) => text.parse().ok()?,
        };
        // Truncated: a fraction of a second less is on the safe side.
        (seconds >= 1.0)
            .then(|| Duration::from_secs_f64(seconds.min(LONGEST_LIFETIME.as_secs_f64()).trunc()))
    }
}

/// Reads the body of a successful answer.
pub(crate) fn grant(body: &[u8]) -> Result<Grant, Useless> {
    grant_or(body, ASSUMED_LIFETIME)
}

/// The same, with the lifetime of a token whose answer has none.
pub(crate) fn grant_or(body: &[u8], assumed: Duration) -> Result<Grant, Useless> {
    let success = success(body)?;
    Ok(Grant {
        lifetime: success.lifetime()?.unwrap_or(assumed),
        token: AccessSecret::new(success.access_token.into_owned()),
    })
}

/// Reads a successful answer of a server that hands on tokens: it may tell the moment at which the
/// token ends (`expiry`, RFC 3339) beside or instead of the life that is left. The shorter of the
/// two counts, since a server that repeats what it was told once overstates the latter.
pub(crate) fn told(answer: &Answer, now: SystemTime) -> Result<Grant, Useless> {
    let success = success(&answer.body)?;
    let expiry = success.expiry.as_deref().and_then(instant);
    let until_expiry = expiry
        .map(|expiry| lasting(until(expiry, &answer.headers, now)))
        .transpose()?;
    let lifetime = match (success.lifetime()?, until_expiry) {
        (Some(one), Some(other)) => one.min(other),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => ASSUMED_LIFETIME,
    };
    Ok(Grant {
        lifetime,
        token: AccessSecret::new(success.access_token.into_owned()),
    })
}

impl Success<'_> {
    fn lifetime(&self) -> Result<Option<Duration>, Useless> {
        self.expires_in
            .as_ref()
            .map(|seconds| seconds.duration().ok_or(DEAD))
            .transpose()
    }
}

fn success(body: &[u8]) -> Result<Success<'_>, Useless> {
    let success: Success<'_> = serde_json::from_slice(body)
        .map_err(|_| Useless("gives an answer that is not the JSON of a token"))?;
    if success.access_token.is_empty() {
        return Err(Useless("gives an empty token"));
    }
    if success.access_token.len() > LONGEST_TOKEN {
        return Err(Useless(
            "gives a token of more than 64 KiB, which no service takes",
        ));
    }
    if success
        .token_type
        .as_deref()
        .is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer"))
    {
        return Err(Useless("gives a token that is not a bearer token"));
    }
    Ok(success)
}

/// A moment in RFC 3339. The zero time of Go's libraries, the year 1, stands for none.
pub(crate) fn instant(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339)
        .ok()
        .filter(|at| at.year() > 1)
}

/// How long it is until then by the server's own clock (`Date`), so that a wrong clock here does
/// not matter; `now` stands in for it.
pub(crate) fn until(then: OffsetDateTime, headers: &HeaderMap, now: SystemTime) -> Duration {
    let from = date(headers, DATE).unwrap_or_else(|| now.into());
    (then - from).try_into().unwrap_or(Duration::ZERO)
}

/// A lifetime in whole seconds that is one.
pub(crate) fn lasting(lifetime: Duration) -> Result<Duration, Useless> {
    let whole = Duration::from_secs(lifetime.min(LONGEST_LIFETIME).as_secs());
    (whole > Duration::ZERO).then_some(whole).ok_or(DEAD)
}

/// The machine-readable part of a refusal: an error code of RFC 6749 section 5.2 or RFC 8693
/// section 2.2.2, as Google's STS uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    InvalidGrant,
    InvalidTarget,
    InvalidRequest,
    InvalidScope,
    InvalidClient,
    UnauthorizedClient,
    UnsupportedGrantType,
    AccessDenied,
    #[serde(other)]
    Unknown,
}

/// The body of a refusal, as far as it could be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    /// The server's own words. To be made [quotable](crate::secret::quotable) before use.
    pub(crate) description: Option<String>,
}

/// OAuth's form has a code in `error`; Google's API front end has an object there.
#[derive(Deserialize)]
#[serde(untagged)]
enum FaultBody {
    OAuth {
        error: Code,
        error_description: Option<String>,
    },
    Api {
        error: ApiFault,
    },
}

#[derive(Deserialize)]
struct ApiFault {
    message: Option<String>,
}

/// Reads the body of a refusal; what is not one of the known forms has no code and no words.
pub(crate) fn fault(body: &[u8]) -> Fault {
    match serde_json::from_slice(body) {
        Ok(FaultBody::OAuth {
            error,
            error_description,
        }) => Fault {
            code: error,
            description: error_description,
        },
        Ok(FaultBody::Api { error }) => Fault {
            code: Code::Unknown,
            description: error.message,
        },
        Err(_) => Fault {
            code: Code::Unknown,
            description: None,
        },
    }
}

/// `Retry-After`, in seconds or as a date (RFC 9110 section 10.2.3). A date is compared with the
/// server's own `Date`, so that a wrong clock here does not matter; `now` stands in for it.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let then = OffsetDateTime::parse(text, &Rfc2822).ok()?;
    Some(until(then, headers, now))
}

fn date(headers: &HeaderMap, name: HeaderName) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(headers.get(name)?.to_str().ok()?, &Rfc2822).ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn grants_are_read() {
        for (body, seconds) in [
            (
                r#"{"access_token":"t","token_type":"Bearer","expires_in":3599}"#,
                3599,
            ),
            (
                r#"{"access_token":"t","token_type":"bearer","expires_in":"8","more":[1]}"#,
                8,
            ),
            (r#"{"access_token":"t","expires_in":8.9}"#, 8),
            (r#"{"access_token":"t"}"#, 300),
            (r#"{"access_token":"t","expires_in":null}"#, 300),
            (r#"{"access_token":"t","expires_in":1e99}"#, 86_400),
            (
                r#"{"access_token":"t","expires_in":18446744073709551616}"#,
                86_400,
            ),
            (r#"{"access_token":"t","expires_in":"1e99"}"#, 86_400),
            (r#"{"access_token":"\u0074"}"#, 300),
        ] {
            let grant = grant(body.as_bytes()).unwrap();
            assert_eq!(grant.token.expose(), "t");
            assert_eq!(grant.lifetime, Duration::from_secs(seconds), "{body}");
        }
    }

    #[test]
    fn a_token_that_is_too_long_is_useless() {
        let body = |length| json!({"access_token": "t".repeat(length)}).to_string();
        assert!(grant(body(LONGEST_TOKEN).as_bytes()).is_ok());
        let Useless(what) = grant(body(LONGEST_TOKEN + 1).as_bytes()).err().unwrap();
        assert!(what.contains("64 KiB"), "{what}");
    }

    #[test]
    fn useless_answers_are_told_apart_and_not_repeated() {
        for body in [
            "",
            "<html>sign in</html>",
            "[]",
            r#"{"token_type":"Bearer","expires_in":3599}"#,
            r#"{"access_token":7}"#,
            r#"{"access_token":""}"#,
            r#"{"access_token":"hidden","token_type":"mac"}"#,
            r#"{"access_token":"hidden","expires_in":0}"#,
            r#"{"access_token":"hidden","expires_in":-5}"#,
            r#"{"access_token":"hidden","expires_in":"hidden"}"#,
            r#"{"access_token":"hidden","expires_in":"NaN"}"#,
            r#"{"access_token":"hidden","expires_in":"-inf"}"#,
            r#"{"access_token":"hidden","expires_in":0.9}"#,
            r#"{"access_token":"hidden","expires_in":true}"#,
            r#"{"access_token":"hidden","expires_in":""}"#,
            r#"{"access_token":"hidden","expires_in":{"seconds":7}}"#,
            r#"{"access_token":"hidden","access_token":"hidden"}"#,
            r#"{"access_token":"hidden","#,
        ] {
            let useless = grant(body.as_bytes()).unwrap_err();
            assert!(!useless.0.contains("hidden"));
        }
    }

    #[test]
    fn the_shorter_of_two_lives_counts() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let seconds = |rest: &str, date: Option<&'static str>| {
            let body = format!(r#"{{"access_token":"t"{rest}}}"#);
            let headers = date.map(|date| (DATE, HeaderValue::from_static(date)));
            let answer = Answer {
                status: http::StatusCode::OK,
                headers: headers.into_iter().collect(),
                body: body.into_bytes().into(),
            };
            told(&answer, now).map(|grant| grant.lifetime.as_secs())
        };
        // `now` is 01:46:40 of that day.
        let expiry = r#","expiry":"2001-09-09T03:47:10.5+02:00""#;
        assert_eq!(seconds(expiry, None), Ok(30));
        assert_eq!(
            seconds(expiry, Some("Sun, 09 Sep 2001 01:47:00 GMT")),
            Ok(10)
        );
        assert_eq!(
            seconds(&format!(r#"{expiry},"expires_in":20"#), None),
            Ok(20)
        );
        assert_eq!(
            seconds(&format!(r#"{expiry},"expires_in":3600"#), None),
            Ok(30)
        );
        assert_eq!(seconds(r#","expires_in":20"#, None), Ok(20));
        assert_eq!(
            seconds(r#","expiry":"0001-01-01T00:00:00Z""#, None),
            Ok(300)
        );
        assert_eq!(seconds(r#","expiry":"soon""#, None), Ok(300));
        assert_eq!(seconds("", None), Ok(300));
        assert_eq!(
            seconds(r#","expiry":"2001-09-09T01:46:40Z""#, None),
            Err(DEAD)
        );
        assert_eq!(seconds(r#","expires_in":0"#, None), Err(DEAD));
        // The ends of what can be written.
        let last = r#","expiry":"9999-12-31T23:59:59-23:59""#;
        assert_eq!(seconds(last, None), Ok(86_400));
        let first = r#","expiry":"0000-01-01T00:00:00+23:59""#;
        assert_eq!(seconds(first, None), Ok(300));
    }

    #[test]
    fn faults_of_both_forms_are_read() {
        let oauth = fault(br#"{"error":"invalid_target","error_description":"no such pool"}"#);
        assert_eq!(
            oauth,
            Fault {
                code: Code::InvalidTarget,
                description: Some("no such pool".into())
            }
        );
        let api = fault(br#"{"error":{"code":403,"message":"no","status":"PERMISSION_DENIED"}}"#);
        assert_eq!(
            api,
            Fault {
                code: Code::Unknown,
                description: Some("no".into())
            }
        );
        assert_eq!(
            fault(br#"{"error":"new_code"}"#),
            Fault {
                code: Code::Unknown,
                description: None
            }
        );
        assert_eq!(
            fault(b"<html>"),
            Fault {
                code: Code::Unknown,
                description: None
            }
        );
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let read = |retry: &'static str, date: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_static(retry));
            headers.extend(date.map(|date| (DATE, HeaderValue::from_static(date))));
            retry_after(&headers, now).map(|after| after.as_secs())
        };
        assert_eq!(read("7", None), Some(7));
        assert_eq!(read(" 7 ", None), Some(7));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:47 GMT", None), Some(10));
        assert_eq!(
            read(
                "Sun, 06 Nov 1994 08:49:47 GMT",
                Some("Sun, 06 Nov 1994 08:49:40 GMT")
            ),
            Some(7)
        );
        assert_eq!(
            read(
                "Sun, 06 Nov 1994 08:49:37 GMT",
                Some("Sun, 06 Nov 1994 09:00:00 GMT")
            ),
            Some(0)
        );
        assert_eq!(read("soon", None), None);
        assert_eq!(read("-1", None), None);
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(body in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,100}") {
            let _ = (grant(&body), fault(&body));
            let json = format!(r#"{{"access_token":"{text}","expires_in":"{text}","error":"{text}"}}"#);
            let _ = (grant(json.as_bytes()), fault(json.as_bytes()));
        }
    }
}
