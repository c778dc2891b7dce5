//! How long to wait: pure decisions about one operation and about one request on its way.
//!
//! A body that moves is waited for, however slow the link: the time that it takes does not count against the
//! operation. What ends it is a pause between two of its bytes.

use std::time::Duration;

use tokio::time::Instant;

use super::config::Timeouts;

/// Bytes that the connection took may wait in the kernels on both sides, where nobody sees them move.
const BUFFERED: u64 = 4 << 20;

/// The most of them by which a full buffer empties before it takes more: Linux waits for a third of it.
const STEP: u64 = 2 << 20;

/// Bytes a second at which those are expected to leave.
const SLOWEST: u64 = 64 << 10;

/// The end of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    end: Instant,
    moving: Duration,
}

impl Deadline {
    pub(super) fn after(limit: Duration) -> Self {
        Self {
            end: Instant::now() + limit,
            moving: Duration::ZERO,
        }
    }

    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Puts the end off by a time in which a body moved.
    pub(super) fn put_off(&mut self, moving: Duration) {
        self.end += moving;
        self.moving += moving;
    }

    /// By how much it was put off.
    pub(super) fn moving(&self) -> Duration {
        self.moving
    }
}

/// How far the connection has taken a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transit {
    taken: u64,
    first: Instant,
    last: Instant,
}

impl Transit {
    /// Bytes that the connection took.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// `transit` while the next bytes wait by our own choice until `end`: as good as on their way.
    pub(super) fn held(transit: Option<Self>, end: Instant) -> Self {
        let (taken, first) =
            transit.map_or((0, Instant::now()), |before| (before.taken, before.first));
        Self {
            taken,
            first,
            last: end,
        }
    }

    /// `transit` after another `count` bytes.
    pub(super) fn advanced(transit: Option<Self>, count: u64) -> Self {
        let now = Instant::now();
        let (taken, first) = transit.map_or((0, now), |before| (before.taken, before.first));
        Self {
            taken: taken + count,
            first,
            last: now,
        }
    }
}

/// Until when to wait for the head of the answer to a request that was begun at `start`, whose body of `length` bytes
/// is in `transit`, in an operation that ends at `end`.
pub(super) fn patience(
    transit: Option<Transit>,
    length: u64,
    start: Instant,
    end: Instant,
    timeouts: &Timeouts,
) -> Instant {
    match transit {
        None => end.min(start + timeouts.first_byte),
        Some(transit) if transit.taken() < length => {
            transit.last + timeouts.idle + draining(transit.taken().min(STEP))
        }
        Some(transit) => {
            let end = end + (transit.last - transit.first);
            end.min(transit.last + timeouts.first_byte) + draining(length)
        }
    }
}

/// How much of the time until `now` the body was, or may have been, moving.
pub(super) fn moving(transit: Transit, length: u64, now: Instant) -> Duration {
    let longest = transit.last - transit.first + draining(length);
    longest.min(now - transit.first)
}

fn draining(length: u64) -> Duration {
    Duration::from_millis(length.min(BUFFERED) * 1000 / SLOWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_moves_is_waited_for_and_silence_is_not() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let transit = |taken, first, last| {
            Some(Transit {
                taken,
                first: at(first),
                last: at(last),
            })
        };
        let timeouts = Timeouts::default();
        // Where the body is; its length; when the operation ends; until when to wait; how much of that is put off.
        let table = [
            // No body, or none of it taken yet: the first byte, but not beyond the operation.
            (None, 0, 120, 30, 0),
            (None, 8 * MIB, 120, 30, 0),
            (None, 8 * MIB, 20, 20, 0),
            // Under way: the idle limit and a step of the buffers, long after the operation's own time.
            (transit(1024, 1, 1), 8 * MIB, 120, 16, 15),
            (transit(MIB, 1, 1), 8 * MIB, 120, 16 + 16, 15 + 16),
            (transit(7 * MIB, 1, 900), 8 * MIB, 120, 915 + 32, 914 + 32),
            // Taken: the first byte and what the buffers need, as if the operation had stood still meanwhile.
            (transit(1024, 1, 1), 1024, 120, 31, 0),
            (transit(1024, 1, 1), 1024, 20, 20, 0),
            (transit(MIB, 1, 1), MIB, 120, 31 + 16, 16),
            (transit(8 * MIB, 1, 900), 8 * MIB, 120, 930 + 64, 899 + 64),
            (transit(8 * MIB, 1, 900), 8 * MIB, 20, 919 + 64, 899 + 64),
        ];
        for (transit, length, end, until, free) in table {
            let got = patience(transit, length, start, at(end), &timeouts);
            assert_eq!((got - start).as_secs(), until, "{transit:?}");
            let put_off = transit.map_or(Duration::ZERO, |transit| moving(transit, length, got));
            assert_eq!(put_off.as_secs(), free, "{transit:?}");
        }
    }
}
