//! A store that writes down what is read from it and, like the real client, does not wait for ever.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use gcsmount_gcs::object::Bucket;
use gcsmount_gcs::store::{
    ComposeSource, ListPage, ListRequest, Patch, Preconditions, Read, ReadRequest, Sources,
    TransferRequest, Upload, WriteRequest,
};
use gcsmount_gcs::testing::{FakeStore, FaultyStore};
use gcsmount_gcs::{Error, Kind, Object, ObjectName, Result, Store};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

/// How long the store waits for an answer or for the next bytes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct RecordingStore {
    inner: FaultyStore<FakeStore>,
    requests: Mutex<Vec<ReadRequest>>,
    pace: Mutex<Pace>,
}

/// How far away the store is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    /// Until the first byte.
    pub(super) latency: Duration,
    /// For each byte of one stream.
    pub(super) byte: Duration,
}

impl RecordingStore {
    pub(super) fn new(inner: FaultyStore<FakeStore>) -> Self {
        Self {
            inner,
            requests: Mutex::default(),
            pace: Mutex::default(),
        }
    }

    pub(super) fn set_pace(&self, pace: Pace) {
        *self.pace.lock() = pace;
    }

    pub(super) fn requests(&self) -> Vec<ReadRequest> {
        self.requests.lock().clone()
    }

    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let requests = self.requests.lock();
        requests.iter().filter_map(|r| r.range.clone()).collect()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.ranges().iter().map(|r| r.end - r.start).sum()
    }
}

impl Pace {
    fn of(self, piece: &Result<Bytes>) -> Duration {
        let bytes = piece.as_ref().map_or(0, Bytes::len);
        self.byte * u32::try_from(bytes).unwrap()
    }
}

/// Not even a turn of the scheduler where there is nothing to wait for.
async fn pass(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

fn stalled(name: &ObjectName) -> Error {
    Error::new(Kind::Unavailable, "storage.objects.get", name, "stalled")
}

fn unused<T>(subject: &str) -> Result<T> {
    Err(Error::new(Kind::Unsupported, "test", subject, "not a read"))
}

#[async_trait]
impl Store for RecordingStore {
    async fn read(&self, request: &ReadRequest) -> Result<Read> {
        self.requests.lock().push(request.clone());
        let name = request.name.clone();
        let pace = *self.pace.lock();
        pass(pace.latency).await;
        let read = timeout(PATIENCE, self.inner.read(request))
            .await
            .map_err(|_| stalled(&name))??;
        let body = stream::unfold(Some(read.body), move |body| {
            let name = name.clone();
            async move {
                let mut body = body?;
                match timeout(PATIENCE, body.next()).await {
                    Ok(None) => None,
                    Ok(Some(piece)) => {
                        pass(pace.of(&piece)).await;
                        Some((piece, Some(body)))
                    }
                    Err(_) => Some((Err(stalled(&name)), None)),
                }
            }
        });
        Ok(Read {
            body: body.boxed(),
            ..read
        })
    }

    async fn bucket(&self) -> Result<Bucket> {
        unused("bucket")
    }
    async fn permissions(&self, _: &[&str]) -> Result<Vec<String>> {
        unused("permissions")
    }
    async fn stat(&self, _: &ObjectName) -> Result<Object> {
        unused("stat")
    }
    async fn list(&self, _: &ListRequest) -> Result<ListPage> {
        unused("list")
    }
    async fn write(&self, _: &WriteRequest, _: Bytes) -> Result<Object> {
        unused("write")
    }
    async fn upload(&self, _: &WriteRequest) -> Result<Box<dyn Upload>> {
        unused("upload")
    }
    async fn patch(&self, _: &ObjectName, _: &Patch, _: &Preconditions) -> Result<Object> {
        unused("patch")
    }
    async fn delete(&self, _: &ObjectName, _: &Preconditions) -> Result<()> {
        unused("delete")
    }
    async fn compose(&self, _: &WriteRequest, _: &[ComposeSource], _: Sources) -> Result<Object> {
        unused("compose")
    }
    async fn copy(&self, _: &TransferRequest) -> Result<Object> {
        unused("copy")
    }
    async fn rename(&self, _: &TransferRequest) -> Result<Object> {
        unused("rename")
    }
}
