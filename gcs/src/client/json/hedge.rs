//! Asking twice: when a second request for the same may be sent, and what came of those that were.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::config::Hedge;
use super::tokens::{Refill, Tokens};

/// Second requests, counted since the pool was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hedged {
    /// Sent.
    pub sent: u64,
    /// Those whose answer was the one that was taken.
    pub won: u64,
}

impl Sum for Hedged {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            sent: sum.sent + one.sent,
            won: sum.won + one.won,
        })
    }
}

/// What is left of the second requests that one host may be sent. Each read allows for a part of another.
#[derive(Debug, Default)]
pub(super) struct Hedges {
    left: Tokens,
    sent: AtomicU64,
    won: AtomicU64,
}

impl Hedges {
    /// A read begins.
    pub(super) fn earn(&self, hedge: &Hedge) {
        self.left
            .give(&refill(hedge), f64::from(hedge.percent) / 100.0);
    }

    /// Whether a second request may be sent, and then counts it.
    pub(super) fn take(&self, hedge: &Hedge) -> bool {
        let taken = self
            .left
            .take(&refill(hedge), 1.0, Duration::ZERO)
            .is_some();
        self.sent.fetch_add(taken.into(), Ordering::Relaxed);
        taken
    }

    /// A second request was answered first.
    pub(super) fn win(&self) {
        self.won.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counted(&self) -> Hedged {
        Hedged {
            sent: self.sent.load(Ordering::Relaxed),
            won: self.won.load(Ordering::Relaxed),
        }
    }
}

/// Nothing flows in by itself: the load of seconds is a part of the load of reads.
fn refill(hedge: &Hedge) -> Refill {
    Refill {
        per_second: 0.0,
        capacity: f64::from(hedge.burst),
    }
}
