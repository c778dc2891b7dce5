//! The `Range` header of a read (RFC 9110 section 14), one range as GCS has it.

use std::ops::Range;

/// What a range selects of a body of known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    /// No range, or one that is to be ignored: the whole body with 200.
    Whole,
    Part(Range<u64>),
    /// 416.
    Unsatisfiable,
}

/// Applies a header to a body of `length` bytes. A header that is malformed or names several ranges is ignored,
/// an end beyond the body is clipped.
pub(crate) fn select(header: Option<&str>, length: u64) -> Selection {
    let Some((first, last)) = header
        .and_then(|text| text.trim().strip_prefix("bytes="))
        .and_then(|spec| spec.split_once('-'))
    else {
        return Selection::Whole;
    };
    match (first.trim(), last.trim()) {
        ("", suffix) => select_suffix(suffix, length),
        (first, "") => first
            .parse()
            .map_or(Selection::Whole, |start| part(start, length, length)),
        (first, last) => match (first.parse::<u64>(), last.parse::<u64>()) {
            (Ok(start), Ok(end)) if start <= end => part(start, end.saturating_add(1), length),
            _ => Selection::Whole,
        },
    }
}

fn part(start: u64, end: u64, length: u64) -> Selection {
    if start < length {
        Selection::Part(start..end.min(length))
    } else {
        Selection::Unsatisfiable
    }
}

fn select_suffix(suffix: &str, length: u64) -> Selection {
    match suffix.parse::<u64>() {
        Err(_) => Selection::Whole,
        Ok(0) => Selection::Unsatisfiable,
        // RFC 9110: a suffix longer than the body selects all of it; of an empty body that is no part.
        Ok(_) if length == 0 => Selection::Whole,
        Ok(count) => Selection::Part(length.saturating_sub(count)..length),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        use Selection::{Part, Unsatisfiable, Whole};
        for (header, length, expected) in [
            ("bytes=0-0", 10, Part(0..1)),
            ("bytes=2-4", 10, Part(2..5)),
            ("bytes=2-", 10, Part(2..10)),
            ("bytes=0-999", 10, Part(0..10)),
            ("bytes=0-18446744073709551615", 10, Part(0..10)),
            ("bytes=-3", 10, Part(7..10)),
            ("bytes=-30", 10, Part(0..10)),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=10-20", 10, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=-5", 0, Whole),
            ("bytes=4-2", 10, Whole),
            ("bytes=a-b", 10, Whole),
            ("bytes=0-1,3-4", 10, Whole),
            ("items=0-1", 10, Whole),
        ] {
            assert_eq!(
                select(Some(header), length),
                expected,
                "{header} of {length}"
            );
        }
        assert_eq!(select(None, 10), Whole);
    }
}
