//! The connections that are open: a bounded number, of which an idle one gives way to a new one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::{Instant, sleep};

/// How long a new connection is left alone before its first request: who connects in a crowd has
/// sent nothing yet when the next one comes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The open connections, the oldest first.
#[derive(Debug)]
pub(super) struct Connections {
    limit: usize,
    tasks: JoinSet<()>,
    open: VecDeque<Open>,
    crowd: Arc<Crowd>,
}

/// What the connections tell the one who accepts.
#[derive(Debug, Default)]
struct Crowd {
    /// Whether all places are taken: only then does it matter that one becomes idle, and the many
    /// requests of a quiet table wake nobody.
    full: AtomicBool,
    idle: Notify,
}

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    since: Instant,
    busy: Busy,
}

impl Open {
    /// Whether it may be closed for another one: it has no request, and had one or time for one.
    fn gives_way(&self) -> bool {
        self.busy.requests.load(Ordering::SeqCst) == 0
            && (self.busy.answered.load(Ordering::Relaxed) || self.since.elapsed() >= PATIENCE)
    }
}

/// Whether a connection has a request that runs.
#[derive(Clone, Debug)]
pub(super) struct Busy {
    requests: Arc<AtomicUsize>,
    answered: Arc<AtomicBool>,
    crowd: Arc<Crowd>,
}

/// A request that runs, for as long as this lives.
pub(super) struct Running(Busy);

impl Busy {
    pub(super) fn begin(&self) -> Running {
        self.requests.fetch_add(1, Ordering::Relaxed);
        Running(self.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.answered.store(true, Ordering::Relaxed);
        // In one order with the other side, which marks the table full and then counts requests:
        // one of the two sees the other.
        self.0.requests.fetch_sub(1, Ordering::SeqCst);
        if self.0.crowd.full.load(Ordering::SeqCst) {
            self.0.crowd.idle.notify_one();
        }
    }
}

impl Connections {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            tasks: JoinSet::new(),
            open: VecDeque::new(),
            crowd: Arc::default(),
        }
    }

    /// Whether one more can be taken, if need be in place of an idle one.
    pub(super) fn has_room(&self) -> bool {
        let full = self.open.len() >= self.limit;
        self.crowd.full.store(full, Ordering::SeqCst);
        !full || self.open.iter().any(Open::gives_way)
    }

    /// Waits until there may be room again.
    pub(super) async fn changed(&mut self) {
        let crowd = Arc::clone(&self.crowd);
        tokio::select! {
            Some(ended) = self.tasks.join_next_with_id() => {
                let id = match ended {
                    Ok((id, ())) => id,
                    Err(error) => error.id(),
                };
                self.forget(id);
            }
            () = crowd.idle.notified() => {}
            () = sleep(PATIENCE), if self.open.len() >= self.limit => {}
        }
    }

    /// Takes one more. Call only with room.
    pub(super) fn add<F>(&mut self, connection: impl FnOnce(Busy) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.open.len() >= self.limit
            && let Some(oldest) = self.open.iter().position(Open::gives_way)
            && let Some(open) = self.open.remove(oldest)
        {
            open.task.abort();
        }
        let busy = Busy {
            requests: Arc::default(),
            answered: Arc::default(),
            crowd: Arc::clone(&self.crowd),
        };
        let task = self.tasks.spawn(connection(busy.clone()));
        self.open.push_back(Open {
            task,
            since: Instant::now(),
            busy,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Waits for the end of all, and ends those that are left after `grace`.
    pub(super) async fn finish(mut self, grace: Duration) {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all).await.is_err() {
            self.tasks.shutdown().await;
        }
    }

    fn forget(&mut self, id: Id) {
        self.open.retain(|open| open.task.id() != id);
    }
}
