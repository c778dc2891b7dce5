//! What a broker tells about itself: `token show`, `doctor`, metrics and the demo read this.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use super::Core;
use crate::error::Error;
use crate::exchange::Identity;

/// The state of a broker at one moment. Nothing in it is secret.
#[derive(Clone, Debug)]
pub struct Status {
    /// Who the tokens stand for, and where that comes from.
    pub identity: Identity,
    /// Exchanges that gave a token.
    pub exchanges_granted: u64,
    /// Exchanges that gave none.
    pub exchanges_failed: u64,
    /// How long the token that is held still lives; `None` without one, or with one that expired.
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
        let expires_in = core.usable().map(|token| token.ends_at().since(now));
        Self {
            identity: core.exchange.identity(),
            exchanges_granted: core.granted.load(Ordering::Relaxed),
            exchanges_failed: core.failed.load(Ordering::Relaxed),
            expires_in,
            expires_at: expires_in.and_then(|left| SystemTime::now().checked_add(left)),
            last_error: core.progress.borrow().last_error.clone(),
            waiters: core.waiters.load(Ordering::Relaxed),
        }
    }
}
