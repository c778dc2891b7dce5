//! One request from arrival to answer: route, count, faults, the verb, latency, rate.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use tokio::time::sleep;

use crate::admin;
use crate::body::ReplyBody;
use crate::call::{Call, Outcome};
use crate::error::{self, ApiError, Dialect, Failure, Kind, canonical};
use crate::fault::{FaultAction, Target, retry_test};
use crate::gate::Gate;
use crate::inbound::Inbound;
use crate::operation::Operation;
use crate::query::Query;
use crate::route::{Place, Route};
use crate::state::State;
use crate::{batch, distort, iam, json, metadata, oauth, sts, unserved, upload, xml};

/// The connection is to be dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dropped without an answer")]
pub(crate) struct Dropped;

/// Answers one request, or drops its connection where a fault rule or a vanished peer wants that.
pub(crate) async fn answer(
    state: Arc<State>,
    local: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Dropped> {
    let (mut parts, body) = request.into_parts();
    complete_host(&mut parts, local.port());
    let (limits, tally) = (state.limits, Arc::clone(&state.tally));
    let mut inbound = Inbound::new(body, limits.max_body, limits.idle_timeout, tally);
    let query = Query::parse(parts.uri.query());
    let route = Route::of(&parts, &query);
    if route.operation == Operation::Admin {
        let reply = admin::http::answer(&state, &parts, &mut inbound).await;
        return Ok(dated(reply, &state));
    }
    let outcome = shaped(&state, local, route, query, parts, &mut inbound).await;
    match &outcome {
        Ok(reply) => state.tally.answered(reply.status()),
        Err(Dropped) => state.tally.dropped(),
    }
    outcome.map(|reply| dated(reply, &state))
}

/// Tells the time of the emulator's clock, where hyper would tell the machine's.
fn dated(mut reply: Response<ReplyBody>, state: &State) -> Response<ReplyBody> {
    let date = httpdate::fmt_http_date(UNIX_EPOCH + state.clock.told());
    if let Ok(date) = HeaderValue::try_from(date) {
        reply.headers_mut().insert(header::DATE, date);
    }
    reply
}

/// Answers as faults, latency and rate want it.
async fn shaped(
    state: &Arc<State>,
    local: SocketAddr,
    route: Route,
    query: Query,
    parts: Parts,
    inbound: &mut Inbound,
) -> Result<Response<ReplyBody>, Dropped> {
    let operation = route.operation;
    state.tally.arrived(operation);
    let test = parts.headers.get(retry_test::HEADER);
    let test = test.map(|id| id.to_str().unwrap_or_default());
    if let Some(id) = test.filter(|id| !state.faults.knows_retry_test(id)) {
        return Ok(refuse(&retry_test::unknown(id), route.dialect, inbound).await);
    }
    let mut name = Cow::Borrowed(route.subject(&query));
    if name.is_empty() && state.faults.go_by_name() {
        let ahead = upload::name_ahead(operation, &parts.headers, inbound).await;
        name = Cow::Owned(ahead.unwrap_or_default());
    }
    let fault = state.faults.strike(Target {
        operation,
        name: &name,
        test,
        span: upload::span(operation, &parts.headers, inbound.announced()),
    });
    match fault {
        Some(FaultAction::Reset) => return Err(Dropped),
        Some(FaultAction::Stall { duration }) => sleep(duration).await,
        Some(FaultAction::RevokeToken) => state.access.revoke_token(&parts.headers),
        _ => {}
    }
    let page_token = query.filled("pageToken").map(str::to_owned);
    let mut reply_gate = Gate::new(state.shape.stream_rate(), fault.as_ref());
    let cuts_answer = matches!(fault, Some(FaultAction::CutAnswer { .. }));
    if operation.is_upload() && !cuts_answer {
        inbound.shape(reply_gate.take());
    }
    let reply = match scripted(fault.as_ref(), route.dialect) {
        Some(error) => refuse(&error, route.dialect, inbound).await,
        None => {
            let dialect = route.dialect;
            let reply = attempt(state, local, route, query, parts, inbound).await?;
            match state.settled().await {
                Ok(()) => reply,
                Err(error) => error.reply(dialect),
            }
        }
    };
    if fault == Some(FaultAction::LostAnswer) {
        return Err(Dropped);
    }
    let latency = state.shape.latency(operation);
    if !latency.is_zero() {
        sleep(latency).await;
    }
    let reply = distort::reply(fault.as_ref(), page_token.as_deref(), reply);
    Ok(reply.map(|body| body.shaped(reply_gate, Arc::clone(&state.tally))))
}

/// The verb's reply, or its refusal.
async fn attempt(
    state: &Arc<State>,
    local: SocketAddr,
    route: Route,
    query: Query,
    parts: Parts,
    inbound: &mut Inbound,
) -> Result<Response<ReplyBody>, Dropped> {
    let dialect = route.dialect;
    match carry_out(state, local, route, query, parts, inbound).await {
        Ok(reply) => Ok(reply),
        Err(Failure::Refused(error)) => Ok(refuse(&error, dialect, inbound).await),
        Err(Failure::Broken) => Err(Dropped),
    }
}

/// Takes the rest of the body first: a caller that is still sending would not read the answer.
async fn refuse(error: &ApiError, dialect: Dialect, inbound: &mut Inbound) -> Response<ReplyBody> {
    inbound.drain().await;
    error.reply(dialect)
}

/// Google's Rust client sends its `Host` without a port to any port. Links are made from that header, so the port
/// that the request came in on is put back; an explicit one, and the default port, stay as they are.
fn complete_host(parts: &mut Parts, port: u16) {
    let named = parts
        .headers
        .get(header::HOST)
        .map(HeaderValue::as_bytes)
        .and_then(|host| Authority::try_from(host).ok());
    let Some(host) = named.filter(|host| host.port().is_none() && port != 80) else {
        return;
    };
    if let Ok(host) = HeaderValue::try_from(format!("{}:{port}", host.host())) {
        parts.headers.insert(header::HOST, host);
    }
}

fn scripted(fault: Option<&FaultAction>, dialect: Dialect) -> Option<ApiError> {
    match fault? {
        FaultAction::Status {
            code,
            reason,
            retry_after,
        } => Some(scripted_status(
            dialect,
            *code,
            reason.clone(),
            *retry_after,
        )),
        FaultAction::RevokeToken => Some(ApiError::bad_credentials()),
        _ => None,
    }
}

fn scripted_status(
    dialect: Dialect,
    code: u16,
    reason: Option<String>,
    retry_after: Option<u64>,
) -> ApiError {
    let reason = reason.unwrap_or_else(|| usual_reason(dialect, code).to_owned());
    let error = ApiError::scripted_with(code, reason);
    match retry_after {
        Some(seconds) => error.with_header(header::RETRY_AFTER, HeaderValue::from(seconds)),
        None => error,
    }
}

/// What an API says with a status when nothing more is known.
fn usual_reason(dialect: Dialect, code: u16) -> &'static str {
    match dialect {
        Dialect::Json | Dialect::Text | Dialect::Xml => error::usual_reason(code),
        Dialect::Iam => canonical(code),
        Dialect::OAuth => usual_oauth_error(code),
    }
}

fn usual_oauth_error(code: u16) -> &'static str {
    match code {
        401 => "invalid_client",
        403 => "access_denied",
        429 => "quota_exceeded",
        503 => "temporarily_unavailable",
        400..=499 => "invalid_request",
        _ => "internal_failure",
    }
}

async fn carry_out(
    state: &Arc<State>,
    local: SocketAddr,
    route: Route,
    query: Query,
    parts: Parts,
    inbound: &mut Inbound,
) -> Outcome {
    Query::check(parts.uri.query())?;
    match route.operation {
        Operation::StsToken => sts::answer(state, &parts, inbound).await,
        Operation::OauthToken => oauth::login::answer(state, &parts, inbound).await,
        Operation::GenerateAccessToken => {
            let Place::ServiceAccount(account) = &route.place else {
                return Err(ApiError::new(Kind::NothingHere, "Not Found").into());
            };
            iam::generate_access_token(state, account, &parts, inbound).await
        }
        Operation::Metadata => Ok(metadata::answer(state, local, &parts)),
        Operation::Unknown => Err(unserved::refusal(&route, &query, &parts).into()),
        Operation::Batch => batch::answer(state, &parts, inbound).await,
        _ => {
            let call = Call::new(Arc::clone(state), route, query, parts)?;
            storage(&call, inbound).await
        }
    }
}

/// A call of the storage API.
pub(crate) async fn storage(call: &Call, inbound: &mut Inbound) -> Outcome {
    if call.route.dialect == Dialect::Xml {
        return xml::answer(call, inbound).await;
    }
    match call.route.operation {
        Operation::BucketsList => json::buckets::list(call),
        Operation::BucketsInsert => json::buckets::insert(call, inbound).await,
        Operation::BucketsGet => json::buckets::get(call),
        Operation::BucketsPatch => json::buckets::patch(call, inbound).await,
        Operation::BucketsDelete => json::buckets::delete(call),
        Operation::BucketsTestPermissions => json::buckets::test_permissions(call),
        Operation::StorageLayout => json::buckets::storage_layout(call),
        Operation::ObjectsList => json::list::list(call),
        Operation::ObjectsGet => json::get::get(call),
        Operation::ObjectsMedia => json::get::media(call),
        Operation::ObjectsInsert => upload::insert(call, inbound).await,
        Operation::ObjectsInsertStart => upload::resumable::start(call, inbound).await,
        Operation::ObjectsInsertChunk | Operation::ObjectsInsertQuery => {
            upload::resumable::receive(call, inbound).await
        }
        Operation::ObjectsInsertCancel => upload::resumable::cancel(call),
        Operation::ObjectsPatch => json::amend::patch(call, inbound).await,
        Operation::ObjectsUpdate => json::amend::update(call, inbound).await,
        Operation::ObjectsDelete => json::delete::delete(call),
        Operation::ObjectsCompose => json::compose::compose(call, inbound).await,
        Operation::ObjectsRewrite => json::copy::rewrite(call, inbound).await,
        Operation::ObjectsCopy => json::copy::copy(call, inbound).await,
        Operation::ObjectsMove => json::relocate::relocate(call),
        Operation::ObjectsRestore => json::restore::restore(call),
        Operation::FoldersInsert => json::folders::insert(call, inbound).await,
        Operation::FoldersGet => json::folders::get(call),
        Operation::FoldersList => json::folders::list(call),
        Operation::FoldersDelete => json::folders::delete(call),
        Operation::FoldersRename => json::folders::rename(call),
        Operation::OperationsGet => json::folders::operation(call),
        Operation::Batch
        | Operation::StsToken
        | Operation::OauthToken
        | Operation::GenerateAccessToken
        | Operation::Metadata
        | Operation::Admin
        | Operation::Unknown => Err(ApiError::new(Kind::NothingHere, "Not Found").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_its_port_gets_it_back() {
        for (host, port, completed) in [
            ("127.0.0.1", 4443, "127.0.0.1:4443"),
            ("127.0.0.1:99", 4443, "127.0.0.1:99"),
            ("[::1]", 4443, "[::1]:4443"),
            ("bench.example", 80, "bench.example"),
        ] {
            let request = Request::builder().header(header::HOST, host).body(());
            let (mut parts, ()) = request.unwrap().into_parts();
            complete_host(&mut parts, port);
            assert_eq!(parts.headers[header::HOST], completed);
        }
    }
}
