//! Bytes of one generation, checked, and taken up again where a body breaks or stalls.
//!
//! Reads use `alt=media` of the JSON API, so that errors, preconditions and custom endpoints are those of every other
//! call. `Accept-Encoding: gzip` makes the store send what it stores; without it an object with
//! `Content-Encoding: gzip` arrives decompressed and ignores ranges
//! (<https://cloud.google.com/storage/docs/transcoding>).

mod head;

use std::ops::Range;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderValue, Method, header};
use tokio::time::sleep;

use super::call::{Answer, Call, Content};
use super::client::Shared;
use super::operation::Operation;
use super::resource::Malformed;
use super::transport::{Flow, Lost};
use crate::store::{Preconditions, Read, ReadRequest};
use crate::{Cause, Error, Generation, Kind, ObjectName, Result};
use head::{Head, range_header};

const OPERATION: &str = "storage.objects.get";

/// See [`Store::read`](crate::Store::read).
pub(super) async fn read(client: &Shared, request: &ReadRequest) -> Result<Read> {
    if request.range.as_ref().is_some_and(Range::is_empty) {
        let message = "an empty range cannot be read";
        return Err(Error::new(Kind::Invalid, OPERATION, &request.name, message));
    }
    let aim = Aim {
        name: &request.name,
        generation: request.generation,
        range: request.range.clone(),
        preconditions: request.preconditions,
        requests: 0,
    };
    let opened = open(client, &aim).await?;
    let head = opened.head;
    let whole = head.range == (0..head.size);
    let body = Body {
        client: Shared::clone(client),
        name: request.name.clone(),
        generation: head.generation,
        size: head.size,
        next: head.range.start,
        end: head.range.end,
        checksum: head.crc32c.filter(|_| whole).map(|expected| Checksum {
            running: 0,
            expected,
        }),
        flow: Some(opened.flow),
        resumes: client.retry.resumes,
        requests: opened.requests,
    };
    Ok(Read {
        generation: head.generation,
        metageneration: head.metageneration,
        size: head.size,
        range: head.range,
        crc32c: head.crc32c,
        body: stream::try_unfold(body, Body::step).boxed(),
    })
}

/// Which bytes to ask for.
struct Aim<'a> {
    name: &'a ObjectName,
    generation: Option<Generation>,
    range: Option<Range<u64>>,
    preconditions: Preconditions,
    /// Requests for them so far.
    requests: u32,
}

struct Opened {
    head: Head,
    flow: Flow,
    requests: u32,
}

async fn open(client: &Shared, aim: &Aim<'_>) -> Result<Opened> {
    let url = client
        .urls
        .object(aim.name)
        .query("alt", "media")
        .number("generation", aim.generation)
        .conditions(&aim.preconditions);
    let mut call = Call::new(Operation::Media, aim.name.as_str(), Method::GET, url)?
        .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
        .under(&aim.preconditions);
    call.collect = None;
    call.requests = aim.requests.into();
    if let Some(range) = &aim.range {
        call = call.header(header::RANGE, range_header(range));
    }
    let Answer {
        status,
        headers,
        body,
    } = client.run(&call).await?;
    let wanted = aim.generation.or(aim.preconditions.generation);
    let head = Head::parse(status, &headers).map_err(|part| call.malformed(part))?;
    head.check(&headers, aim.range.as_ref(), wanted)
        .map_err(|why| call.error(Kind::Corrupt, why))?;
    match body {
        Content::Flow(flow) => Ok(Opened {
            head,
            flow,
            requests: call.requests.into_inner(),
        }),
        Content::Whole(_) => Err(call.malformed(Malformed("body"))),
    }
}

/// The CRC32C of a whole object as it passes by. It costs 0.11 CPU seconds per GiB.
struct Checksum {
    running: u32,
    expected: u32,
}

/// A body under way.
struct Body {
    client: Shared,
    name: ObjectName,
    generation: Generation,
    size: u64,
    /// The offset of the next byte, and of the one behind the last.
    next: u64,
    end: u64,
    checksum: Option<Checksum>,
    flow: Option<Flow>,
    /// How often it may be taken up again before another byte arrives.
    resumes: u32,
    /// Requests so far.
    requests: u32,
}

impl Body {
    /// What few bodies need is on the heap, so that a small read is not a large future.
    async fn step(mut self) -> Result<Option<(Bytes, Self)>> {
        while self.next < self.end {
            let Some(flow) = &mut self.flow else {
                Box::pin(self.resume()).await?;
                continue;
            };
            match flow.next().await {
                Some(Ok(piece)) => {
                    self.client.host.silence.heard();
                    self.take(&piece)?;
                    return Ok(Some((piece, self)));
                }
                Some(Err(lost)) => Box::pin(self.interrupted(&lost)).await?,
                None => {
                    let lost = Lost::new(Cause::Broken, "the body ends early");
                    Box::pin(self.interrupted(&lost)).await?;
                }
            }
        }
        // Seeing the end lets the connection be used again; that there is no more is part of the check.
        match self.flow.take() {
            Some(mut flow) => match flow.next().await {
                Some(Ok(_)) => Err(self.error(Kind::Corrupt, "the body is longer than its range")),
                Some(Err(_)) | None => Ok(None),
            },
            None => Ok(None),
        }
    }

    /// Accounts for a piece. One that completes a whole object is handed on only if the checksum is right, so that
    /// nobody who reads exactly as much as was announced misses the error.
    fn take(&mut self, piece: &Bytes) -> Result<()> {
        self.next += piece.len() as u64;
        self.resumes = self.client.retry.resumes;
        if self.next > self.end {
            return Err(self.error(Kind::Corrupt, "the body is longer than its range"));
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.running = crc32c::crc32c_append(checksum.running, piece);
            if self.next == self.end && checksum.running != checksum.expected {
                return Err(self.error(Kind::Corrupt, "the bytes do not match the object's CRC32C"));
            }
        }
        Ok(())
    }

    /// Lets go of the broken flow; waits before a further resume that follows one without progress.
    async fn interrupted(&mut self, lost: &Lost) -> Result<()> {
        self.flow = None;
        let error = Error {
            cause: Some(lost.cause),
            ..self.error(
                Kind::Unavailable,
                lost.message(self.client.endpoint.authority()),
            )
        };
        let allowed = self.client.retry.resumes;
        if self.resumes == 0 {
            return Err(error);
        }
        let futile = allowed - self.resumes;
        self.resumes -= 1;
        tracing::debug!(operation = OPERATION, cause = ?lost.cause, futile, "taking up a body again");
        let limit = self.client.timeouts.operation;
        let pause = self.client.pause_of_body(&error, futile, limit);
        let Some(pause) = pause else {
            return Err(error);
        };
        self.client.failed_once(Operation::Media, &error, pause);
        sleep(pause).await;
        Ok(())
    }

    async fn resume(&mut self) -> Result<()> {
        let aim = Aim {
            name: &self.name,
            generation: Some(self.generation),
            range: Some(self.next..self.end),
            preconditions: Preconditions::default(),
            requests: self.requests,
        };
        let opened = open(&self.client, &aim).await?;
        if opened.head.size != self.size {
            return Err(self.error(
                Kind::Corrupt,
                "the object's size changed within a generation",
            ));
        }
        self.flow = Some(opened.flow);
        self.requests = opened.requests;
        Ok(())
    }

    fn error(&self, kind: Kind, message: impl Into<String>) -> Error {
        Error::new(kind, OPERATION, &self.name, message)
    }
}
