//! `POST /batch/storage/v1`: up to a hundred metadata calls in one request, answered part by part.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;

use crate::body::ReplyBody;
use crate::call::{Call, Outcome};
use crate::error::{ApiError, Failure};
use crate::inbound::Inbound;
use crate::multipart::{Part, boundary, malformed, parse_headers, split};
use crate::operation::Operation;
use crate::query::Query;
use crate::route::Route;
use crate::service;
use crate::state::State;
use crate::unserved;

/// GCS takes no more calls than this in one batch.
const MAX_CALLS: usize = 100;

const BOUNDARY: &str = "batch_reply";

pub(crate) async fn answer(state: &Arc<State>, parts: &Parts, inbound: &mut Inbound) -> Outcome {
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let boundary = boundary(content_type.unwrap_or_default())?;
    let body = inbound.collect_small().await?;
    let calls = split(&body, boundary.as_bytes())?;
    if calls.len() > MAX_CALLS {
        return Err(ApiError::invalid("A batch takes at most 100 calls.").into());
    }
    let mut replies = Vec::new();
    for call in &calls {
        let reply = carry_out(state, parts, call).await?;
        print(&mut replies, call, reply).await?;
    }
    replies.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    let mut reply = Response::new(ReplyBody::full(replies));
    let content_type = HeaderValue::try_from(format!("multipart/mixed; boundary={BOUNDARY}"));
    let content_type = content_type.expect("the boundary is made of letters");
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    Ok(reply)
}

/// Carries one call out. What is wrong with it is its own answer; only a part that is no request at all refuses
/// the batch.
async fn carry_out(
    state: &Arc<State>,
    outer: &Parts,
    part: &Part,
) -> Result<Response<ReplyBody>, Failure> {
    let (request, body) = parse(outer, &part.body)?;
    let query = Query::parse(request.uri.query());
    let route = Route::of(&request, &query);
    let (operation, dialect) = (route.operation, route.dialect);
    state.tally.arrived(operation);
    let outcome = if is_batchable(operation) {
        let mut inbound = Inbound::at_hand(body, Arc::clone(&state.tally));
        match Call::new(Arc::clone(state), route, query, request) {
            Ok(call) => service::storage(&call, &mut inbound).await,
            Err(error) => Err(error.into()),
        }
    } else if operation == Operation::Unknown {
        Err(unserved::refusal(&route, &query, &request).into())
    } else {
        Err(ApiError::invalid("This call cannot be part of a batch.").into())
    };
    match outcome {
        Ok(reply) => Ok(reply),
        Err(Failure::Refused(error)) => Ok(error.reply(dialect)),
        Err(Failure::Broken) => Err(Failure::Broken),
    }
}

fn is_batchable(operation: Operation) -> bool {
    use Operation as Op;
    match operation {
        Op::BucketsList
        | Op::BucketsInsert
        | Op::BucketsGet
        | Op::BucketsPatch
        | Op::BucketsDelete
        | Op::BucketsTestPermissions
        | Op::StorageLayout
        | Op::ObjectsList
        | Op::ObjectsGet
        | Op::ObjectsPatch
        | Op::ObjectsUpdate
        | Op::ObjectsDelete
        | Op::ObjectsCompose
        | Op::ObjectsRewrite
        | Op::ObjectsCopy
        | Op::ObjectsMove
        | Op::ObjectsRestore
        | Op::FoldersInsert
        | Op::FoldersGet
        | Op::FoldersList
        | Op::FoldersDelete
        | Op::FoldersRename
        | Op::OperationsGet => true,
        Op::ObjectsMedia
        | Op::ObjectsInsert
        | Op::ObjectsInsertStart
        | Op::ObjectsInsertChunk
        | Op::ObjectsInsertQuery
        | Op::ObjectsInsertCancel
        | Op::Batch
        | Op::StsToken
        | Op::OauthToken
        | Op::GenerateAccessToken
        | Op::Metadata
        | Op::Admin
        | Op::Unknown => false,
    }
}

/// Reads an `application/http` part. The batch's own authorization and host stand in for what it lacks.
fn parse(outer: &Parts, text: &Bytes) -> Result<(Parts, Bytes), ApiError> {
    let (head, body) = cut_head(text);
    let head = std::str::from_utf8(head).map_err(|_| malformed("a call is not text"))?;
    let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
    let mut words = line.split_whitespace();
    let (method, uri) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let mut request = Request::builder().method(method).uri(uri);
    let own = parse_headers(headers);
    for name in [header::AUTHORIZATION, header::HOST] {
        let lacks = own.iter().all(|(known, _)| known != name.as_str());
        if let Some(value) = outer.headers.get(&name).filter(|_| lacks) {
            request = request.header(name, value);
        }
    }
    for (name, value) in own {
        request = request.header(name, value);
    }
    let request = request
        .body(())
        .map_err(|_| malformed("a call is not an HTTP request"))?;
    Ok((request.into_parts().0, body))
}

/// Cuts a request at its blank line, whichever way its lines end; without one it is all head.
fn cut_head(text: &Bytes) -> (&[u8], Bytes) {
    let cuts = [&b"\r\n\r\n"[..], b"\n\n"].into_iter().filter_map(|blank| {
        let at = memchr::memmem::find(text, blank)?;
        Some((at, at + blank.len()))
    });
    match cuts.min() {
        Some((end, start)) => (&text[..end], text.slice(start..)),
        None => (text, Bytes::new()),
    }
}

async fn print(out: &mut Vec<u8>, call: &Part, reply: Response<ReplyBody>) -> Result<(), Failure> {
    let (head, body) = reply.into_parts();
    let body = body
        .collect()
        .await
        .map_err(|_| Failure::Broken)?
        .to_bytes();
    let mut text = format!("--{BOUNDARY}\r\nContent-Type: application/http\r\n");
    if let Some(id) = call.header("content-id") {
        text += &format!("Content-ID: <response-{}>\r\n", id.trim_matches(['<', '>']));
    }
    text += &format!("\r\nHTTP/1.1 {}\r\n", head.status);
    for (name, value) in &head.headers {
        if let Ok(value) = value.to_str() {
            text += &format!("{name}: {value}\r\n");
        }
    }
    text += &format!("content-length: {}\r\n\r\n", body.len());
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(&body);
    out.extend_from_slice(b"\r\n");
    Ok(())
}
