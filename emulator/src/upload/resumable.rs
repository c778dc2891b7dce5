//! Resumable uploads: starting, sending, asking how far it got, cancelling.
//!
//! A request to a session says in `Content-Range` what it carries: `bytes A-B/N` or `bytes A-B/*` for data,
//! `bytes */N` or `bytes */*` to ask; no header means the whole object. Chunks before the last are multiples of
//! 256 KiB. Bytes that are persisted already are skipped; an offset beyond them is refused with 400. An object
//! that is complete answers 200, anything else 308 with the persisted range. A session URL is its own credential.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::session::{Claim, End, Session, Standing};
use super::{Expected, Upload};
use crate::body::ReplyBody;
use crate::call::{Call, Outcome, empty};
use crate::error::{ApiError, Failure, Kind};
use crate::fault::Span;
use crate::inbound::Inbound;
use crate::object::parse_resource;
use crate::resource::encode;

/// GCS persists in multiples of this.
const QUANTUM: u64 = 256 * 1024;

/// Opens a session and says where it is.
pub(crate) async fn start(call: &Call, inbound: &mut Inbound) -> Outcome {
    let resource = parse_resource(&inbound.collect_small().await?)?;
    let upload = Upload::parse(call, &resource, call.header("x-upload-content-type"))?;
    upload.check(call)?;
    let total = match call.header("x-upload-content-length") {
        None => None,
        Some(text) => Some(
            text.parse()
                .map_err(|_| ApiError::invalid("Invalid X-Upload-Content-Length"))?,
        ),
    };
    let state = &call.state;
    let id = state.signer.nonce();
    let location = format!(
        "http://{}/upload/storage/v1/b/{}/o?uploadType=resumable&name={}&upload_id={id}",
        call.host,
        upload.bucket,
        encode(upload.name.as_str()),
    );
    let now = state.clock.now();
    state
        .sessions
        .start(id.clone(), upload, total, state.limits.md5, now)?;
    let mut reply = empty(StatusCode::OK);
    let invalid_host = |_| ApiError::invalid("Invalid Host header");
    let location = HeaderValue::try_from(location).map_err(invalid_host)?;
    reply.headers_mut().insert(header::LOCATION, location);
    if let Ok(id) = HeaderValue::try_from(id) {
        reply.headers_mut().insert("x-guploader-uploadid", id);
    }
    Ok(reply)
}

/// Ends a session without an object; GCS answers 499.
pub(crate) fn cancel(call: &Call) -> Outcome {
    let id = call.query.required("upload_id")?;
    call.state.sessions.cancel(id, call.state.clock.now())?;
    Ok(empty(Kind::Canceled.status()))
}

/// Takes a chunk, or answers how much there is.
pub(crate) async fn receive(call: &Call, inbound: &mut Inbound) -> Outcome {
    let id = call.query.required("upload_id")?;
    let session = call.state.sessions.find(id, call.state.clock.now())?;
    let carried = Carried::parse(call.header("content-range"))?;
    match session.standing() {
        Standing::Ended(End::Published(resource)) => {
            inbound.drain().await;
            return Ok(published(resource));
        }
        Standing::Ended(End::Gone) | Standing::Open(_) => {}
    }
    let transfer = Transfer {
        call,
        session: &session,
    };
    let outcome = transfer.run(inbound, carried).await;
    if matches!(session.standing(), Standing::Ended(_)) {
        call.state.sessions.note_end(id);
    }
    outcome
}

/// What a request to a session carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// Everything: no `Content-Range`.
    Whole,
    Nothing {
        total: Option<u64>,
    },
    Chunk {
        start: u64,
        end: u64,
        total: Option<u64>,
    },
}

impl Carried {
    fn parse(header: Option<&str>) -> Result<Self, ApiError> {
        let Some(header) = header else {
            return Ok(Self::Whole);
        };
        Self::parse_range(header)
            .ok_or_else(|| ApiError::invalid(format!("Invalid Content-Range: {header:?}")))
    }

    fn parse_range(header: &str) -> Option<Self> {
        let (range, total) = header.strip_prefix("bytes ")?.trim().split_once('/')?;
        let total = match total {
            "*" => None,
            number => Some(number.parse::<u64>().ok()?),
        };
        if range == "*" {
            return Some(Self::Nothing { total });
        }
        let (first, last) = range.split_once('-')?;
        let (start, last) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        let end = last.checked_add(1)?;
        let sane = start < end && total.is_none_or(|total| end <= total);
        sane.then_some(Self::Chunk { start, end, total })
    }
}

/// The part of the object that a request to a session carries, from its `Content-Range`.
pub(super) fn span(content_range: Option<&str>, announced: Option<u64>) -> Option<Span> {
    let span = |start, end, completes| Span {
        start,
        end,
        completes,
    };
    Some(match Carried::parse(content_range).ok()? {
        Carried::Whole => span(0, announced.unwrap_or(u64::MAX), true),
        Carried::Nothing { total } => span(0, 0, total.is_some()),
        Carried::Chunk { start, end, total } => span(start, end, total == Some(end)),
    })
}

/// One request's work on a session.
struct Transfer<'a> {
    call: &'a Call,
    session: &'a Session,
}

impl Transfer<'_> {
    async fn run(&self, inbound: &mut Inbound, carried: Carried) -> Outcome {
        match carried {
            Carried::Nothing { total } => self.status(total),
            Carried::Whole => self.whole(inbound).await,
            Carried::Chunk { start, end, total } => self.chunk(inbound, start, end, total).await,
        }
    }

    /// Answers how much is persisted, and publishes if that is all.
    fn status(&self, total: Option<u64>) -> Outcome {
        let (claim, persisted) = self.session.claim(total)?;
        if total == Some(persisted) {
            return self.finish(claim, Vec::new());
        }
        Ok(self.incomplete(persisted))
    }

    async fn whole(&self, inbound: &mut Inbound) -> Outcome {
        let total = inbound.announced();
        let (claim, persisted) = self.session.claim(total)?;
        if total.is_some_and(|total| total < persisted) {
            return Err(ApiError::invalid("The upload has more bytes already.").into());
        }
        let mut sink = Sink::new(self.session, claim, self.room(persisted)?);
        let received = sink.fill(inbound, persisted).await?;
        if received < persisted {
            return Err(ApiError::invalid("The upload has more bytes already.").into());
        }
        self.finish(claim, sink.pending)
    }

    async fn chunk(
        &self,
        inbound: &mut Inbound,
        start: u64,
        end: u64,
        total: Option<u64>,
    ) -> Outcome {
        let (claim, persisted) = self.session.claim(total)?;
        let is_last = total == Some(end);
        check_chunk(start, end, persisted, is_last, inbound.announced())?;
        self.session.declare(claim, total)?;
        let mut sink = Sink::new(self.session, claim, self.room(persisted)?);
        let received = sink.fill(inbound, persisted - start).await?;
        if received != end - start {
            return Err(wrong_length(end - start, received).into());
        }
        if is_last && end >= persisted {
            return self.finish(claim, sink.pending);
        }
        // What is left over is no whole quantum: the caller sends it again.
        let Standing::Open(persisted) = self.session.standing() else {
            return Err(ApiError::new(Kind::Gone, "The upload session has ended.").into());
        };
        Ok(self.incomplete(persisted))
    }

    /// Bytes that the session may still take.
    fn room(&self, persisted: u64) -> Result<u64, ApiError> {
        let limit = self.call.state.limits.max_body;
        limit.checked_sub(persisted).ok_or_else(too_large)
    }

    fn finish(&self, claim: Claim, rest: Vec<Bytes>) -> Outcome {
        let call = self.call;
        let claimed = Expected::from_headers(&call.headers)?;
        let upload = Upload {
            expected: self.session.upload.expected.and(claimed),
            ..self.session.upload.clone()
        };
        let resource = self.session.finish(claim, rest, |content| {
            let object = upload.publish(call, content)?;
            call.print(&call.resource(&object))
        })?;
        Ok(published(resource))
    }

    /// 308, or for Go's client library, which cannot take a redirect without a place, 200 and a header.
    fn incomplete(&self, persisted: u64) -> Response<ReplyBody> {
        let without_308 = self.call.header("x-guploader-no-308") == Some("yes");
        let mut reply = if without_308 {
            let mut reply = empty(StatusCode::OK);
            let code = HeaderValue::from_static("308");
            reply
                .headers_mut()
                .insert("x-http-status-code-override", code);
            reply
        } else {
            empty(StatusCode::PERMANENT_REDIRECT)
        };
        if persisted > 0
            && let Ok(range) = HeaderValue::try_from(format!("bytes=0-{}", persisted - 1))
        {
            reply.headers_mut().insert(header::RANGE, range);
        }
        reply
    }
}

fn published(resource: Bytes) -> Response<ReplyBody> {
    let mut reply = Response::new(ReplyBody::full(resource));
    let content_type = HeaderValue::from_static("application/json; charset=UTF-8");
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    reply
}

fn check_chunk(
    start: u64,
    end: u64,
    persisted: u64,
    is_last: bool,
    announced: Option<u64>,
) -> Result<(), ApiError> {
    let length = end - start;
    if start > persisted {
        return Err(ApiError::invalid(format!(
            "Invalid request. According to the Content-Range header, the upload offset is {start} byte(s), which \
             exceeds already uploaded size of {persisted} byte(s)."
        )));
    }
    if !is_last && !length.is_multiple_of(QUANTUM) {
        return Err(ApiError::invalid(format!(
            "Invalid request. The number of bytes uploaded is required to be equal or greater than 262144, except \
             for the final request (it's recommended to be the exact multiple of 262144). The received request \
             contained {length} bytes, which does not meet this requirement."
        )));
    }
    match announced {
        Some(announced) if announced != length => Err(wrong_length(length, announced)),
        _ => Ok(()),
    }
}

fn wrong_length(claimed: u64, actual: u64) -> ApiError {
    ApiError::invalid(format!(
        "Invalid request. According to the Content-Range header, {claimed} bytes are sent, but the body has {actual}."
    ))
}

fn too_large() -> ApiError {
    ApiError::new(Kind::BodyTooLarge, "The upload is too large.")
}

/// Moves a body into a session, quantum by quantum.
struct Sink<'a> {
    session: &'a Session,
    claim: Claim,
    room: u64,
    /// Less than a quantum, between persists.
    pending: Vec<Bytes>,
    pending_length: u64,
}

impl<'a> Sink<'a> {
    fn new(session: &'a Session, claim: Claim, room: u64) -> Self {
        Self {
            session,
            claim,
            room,
            pending: Vec::new(),
            pending_length: 0,
        }
    }

    /// Takes the whole body but for the first `skip` bytes, and returns its full length.
    async fn fill(&mut self, inbound: &mut Inbound, skip: u64) -> Result<u64, Failure> {
        let mut received = 0;
        while let Some(mut piece) = inbound.next().await? {
            let known = skip.saturating_sub(received).min(piece.len() as u64);
            received += piece.len() as u64;
            let _ = piece.split_to(usize::try_from(known).unwrap_or(piece.len()));
            self.add(piece)?;
        }
        Ok(received)
    }

    fn add(&mut self, mut piece: Bytes) -> Result<(), ApiError> {
        self.room = self
            .room
            .checked_sub(piece.len() as u64)
            .ok_or_else(too_large)?;
        let whole = (self.pending_length + piece.len() as u64) / QUANTUM * QUANTUM;
        if whole > 0 {
            let head = usize::try_from(whole - self.pending_length).unwrap_or(piece.len());
            self.pending.push(piece.split_to(head));
            self.session.persist(self.claim, self.pending.drain(..))?;
            self.pending_length = 0;
        }
        if !piece.is_empty() {
            self.pending_length += piece.len() as u64;
            self.pending.push(piece);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        let chunk = |start, end, total| Some(Carried::Chunk { start, end, total });
        for (header, expected) in [
            ("bytes 0-9/10", chunk(0, 10, Some(10))),
            ("bytes 0-9/*", chunk(0, 10, None)),
            ("bytes */*", Some(Carried::Nothing { total: None })),
            ("bytes */10", Some(Carried::Nothing { total: Some(10) })),
            ("bytes 9-0/10", None),
            ("bytes 0-10/10", None),
            ("bytes 0-18446744073709551615/*", None),
            ("bytes a-b/*", None),
            ("0-9/10", None),
        ] {
            assert_eq!(Carried::parse(Some(header)).ok(), expected, "{header}");
        }
        assert_eq!(Carried::parse(None).ok(), Some(Carried::Whole));
    }

    #[test]
    fn chunks_are_checked_before_their_bytes_are_taken() {
        for (start, end, persisted, is_last, announced, ok) in [
            (0, QUANTUM, 0, false, Some(QUANTUM), true),
            (0, QUANTUM, 0, false, None, true),
            (0, 5, 0, true, Some(5), true),
            (0, 5, 0, false, Some(5), false),
            (QUANTUM, QUANTUM + 5, 0, true, Some(5), false),
            (0, QUANTUM, QUANTUM, false, Some(QUANTUM), true),
            (0, 5, 0, true, Some(4), false),
        ] {
            let checked = check_chunk(start, end, persisted, is_last, announced);
            assert_eq!(checked.is_ok(), ok, "{start}-{end} at {persisted}");
        }
    }
}
