//! What survives a restart: a journal in the data directory, and the thread that writes it.
//!
//! Each transaction of the store and each change of a policy is one frame, written in the order in which they took
//! effect. No answer leaves before every frame that it may tell of is on the disk (`fdatasync`; frames that wait
//! together share one), so whatever a caller was told outlives a kill at any moment, and a loss of power as far as the
//! disk keeps its word. Content is in the journal too, and in memory while the emulator runs. When more than half of the
//! journal is what nobody refers to any more, it is written anew.
//!
//! Buckets, policies, folders and all versions of objects are kept. Upload sessions, tokens, accounts, keys, faults and
//! counters are not.

mod file;
mod mirror;
mod record;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::error::{ApiError, Kind};
use crate::hierarchy::Folder;
use crate::history::Entry;
use crate::name::{BucketName, FolderName, ObjectName};
use crate::role::Role;
use crate::store::BucketInfo;
use file::{Log, load};
pub(crate) use mirror::{Mirror, MirrorBucket};

/// One thing that is another way now. Each says the whole of what it is about, so that what is read back needs no
/// history.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Bucket(Arc<BucketInfo>),
    BucketGone(BucketName),
    /// All versions of a name.
    Name {
        bucket: BucketName,
        name: ObjectName,
        versions: Vec<Entry>,
    },
    Folder {
        bucket: BucketName,
        name: FolderName,
        folder: Option<Arc<Folder>>,
    },
    Grants {
        bucket: BucketName,
        bindings: Vec<(String, Role)>,
    },
}

/// Changes that take effect together.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) last_generation: u64,
    pub(crate) changes: Vec<Change>,
}

/// How far the writer is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Progress {
    /// This many batches are on the disk.
    Written(u64),
    /// The disk failed, and nothing more is written.
    Failed(String),
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Batch>,
    /// Batches that were ever added.
    added: u64,
    closed: bool,
}

/// What the handle and the writer share. The queue's lock is taken inside the store's and the policies'.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    progress: watch::Sender<Progress>,
    /// Wakes those who wait for progress without a runtime.
    landed: (Mutex<()>, Condvar),
}

/// The journal of one emulator. Dropping it writes what waits and ends the writer.
#[derive(Debug)]
pub(crate) struct Journal {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens the journal in `dir`, which is created where it is missing, and says what it holds.
    ///
    /// # Errors
    /// The directory is in use, cannot be read or written, or its journal is damaged before its end.
    pub(crate) fn open(dir: &Path) -> io::Result<(Self, Mirror)> {
        let (log, mirror) = load(dir)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            more: Condvar::new(),
            progress: watch::Sender::new(Progress::Written(0)),
            landed: Default::default(),
        });
        let writer = Writer {
            shared: Arc::clone(&shared),
            mirror: mirror.clone(),
            log,
        };
        let writer = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(|| writer.run())?;
        let journal = Self {
            shared,
            writer: Some(writer),
        };
        Ok((journal, mirror))
    }

    /// Adds a batch. The caller holds the lock under which it took effect.
    pub(crate) fn add(&self, batch: Batch) {
        let mut queue = self.shared.queue.lock();
        queue.waiting.push(batch);
        queue.added += 1;
        self.shared.more.notify_one();
    }

    /// Waits until everything that was added so far is on the disk.
    pub(crate) async fn settled(&self) -> Result<(), ApiError> {
        let wanted = self.shared.queue.lock().added;
        let mut progress = self.shared.progress.subscribe();
        let settled = progress.wait_for(|progress| progress.covers(wanted)).await;
        let progress = settled.map(|progress| Progress::clone(&progress));
        progress.map_or_else(
            |_| Err(failed("its writer ended")),
            |progress| progress.outcome(),
        )
    }

    /// As [`Self::settled`], where there is nobody to await it.
    pub(crate) fn settle(&self) -> Result<(), ApiError> {
        let wanted = self.shared.queue.lock().added;
        let (lock, landed) = &self.shared.landed;
        let mut guard = lock.lock();
        while !self.shared.progress.borrow().covers(wanted) {
            landed.wait(&mut guard);
        }
        self.shared.progress.borrow().outcome()
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.more.notify_one();
        if let Some(writer) = self.writer.take() {
            // It does not panic, and if it did there would be nothing to save.
            let _ = writer.join();
        }
    }
}

impl Progress {
    fn covers(&self, wanted: u64) -> bool {
        match self {
            Self::Written(count) => *count >= wanted,
            Self::Failed(_) => true,
        }
    }

    fn outcome(&self) -> Result<(), ApiError> {
        match self {
            Self::Written(_) => Ok(()),
            Self::Failed(why) => Err(failed(why)),
        }
    }
}

fn failed(why: &str) -> ApiError {
    let message =
        format!("The data directory cannot be written, so nothing is acknowledged: {why}");
    ApiError::new(Kind::Unavailable, message)
}

/// The thread that writes. It keeps what is written as a mirror, and so needs no lock to write the journal anew.
struct Writer {
    shared: Arc<Shared>,
    mirror: Mirror,
    log: Log,
}

impl Writer {
    fn run(mut self) {
        let mut written = 0;
        while let Some(batches) = self.next() {
            if let Err(error) = self.write(&batches) {
                self.tell(Progress::Failed(error.to_string()));
                return;
            }
            written += batches.len() as u64;
            self.tell(Progress::Written(written));
        }
    }

    fn next(&self) -> Option<Vec<Batch>> {
        let mut queue = self.shared.queue.lock();
        while queue.waiting.is_empty() {
            if queue.closed {
                return None;
            }
            self.shared.more.wait(&mut queue);
        }
        Some(std::mem::take(&mut queue.waiting))
    }

    fn write(&mut self, batches: &[Batch]) -> io::Result<()> {
        for batch in batches {
            self.log.append(batch)?;
            self.mirror.apply(batch);
        }
        self.log.sync()?;
        if self.log.is_due() {
            self.log.rewrite(&self.mirror)?;
        }
        Ok(())
    }

    fn tell(&self, progress: Progress) {
        self.shared.progress.send_replace(progress);
        let (lock, landed) = &self.shared.landed;
        drop(lock.lock());
        landed.notify_all();
    }
}
