//! The process: its runtime, and the signals that end it.

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// The runtime that serves everything. The thread that starts it is not one of its workers.
///
/// # Errors
/// [`Exit::Other`] where threads cannot be had.
pub fn runtime() -> Result<Runtime, Failure> {
    let workers = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8));
    Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name("gcsmount")
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Other, format!("starting threads: {error}")))
}

/// The signals that tell the process to stop: SIGTERM, SIGINT and SIGHUP. From its making on none of them ends the process
/// by itself, and each is heard once, so that a second one can hurry what the first one began.
#[derive(Debug)]
pub struct StopSignals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl StopSignals {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`Exit::Other`] where the signals cannot be handled.
    pub fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::new(Exit::Other, format!("handling signals: {error}")))
        };
        Ok(Self {
            term: listen(SignalKind::terminate())?,
            int: listen(SignalKind::interrupt())?,
            hup: listen(SignalKind::hangup())?,
        })
    }

    /// Returns at the next of them, or at once for one that came since the last call. Cancel safe.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
            _ = self.hup.recv() => {}
        }
    }
}
