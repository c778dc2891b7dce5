//! Bytes of one generation, checked, and taken up again where a body breaks or stalls.
//!
//! Reads use `alt=media` of the JSON API, so that errors, preconditions and custom endpoints are those of every other
//! call. `Accept-Encoding: gzip` makes the store send what it stores; without it an object with
//! `Content-Encoding: gzip` arrives decompressed and ignores ranges
//! (<https://cloud.google.com/storage/docs/transcoding>).

use std::ops::Range;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::time::sleep;

use super::call::{Answer, Call, Content, Shared};
use super::resource::{Malformed, crc32c_of};
use super::retry;
use super::transport::{Flow, Lost};
use crate::store::{Preconditions, Read, ReadRequest};
use crate::{Cause, Error, Generation, Kind, Metageneration, ObjectName, Result};

const OPERATION: &str = "storage.objects.get";

const GENERATION: HeaderName = HeaderName::from_static("x-goog-generation");
const METAGENERATION: HeaderName = HeaderName::from_static("x-goog-metageneration");
const STORED_LENGTH: HeaderName = HeaderName::from_static("x-goog-stored-content-length");
const HASH: HeaderName = HeaderName::from_static("x-goog-hash");

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
}

struct Opened {
    head: Head,
    flow: Flow,
}

/// What an answer says of itself.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    generation: Generation,
    metageneration: Metageneration,
    size: u64,
    range: Range<u64>,
    crc32c: Option<u32>,
}

async fn open(client: &Shared, aim: &Aim<'_>) -> Result<Opened> {
    let url = client
        .urls
        .object(aim.name)
        .query("alt", "media")
        .number("generation", aim.generation)
        .conditions(&aim.preconditions);
    let mut call = Call::new(OPERATION, aim.name.as_str(), Method::GET, url)?
        .header(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))
        .under(&aim.preconditions);
    call.collect = None;
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
        Content::Flow(flow) => Ok(Opened { head, flow }),
        Content::Whole(_) => Err(call.malformed(Malformed("body"))),
    }
}

fn range_header(range: &Range<u64>) -> HeaderValue {
    let text = match i64::try_from(range.end) {
        Ok(end) => format!("bytes={}-{}", range.start, end - 1),
        // No object is that long; an open range says the same in numbers that every server can hold.
        Err(_) => format!("bytes={}-", range.start),
    };
    #[expect(clippy::expect_used, reason = "digits and ASCII punctuation")]
    HeaderValue::try_from(text).expect("a range is a header value")
}

impl Head {
    fn parse(status: StatusCode, headers: &HeaderMap) -> Result<Self, Malformed> {
        let generation = number(headers, &GENERATION)?.ok_or(Malformed("x-goog-generation"))?;
        let length: Option<u64> = number(headers, &header::CONTENT_LENGTH)?;
        let stored: Option<u64> = number(headers, &STORED_LENGTH)?;
        let (range, size) = match status {
            StatusCode::PARTIAL_CONTENT => content_range(headers)?,
            _ => {
                let size = stored.or(length).ok_or(Malformed("length"))?;
                (0..size, size)
            }
        };
        let mut crc32c = None;
        for value in headers.get_all(&HASH) {
            let value = value.to_str().map_err(|_| Malformed("x-goog-hash"))?;
            crc32c = crc32c_of(value)?.or(crc32c);
        }
        Ok(Self {
            generation: Generation(generation),
            // Every service of Google's says it; 0 is no metageneration and stands for "not told".
            metageneration: Metageneration(number(headers, &METAGENERATION)?.unwrap_or(0)),
            size,
            range,
            crc32c,
        })
    }

    /// Whether this is what was asked for.
    fn check(
        &self,
        headers: &HeaderMap,
        asked: Option<&Range<u64>>,
        generation: Option<Generation>,
    ) -> Result<(), &'static str> {
        if generation
            .is_some_and(|wanted| wanted != self.generation && wanted != Generation::ABSENT)
        {
            return Err("the answer is of another generation than the one that was asked for");
        }
        let expected = match asked {
            Some(asked) => asked.start..asked.end.min(self.size),
            None => 0..self.size,
        };
        if self.range != expected {
            return Err("the answer is not the range that was asked for");
        }
        let length = number::<u64>(headers, &header::CONTENT_LENGTH);
        if length.is_ok_and(|l| l.is_some_and(|l| l != self.range.end - self.range.start)) {
            return Err("the answer is not as long as its range");
        }
        let stored = number::<u64>(headers, &STORED_LENGTH);
        if stored.is_ok_and(|stored| stored.is_some_and(|stored| stored != self.size)) {
            return Err("the answer is not of the object as it is stored");
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(
    headers: &HeaderMap,
    name: &HeaderName,
) -> Result<Option<T>, Malformed> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(|text| text.parse().ok());
    parsed.map(Some).ok_or(Malformed("number in its headers"))
}

/// The range and the size from `bytes FIRST-LAST/SIZE`.
fn content_range(headers: &HeaderMap) -> Result<(Range<u64>, u64), Malformed> {
    let parse = || {
        let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
        let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let end = last.parse::<u64>().ok()?.checked_add(1)?;
        Some((first.parse().ok()?..end, size.parse().ok()?))
    };
    parse().ok_or(Malformed("content-range"))
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
}

impl Body {
    async fn step(mut self) -> Result<Option<(Bytes, Self)>> {
        while self.next < self.end {
            let Some(flow) = &mut self.flow else {
                self.resume().await?;
                continue;
            };
            match flow.next().await {
                Some(Ok(piece)) => {
                    self.take(&piece)?;
                    return Ok(Some((piece, self)));
                }
                Some(Err(lost)) => self.interrupted(&lost).await?,
                None => {
                    let lost = Lost::new(Cause::Broken, "the body ends early");
                    self.interrupted(&lost).await?;
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
        if futile > 0 {
            let noise = self.client.noise.next();
            sleep(retry::pause(&self.client.retry, &error, futile, noise)).await;
        }
        Ok(())
    }

    async fn resume(&mut self) -> Result<()> {
        let aim = Aim {
            name: &self.name,
            generation: Some(self.generation),
            range: Some(self.next..self.end),
            preconditions: Preconditions::default(),
        };
        let opened = open(&self.client, &aim).await?;
        if opened.head.size != self.size {
            return Err(self.error(
                Kind::Corrupt,
                "the object's size changed within a generation",
            ));
        }
        self.flow = Some(opened.flow);
        Ok(())
    }

    fn error(&self, kind: Kind, message: impl Into<String>) -> Error {
        Error::new(kind, OPERATION, &self.name, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn verdict(
        status: u16,
        fields: &[(&'static str, &str)],
        asked: Option<&Range<u64>>,
        generation: Option<i64>,
    ) -> Result<Head, &'static str> {
        let headers = headers(fields);
        let status = StatusCode::from_u16(status).unwrap();
        let head = Head::parse(status, &headers).map_err(|Malformed(part)| part)?;
        head.check(&headers, asked, generation.map(Generation))?;
        Ok(head)
    }

    #[test]
    fn a_good_answer_is_understood() {
        let fields = [
            ("x-goog-generation", "7"),
            ("x-goog-metageneration", "2"),
            ("x-goog-stored-content-length", "10"),
            ("x-goog-hash", "crc32c=mnG7TA=="),
            ("content-length", "3"),
            ("content-range", "bytes 7-9/10"),
        ];
        let head = verdict(206, &fields, Some(&(7..100)), Some(7)).unwrap();
        assert_eq!(
            head,
            Head {
                generation: Generation(7),
                metageneration: Metageneration(2),
                size: 10,
                range: 7..10,
                crc32c: Some(crc32c::crc32c(b"hello")),
            }
        );
    }

    #[test]
    fn whatever_was_not_asked_for_is_refused() {
        let generation = ("x-goog-generation", "7");
        let length = ("content-length", "10");
        let part = ("content-range", "bytes 0-4/10");
        let table: [(u16, &[(&'static str, &str)], _, _, _); 9] = [
            (200, &[length], None, None, "x-goog-generation"),
            (200, &[generation], None, None, "length"),
            (
                206,
                &[generation, length],
                Some(&(0..5)),
                None,
                "content-range",
            ),
            (
                200,
                &[generation, ("content-length", "x")],
                None,
                None,
                "number in its headers",
            ),
            (
                200,
                &[generation, length],
                None,
                Some(8),
                "another generation",
            ),
            (
                200,
                &[generation, length],
                Some(&(0..5)),
                None,
                "not the range",
            ),
            (
                206,
                &[generation, part],
                Some(&(0..6)),
                None,
                "not the range",
            ),
            (
                206,
                &[generation, part, length],
                Some(&(0..5)),
                None,
                "not as long",
            ),
            (
                206,
                &[generation, part, ("x-goog-stored-content-length", "9")],
                Some(&(0..5)),
                None,
                "as it is stored",
            ),
        ];
        for (status, fields, asked, generation, why) in table {
            let refused = verdict(status, fields, asked, generation).unwrap_err();
            assert!(refused.contains(why), "{refused}: {why}");
        }
    }

    #[test]
    fn transcoded_answers_are_refused() {
        let fields = [
            ("x-goog-generation", "7"),
            ("x-goog-stored-content-length", "10"),
            ("content-length", "100"),
        ];
        let refused = verdict(200, &fields, None, None).unwrap_err();
        assert!(refused.contains("not as long"), "{refused}");
    }

    #[test]
    fn ranges_are_inclusive_on_the_wire() {
        assert_eq!(range_header(&(0..1)), "bytes=0-0");
        assert_eq!(range_header(&(5..1 << 40)), "bytes=5-1099511627775");
        assert_eq!(range_header(&(5..u64::MAX)), "bytes=5-");
    }
}
