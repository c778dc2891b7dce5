//! When to exchange: a pure function of state, event and time. It holds no token and does no I/O;
//! the driver in [`broker`](crate::broker) feeds it and obeys.
//!
//! The rules:
//! - A token is refreshed at a random point between half and four fifths of its life, so that a
//!   fleet that started together does not stay together; a short one just before its half.
//! - A valid token is served whatever else goes wrong, up to a small margin before its end.
//! - Life is counted from the moment at which the token was asked for.
//! - There is always a next attempt. After a failure it comes after a delay that doubles up to a
//!   cap, earlier while a token is running out; a server's `Retry-After` is honoured.
//! - Somebody who waits for a token brings the next attempt forward, but not nearer to the last
//!   failure than its cause allows.
//! - A rejected token (401) brings it forward too, each time in a row less so.
//! - Never two exchanges at once.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::clock::Moment;

mod life;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod rules;

pub(crate) use life::Life;

/// Two exchanges start at least this far apart, whatever happens.
pub(crate) const SPACING: Duration = Duration::from_secs(1);

/// The longest delay after a failure, unless the server asks for a longer one. A binding that was
/// mended or a file that is back is noticed within this.
pub(crate) const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// The longest `Retry-After` that is obeyed; beyond it, a server is taken to be mistaken.
pub(crate) const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(120);

/// Why an exchange failed, as far as the time of the next one depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Before anything was sent: no server was bothered.
    Local,
    /// The service could not be reached, broke off or has trouble.
    Unavailable,
    /// The service said no. Asking again at once brings nothing, but bindings get mended.
    Refused,
    /// The service asked for fewer requests.
    Throttled,
}

impl Cause {
    /// The delay after the first failure in a row.
    const fn first_delay(self) -> Duration {
        Duration::from_secs(match self {
            Self::Local | Self::Unavailable => 1,
            Self::Refused => 4,
            Self::Throttled => 2,
        })
    }

    /// How near to the failure a demand may bring the next attempt. `None`: not at all.
    const fn patience(self) -> Option<Duration> {
        match self {
            Self::Local => Some(Duration::from_secs(1)),
            Self::Unavailable => Some(Duration::from_secs(3)),
            Self::Refused => Some(Duration::from_secs(4)),
            Self::Throttled => None,
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Time passed.
    Woken,
    /// Somebody waits for a token.
    Demanded,
    /// The token that is held was answered with 401.
    Rejected,
    /// The exchange in flight gave a token.
    Granted {
        /// How long it lives from the moment at which it was asked for.
        lifetime: Duration,
    },
    /// The exchange in flight gave none.
    Failed {
        /// Why.
        cause: Cause,
        /// What the server asked for.
        retry_after: Option<Duration>,
    },
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start an exchange.
    Exchange,
    /// An exchange is in flight: wait for its end.
    AwaitAnswer,
    /// Wait until then, or for an event.
    SleepUntil(Moment),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next attempt is at `attempt_at`, which a demand may bring forward to `not_before`.
    Waiting {
        attempt_at: Moment,
        not_before: Moment,
    },
    /// An exchange runs since then.
    InFlight { since: Moment },
}

/// All that the decision depends on.
#[derive(Clone, Debug)]
pub(crate) struct State {
    phase: Phase,
    /// The life of the token that is held, if one ever was.
    life: Option<Life>,
    /// When the last exchange started.
    started: Option<Moment>,
    /// Failures since the last grant.
    failures: u32,
    /// Whether the token that is held was rejected.
    rejected: bool,
    /// Rejections in a row of tokens that were just given.
    rejections: u32,
    jitter: SmallRng,
}

impl State {
    /// Nothing is held, and the first exchange is due at once.
    pub(crate) fn new(now: Moment, seed: u64) -> Self {
        Self {
            phase: Phase::Waiting {
                attempt_at: now,
                not_before: now,
            },
            life: None,
            started: None,
            failures: 0,
            rejected: false,
            rejections: 0,
            jitter: SmallRng::seed_from_u64(seed),
        }
    }

    /// The next state, and what to do until the next event.
    pub(crate) fn step(mut self, event: Event, now: Moment) -> (Self, Action) {
        match (self.phase, event) {
            (Phase::InFlight { since }, Event::Granted { lifetime }) => {
                self.granted(Life::new(since, lifetime), now);
            }
            (Phase::InFlight { .. }, Event::Failed { cause, retry_after }) => {
                self.failed(cause, retry_after, now);
            }
            (Phase::Waiting { .. }, Event::Demanded) if !self.holds_usable(now) => {
                self.bring_forward(now);
            }
            (Phase::Waiting { .. }, Event::Rejected) => {
                self.rejected(now);
                if !self.holds_usable(now) {
                    self.bring_forward(now);
                }
            }
            // What is in flight is the answer to a demand and to a rejection; an answer to nothing
            // is none.
            (Phase::InFlight { .. }, Event::Woken | Event::Demanded | Event::Rejected)
            | (
                Phase::Waiting { .. },
                Event::Woken | Event::Demanded | Event::Granted { .. } | Event::Failed { .. },
            ) => {}
        }
        let action = self.act(now);
        (self, action)
    }

    /// Whether the token that is held may be handed out at `now`.
    pub(crate) fn holds_usable(&self, now: Moment) -> bool {
        self.life.is_some_and(|life| life.is_usable(now))
    }

    /// When a demand can start an exchange; `None` while one is in flight.
    pub(crate) fn earliest(&self) -> Option<Moment> {
        match self.phase {
            Phase::Waiting { not_before, .. } => Some(not_before),
            Phase::InFlight { .. } => None,
        }
    }

    /// When the next exchange starts if nothing happens; `None` while one is in flight.
    pub(crate) fn next(&self) -> Option<Moment> {
        match self.phase {
            Phase::Waiting { attempt_at, .. } => Some(attempt_at),
            Phase::InFlight { .. } => None,
        }
    }

    fn act(&mut self, now: Moment) -> Action {
        match self.phase {
            Phase::InFlight { .. } => Action::AwaitAnswer,
            Phase::Waiting { attempt_at, .. } if now < attempt_at => Action::SleepUntil(attempt_at),
            Phase::Waiting { .. } => {
                if !self.rejected && self.failures == 0 {
                    // The token before this one lasted: rejections are not in a row any more.
                    self.rejections = 0;
                }
                self.started = Some(now);
                self.phase = Phase::InFlight { since: now };
                Action::Exchange
            }
        }
    }

    fn granted(&mut self, life: Life, now: Moment) {
        if !life.is_usable(now) {
            // It came too late to be used; the one that is held may still be good.
            return self.failed(Cause::Unavailable, None, now);
        }
        self.life = Some(life);
        self.failures = 0;
        self.rejected = false;
        let not_before = self.spaced(now);
        let refresh_at = life.refresh_at(self.jitter.random()).max(not_before);
        self.phase = Phase::Waiting {
            attempt_at: refresh_at,
            not_before,
        };
    }

    fn failed(&mut self, cause: Cause, retry_after: Option<Duration>, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        let mut delay = self.jittered(doubled(cause.first_delay(), self.failures - 1));
        if let Some(left) = self.life.and_then(|life| life.left(now)) {
            delay = delay.min(left / 2);
        }
        let asked = retry_after.map(|asked| asked.min(LONGEST_RETRY_AFTER));
        let delay = delay.max(SPACING).max(asked.unwrap_or_default());
        let attempt_at = now + delay;
        let not_before = match (asked, cause.patience()) {
            (None, Some(patience)) => attempt_at.min(now + patience),
            (Some(_), _) | (None, None) => attempt_at,
        };
        self.phase = Phase::Waiting {
            attempt_at,
            not_before,
        };
    }

    fn rejected(&mut self, now: Moment) {
        if self.life.is_none() || self.rejected {
            return;
        }
        self.rejected = true;
        let apart = doubled(SPACING, self.rejections);
        self.rejections = self.rejections.saturating_add(1);
        if let Phase::Waiting {
            attempt_at,
            not_before,
        } = self.phase
        {
            let floor = self.started.map_or(now, |started| started + apart);
            self.phase = Phase::Waiting {
                attempt_at: attempt_at.min(floor.max(not_before)),
                not_before,
            };
        }
    }

    fn bring_forward(&mut self, now: Moment) {
        if let Phase::Waiting {
            attempt_at,
            not_before,
        } = self.phase
        {
            self.phase = Phase::Waiting {
                attempt_at: attempt_at.min(not_before.max(now)),
                not_before,
            };
        }
    }

    /// The first moment at which another exchange may start.
    fn spaced(&self, now: Moment) -> Moment {
        self.started.map_or(now, |started| started + SPACING)
    }

    /// Between half of `delay` and the whole.
    fn jittered(&mut self, delay: Duration) -> Duration {
        delay.mul_f64(0.5 + 0.5 * self.jitter.random::<f64>())
    }
}

/// `delay` doubled `times` times, up to the longest delay.
fn doubled(delay: Duration, times: u32) -> Duration {
    delay
        .saturating_mul(2_u32.saturating_pow(times))
        .min(LONGEST_DELAY)
}
