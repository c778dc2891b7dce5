//! Rates that a user has set, kept by everything that shares an [`Http`](super::Http).

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::sleep;

use super::tokens::{Refill, Tokens};

/// A rate of bytes or of operations: above zero, to a thousandth of one a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(NonZeroU64);

/// Thousandths in one.
const SCALE: f64 = 1000.0;

impl Rate {
    /// So many a second; `None` for what is no rate: zero, less, next to nothing, or not a number.
    #[must_use]
    pub fn per_second(rate: f64) -> Option<Self> {
        let thousandths = (rate * SCALE).round();
        if !(1.0..1e18).contains(&thousandths) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number between 1 and 1e18"
        )]
        let thousandths = thousandths as u64;
        NonZeroU64::new(thousandths).map(Self)
    }

    /// What was idle for a second may make up for it.
    fn refill(self) -> Refill {
        #[expect(
            clippy::cast_precision_loss,
            reason = "rates beyond 2^53 thousandths need not be exact"
        )]
        let per_second = self.0.get() as f64 / SCALE;
        Refill {
            per_second,
            capacity: per_second.max(1.0),
        }
    }
}

/// One rate and what is left of it.
#[derive(Debug)]
pub(super) struct Limiter {
    refill: Refill,
    tokens: Tokens,
}

impl Limiter {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            refill: rate.refill(),
            tokens: Tokens::default(),
        }
    }

    /// Accounts for `count` and tells how long that has to wait.
    pub(super) fn take(&self, count: u64) -> Duration {
        #[expect(
            clippy::cast_precision_loss,
            reason = "pieces are far smaller than 2^53"
        )]
        let count = count as f64;
        let wait = self.tokens.take(&self.refill, count, Duration::MAX);
        wait.unwrap_or(Duration::MAX)
    }

    /// Waits for `count`; how long.
    pub(super) async fn pass(&self, count: u64) -> Duration {
        let wait = self.take(count);
        if !wait.is_zero() {
            sleep(wait).await;
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_above_zero() {
        for (rate, good) in [
            (0.001, true),
            (0.5, true),
            (1e9, true),
            (0.0, false),
            (-1.0, false),
            (0.0001, false),
            (f64::NAN, false),
            (f64::INFINITY, false),
        ] {
            assert_eq!(Rate::per_second(rate).is_some(), good, "{rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_is_ahead_and_the_rest_in_turn() {
        let limiter = Limiter::new(Rate::per_second(100.0).unwrap());
        let waits = [100, 50, 25].map(|count| limiter.take(count).as_millis());
        assert_eq!(waits, [0, 500, 750]);
        let slow = Limiter::new(Rate::per_second(0.5).unwrap());
        let waits = [1, 1, 1].map(|count| slow.take(count).as_millis());
        assert_eq!(waits, [0, 2000, 4000]);
    }
}
