//! Everything that the listeners of one emulator share.

use std::sync::Arc;
use std::time::Duration;

use crate::access::Access;
use crate::clock::Clock;
use crate::config::{Auth, Config};
use crate::counters::Tally;
use crate::fault::Faults;
use crate::jwt::Signer;
use crate::shape::Shape;
use crate::store::Store;
use crate::sts::Sts;
use crate::upload::session::Sessions;

/// Bounds on what a caller may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_body: u64,
    pub(crate) max_connections: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) md5: bool,
}

/// The parts. No two of their locks are held at once, but for an upload session's, which is taken before the
/// store's.
pub(crate) struct State {
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) sessions: Sessions,
    pub(crate) access: Access,
    pub(crate) sts: Sts,
    pub(crate) signer: Signer,
    pub(crate) shape: Shape,
    pub(crate) faults: Faults,
    pub(crate) tally: Arc<Tally>,
    pub(crate) limits: Limits,
}

impl State {
    pub(crate) fn new(config: &Config) -> Self {
        let clock = Clock::default();
        Self {
            store: Store::new(clock.clone(), config.mutation_limit),
            sessions: Sessions::new(config.max_sessions),
            access: Access::new(
                clock.clone(),
                config.auth == Auth::Required,
                config.access_token_ttl,
            ),
            sts: Sts::new(&config.providers),
            signer: Signer::generate(),
            shape: Shape::new(config.latency, config.stream_rate),
            faults: Faults::default(),
            tally: Arc::default(),
            limits: Limits {
                max_body: config.max_body,
                max_connections: config.max_connections.max(1),
                idle_timeout: config.idle_timeout,
                md5: config.md5,
            },
            clock,
        }
    }
}
