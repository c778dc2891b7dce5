//! Blocks on the local disk, where they outlive the process.
//!
//! A [`DiskCache`] keeps blocks of object generations in one directory, up to a number of bytes; the mounts of a
//! process share it. Each bucket, as somebody sees it, is a [`Volume`] of it, and each generation of an object a
//! [`Content`], through which a reader reads and writes. A generation never changes, so nothing in here can go stale.
//!
//! **Never wrong bytes.** Every block has its CRC32C. It is checked when the block is written and each time it is
//! read; what does not match is removed, counted, and not there. So it is after a crash, in a directory that somebody
//! has changed, and on a disk that rots.
//!
//! **Never in the way.** What is to be written is copied into a short queue, or dropped when that is full. Reads that
//! the disk does not answer in time go without it. A disk that fails is left alone for a while: the cache says so
//! once, and again when it is back.
//!
//! **Never more than the limit.** Room is made before anything is written: the content used longest ago goes, but not
//! one that is being read or was passed to the kernel. An object as large as the limit replaces blocks of its own. A
//! content on the disk is a sparse file with its bytes where they belong, and one with what is known of them, so that
//! one that is whole can be passed to the kernel as it is.
//!
//! **Several processes** in one directory have a place each in it, and each its limit; what one leaves is the next
//! one's. See `disk/home.rs` and `disk/index.rs` for the formats.

mod content;
mod entry;
mod filling;
mod health;
mod home;
mod index;
mod jobs;
mod key;
mod queue;
mod reading;
mod records;
mod shelf;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{Budget, Lease, Priority};
use health::Health;
use home::Home;
use jobs::Jobs;
use queue::Queue;
use shelf::Shelf;

pub use content::{Content, Found, Volume, Whole};
pub use key::Scope;

/// Reads of the disk that may be under way at a time. A local disk is no faster with more.
const READS: usize = 16;
/// How long a read may wait for its turn, and for the disk. A store is faster than a disk that needs this long.
const READ_DEADLINE: Duration = Duration::from_secs(10);
/// Contents that may be read as a whole at a time, to be passed to the kernel.
const CHECKS: usize = 2;
/// Longer than any check: they are as long as their files.
const CHECK_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// Where blocks are kept, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskConfig {
    /// The directory. It is made where it is not there, and may hold other files.
    pub dir: PathBuf,
    /// The most bytes on the disk, as `du` counts them, for this process.
    pub limit: u64,
    /// Bytes in a block: that of the [`BlockCache`](crate::BlockCache)s in front of it. What is there in blocks of
    /// another size is dropped when it is next asked for.
    pub block_size: usize,
    /// The most memory for blocks that wait to be written. No more than an eighth of the budget is taken.
    pub queue: usize,
}

impl DiskConfig {
    /// 16 MiB: what a disk writes while a store brings as much again.
    pub const DEFAULT_QUEUE: usize = 16 << 20;
}

/// What a cache has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes on the disk now, and on their way there.
    pub bytes: u64,
    /// The most that there may be.
    pub limit: u64,
    /// Generations of objects on the disk now.
    pub entries: u64,
    /// Blocks that wait to be written, or are being written.
    pub queued: u64,
    /// Blocks that were read from the disk.
    pub hits: u64,
    /// Blocks that were asked for and were not there.
    pub misses: u64,
    /// Blocks that were written.
    pub filled: u64,
    /// Contents that gave way to others, and blocks that gave way to others of their object.
    pub evictions: u64,
    /// Blocks, and whole contents, that were damaged and removed.
    pub corrupt: u64,
    /// Blocks that were not written: the queue was full, the disk was off, or there was no room.
    pub dropped: u64,
    /// Reads that the disk failed, or did not answer in time.
    pub failed: u64,
    /// Whether blocks are being written, as far as is known.
    pub on: bool,
}

/// Blocks of object generations on the local disk.
///
/// Dropping it writes what is queued and waits for that: do so on a thread that may block.
pub struct DiskCache {
    inner: Arc<Inner>,
    writer: Option<JoinHandle<()>>,
}

/// What readers, checks and the writer share.
struct Inner {
    config: DiskConfig,
    max_entries: usize,
    /// Held for map work only.
    state: Mutex<State>,
    queue: Queue,
    /// The memory that the queue may take.
    _memory: Option<Lease>,
    fills: Health,
    reads: Health,
    read_jobs: Jobs,
    check_jobs: Jobs,
    counts: Counts,
    said_corrupt: AtomicBool,
    said_version: AtomicBool,
}

struct State {
    /// `None` until there is a directory.
    home: Option<Arc<Home>>,
    shelf: Shelf,
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    filled: AtomicU64,
    evictions: AtomicU64,
    corrupt: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl DiskCache {
    /// Opens the directory and finds out what is in it, which takes some microseconds for each file, on this thread.
    /// Where that fails, the cache is off, says why, and tries again later. The memory of its queue is taken from
    /// `budget` for as long as it lives, so open it before the budget is in use.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub fn open(config: DiskConfig, budget: &Budget) -> std::io::Result<Arc<Self>> {
        Self::open_bounded(config, budget, shelf::MAX_ENTRIES)
    }

    fn open_bounded(
        config: DiskConfig,
        budget: &Budget,
        max_entries: usize,
    ) -> std::io::Result<Arc<Self>> {
        let wanted = config.queue.min(budget.limit() / 8).max(config.block_size);
        // A budget of a few blocks needs them all.
        let enough = wanted <= budget.limit() / 4;
        let memory = enough
            .then(|| budget.try_acquire(wanted, Priority::Upload))
            .flatten();
        if memory.is_none() {
            tracing::warn!("there is no memory for the disk cache: nothing is written to it");
        }
        let health = |what| Health::new(format!("{what} the disk cache {}", config.dir.display()));
        let inner = Arc::new(Inner {
            state: Mutex::new(State {
                home: None,
                shelf: Shelf::new(config.limit, max_entries),
            }),
            queue: Queue::new(memory.as_ref().map_or(0, Lease::bytes)),
            _memory: memory,
            fills: health("writing to"),
            reads: health("reading from"),
            config,
            max_entries,
            read_jobs: Jobs::new(READS, READ_DEADLINE),
            check_jobs: Jobs::new(CHECKS, CHECK_DEADLINE),
            counts: Counts::default(),
            said_corrupt: AtomicBool::new(false),
            said_version: AtomicBool::new(false),
        });
        inner.begin();
        let writing = inner.clone();
        let writer = std::thread::Builder::new()
            .name("disk-cache".to_owned())
            .spawn(move || writing.write())?;
        Ok(Arc::new(Self {
            inner,
            writer: Some(writer),
        }))
    }

    /// The contents of `scope`.
    #[must_use]
    pub fn volume(self: &Arc<Self>, scope: Scope) -> Volume {
        Volume::new(self.clone(), scope)
    }

    /// What it was opened with.
    #[must_use]
    pub fn config(&self) -> &DiskConfig {
        &self.inner.config
    }

    /// What it has done, and what it holds.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.inner.figures()
    }
}

impl Inner {
    fn figures(&self) -> Figures {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let state = self.state.lock();
        let (bytes, entries) = (state.shelf.bytes(), state.shelf.len() as u64);
        let attached = state.home.is_some();
        drop(state);
        Figures {
            bytes,
            limit: self.config.limit,
            entries,
            queued: self.queue.len() as u64,
            hits: count(&self.counts.hits),
            misses: count(&self.counts.misses),
            filled: count(&self.counts.filled),
            evictions: count(&self.counts.evictions),
            corrupt: count(&self.counts.corrupt),
            dropped: count(&self.counts.dropped),
            failed: count(&self.counts.failed),
            on: attached && self.fills.is_well(),
        }
    }

    /// Counts damage, and tells of the first.
    fn corrupt(&self, what: &str, name: &str) {
        self.counts.corrupt.fetch_add(1, Ordering::Relaxed);
        if self.said_corrupt.swap(true, Ordering::Relaxed) {
            tracing::debug!(name, "{what} in the disk cache is damaged and was removed");
        } else {
            tracing::warn!(
                name,
                "{what} in the disk cache is damaged and was removed; it is fetched again. further ones are only counted"
            );
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        self.inner.queue.close();
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the writer of the disk cache has panicked");
        }
    }
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskCache")
            .field("dir", &self.inner.config.dir)
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}
