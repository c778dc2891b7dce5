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

/// Returns when the process is told to stop, by SIGTERM, SIGINT or SIGHUP.
///
/// Each call hears signals that arrive from then on, so that a second signal can hurry what the first one began.
pub async fn stop_signal() {
    let (Some(mut term), Some(mut int), Some(mut hup)) = (
        listen(SignalKind::terminate()),
        listen(SignalKind::interrupt()),
        listen(SignalKind::hangup()),
    ) else {
        // Without handlers the signals keep their default action, which ends the process.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
        _ = hup.recv() => {}
    }
}

fn listen(kind: SignalKind) -> Option<Signal> {
    signal(kind)
        .inspect_err(|error| tracing::warn!(%error, "a signal cannot be handled"))
        .ok()
}
