//! When a cache that has failed is used again.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a part of the cache is left alone after its first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause; each is twice the one before.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Whether one thing that the cache does is worth trying. Says so once when it is not, and once when it is again.
#[derive(Debug)]
pub(super) struct Health {
    what: String,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Well,
    Paused { until: Instant, pause: Duration },
}

impl State {
    fn allows(self, now: Instant) -> bool {
        match self {
            Self::Well => true,
            Self::Paused { until, .. } => now >= until,
        }
    }

    fn failed(self, now: Instant) -> Self {
        let pause = match self {
            Self::Well => FIRST_PAUSE,
            // Something that was under way when the pause began.
            Self::Paused { until, .. } if now < until => return self,
            Self::Paused { pause, .. } => (2 * pause).min(LONGEST_PAUSE),
        };
        Self::Paused {
            until: now + pause,
            pause,
        }
    }
}

impl Health {
    /// Of `what`, as the log calls it.
    pub(super) fn new(what: String) -> Self {
        Self {
            what,
            state: Mutex::new(State::Well),
        }
    }

    /// Whether to try.
    pub(super) fn allows(&self, now: Instant) -> bool {
        self.state.lock().allows(now)
    }

    /// Whether it has worked, or has not failed yet.
    pub(super) fn is_well(&self) -> bool {
        *self.state.lock() == State::Well
    }

    /// It was tried, and failed.
    pub(super) fn fail(&self, now: Instant, error: &dyn fmt::Display) {
        let mut state = self.state.lock();
        let before = *state;
        *state = before.failed(now);
        drop(state);
        match before {
            State::Well => tracing::warn!(
                %error,
                "{} is off, and tried again later; reads go on without it", self.what
            ),
            State::Paused { .. } => tracing::debug!(%error, "{} is still off", self.what),
        }
    }

    /// It was tried, and worked.
    pub(super) fn succeed(&self) {
        let before = std::mem::replace(&mut *self.state.lock(), State::Well);
        if before != State::Well {
            tracing::info!("{} is on again", self.what);
        }
    }

    /// Tries at once whatever has failed.
    #[cfg(test)]
    pub(super) fn end_pause(&self, now: Instant) {
        let mut state = self.state.lock();
        if let State::Paused { until, .. } = &mut *state {
            *until = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut now = Instant::now();
        let mut state = State::Well;
        assert!(state.allows(now));
        for seconds in [30, 60, 120, 240, 480, 600, 600] {
            state = state.failed(now);
            // More failures of the same time do not make it longer.
            state = state.failed(now);
            let pause = Duration::from_secs(seconds);
            assert!(
                !state.allows(now + pause - Duration::from_nanos(1)),
                "{seconds}"
            );
            now += pause;
            assert!(state.allows(now), "{seconds}");
        }
    }

    #[test]
    fn success_ends_a_pause_and_its_history() {
        let now = Instant::now();
        let health = Health::new("the test".to_owned());
        health.fail(now, &"first");
        health.fail(now + FIRST_PAUSE, &"second");
        assert!(!health.allows(now + 2 * FIRST_PAUSE));
        health.succeed();
        assert!(health.allows(now));
        health.fail(now, &"third");
        assert!(health.allows(now + FIRST_PAUSE));
    }
}
