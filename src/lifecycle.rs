//! The process: its runtime, and the signals that end it.

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{Exit, Failure};

/// From this size on, memory comes from the kernel and goes back to it when it is freed.
const MAPPED: i32 = 4 << 20;

/// Keeps glibc from holding on to large buffers.
///
/// Each session thread has a buffer of 16 MiB of which it touches little. Left alone, glibc raises its threshold for mapped
/// memory once such a buffer is freed, takes the next ones from its heap and zeroes them there: 16 MiB a volume that is idle,
/// where 0.3 MiB do. See "Notes" of `mallopt(3)`.
pub fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    #[expect(
        unsafe_code,
        reason = "a call of the C library that nothing safe wraps"
    )]
    // SAFETY: mallopt takes two numbers and no pointer. It is called before the process has threads, which it asks for.
    let taken = unsafe { nix::libc::mallopt(nix::libc::M_MMAP_THRESHOLD, MAPPED) } == 1;
    #[cfg(not(target_env = "gnu"))]
    let taken = MAPPED > 0;
    debug_assert!(taken, "the threshold is within bounds");
}

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
