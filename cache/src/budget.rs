//! One budget for the memory of the process.
//!
//! Whoever wants to hold bytes takes a [`Lease`] first and gives it back by dropping it together with them. Nobody
//! exceeds the limit; who waits is served by [`Priority`], then in order of arrival. Bytes that are only kept because
//! they may be useful ([`Evict`]) give way as soon as somebody with a claim of their own is short.
//!
//! No caller may wait for a lease while it holds one: it then waits only for holders that are making progress, and
//! a single request gets through however many files are open.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

/// Who asks for memory. A later one goes before an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Bytes that nobody has asked for yet. Takes at most three quarters of the limit, and only evicts what was read.
    Prefetch,
    /// Bytes that an application has written. Takes at most seven eighths.
    Upload,
    /// Bytes that an application waits for.
    Reader,
}

impl Priority {
    const ALL_FROM_THE_TOP: [Self; 3] = [Self::Reader, Self::Upload, Self::Prefetch];

    /// How far this priority may fill the budget: the rest is the floor of those above it.
    fn ceiling(self, limit: usize) -> usize {
        match self {
            Self::Prefetch => limit - limit / 4,
            Self::Upload => limit - limit / 8,
            Self::Reader => limit,
        }
    }
}

/// Somebody who keeps bytes that can be had again.
pub trait Evict: fmt::Debug + Send + Sync {
    /// Lets go of about `bytes` for the sake of `priority`; how many it let go of. They return to the budget once the
    /// last user of each block is done with it.
    fn evict(&self, bytes: usize, priority: Priority) -> usize;
}

/// The memory of the process, in bytes. Clones share it.
#[derive(Clone)]
pub struct Budget(Arc<Shared>);

struct Shared {
    limit: usize,
    /// Guards the counts and queues; taken last, never held while calling out.
    state: Mutex<State>,
    evictable: RwLock<Vec<Weak<dyn Evict>>>,
}

#[derive(Default)]
struct State {
    used: usize,
    peak: usize,
    /// One queue for each [`Priority`], indexed by it.
    waiting: [VecDeque<Waiter>; 3],
    /// How many have been served from the queues.
    served: u64,
}

/// Whose turn it is, and how many have been served before.
struct NextWaiting {
    priority: Priority,
    bytes: usize,
    served: u64,
}

struct Waiter {
    bytes: usize,
    granted: oneshot::Sender<Lease>,
}

/// Permission to hold some bytes. Returned on drop.
pub struct Lease {
    bytes: usize,
    budget: Budget,
}

impl Budget {
    /// What a process takes if nobody says otherwise: 128 MiB.
    pub const DEFAULT_LIMIT: usize = 128 << 20;

    /// A budget of `limit` bytes, none of them used. A single request of more than the limit is served only while
    /// nothing else is held, and then exceeds it: keep the limit above the largest one (a block and a FUSE request).
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Shared {
            limit,
            state: Mutex::default(),
            evictable: RwLock::default(),
        }))
    }

    /// Registers somebody to ask when memory is short, for as long as it lives.
    pub fn add_evictable(&self, evictable: Weak<dyn Evict>) {
        let mut all = self.0.evictable.write();
        all.retain(|e| e.strong_count() > 0);
        all.push(evictable);
    }

    /// `bytes` at once, evicting what may be evicted for `priority`; `None` when they are not free, or when somebody
    /// of the same or a higher priority waits already.
    #[must_use]
    pub fn try_acquire(&self, bytes: usize, priority: Priority) -> Option<Lease> {
        self.take(bytes, priority).or_else(|| {
            self.evict(bytes, priority);
            self.take(bytes, priority)
        })
    }

    /// `bytes`, as soon as they are free and nobody goes first. Dropping the future gives up the place in the queue.
    ///
    /// Call it only while holding no other lease.
    pub async fn acquire(&self, bytes: usize, priority: Priority) -> Lease {
        loop {
            if let Some(lease) = self.try_acquire(bytes, priority) {
                return lease;
            }
            let (granted, lease) = oneshot::channel();
            self.enqueue(Waiter { bytes, granted }, priority);
            // A waiter that leaves may have held up those behind it.
            let _place = Place(self);
            self.relieve();
            if let Ok(lease) = lease.await {
                return lease;
            }
        }
    }

    /// Bytes held now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.state.lock().used
    }

    /// The most bytes ever held at one time.
    #[must_use]
    pub fn peak(&self) -> usize {
        self.0.state.lock().peak
    }

    /// The most bytes that may be held.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How many wait for a lease.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let state = self.0.state.lock();
        state.waiting.iter().map(VecDeque::len).sum()
    }

    /// Evicts for those who wait. For whoever has just made bytes evictable that were not.
    pub(crate) fn relieve(&self) {
        while let Some(next) = self.next_waiting() {
            self.evict(next.bytes, next.priority);
            self.grant();
            if self.0.state.lock().served == next.served {
                // What was evicted is still in use, and comes back by itself.
                break;
            }
        }
    }

    fn next_waiting(&self) -> Option<NextWaiting> {
        self.0.state.lock().next_waiting()
    }

    fn evict(&self, bytes: usize, priority: Priority) {
        let all: Vec<_> = self.0.evictable.read().clone();
        let mut missing = bytes;
        for evictable in all.iter().filter_map(Weak::upgrade) {
            if missing == 0 {
                break;
            }
            missing = missing.saturating_sub(evictable.evict(missing, priority));
        }
    }

    fn take(&self, bytes: usize, priority: Priority) -> Option<Lease> {
        let mut state = self.0.state.lock();
        let first = !state.waits_from(priority);
        (first && state.take(bytes, priority, self.0.limit)).then(|| self.lease(bytes))
    }

    fn lease(&self, bytes: usize) -> Lease {
        Lease {
            bytes,
            budget: self.clone(),
        }
    }

    fn enqueue(&self, waiter: Waiter, priority: Priority) {
        self.0.state.lock().waiting[priority as usize].push_back(waiter);
    }

    /// Serves whoever can be served now.
    fn grant(&self) {
        // The lock is let go before each send: a lease that nobody takes any more comes back through `drop`.
        while let Some(waiter) = self.next_served() {
            let _ = waiter.granted.send(self.lease(waiter.bytes));
        }
    }

    fn next_served(&self) -> Option<Waiter> {
        self.0.state.lock().serve(self.0.limit)
    }
}

impl State {
    fn take(&mut self, bytes: usize, priority: Priority, limit: usize) -> bool {
        // A claim larger than the limit must not wait for ever; one that can do without memory need not be served.
        let alone = self.used == 0 && priority > Priority::Prefetch;
        let fits = |used| used <= priority.ceiling(limit);
        let fits = alone || self.used.checked_add(bytes).is_some_and(fits);
        if fits {
            self.used += bytes;
            self.peak = self.peak.max(self.used);
        }
        fits
    }

    /// Takes the first waiter off the queues if it fits. Nobody overtakes it.
    fn serve(&mut self, limit: usize) -> Option<Waiter> {
        self.forget_cancelled();
        let priority = self.first_waiting()?;
        let bytes = self.waiting[priority as usize].front()?.bytes;
        if !self.take(bytes, priority, limit) {
            return None;
        }
        self.served += 1;
        self.waiting[priority as usize].pop_front()
    }

    fn forget_cancelled(&mut self) {
        for queue in &mut self.waiting {
            while queue.front().is_some_and(|w| w.granted.is_closed()) {
                queue.pop_front();
            }
        }
    }

    fn first_waiting(&self) -> Option<Priority> {
        Priority::ALL_FROM_THE_TOP
            .into_iter()
            .find(|p| !self.waiting[*p as usize].is_empty())
    }

    fn waits_from(&mut self, priority: Priority) -> bool {
        self.forget_cancelled();
        self.first_waiting().is_some_and(|p| p >= priority)
    }

    fn next_waiting(&mut self) -> Option<NextWaiting> {
        self.forget_cancelled();
        let priority = self.first_waiting()?;
        Some(NextWaiting {
            priority,
            bytes: self.waiting[priority as usize].front()?.bytes,
            served: self.served,
        })
    }
}

/// A place in the queue, given up.
struct Place<'a>(&'a Budget);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.grant();
    }
}

impl Lease {
    /// How many bytes may be held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Splits off a lease of `bytes`, or of all there is.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.lease(bytes)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.budget.0.state.lock().used -= self.bytes;
        self.budget.grant();
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.limit())
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.bytes).finish()
    }
}
