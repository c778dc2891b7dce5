//! Time as the broker sees it: a clock that only goes forward, that goes on counting while the
//! machine is suspended, and that nobody can set. Expiry is measured on it, never on the wall
//! clock, so a corrected or jumping wall clock changes nothing.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A point in time on a [`Clock`]: the time since an origin that the clock chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The origin of the clock.
    pub const ORIGIN: Self = Self(Duration::ZERO);

    /// The moment that lies `elapsed` after the origin.
    #[must_use]
    pub const fn after_origin(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// How long this moment lies after `earlier`; zero if it does not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, later_by: Duration) -> Self {
        Self(self.0.saturating_add(later_by))
    }
}

/// Where the broker reads the time. A test brings its own.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment. Never earlier than one that the same clock returned before.
    fn now(&self) -> Moment;
}

/// The kernel's `CLOCK_BOOTTIME`: monotonic, and unlike `CLOCK_MONOTONIC` it counts the time spent
/// in suspend, in which tokens age too. Read through the vDSO, some tens of nanoseconds a call (see
/// `clock_gettime(2)`).
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        let elapsed = clock_gettime(ClockId::CLOCK_BOOTTIME).expect(
            "CLOCK_BOOTTIME exists since Linux 2.6.39 and the kernel fills a valid pointer",
        );
        Moment(elapsed.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_clock_never_goes_back() {
        let first = BootClock.now();
        let second = BootClock.now();
        assert!(second >= first);
        assert!(first > Moment::ORIGIN);
    }

    #[test]
    fn arithmetic_saturates() {
        let late = Moment::ORIGIN + Duration::MAX;
        assert_eq!(late + Duration::from_secs(1), late);
        assert_eq!(Moment::ORIGIN.since(late), Duration::ZERO);
    }
}
