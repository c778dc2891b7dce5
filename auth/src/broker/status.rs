//! What a broker tells about itself: `token show`, `doctor`, metrics and the demo read this.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::Core;
use crate::error::{Error, Family};
use crate::exchange::Identity;

/// The state of a broker at one moment. Nothing in it is secret.
#[derive(Clone, Debug)]
pub struct Status {
    /// Who the tokens stand for, and where that comes from.
    pub identity: Identity,
    /// Exchanges that gave a token.
    pub exchanges_granted: u64,
    /// Exchanges that gave none, of whatever kind their errors were.
    pub exchanges_failed: u64,
    /// The same by what kind that was.
    pub failures: Failures,
    /// How long the last exchange took that came to an end, whichever.
    pub last_exchange_took: Option<Duration>,
    /// When the next exchange is due by the schedule, from now; zero if it is overdue. `None` while
    /// one runs, and once the broker was stopped. A demand or a rejection may bring it forward.
    pub next_exchange_in: Option<Duration>,
    /// How long ago the token that is held was asked for; `None` without one, or with one that
    /// expired.
    pub age: Option<Duration>,
    /// How long that token still lives.
    pub expires_in: Option<Duration>,
    /// The same as wall-clock time, as this machine has it.
    pub expires_at: Option<SystemTime>,
    /// Why the last exchange gave no token; `None` after one that did.
    pub last_error: Option<Error>,
    /// Callers that wait for a token now.
    pub waiters: usize,
}

impl Status {
    pub(super) fn of(core: &Core) -> Self {
        let now = core.clock.now();
        let token = core.usable();
        let expires_in = token.as_ref().map(|token| token.ends_at().since(now));
        let failures = core.failed.read();
        let stopped = core.progress.has_changed().is_err();
        let progress = core.progress.borrow().clone();
        Self {
            identity: core.exchange.identity(),
            exchanges_granted: core.granted.load(Ordering::Relaxed),
            exchanges_failed: failures.total(),
            failures,
            last_exchange_took: progress.took,
            next_exchange_in: progress
                .next
                .filter(|_| !stopped)
                .map(|next| next.since(now)),
            age: token.map(|token| now.since(token.asked_at())),
            expires_in,
            expires_at: expires_in.and_then(|left| SystemTime::now().checked_add(left)),
            last_error: progress.last_error,
            waiters: core.waiters.load(Ordering::Relaxed),
        }
    }
}

/// Failed exchanges by the kind of their error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures([u64; Family::ALL.len()]);

impl Failures {
    /// Those of one kind.
    #[must_use]
    pub const fn of(&self, family: Family) -> u64 {
        self.0[family.index()]
    }

    /// All kinds, with a number each.
    pub fn iter(&self) -> impl Iterator<Item = (Family, u64)> {
        Family::ALL.into_iter().zip(self.0)
    }

    /// Of all kinds together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// Counts failed exchanges.
#[derive(Debug, Default)]
pub(super) struct Failed([AtomicU64; Family::ALL.len()]);

impl Failed {
    pub(super) fn count(&self, family: Family) {
        self.0[family.index()].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Failures {
        Failures(std::array::from_fn(|place| {
            self.0[place].load(Ordering::Relaxed)
        }))
    }
}
