//! What was written to one file and is not in the bucket yet.
//!
//! A [`Writer`] belongs to an inode, not to a handle: all who write to a file write to the same content. The content is
//! always *what the bucket has* (a base generation) plus *what came since*, in one of the states of `Content`; a
//! publication makes it the next generation, on the condition that the base still is the live one. Whoever loses that
//! race gets `ESTALE`, and the bucket keeps what it had.
//!
//! Small content is held in memory and published with one request. Larger content that is written in order streams to
//! the store while it is written, a large one as parts side by side that a compose joins. What follows a publication is a *tail*: it goes to a hidden object, which a compose
//! appends to the base, so an append costs its own bytes. Anything else is staged in a local file.
//!
//! The asynchronous lock around the state is the queue of operations on the file: it is held across calls of the store,
//! each of which ends: small ones by the deadline here, uploads by the store's own, which let them go on while bytes
//! move. No method may be dropped half-way; run them in a task.

mod amend;
mod content;
mod memory;
mod parts;
mod place;
mod publish;
mod recover;
mod staged;
mod stream;
mod tails;
mod transfer;

use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use gcsmount_cache::{BlockCache, Lease, Priority};
use gcsmount_gcs::{Object, ObjectName, Store};
use nix::errno::Errno;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::reader::{OpenObject, Reader, ReaderConfig};
use crate::errno::{Error, Result};
use crate::metadata::Edits;
use crate::observer::Observer;

use content::{Content, State};
use parts::Parts;
use staged::StagingArea;
use tails::Leftovers;

pub(crate) use amend::Decide;
pub use parts::PartsConfig;
pub use place::Place;
pub(crate) use publish::stale;
pub use recover::{Outcome, Recovered};

/// Bytes that are handed to an upload at a time: one of the kernel's largest writes passes at once.
const PIECE: usize = 1 << 20;

/// What every writer of a file system shares.
#[derive(Debug)]
pub struct Workshop {
    store: Arc<dyn Store>,
    cache: Arc<BlockCache>,
    runtime: Handle,
    /// The largest content kept in memory, in bytes.
    buffer_limit: u64,
    /// The most streams at one time.
    max_streams: usize,
    /// Those that may still be opened.
    streams: Arc<Semaphore>,
    /// Staged files that may still be uploaded side by side. Not out of the streams' number: a stream lasts as long as
    /// the program that writes it likes.
    puts: Semaphore,
    /// Uploads that are in a call of the store now. It ends each of these in time, so that who waits for one of them to
    /// end need not doubt.
    sending: AtomicUsize,
    /// How many such calls have ended.
    sent: AtomicU64,
    staging: Arc<StagingArea>,
    /// Where tails and parts go before they are composed: a name prefix ending with a slash.
    hidden: String,
    next_hidden: AtomicU64,
    leftovers: Leftovers,
    /// `None`: every large file is one stream.
    parts: Option<Parts>,
    /// The longest that one small call of the store may take.
    deadline: Duration,
    /// Hears of what is replaced.
    observer: Option<Arc<dyn Observer>>,
}

/// What a [`Workshop`] needs to know.
#[derive(Debug, Clone)]
pub struct WorkshopConfig {
    /// As [`crate::FsConfig::buffer_limit`].
    pub buffer_limit: usize,
    /// As [`crate::FsConfig::max_streams`].
    pub max_streams: usize,
    /// As [`crate::FsConfig::temp_dir`].
    pub temp_dir: PathBuf,
    /// As [`crate::FsConfig::staging_limit`].
    pub staging_limit: u64,
    /// As [`crate::FsConfig::staging_name`].
    pub staging_name: Option<String>,
    /// Prefix of the names of tails and parts, ending with a slash; no other mount's.
    pub hidden: String,
    /// As [`crate::FsConfig::parts`].
    pub parts: Option<PartsConfig>,
    /// As [`crate::FsConfig::deadline`].
    pub deadline: Duration,
    /// As [`crate::FsConfig::observer`].
    pub observer: Option<Arc<dyn Observer>>,
}

impl Workshop {
    /// Tools for the writers of `store`.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        cache: Arc<BlockCache>,
        runtime: Handle,
        config: WorkshopConfig,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            cache,
            runtime,
            buffer_limit: config.buffer_limit as u64,
            max_streams: config.max_streams,
            streams: Arc::new(Semaphore::new(config.max_streams)),
            puts: Semaphore::new(config.max_streams.max(1)),
            sending: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            staging: StagingArea::new(config.temp_dir, config.staging_limit, config.staging_name),
            hidden: config.hidden,
            next_hidden: AtomicU64::new(0),
            leftovers: Leftovers::default(),
            parts: config.parts.map(Parts::new),
            deadline: config.deadline,
            observer: config.observer,
        })
    }

    /// A reader of a published object.
    #[must_use]
    pub fn reader(&self, object: &Object) -> Arc<Reader> {
        Arc::new(Reader::new(
            self.store.clone(),
            self.cache.clone(),
            OpenObject {
                name: object.name.clone(),
                generation: object.generation,
                size: object.size,
                crc32c: object.crc32c,
            },
            self.runtime.clone(),
            ReaderConfig::default(),
        ))
    }

    /// Bytes staged on disk now.
    #[must_use]
    pub fn staged_bytes(&self) -> u64 {
        self.staging.used()
    }

    /// Files that stream to the store now.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.max_streams
            .saturating_sub(self.streams.available_permits())
    }

    /// Memory for what a program writes, for as long as it likes. It is given only where one staged file can still be
    /// uploaded beside it, so that whoever waits for that waits for uploads, which end, and not for programs.
    fn lease(&self, bytes: usize) -> Option<Lease> {
        let spare = self.put_memory();
        let mut lease = self
            .cache
            .budget()
            .try_acquire(bytes.checked_add(spare)?, Priority::Upload)?;
        drop(lease.split(spare));
        Some(lease)
    }

    /// Bytes that the upload of a staged file holds: the store's, the piece that is handed over, and one that a chunk
    /// of the store's has begun with.
    fn put_memory(&self) -> usize {
        self.store.upload_memory().saturating_add(2 * PIECE)
    }

    /// A place among the uploads of staged files and the memory for one of `length` bytes, in this order, as soon as
    /// others have ended.
    async fn put_turn(
        &self,
        length: u64,
    ) -> gcsmount_gcs::Result<(Option<SemaphorePermit<'_>>, Lease)> {
        // A short file is held once as it was read, and once as it is gathered for its request.
        let twice = usize::try_from(length).map_or(usize::MAX, |length| length.saturating_mul(2));
        let bytes = self.put_memory().min(twice);
        let turn = async {
            // It is closed never.
            let slot = self.puts.acquire().await.ok();
            let memory = self.cache.budget().acquire(bytes, Priority::Upload).await;
            (slot, memory)
        };
        let mut turn = pin!(turn);
        loop {
            let before = self.sent.load(Ordering::Relaxed);
            match tokio::time::timeout(self.deadline, turn.as_mut()).await {
                Ok(turn) => return Ok(turn),
                Err(_) if self.sending.load(Ordering::Relaxed) > 0 => {}
                Err(_) if self.sent.load(Ordering::Relaxed) != before => {}
                Err(_) => {
                    return Err(overdue(
                        "there is no memory for another upload, and none gets on",
                    ));
                }
            }
        }
    }

    /// One step of an upload, for as long as the store lets it go on.
    async fn step<T>(
        &self,
        step: impl Future<Output = gcsmount_gcs::Result<T>>,
    ) -> gcsmount_gcs::Result<T> {
        self.sending.fetch_add(1, Ordering::Relaxed);
        let _sent = Sent(self);
        step.await
    }

    /// A call of the store that sends `bytes` bytes. What takes long to send is bounded by the store itself, which sees
    /// whether it moves.
    async fn send<T>(
        &self,
        bytes: usize,
        call: impl Future<Output = gcsmount_gcs::Result<T>>,
    ) -> gcsmount_gcs::Result<T> {
        if bytes <= PIECE {
            self.call(call).await
        } else {
            call.await
        }
    }

    /// One small call of the store, or one small step of one, within the deadline.
    pub(crate) async fn call<T>(
        &self,
        call: impl Future<Output = gcsmount_gcs::Result<T>>,
    ) -> gcsmount_gcs::Result<T> {
        match tokio::time::timeout(self.deadline, call).await {
            Ok(result) => result,
            Err(_) => Err(overdue(
                "the store did not answer within the deadline of this call",
            )),
        }
    }
}

/// Notes the end of a step, however it ends.
struct Sent<'a>(&'a Workshop);

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.0.sent.fetch_add(1, Ordering::Relaxed);
        self.0.sending.fetch_sub(1, Ordering::Relaxed);
    }
}

fn overdue(message: &str) -> gcsmount_gcs::Error {
    gcsmount_gcs::Error::new(
        gcsmount_gcs::Kind::Canceled,
        "storage.objects",
        "of this file",
        message,
    )
}

/// What a look at a writer shows, without waiting for it.
#[derive(Debug, Clone)]
pub struct View {
    /// Length of the file in bytes.
    pub size: u64,
    /// When it was last written, or what somebody set.
    pub mtime: SystemTime,
    /// Whether it has what the bucket does not have.
    pub dirty: bool,
    /// Whether a publication has failed and none has succeeded since.
    pub failed: bool,
    /// What will be said of it besides what the base says.
    pub edits: Arc<Edits>,
    /// The generation that the bucket has.
    pub base: Option<Arc<Object>>,
    /// What the object is called; `None` for a file that was unlinked.
    pub name: Option<ObjectName>,
}

/// The unpublished content of one file.
#[derive(Debug)]
pub struct Writer {
    workshop: Arc<Workshop>,
    state: tokio::sync::Mutex<State>,
    /// A copy of what others may see, brought up to date before the state's lock is released. Taken after it.
    view: Mutex<View>,
}

impl Writer {
    /// A file that does not exist yet, and what is to be said of it. `read_back` as [`Writer::expect_reads`].
    #[must_use]
    pub fn create(
        workshop: Arc<Workshop>,
        name: ObjectName,
        read_back: bool,
        edits: Edits,
    ) -> Arc<Self> {
        let mut state = State::new(name, None, Content::empty(), SystemTime::now());
        state.read_back = read_back;
        state.edits = Arc::new(edits);
        Self::new(workshop, state)
    }

    /// A file whose live generation is `base`.
    #[must_use]
    pub fn open(workshop: Arc<Workshop>, base: Arc<Object>, mtime: SystemTime) -> Arc<Self> {
        let name = base.name.clone();
        let state = State::new(name, Some(base), Content::Published, mtime);
        Self::new(workshop, state)
    }

    fn new(workshop: Arc<Workshop>, state: State) -> Arc<Self> {
        let view = Mutex::new(state.view());
        Arc::new(Self {
            workshop,
            state: tokio::sync::Mutex::new(state),
            view,
        })
    }

    /// What it looks like now.
    #[must_use]
    pub fn view(&self) -> View {
        self.view.lock().clone()
    }

    /// Says that somebody reads and writes through one handle: content is then kept where it can be read back.
    pub async fn expect_reads(&self) {
        self.state.lock().await.read_back = true;
    }

    /// Writes at once if that takes no waiting and no call; `None`: use [`Writer::write`].
    #[must_use]
    pub fn try_write(&self, at: Place, data: &[u8]) -> Option<Result<()>> {
        let mut state = self.state.try_lock().ok()?;
        let result = state.write_at_once(&self.workshop, at, data)?;
        *self.view.lock() = state.view();
        Some(result)
    }

    /// Writes `data`.
    ///
    /// # Errors
    /// That of an earlier publication that failed; `ENOSPC` where staging is full; the store's where the content has
    /// to be fetched or published first.
    pub async fn write(&self, at: Place, data: Bytes) -> Result<()> {
        let mut state = self.state.lock().await;
        let result = state.write(&self.workshop, at, &data).await;
        *self.view.lock() = state.view();
        result
    }

    /// At most `len` bytes at `offset`, fewer only at the end. A stream is published first: it cannot be read back.
    ///
    /// # Errors
    /// The store's; `ESTALE` where the base generation is gone.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let mut state = self.state.lock().await;
        let result = state.read(&self.workshop, offset, len).await;
        *self.view.lock() = state.view();
        result
    }

    /// Cuts the file or fills it with zeros to `size`. To nothing costs nothing: no byte is fetched.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub async fn truncate(&self, size: u64) -> Result<()> {
        let mut state = self.state.lock().await;
        let result = state.truncate(&self.workshop, size).await;
        *self.view.lock() = state.view();
        result
    }

    /// Makes the content the live generation, if there is anything that the bucket does not have, and returns the live
    /// one. `None` for a file that was unlinked.
    ///
    /// # Errors
    /// `ESTALE` where somebody else has changed the object; the store's. The content is kept where it was kept, so that
    /// another try can succeed; the error meets every write until one does.
    pub async fn publish(&self) -> Result<Option<Arc<Object>>> {
        let mut state = self.state.lock().await;
        let result = state.publish(&self.workshop).await;
        *self.view.lock() = state.view();
        result
    }

    /// Changes what is said of the file: at once if it is published, else with its next publication. For a file without a
    /// name that is never.
    ///
    /// # Errors
    /// Those of `decide`; that of a publication that has failed; `ESTALE` where the object is gone; the store's.
    pub(crate) async fn amend(&self, decide: &Decide<'_>) -> Result<()> {
        let mut state = self.state.lock().await;
        let result = state.amend(&self.workshop, decide).await;
        *self.view.lock() = state.view();
        result
    }

    /// Takes in that the base is now `base`: patched, or met by somebody who opened the file anew.
    pub async fn rebase(&self, base: Arc<Object>, mtime: SystemTime) {
        let mut state = self.state.lock().await;
        if !state.content.is_dirty() {
            state.rebase(base, mtime);
        }
        *self.view.lock() = state.view();
    }

    /// Publishes, then runs `rename` on the published object while nobody can write, and goes on under the new name.
    ///
    /// # Errors
    /// Those of the publication and of `rename`; `ENOENT` for a file that was unlinked.
    pub async fn rename<F>(
        &self,
        rename: impl FnOnce(Arc<Object>) -> F + Send,
    ) -> Result<Arc<Object>>
    where
        F: Future<Output = Result<Arc<Object>>> + Send,
    {
        let mut state = self.state.lock().await;
        let published = state.publish(&self.workshop).await;
        *self.view.lock() = state.view();
        let live = published?.ok_or(Error::of(Errno::ENOENT))?;
        let moved = rename(live).await?;
        state.moved(moved.clone());
        *self.view.lock() = state.view();
        Ok(moved)
    }

    /// Runs `delete` on the published object, if there is one, while nobody can publish another. Afterwards nothing is
    /// published any more, and what was written can be read until the last close.
    ///
    /// # Errors
    /// Those of `delete`; the file keeps its name then.
    pub async fn unlink<F>(&self, delete: impl FnOnce(Arc<Object>) -> F + Send) -> Result<()>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let mut state = self.state.lock().await;
        if let Some(base) = state.base.clone() {
            delete(base).await?;
        }
        state.unlink().await;
        *self.view.lock() = state.view();
        Ok(())
    }

    /// Takes in that another file has taken the name.
    pub async fn replaced(&self) {
        let mut state = self.state.lock().await;
        state.unlink().await;
        *self.view.lock() = state.view();
    }

    /// Lets go of everything unpublished. A staged file that could not be published is kept, and this tells where.
    pub async fn abandon(&self) -> Option<PathBuf> {
        let mut state = self.state.lock().await;
        let kept = state.abandon().await;
        *self.view.lock() = state.view();
        kept
    }
}

#[cfg(test)]
mod tests;
