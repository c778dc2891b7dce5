//! A store that answers when it is told to, and counts what its uploads hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use gcsmount_cache::Budget;
use gcsmount_gcs::object::Bucket;
use gcsmount_gcs::store::{
    ComposeSource, ListPage, ListRequest, Patch, Preconditions, Read, ReadRequest, Sources,
    TransferRequest, Upload, WriteRequest,
};
use gcsmount_gcs::testing::FakeStore;
use gcsmount_gcs::{Object, ObjectName, Result, Store};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A [`FakeStore`] whose answers can be held back. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct SlowStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: FakeStore,
    held_stat: Mutex<Option<(oneshot::Sender<()>, oneshot::Receiver<()>)>>,
    uploads: Uploads,
    /// How long an upload takes for each piece.
    piece_time: Mutex<Duration>,
    /// Whether what is deleted can be read on, as where a bucket keeps versions.
    keeps_versions: AtomicBool,
}

/// What the uploads of a store hold.
#[derive(Debug, Default)]
struct Uploads {
    each: AtomicUsize,
    held: AtomicUsize,
    peak: AtomicUsize,
    /// The most bytes by which what is held was beyond what was leased.
    unleased: AtomicUsize,
    budget: Mutex<Option<Budget>>,
}

/// An answer that is on its way.
#[derive(Debug)]
pub(crate) struct HeldAnswer {
    /// Comes when the store has looked.
    pub(crate) taken: oneshot::Receiver<()>,
    /// Lets the answer arrive.
    pub(crate) arrive: oneshot::Sender<()>,
}

impl SlowStore {
    pub(crate) fn new(inner: FakeStore) -> Self {
        Self(Arc::new(Shared {
            inner,
            held_stat: Mutex::default(),
            uploads: Uploads::default(),
            piece_time: Mutex::default(),
            keeps_versions: AtomicBool::default(),
        }))
    }

    /// Lets what is deleted stay readable by its generation, which here is to say: stay.
    pub(crate) fn keep_versions(&self) {
        self.0.keeps_versions.store(true, Ordering::SeqCst);
    }

    /// Holds back the answer to the next stat.
    pub(crate) fn hold_stat(&self) -> HeldAnswer {
        let (took, taken) = oneshot::channel();
        let (arrive, arrived) = oneshot::channel();
        *self.0.held_stat.lock() = Some((took, arrived));
        HeldAnswer { taken, arrive }
    }

    /// Lets an upload take this long for each piece.
    pub(crate) fn set_piece_time(&self, time: Duration) {
        *self.0.piece_time.lock() = time;
    }

    /// Lets each upload hold up to `bytes`, and compares the sum with what of `budget` is leased.
    pub(crate) fn watch_uploads(&self, bytes: usize, budget: Budget) {
        self.0.uploads.each.store(bytes, Ordering::SeqCst);
        *self.0.uploads.budget.lock() = Some(budget);
    }

    /// The most bytes that uploads held at one time, and the most by which they exceeded the leases.
    pub(crate) fn uploads_held(&self) -> (usize, usize) {
        let uploads = &self.0.uploads;
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (load(&uploads.peak), load(&uploads.unleased))
    }
}

impl Uploads {
    fn hold(&self, bytes: usize) {
        let held = self.held.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.peak.fetch_max(held, Ordering::SeqCst);
        if let Some(budget) = &*self.budget.lock() {
            let unleased = held.saturating_sub(budget.used());
            self.unleased.fetch_max(unleased, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl Store for SlowStore {
    fn upload_memory(&self) -> usize {
        self.0.inner.upload_memory()
    }

    async fn bucket(&self) -> Result<Bucket> {
        self.0.inner.bucket().await
    }

    async fn permissions(&self, wanted: &[&str]) -> Result<Vec<String>> {
        self.0.inner.permissions(wanted).await
    }

    async fn stat(&self, name: &ObjectName) -> Result<Object> {
        let answer = self.0.inner.stat(name).await;
        let held = self.0.held_stat.lock().take();
        if let Some((took, arrived)) = held {
            let _ = took.send(());
            let _ = arrived.await;
        }
        answer
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        self.0.inner.list(request).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<Read> {
        self.0.inner.read(request).await
    }

    async fn write(&self, request: &WriteRequest, body: Bytes) -> Result<Object> {
        let length = body.len();
        self.0.uploads.hold(length);
        // Others come in between.
        let time = *self.0.piece_time.lock();
        tokio::time::sleep(time).await;
        tokio::task::yield_now().await;
        let written = self.0.inner.write(request, body).await;
        self.0.uploads.held.fetch_sub(length, Ordering::SeqCst);
        written
    }

    async fn upload(&self, request: &WriteRequest) -> Result<Box<dyn Upload>> {
        Ok(Box::new(CountedUpload {
            inner: self.0.inner.upload(request).await?,
            store: self.clone(),
            held: 0,
        }))
    }

    async fn patch(
        &self,
        name: &ObjectName,
        patch: &Patch,
        preconditions: &Preconditions,
    ) -> Result<Object> {
        self.0.inner.patch(name, patch, preconditions).await
    }

    async fn delete(&self, name: &ObjectName, preconditions: &Preconditions) -> Result<()> {
        if self.0.keeps_versions.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.0.inner.delete(name, preconditions).await
    }

    async fn compose(
        &self,
        request: &WriteRequest,
        sources: &[ComposeSource],
        after: Sources,
    ) -> Result<Object> {
        self.0.inner.compose(request, sources, after).await
    }

    async fn copy(&self, request: &TransferRequest) -> Result<Object> {
        self.0.inner.copy(request).await
    }

    async fn rename(&self, request: &TransferRequest) -> Result<Object> {
        self.0.inner.rename(request).await
    }
}

/// Holds as much as it may until it ends.
#[derive(Debug)]
struct CountedUpload {
    inner: Box<dyn Upload>,
    store: SlowStore,
    held: usize,
}

#[async_trait]
impl Upload for CountedUpload {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let uploads = &self.store.0.uploads;
        let room = uploads.each.load(Ordering::SeqCst) - self.held;
        let more = bytes.len().min(room);
        self.held += more;
        uploads.hold(more);
        // Others come in between.
        let time = *self.store.0.piece_time.lock();
        tokio::time::sleep(time).await;
        tokio::task::yield_now().await;
        self.inner.write(bytes).await
    }

    async fn finish(&mut self) -> Result<Object> {
        tokio::task::yield_now().await;
        self.inner.finish().await
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}

impl Drop for CountedUpload {
    fn drop(&mut self) {
        let held = &self.store.0.uploads.held;
        held.fetch_sub(self.held, Ordering::SeqCst);
    }
}
