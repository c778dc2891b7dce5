//! Whether and when a failed attempt is repeated: pure decisions.
//!
//! Source of the rules: <https://cloud.google.com/storage/docs/retry-strategy>.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::config::{Budget, Retry};
use super::tokens::{Refill, Tokens};
use crate::{Cause, Error, Kind};

/// What repeating a call can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Safety {
    /// It changes nothing.
    Read,
    /// It changes something, and a precondition keeps it from doing so twice.
    Conditional,
    /// It may act twice.
    Once,
}

/// Whether to repeat after `error`.
pub(super) fn repeats(safety: Safety, error: &Error) -> bool {
    match error.kind {
        Kind::Throttled => true,
        Kind::Unavailable if error.cause == Some(Cause::Tls) => false,
        Kind::Unavailable => match safety {
            Safety::Read | Safety::Conditional => true,
            Safety::Once => !may_have_acted(error),
        },
        Kind::NotFound
        | Kind::Exists
        | Kind::NotEmpty
        | Kind::Precondition
        | Kind::Denied
        | Kind::Unauthenticated
        | Kind::Canceled
        | Kind::Corrupt
        | Kind::OutOfRange
        | Kind::Gone
        | Kind::TooLarge
        | Kind::Held
        | Kind::Unsupported
        | Kind::Invalid => false,
    }
}

/// Whether the store may have done what was asked although the attempt failed.
pub(super) fn may_have_acted(error: &Error) -> bool {
    match (error.kind, error.cause) {
        (Kind::Unavailable, Some(cause)) => cause.may_have_acted(),
        // An answer: 5xx says nothing of what happened before it.
        (Kind::Unavailable, None) => true,
        _ => false,
    }
}

/// Whether nobody was there to be heard: what tells a silent store from one that fails.
pub(super) fn is_unheard(error: &Error) -> bool {
    match error.cause {
        Some(Cause::TimedOut | Cause::Unreachable) => true,
        Some(
            Cause::UnknownHost
            | Cause::Refused
            | Cause::Tls
            | Cause::Credentials
            | Cause::Busy
            | Cause::Broken,
        )
        | None => false,
    }
}

/// How long to wait before attempt number `next`, counted from 1; `noise` is any 64 bits.
///
/// Full jitter: anywhere between nothing and a limit that doubles, so that clients that failed together do not come
/// back together. Throttled calls wait at least half the limit, since the store counts them against a rate.
pub(super) fn pause(policy: &Retry, error: &Error, next: u32, noise: u64) -> Duration {
    let throttled = error.kind == Kind::Throttled;
    let base = if throttled {
        policy.throttled_base
    } else {
        policy.base
    };
    let doublings = next.saturating_sub(1).min(20);
    let limit = base.saturating_mul(1 << doublings).min(policy.cap);
    let floor = if throttled { limit / 2 } else { Duration::ZERO };
    let pause = floor + fraction(limit - floor, noise);
    let asked = error.retry_after.unwrap_or_default();
    pause.max(asked.min(policy.retry_after_cap))
}

fn fraction(whole: Duration, noise: u64) -> Duration {
    let nanos = (whole.as_nanos() * u128::from(noise >> 32)) >> 32;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// What is left of a budget of repetitions. Clients of one host share it.
///
/// Whoever repeats takes a token, and each new operation adds a part of one. So an outage that fails every call makes
/// the load no more than that part larger, whatever one operation alone may repeat. Repetitions beyond that are put
/// off, not forgone, as long as the operation has time: a file system that waits is better than one that fails.
#[derive(Debug, Default)]
pub(super) struct Retries(Tokens);

impl Retries {
    /// An operation begins.
    pub(super) fn earn(&self, budget: &Budget) {
        self.0
            .give(&refill(budget), f64::from(budget.percent) / 100.0);
    }

    /// Takes a turn to repeat, and tells how far off it is; `None` where that is beyond `limit`.
    pub(super) fn take(&self, budget: &Budget, limit: Duration) -> Option<Duration> {
        self.0.take(&refill(budget), 1.0, limit)
    }
}

fn refill(budget: &Budget) -> Refill {
    Refill {
        per_second: f64::from(budget.per_second),
        capacity: f64::from(budget.burst),
    }
}

/// A sequence of random bits that a seed repeats. SplitMix64, which needs one atomic addition a number.
#[derive(Debug)]
pub(super) struct Noise(AtomicU64);

impl Noise {
    pub(super) fn new(seed: Option<u64>) -> Self {
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        Self(AtomicU64::new(seed))
    }

    pub(super) fn next(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: Kind, cause: Option<Cause>) -> Error {
        Error {
            cause,
            ..Error::new(kind, "storage.objects.get", "o", "x")
        }
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        let policy = Retry::default();
        let error = error(Kind::Unavailable, None);
        let longest = |next| pause(&policy, &error, next, u64::MAX).as_millis();
        assert_eq!([1, 2, 3].map(longest), [249, 499, 999]);
        assert_eq!([8, 9, 100].map(longest), [29_999, 29_999, 29_999]);
        assert_eq!(pause(&policy, &error, 5, 0), Duration::ZERO);
    }

    #[test]
    fn throttled_calls_wait_at_least_half() {
        let policy = Retry::default();
        let error = error(Kind::Throttled, None);
        assert_eq!(pause(&policy, &error, 1, 0).as_millis(), 500);
        assert_eq!(pause(&policy, &error, 3, 0).as_millis(), 2000);
        assert_eq!(pause(&policy, &error, 3, u64::MAX).as_millis(), 3999);
    }

    #[test]
    fn retry_after_is_honoured_up_to_its_cap() {
        let policy = Retry::default();
        let mut error = error(Kind::Unavailable, None);
        error.retry_after = Some(Duration::from_secs(7));
        assert_eq!(pause(&policy, &error, 1, 0).as_secs(), 7);
        error.retry_after = Some(Duration::from_secs(7000));
        assert_eq!(pause(&policy, &error, 1, 0).as_secs(), 60);
    }

    #[test]
    fn noise_repeats_with_its_seed() {
        let (a, b) = (Noise::new(Some(7)), Noise::new(Some(7)));
        let first = [a.next(), a.next()];
        assert_eq!(first, [b.next(), b.next()]);
        assert_ne!(first[0], first[1]);
    }
}
