//! A resumable upload session: the protocol, one request at a time.
//!
//! Source: <https://cloud.google.com/storage/docs/performing-resumable-uploads>.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};

use super::call::{Answer, Call, Failed};
use super::client::Client;
use super::operation::Operation;
use super::payload::Payload;
use super::resource::{Insert, Malformed, crc32c_text, parse_object};
use super::write::OPERATION;
use crate::store::WriteRequest;
use crate::{Error, Kind, Object, ObjectName, Result};

const HASH: HeaderName = HeaderName::from_static("x-goog-hash");

/// Where the bytes of one upload go. Whoever knows the URL can write, so it appears in no text.
#[derive(Clone)]
pub(super) struct Session {
    uri: Uri,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session([redacted])")
    }
}

/// How far the store is.
#[derive(Debug)]
pub(super) enum Progress {
    /// It holds this many bytes and wants more.
    Stored(u64),
    /// The object is published.
    Published(Box<Object>),
}

/// Bytes at an offset, and how the upload ends where they are the last.
#[derive(Clone)]
pub(super) struct Chunk {
    pub(super) offset: u64,
    pub(super) payload: Payload,
    pub(super) last: Option<Checksum>,
}

/// CRC32C of the whole content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checksum(pub(super) u32);

impl Chunk {
    /// The offset behind it.
    pub(super) fn end(&self) -> u64 {
        self.offset + self.payload.len()
    }

    /// What is left of it behind `stored` bytes of the upload.
    pub(super) fn behind(&self, stored: u64) -> Self {
        let mut rest = self.clone();
        rest.payload.advance(stored - self.offset);
        rest.offset = stored;
        rest
    }

    fn content_range(&self) -> String {
        let (first, end) = (self.offset, self.end());
        match (self.last, first == end) {
            (Some(_), true) => format!("bytes */{end}"),
            (Some(_), false) => format!("bytes {first}-{}/{end}", end - 1),
            (None, _) => format!("bytes {first}-{}/*", end.saturating_sub(1)),
        }
    }
}

impl Client {
    /// Opens a session. Repeating that is harmless: a session that nobody fills is forgotten.
    pub(super) async fn begin_session(&self, request: &WriteRequest) -> Result<Session> {
        let url = self
            .urls
            .upload("resumable")
            .conditions(&request.preconditions);
        let insert = Insert::new(Some(&request.name), &request.attributes, None);
        let call = Call::new(
            Operation::SessionBegin,
            request.name.as_str(),
            Method::POST,
            url,
        )?
        .json(&insert)
        .under(&request.preconditions);
        let answer = self.run(&call).await?;
        let uri = answer
            .headers
            .get(header::LOCATION)
            .and_then(|location| Uri::try_from(location.as_bytes()).ok())
            .filter(|uri| self.endpoint.same_scheme(uri))
            .ok_or_else(|| call.malformed(Malformed("location of an upload session")))?;
        Ok(Session { uri })
    }

    /// Sends a chunk. Not repeated where it may have been stored: ask first. Adds to the `requests` that were sent for it.
    pub(super) async fn send_chunk(
        &self,
        session: &Session,
        request: &WriteRequest,
        chunk: &Chunk,
        requests: &mut u32,
    ) -> Result<Progress, Failed> {
        let mut call =
            self.session_call(Operation::SessionChunk, session, &request.name, Method::PUT);
        call = with_range(call, chunk.content_range()).under(&request.preconditions);
        if let Some(Checksum(crc32c)) = chunk.last {
            let hash = format!("crc32c={}", crc32c_text(crc32c));
            call = call.header(HASH, ascii(hash));
        }
        call.payload = chunk.payload.clone();
        call.content = 0..chunk.payload.len();
        call.requests = (*requests).into();
        let answer = self.run(&call).await;
        *requests = call.requests.into_inner();
        let answer = answer?;
        progress(&answer, &request.name).map_err(Failed::certain)
    }

    /// Asks how far the store is.
    pub(super) async fn query_session(
        &self,
        session: &Session,
        request: &WriteRequest,
        total: Option<u64>,
    ) -> Result<Progress, Failed> {
        let range = match total {
            Some(total) => format!("bytes */{total}"),
            None => "bytes */*".to_owned(),
        };
        let call = self.session_call(Operation::SessionQuery, session, &request.name, Method::PUT);
        let call = with_range(call, range).under(&request.preconditions);
        let answer = self.run(&call).await?;
        progress(&answer, &request.name).map_err(Failed::certain)
    }

    /// Tells the store to forget the session, once. It says so with status 499, which is an error of its own kind.
    pub(super) async fn end_session(&self, session: &Session, name: &ObjectName) {
        let call = self.session_call(Operation::SessionEnd, session, name, Method::DELETE);
        let _ = self.run(&call).await;
    }

    fn session_call<'a>(
        &self,
        operation: Operation,
        session: &'a Session,
        name: &'a ObjectName,
        method: Method,
    ) -> Call<'a> {
        let mut call = Call::at(operation, name.as_str(), method, session.uri.clone());
        call.secret = session.uri.query();
        call
    }
}

fn with_range(call: Call<'_>, range: String) -> Call<'_> {
    call.header(header::CONTENT_RANGE, ascii(range))
}

fn ascii(text: String) -> HeaderValue {
    #[expect(clippy::expect_used, reason = "digits, base64 and ASCII punctuation")]
    HeaderValue::try_from(text).expect("ranges and checksums are header values")
}

fn progress(answer: &Answer, name: &ObjectName) -> Result<Progress> {
    let result = if answer.status == StatusCode::PERMANENT_REDIRECT {
        stored(&answer.headers).map(Progress::Stored)
    } else {
        parse_object(answer.bytes()).map(|object| Progress::Published(Box::new(object)))
    };
    result.map_err(|Malformed(part)| {
        let message = format!("the answer has no proper {part}");
        Error::new(Kind::Corrupt, OPERATION, name, message)
    })
}

/// The count in `bytes=0-LAST`; without the header the store holds nothing.
fn stored(headers: &HeaderMap) -> Result<u64, Malformed> {
    let Some(range) = headers.get(header::RANGE) else {
        return Ok(0);
    };
    let parse = || {
        let last = range.to_str().ok()?.trim().strip_prefix("bytes=0-")?;
        last.parse::<u64>().ok()?.checked_add(1)
    };
    parse().ok_or(Malformed("range of stored bytes"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn chunk(offset: u64, length: usize, last: bool) -> Chunk {
        Chunk {
            offset,
            payload: Bytes::from(vec![0; length]).into(),
            last: last.then_some(Checksum(0)),
        }
    }

    #[test]
    fn ranges_name_first_and_last_byte_and_the_total_at_the_end() {
        for (chunk, range) in [
            (chunk(0, 10, false), "bytes 0-9/*"),
            (chunk(10, 10, false), "bytes 10-19/*"),
            (chunk(20, 1, true), "bytes 20-20/21"),
            (chunk(20, 0, true), "bytes */20"),
            (chunk(0, 10, false).behind(4), "bytes 4-9/*"),
            (chunk(10, 10, true).behind(20), "bytes */20"),
        ] {
            assert_eq!(chunk.content_range(), range);
        }
    }

    #[test]
    fn stored_bytes_are_counted() {
        let count = |range: &'static str| {
            stored(&HeaderMap::from_iter([(
                header::RANGE,
                HeaderValue::from_static(range),
            )]))
        };
        assert_eq!(stored(&HeaderMap::new()), Ok(0));
        assert_eq!(count("bytes=0-262143"), Ok(262_144));
        for wrong in ["bytes=1-2", "0-5", "bytes=0-x", ""] {
            assert_eq!(
                count(wrong),
                Err(Malformed("range of stored bytes")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn the_url_is_never_shown() {
        let session = Session {
            uri: Uri::from_static("https://h/upload?upload_id=s3cret"),
        };
        assert!(!format!("{session:?}").contains("s3cret"));
    }
}
