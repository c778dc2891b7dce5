//! The range that is asked for, and what an answer says of itself: read from its headers and held against it.

use std::ops::Range;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::client::json::resource::{Malformed, crc32c_of};
use crate::{Generation, Metageneration};

const GENERATION: HeaderName = HeaderName::from_static("x-goog-generation");
const METAGENERATION: HeaderName = HeaderName::from_static("x-goog-metageneration");
const STORED_LENGTH: HeaderName = HeaderName::from_static("x-goog-stored-content-length");
const HASH: HeaderName = HeaderName::from_static("x-goog-hash");

/// What an answer says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) generation: Generation,
    pub(super) metageneration: Metageneration,
    pub(super) size: u64,
    pub(super) range: Range<u64>,
    pub(super) crc32c: Option<u32>,
}

impl Head {
    pub(super) fn parse(status: StatusCode, headers: &HeaderMap) -> Result<Self, Malformed> {
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
    pub(super) fn check(
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

pub(super) fn range_header(range: &Range<u64>) -> HeaderValue {
    let text = match i64::try_from(range.end) {
        Ok(end) => format!("bytes={}-{}", range.start, end - 1),
        // No object is that long; an open range says the same in numbers that every server can hold.
        Err(_) => format!("bytes={}-", range.start),
    };
    #[expect(clippy::expect_used, reason = "digits and ASCII punctuation")]
    HeaderValue::try_from(text).expect("a range is a header value")
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
