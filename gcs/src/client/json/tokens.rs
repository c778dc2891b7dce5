//! A token bucket on the runtime's clock: what bounds the rate of anything.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How a bucket fills.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Refill {
    /// Tokens a second.
    pub(super) per_second: f64,
    /// The most that it holds, and what it begins with.
    pub(super) capacity: f64,
}

/// The bucket. Who takes more than it holds waits until it has been filled, and those behind wait longer.
#[derive(Debug)]
pub(super) struct Tokens(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Below zero: promised to those who wait.
    level: f64,
    at: Instant,
}

impl Default for Tokens {
    /// A full one, whatever its capacity.
    fn default() -> Self {
        Self(Mutex::new(State {
            level: f64::INFINITY,
            at: Instant::now(),
        }))
    }
}

impl Tokens {
    /// Takes `count` tokens and tells how long to wait before they are there. Takes none, and tells nothing, where that
    /// is longer than `limit`.
    pub(super) fn take(&self, refill: &Refill, count: f64, limit: Duration) -> Option<Duration> {
        let mut state = self.0.lock();
        state.fill(refill);
        let level = state.level - count;
        let wait = (-level / refill.per_second).max(0.0);
        // Not a number: nothing is missing, and nothing flows in.
        let wait = Duration::try_from_secs_f64(if wait.is_nan() { 0.0 } else { wait });
        let wait = wait.unwrap_or(Duration::MAX);
        if wait > limit {
            return None;
        }
        state.level = level;
        Some(wait)
    }

    /// Adds `count` tokens to what flows in.
    pub(super) fn give(&self, refill: &Refill, count: f64) {
        let mut state = self.0.lock();
        state.fill(refill);
        state.level = (state.level + count).min(refill.capacity);
    }
}

impl State {
    fn fill(&mut self, refill: &Refill) {
        let now = Instant::now();
        let flown = (now - self.at).as_secs_f64() * refill.per_second;
        self.level = (self.level + flown).min(refill.capacity);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFILL: Refill = Refill {
        per_second: 10.0,
        capacity: 5.0,
    };

    fn millis(tokens: &Tokens, count: f64) -> u128 {
        let wait = tokens.take(&REFILL, count, Duration::MAX);
        wait.map_or(u128::MAX, |wait| wait.as_millis())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_costs_no_time_and_what_is_not_is_waited_for_in_turn() {
        let tokens = Tokens::default();
        assert_eq!([1.0; 5].map(|count| millis(&tokens, count)), [0; 5]);
        assert_eq!([millis(&tokens, 1.0), millis(&tokens, 2.0)], [100, 300]);
        tokio::time::advance(Duration::from_millis(400)).await;
        assert_eq!([millis(&tokens, 1.0), millis(&tokens, 1.0)], [0, 100]);
        // An hour fills it no further than it holds.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!([millis(&tokens, 5.0), millis(&tokens, 1.0)], [0, 100]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_wait_takes_nothing() {
        let tokens = Tokens::default();
        assert_eq!(millis(&tokens, 5.0), 0);
        let limit = Duration::from_millis(99);
        assert_eq!(tokens.take(&REFILL, 1.0, limit), None);
        assert_eq!(millis(&tokens, 1.0), 100);
        tokens.give(&REFILL, 3.0);
        assert_eq!(millis(&tokens, 1.0), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_that_does_not_fill_ends() {
        let dry = Refill {
            per_second: 0.0,
            capacity: 1.0,
        };
        let tokens = Tokens::default();
        let take = || tokens.take(&dry, 1.0, Duration::from_secs(3600));
        assert_eq!([take(), take()], [Some(Duration::ZERO), None]);
        tokens.give(&dry, 1.0);
        assert_eq!([take(), take()], [Some(Duration::ZERO), None]);
    }
}
