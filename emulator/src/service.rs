//! One request from arrival to answer: route, count, faults, the verb, latency, rate.

use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use tokio::time::sleep;

use crate::admin;
use crate::body::ReplyBody;
use crate::call::{Call, Outcome};
use crate::error::{ApiError, Dialect, Failure, Kind};
use crate::fault::FaultAction;
use crate::gate::Gate;
use crate::inbound::Inbound;
use crate::operation::Operation;
use crate::query::Query;
use crate::route::Route;
use crate::state::State;
use crate::{batch, json, metadata, sts, upload, xml};

/// The connection is to be dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("dropped without an answer")]
pub(crate) struct Dropped;

/// Answers one request, or drops its connection where a fault rule or a vanished peer wants that.
pub(crate) async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Dropped> {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query());
    let route = Route::of(&parts, &query);
    let limits = state.limits;
    let mut inbound = Inbound::new(
        body,
        limits.max_body,
        limits.idle_timeout,
        Arc::clone(&state.tally),
    );
    let (operation, dialect) = (route.operation, route.dialect);
    if operation == Operation::Admin {
        return Ok(admin::http::answer(&state, &parts, &mut inbound).await);
    }
    state.tally.arrived(operation);
    let fault = state.faults.strike(operation, route.subject(&query));
    match fault {
        Some(FaultAction::Reset) => return Err(dropped(&state)),
        Some(FaultAction::Stall { duration }) => sleep(duration).await,
        _ => {}
    }
    let gate = Gate::new(state.shape.stream_rate(), fault.as_ref());
    let reply_gate = if operation.is_upload() {
        inbound.shape(gate);
        None
    } else {
        gate
    };
    let outcome = match scripted(fault.as_ref()) {
        Some(error) => Err(error.into()),
        None => carry_out(&state, route, query, parts, &mut inbound).await,
    };
    let reply = match outcome {
        Ok(reply) => reply,
        Err(Failure::Broken) => return Err(dropped(&state)),
        Err(Failure::Refused(error)) => {
            inbound.drain().await;
            error.reply(dialect)
        }
    };
    if fault == Some(FaultAction::LostAnswer) {
        return Err(dropped(&state));
    }
    let latency = state.shape.latency(operation);
    if !latency.is_zero() {
        sleep(latency).await;
    }
    state.tally.answered(reply.status());
    Ok(reply.map(|body| body.shaped(reply_gate, Arc::clone(&state.tally))))
}

fn dropped(state: &State) -> Dropped {
    state.tally.dropped();
    Dropped
}

fn scripted(fault: Option<&FaultAction>) -> Option<ApiError> {
    let Some(FaultAction::Status {
        code,
        reason,
        retry_after,
    }) = fault
    else {
        return None;
    };
    let status = StatusCode::from_u16(*code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let reason = reason
        .clone()
        .unwrap_or_else(|| usual_reason(*code).to_owned());
    let error = ApiError::new(
        Kind::Scripted { status, reason },
        "A fault rule answered this request.",
    );
    Some(match retry_after {
        Some(seconds) => error.with_header(header::RETRY_AFTER, HeaderValue::from(*seconds)),
        None => error,
    })
}

/// What GCS says with a status when nothing more is known.
fn usual_reason(code: u16) -> &'static str {
    match code {
        400 => "invalid",
        401 => "authError",
        403 => "forbidden",
        404 => "notFound",
        408 => "requestTimeout",
        409 => "conflict",
        410 => "gone",
        412 => "conditionNotMet",
        416 => "requestedRangeNotSatisfiable",
        429 => "rateLimitExceeded",
        500 => "internalError",
        _ => "backendError",
    }
}

async fn carry_out(
    state: &Arc<State>,
    route: Route,
    query: Query,
    parts: http::request::Parts,
    inbound: &mut Inbound,
) -> Outcome {
    match route.operation {
        Operation::StsToken => exchange(state, &parts, inbound).await,
        Operation::Metadata => Ok(metadata::answer(state, &parts)),
        Operation::Batch => batch::answer(state, &parts, inbound).await,
        _ => {
            let call = Call::new(Arc::clone(state), route, query, parts)?;
            storage(&call, inbound).await
        }
    }
}

async fn exchange(state: &State, parts: &http::request::Parts, inbound: &mut Inbound) -> Outcome {
    let body = inbound.collect_small().await?;
    let proved = state
        .sts
        .prove(&state.signer, &state.clock, &parts.headers, &body);
    Ok(match proved {
        Ok(principal) => {
            state.tally.exchanged();
            sts::grant(&state.access, &state.signer, principal)
        }
        Err(refusal) => refusal.reply(),
    })
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
        Operation::BucketsDelete => json::buckets::delete(call),
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
        Operation::Batch
        | Operation::StsToken
        | Operation::Metadata
        | Operation::Admin
        | Operation::Unknown => Err(ApiError::new(Kind::NothingHere, "Not Found").into()),
    }
}
