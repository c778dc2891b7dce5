//! The store's clock, as its answers tell it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, header};
use parking_lot::Mutex;

use crate::store::ClockOffset;

/// No offset between two times that a `Date` can tell.
const UNKNOWN: i64 = i64::MIN;

/// Bytes of a `Date` in the form that servers send.
const DATE: usize = "Sun, 06 Nov 1994 08:49:37 GMT".len();

/// The offset that the last answer told.
#[derive(Debug)]
pub(super) struct Clock {
    offset: AtomicI64,
    /// The last `Date` and its seconds: all answers within a second tell the same.
    last: Mutex<([u8; DATE], i64)>,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            offset: AtomicI64::new(UNKNOWN),
            last: Mutex::new(([0; DATE], 0)),
        }
    }

    /// Compares the `Date` of an answer that arrived `now`. One out of a cache tells a time long past, and has an `Age`.
    pub(super) fn hear(&self, headers: &HeaderMap, now: SystemTime) {
        if headers.contains_key(header::AGE) {
            return;
        }
        let date = headers.get(header::DATE).and_then(|date| self.date(date));
        if let Some(offset) = date.and_then(|date| Some(date - seconds(now)?)) {
            self.offset.store(offset, Ordering::Relaxed);
        }
    }

    /// Seconds since the epoch.
    fn date(&self, date: &HeaderValue) -> Option<i64> {
        let text: Option<[u8; DATE]> = date.as_bytes().try_into().ok();
        if let Some(text) = text {
            let last = self.last.lock();
            if last.0 == text {
                return Some(last.1);
            }
        }
        let parsed = seconds(httpdate::parse_http_date(date.to_str().ok()?).ok()?)?;
        if let Some(text) = text {
            *self.last.lock() = (text, parsed);
        }
        Some(parsed)
    }

    pub(super) fn offset(&self) -> Option<ClockOffset> {
        let offset = self.offset.load(Ordering::Relaxed);
        (offset != UNKNOWN).then_some(ClockOffset(offset))
    }
}

/// Since the epoch. Both sides are cut, so that clocks that agree are zero seconds apart and not half of one.
fn seconds(time: SystemTime) -> Option<i64> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;

    /// 1994-11-06T08:49:37.999Z.
    const NOW: Duration = Duration::from_millis(784_111_777_999);

    fn hear(clock: &Clock, headers: &[(header::HeaderName, &'static str)]) -> Option<i64> {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
        clock.hear(&headers.collect(), UNIX_EPOCH + NOW);
        clock.offset().map(|offset| offset.0)
    }

    #[test]
    fn dates_are_compared_to_the_second() {
        for (date, offset) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
            ("Sun, 06 Nov 1994 08:49:38 GMT", 1),
            ("Sunday, 06-Nov-94 08:49:36 GMT", -1),
            ("Sun Nov  6 10:49:37 1994", 7200),
            ("Thu, 01 Jan 1970 00:00:00 GMT", -784_111_777),
        ] {
            let heard = hear(&Clock::new(), &[(header::DATE, date)]);
            assert_eq!(heard, Some(offset), "{date}");
        }
    }

    #[test]
    fn what_tells_no_time_changes_nothing() {
        let clock = Clock::new();
        assert_eq!(hear(&clock, &[]), None);
        let date = "Sun, 06 Nov 1994 08:49:47 GMT";
        assert_eq!(hear(&clock, &[(header::DATE, date)]), Some(10));
        for headers in [
            vec![],
            vec![(header::DATE, "soon")],
            vec![
                (header::DATE, "Sun, 06 Nov 1994 08:00:00 GMT"),
                (header::AGE, "2987"),
            ],
        ] {
            assert_eq!(hear(&clock, &headers), Some(10), "{headers:?}");
        }
    }
}
