//! The connections that are open: a bounded number, of which an idle one gives way to a new one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep};

/// How long a new connection is left alone before its first request: who connects in a crowd has
/// sent nothing yet when the next one comes. As long is waited for one that was asked to leave.
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
    /// Whether somebody waits for a place: only then does it matter that a connection becomes
    /// idle, and the many requests of a quiet table wake nobody.
    pressed: AtomicBool,
    idle: Notify,
}

#[derive(Debug)]
struct Open {
    task: Id,
    since: Instant,
    /// When it was asked to leave.
    asked: Option<Instant>,
    busy: Busy,
}

impl Open {
    /// Whether it may be closed for another one: it has no request, and had one or time for one.
    fn gives_way(&self) -> bool {
        self.asked.is_none()
            && !self.busy.runs()
            && (self.busy.had_request() || self.since.elapsed() >= PATIENCE)
    }

    fn is_leaving(&self) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < PATIENCE)
    }
}

/// What a connection and those around it tell each other.
#[derive(Clone, Debug)]
pub(super) struct Busy(Arc<State>);

#[derive(Debug)]
struct State {
    requests: AtomicUsize,
    answered: AtomicBool,
    /// Whether bytes came that are not a whole request yet.
    partial: AtomicBool,
    /// Whether the next answer is the last.
    last: AtomicBool,
    /// Whether the connection ends where nothing more comes.
    over: AtomicBool,
    leave: Notify,
    crowd: Arc<Crowd>,
}

/// A request that runs, for as long as this lives.
pub(super) struct Running(Busy);

impl Busy {
    fn new(crowd: Arc<Crowd>) -> Self {
        Self(Arc::new(State {
            requests: AtomicUsize::default(),
            answered: AtomicBool::default(),
            partial: AtomicBool::default(),
            last: AtomicBool::default(),
            over: AtomicBool::default(),
            leave: Notify::new(),
            crowd,
        }))
    }

    pub(super) fn begin(&self) -> Running {
        self.0.partial.store(false, Ordering::Relaxed);
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        Running(self.clone())
    }

    pub(super) fn runs(&self) -> bool {
        self.0.requests.load(Ordering::SeqCst) > 0
    }

    /// Whether it ever had an answer.
    pub(super) fn had_request(&self) -> bool {
        self.0.answered.load(Ordering::Relaxed)
    }

    pub(super) fn note_bytes(&self) {
        self.0.partial.store(true, Ordering::Relaxed);
    }

    /// Whether the client should be told that this answer is the last one: the connection is to
    /// end, or somebody waits for its place.
    pub(super) fn is_last(&self) -> bool {
        self.0.last.load(Ordering::Relaxed) || self.0.crowd.pressed.load(Ordering::Relaxed)
    }

    /// From now on each answer is the last.
    pub(super) fn make_last(&self) {
        self.0.last.store(true, Ordering::Relaxed);
    }

    /// From now on the connection ends where no request runs or is on its way.
    pub(super) fn make_over(&self) {
        self.0.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed)
            && !self.0.partial.load(Ordering::Relaxed)
            && !self.runs()
    }

    /// Waits until the connection is asked to leave.
    pub(super) async fn asked_to_leave(&self) {
        self.0.leave.notified().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let state = &self.0.0;
        state.answered.store(true, Ordering::Relaxed);
        // Of a body that nobody wants.
        state.partial.store(false, Ordering::Relaxed);
        // In one order with the other side, which marks the table pressed and then counts requests:
        // one of the two sees the other.
        state.requests.fetch_sub(1, Ordering::SeqCst);
        if state.crowd.pressed.load(Ordering::SeqCst) {
            state.crowd.idle.notify_one();
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

    /// Whether one more can be taken. If not, an idle one is asked to leave, and
    /// [`changed`](Self::changed) tells when to look again.
    pub(super) fn make_room(&mut self) -> bool {
        let room = self.has_room();
        match room {
            true => self.crowd.pressed.store(false, Ordering::SeqCst),
            false => self.relieve(),
        }
        room
    }

    pub(super) fn has_room(&self) -> bool {
        self.open.len() < self.limit
    }

    /// Asks an idle one to leave, unless one is about to.
    pub(super) fn relieve(&mut self) {
        self.crowd.pressed.store(true, Ordering::SeqCst);
        if self.open.iter().any(Open::is_leaving) {
            return;
        }
        if let Some(open) = self.open.iter_mut().find(|open| open.gives_way()) {
            open.asked = Some(Instant::now());
            open.busy.0.leave.notify_one();
        }
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
            () = sleep(PATIENCE), if crowd.pressed.load(Ordering::Relaxed) => {}
        }
    }

    /// Takes one more.
    pub(super) fn add<F>(&mut self, connection: impl FnOnce(Busy) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let busy = Busy::new(Arc::clone(&self.crowd));
        let task = self.tasks.spawn(connection(busy.clone())).id();
        self.open.push_back(Open {
            task,
            since: Instant::now(),
            asked: None,
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
        self.open.retain(|open| open.task != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_is_idle_is_asked_to_leave_and_one_that_is_busy_is_not() {
        let mut connections = Connections::new(8);
        connections.add(|busy| async move {
            let _running = busy.begin();
            busy.asked_to_leave().await;
        });
        for _ in 0..2 {
            connections.add(|busy| async move { busy.asked_to_leave().await });
        }
        // Who has just come is about to ask.
        connections.relieve();
        connections.changed().await;
        assert_eq!(connections.len(), 3);
        // One at a time, however often it is asked for.
        for left in [2, 1, 1] {
            connections.relieve();
            connections.relieve();
            connections.changed().await;
            assert_eq!(connections.len(), left);
        }
    }
}
