//! `/_emulator/`: the administrative calls over HTTP. The table is in the crate's documentation.

mod identities;

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Admin, Error, ErrorKind};
use crate::body::ReplyBody;
use crate::cluster::MintRequest;
use crate::error::{ApiError, Dialect, Failure, Kind};
use crate::fault::{FaultRule, check_method, retry_test};
use crate::inbound::Inbound;
use crate::object::rfc3339;
use crate::role::Role;
use crate::state::State;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenBody {
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    service_account: Option<String>,
    #[serde(default)]
    ttl_seconds: Option<u64>,
    #[serde(default)]
    audience: Option<String>,
    #[serde(default)]
    issuer: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketBody {
    name: String,
    #[serde(default)]
    hierarchical: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantBody {
    member: String,
    role: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShapeBody {
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    latency_ms: Option<u64>,
    #[serde(default)]
    stream_rate: Option<u64>,
    #[serde(default)]
    clock_skew_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TtlBody {
    ttl_seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockBody {
    advance_ms: u64,
}

/// Answers one administrative request. Neither authorization nor faults nor latency apply to it.
pub(crate) async fn answer(
    state: &Arc<State>,
    parts: &Parts,
    inbound: &mut Inbound,
) -> Response<ReplyBody> {
    let admin = Admin::new(Arc::clone(state));
    let done = match inbound.collect_small().await {
        Ok(body) => match act(&admin, parts, &body) {
            Ok(value) => state.settled().await.map(|()| value),
            Err(error) => Err(error),
        },
        Err(Failure::Refused(error)) => Err(error),
        Err(Failure::Broken) => Err(ApiError::invalid("the body was cut short")),
    };
    match done {
        Ok(value) => {
            let mut reply = Response::new(ReplyBody::full(value.to_string()));
            *reply.status_mut() = StatusCode::OK;
            let content_type = HeaderValue::from_static("application/json; charset=UTF-8");
            reply
                .headers_mut()
                .insert(header::CONTENT_TYPE, content_type);
            reply
        }
        Err(error) => error.reply(Dialect::Json),
    }
}

fn act(admin: &Admin, parts: &Parts, body: &[u8]) -> Result<Value, ApiError> {
    let path = parts.uri.path();
    if retry_test::is_path(path) {
        let state = admin.state();
        return retry_test::answer(&state.faults, parts, body, || state.signer.nonce());
    }
    let path = path.trim_start_matches("/_emulator");
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (parts.method.as_str(), segments.as_slice()) {
        ("POST", ["tokens"]) => Ok(mint(admin, parse(body)?)),
        ("GET", ["counters"]) => Ok(json!(admin.counters())),
        ("GET", ["buckets", bucket, "usage"]) => Ok(json!(told(admin.usage(bucket))?)),
        (_, ["service_accounts" | "logins" | "metadata", ..]) => {
            identities::act(admin, parts, &segments, body)
        }
        (method, segments) => change(admin, method, segments, body).map(|()| json!({})),
    }
}

/// The calls that have nothing to answer.
fn change(admin: &Admin, method: &str, segments: &[&str], body: &[u8]) -> Result<(), ApiError> {
    match (method, segments) {
        ("POST", ["counters", "reset"]) => admin.reset_counters(),
        ("POST", ["buckets"]) => {
            let new: BucketBody = parse(body)?;
            told(match new.hierarchical {
                true => admin.create_hierarchical_bucket(&new.name),
                false => admin.create_bucket(&new.name),
            })?;
        }
        ("PUT", ["buckets", bucket, "settings"]) => told(admin.set_bucket(bucket, parse(body)?))?,
        ("POST", ["buckets", bucket, "grants"]) => grant(admin, bucket, &parse(body)?)?,
        ("PUT", ["buckets", bucket, "grants"]) => replace(admin, bucket, &parse::<Vec<_>>(body)?)?,
        ("POST", ["faults"]) => {
            let rule: FaultRule = parse(body)?;
            rule.check()?;
            admin.add_fault(rule);
        }
        ("DELETE", ["faults"]) => admin.clear_faults(),
        ("PUT", ["shape"]) => shape(admin, &parse(body)?)?,
        ("PUT", ["access_tokens"]) => {
            let seconds = parse::<TtlBody>(body)?.ttl_seconds;
            admin.set_access_token_ttl(Duration::from_secs(seconds));
        }
        ("POST", ["access_tokens", "revoke"]) => admin.revoke_access_tokens(),
        ("POST", ["clock"]) => {
            let millis = parse::<ClockBody>(body)?.advance_ms;
            admin.advance_clock(Duration::from_millis(millis));
        }
        _ => return Err(no_such_call()),
    }
    Ok(())
}

fn no_such_call() -> ApiError {
    ApiError::new(Kind::NothingHere, "there is no such administrative call")
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| ApiError::new(Kind::Unparsable, error.to_string()))
}

/// The refusal of an administrative call in the API's words.
fn told<T>(result: Result<T, Error>) -> Result<T, ApiError> {
    result.map_err(|error| {
        let kind = match error.kind() {
            ErrorKind::InvalidName => Kind::Invalid,
            ErrorKind::NotFound => Kind::BucketNotFound,
            ErrorKind::Exists => Kind::Conflict,
            ErrorKind::NotKept => Kind::Unavailable,
        };
        ApiError::new(kind, error.to_string())
    })
}

fn mint(admin: &Admin, body: TokenBody) -> Value {
    let usual = MintRequest::default();
    let (token, expires) = admin.mint(&MintRequest {
        namespace: body.namespace.unwrap_or(usual.namespace),
        service_account: body.service_account.unwrap_or(usual.service_account),
        ttl: body.ttl_seconds.map_or(usual.ttl, Duration::from_secs),
        audience: body.audience,
        issuer: body.issuer,
        ..MintRequest::default()
    });
    json!({"token": token, "expires_at": rfc3339(Duration::from_secs(expires))})
}

fn role(name: &str) -> Result<Role, ApiError> {
    Role::from_name(name)
        .ok_or_else(|| ApiError::invalid(format!("{name:?} is not a role that is known here")))
}

fn grant(admin: &Admin, bucket: &str, body: &GrantBody) -> Result<(), ApiError> {
    told(admin.grant(bucket, &body.member, role(&body.role)?))
}

fn replace(admin: &Admin, bucket: &str, bodies: &[GrantBody]) -> Result<(), ApiError> {
    let binding = |body: &GrantBody| Ok((body.member.clone(), role(&body.role)?));
    let bindings = bodies
        .iter()
        .map(binding)
        .collect::<Result<Vec<_>, ApiError>>()?;
    told(admin.replace_grants(bucket, &bindings))
}

fn shape(admin: &Admin, body: &ShapeBody) -> Result<(), ApiError> {
    if let Some(latency) = body.latency_ms {
        let method = body.method.as_deref().unwrap_or("*");
        check_method(method)?;
        admin.set_latency(method, Duration::from_millis(latency));
    }
    if let Some(rate) = body.stream_rate {
        admin.set_stream_rate(Some(rate));
    }
    if let Some(seconds) = body.clock_skew_seconds {
        admin.set_clock_skew(seconds);
    }
    Ok(())
}
