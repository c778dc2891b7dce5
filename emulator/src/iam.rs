//! The IAM Credentials API: `generateAccessToken`, the tokens of a service account for whoever may act as it. See
//! "Method: projects.serviceAccounts.generateAccessToken" in Google's reference.

use std::time::Duration;

use http::StatusCode;
use http::request::Parts;
use serde::Deserialize;
use serde_json::json;

use crate::access::{Bearer, Caller};
use crate::accounts::{Accounts, unknown};
use crate::call::Outcome;
use crate::error::{ApiError, Kind};
use crate::inbound::Inbound;
use crate::oauth;
use crate::object::rfc3339_seconds;
use crate::principal::Principal;
use crate::scope::Scopes;
use crate::state::State;

/// What an account grants unless an organisation policy allows more.
const LONGEST: Duration = Duration::from_secs(3600);

/// A field that is `null` is one that was not given, as in the JSON of all protocol buffers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Request {
    #[serde(default)]
    scope: Option<Vec<String>>,
    #[serde(default)]
    lifetime: Option<String>,
    #[serde(default)]
    delegates: Option<Vec<String>>,
}

/// Answers `POST /v1/projects/-/serviceAccounts/ACCOUNT:generateAccessToken`.
pub(crate) async fn generate_access_token(
    state: &State,
    account: &str,
    parts: &Parts,
    inbound: &mut Inbound,
) -> Outcome {
    let caller = state.caller(&parts.headers)?;
    let request = Request::parse(&inbound.collect_small().await?)?;
    let life = request.life()?;
    let mut chain = request.delegates()?;
    chain.push(account);
    permit(&state.accounts, &caller, &chain)?;
    let token = format!("ya29.c.{}", state.signer.nonce());
    let life = life.min(state.access.token_ttl());
    let bearer = Bearer {
        scopes: Scopes::of(request.scope.iter().flatten().map(String::as_str)),
        ..Principal::ServiceAccount(account.to_owned()).into()
    };
    state.access.issue(&token, bearer, life);
    state.tally.impersonated();
    // By the clock that `Date` tells: the two are held against each other.
    let expires = rfc3339_seconds(state.clock.told() + life);
    let body = json!({"accessToken": token, "expireTime": expires});
    Ok(oauth::reply(StatusCode::OK, &body))
}

impl Request {
    fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let request: Self = serde_json::from_slice(body).map_err(|_| {
            ApiError::invalid(
                "Invalid JSON payload received. It takes `scope`, `lifetime` and `delegates`.",
            )
        })?;
        let mut scopes = request.scope.iter().flatten();
        if scopes.all(|scope| scope.trim().is_empty()) {
            return Err(ApiError::invalid("Scope required."));
        }
        Ok(request)
    }

    fn life(&self) -> Result<Duration, ApiError> {
        let Some(text) = self.lifetime.as_deref() else {
            return Ok(LONGEST);
        };
        let life = parse_duration(text).ok_or_else(|| {
            ApiError::invalid(
                "Invalid value at 'lifetime': it is seconds with an s, such as 3600s.",
            )
        })?;
        if life.is_zero() || life > LONGEST {
            return Err(ApiError::invalid(
                "The access token lifetime must be above 0s and cannot exceed 3600s.",
            ));
        }
        Ok(life)
    }

    fn delegates(&self) -> Result<Vec<&str>, ApiError> {
        let delegates = self.delegates.iter().flatten();
        let accounts = delegates.map(|name| name.strip_prefix("projects/-/serviceAccounts/"));
        accounts.collect::<Option<_>>().ok_or_else(|| {
            ApiError::invalid("A delegate must be named projects/-/serviceAccounts/ACCOUNT.")
        })
    }
}

/// The caller must be allowed to act as the first of the chain, and each of it as the next.
fn permit(accounts: &Accounts, caller: &Caller, chain: &[&str]) -> Result<(), ApiError> {
    let mut acting = match caller {
        Caller::Unchecked => None,
        Caller::Anonymous => return Err(ApiError::new(Kind::Anonymous, UNAUTHENTICATED)),
        // A boundary lets through what concerns objects, and nothing else.
        Caller::Known(Bearer {
            boundary: Some(_), ..
        }) => return Err(denied()),
        Caller::Known(bearer) => {
            bearer.scopes.permit_iam()?;
            Some(bearer.principal.clone())
        }
    };
    for account in chain {
        if !accounts.knows(account) {
            return Err(unknown(account));
        }
        if acting.is_some_and(|acting| !accounts.may_impersonate(&acting, account)) {
            return Err(denied());
        }
        acting = match caller {
            Caller::Unchecked => None,
            _ => Some(Principal::ServiceAccount((*account).to_owned())),
        };
    }
    Ok(())
}

const UNAUTHENTICATED: &str = "Request is missing required authentication credential. Expected OAuth 2 access \
                               token, login cookie or other valid authentication credential.";

fn denied() -> ApiError {
    ApiError::new(
        Kind::Forbidden,
        "Permission 'iam.serviceAccounts.getAccessToken' denied on resource (or it may not exist).",
    )
}

/// A duration in the JSON of protocol buffers: seconds with up to nine places, and an `s`.
fn parse_duration(text: &str) -> Option<Duration> {
    let number = text.strip_suffix('s')?;
    let (seconds, places) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(places) || places.len() > 9 || number.ends_with('.') {
        return None;
    }
    let nanos = format!("{places:0<9}").parse::<u32>().ok()?;
    Some(Duration::new(seconds.parse().ok()?, nanos))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(body: &str) -> Result<(Duration, usize), ApiError> {
        let request = Request::parse(body.as_bytes())?;
        Ok((request.life()?, request.delegates()?.len()))
    }

    #[test]
    fn durations() {
        for (text, millis) in [
            ("3600s", Some(3_600_000)),
            ("0s", Some(0)),
            ("1.5s", Some(1500)),
            ("0.001000000s", Some(1)),
            ("", None),
            ("3600", None),
            ("s", None),
            ("-1s", None),
            ("+1s", None),
            ("1.s", None),
            ("1.0000000001s", None),
            ("1e3s", None),
            ("99999999999999999999s", None),
        ] {
            let parsed = parse_duration(text);
            assert_eq!(parsed, millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn requests_that_are_taken_and_those_that_are_not() {
        for (body, read) in [
            (r#"{"scope":["a"]}"#, (3600, 0)),
            (
                r#"{"scope":["a"],"lifetime":null,"delegates":null}"#,
                (3600, 0),
            ),
            (
                r#"{"scope":["a"],"lifetime":"60s","delegates":["projects/-/serviceAccounts/x"]}"#,
                (60, 1),
            ),
        ] {
            let (life, delegates) = parse(body).unwrap();
            assert_eq!((life.as_secs(), delegates), read, "{body}");
        }
        for body in [
            "",
            "{}",
            r#"{"scope":[]}"#,
            r#"{"scope":null}"#,
            r#"{"scope":[" "]}"#,
            r#"{"scope":"a"}"#,
            r#"{"scope":["a"],"lifetime":3600}"#,
            r#"{"scope":["a"],"lifetime":"3601s"}"#,
            r#"{"scope":["a"],"lifetime":"3600.000000001s"}"#,
            r#"{"scope":["a"],"lifetime":"0s"}"#,
            r#"{"scope":["a"],"delegates":["x"]}"#,
            r#"{"scope":["a"],"lifetme":"1s"}"#,
        ] {
            assert_eq!(parse(body).unwrap_err().kind, Kind::Invalid, "{body}");
        }
    }

    proptest! {
        #[test]
        fn no_body_is_a_panic(body in "\\PC{0,100}", life in "[0-9.s-]{0,30}") {
            let _ = parse(&body);
            let _ = parse(&format!(r#"{{"scope":["a"],"lifetime":"{life}"}}"#));
            let _ = parse_duration(&life);
        }
    }
}
