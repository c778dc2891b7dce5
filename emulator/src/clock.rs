//! The clock of one emulator: the machine's wall clock plus an offset that a test or an operator can push
//! forward, so that tokens expire and sessions age without anybody sleeping. What it tells its callers may be skewed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// Wall-clock time since the Unix epoch. Never before it, may repeat a value.
pub(crate) type Timestamp = Duration;

/// The last second of the year 9999, behind which no `Date` can be written.
const LAST_SECOND: i64 = 253_402_300_799;

/// Clones share offset and skew.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    offset_micros: Arc<AtomicU64>,
    skew_seconds: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        let machine = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        machine + Duration::from_micros(self.offset_micros.load(Ordering::Relaxed))
    }

    /// Moves the clock forward. It cannot go back: generations and expiries rely on that.
    pub(crate) fn advance(&self, by: Duration) {
        let micros = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        self.offset_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Makes what callers are told differ by so many seconds. Nothing inside goes by it.
    pub(crate) fn skew(&self, seconds: i64) {
        self.skew_seconds.store(seconds, Ordering::Relaxed);
    }

    /// The time as a `Date` header tells it: in whole seconds, with the skew.
    pub(crate) fn told(&self) -> Timestamp {
        let seconds = i64::try_from(self.now().as_secs())
            .unwrap_or(LAST_SECOND)
            .saturating_add(self.skew_seconds.load(Ordering::Relaxed))
            .clamp(0, LAST_SECOND);
        Duration::from_secs(seconds.unsigned_abs())
    }
}

/// A timestamp as a calendar date in UTC; beyond the year 9999 it stays at the epoch.
pub(crate) fn calendar(at: Timestamp) -> OffsetDateTime {
    i64::try_from(at.as_secs())
        .ok()
        .and_then(|secs| OffsetDateTime::from_unix_timestamp(secs).ok())
        .and_then(|date| date.replace_nanosecond(at.subsec_nanos()).ok())
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advancing_one_clone_moves_the_other() {
        let clock = Clock::default();
        let twin = clock.clone();
        let before = twin.now();
        clock.advance(Duration::from_secs(3600));
        assert!(twin.now() >= before + Duration::from_secs(3600));
    }

    #[test]
    fn a_skew_changes_what_is_told_and_nothing_else() {
        let clock = Clock::default();
        let seconds = || clock.told().as_secs().cast_signed();
        for (skew, told) in [(i64::MIN, 0), (i64::MAX, LAST_SECOND)] {
            clock.skew(skew);
            assert_eq!(seconds(), told);
        }
        clock.skew(-3600);
        let before = clock.now().as_secs().cast_signed();
        let told = seconds();
        let after = clock.now().as_secs().cast_signed();
        assert!((before - 3600..=after - 3600).contains(&told), "{told}");
    }

    #[test]
    fn calendar_keeps_milliseconds() {
        let date = calendar(Duration::from_millis(1_700_000_000_123));
        assert_eq!((date.year(), date.millisecond()), (2023, 123));
    }
}
