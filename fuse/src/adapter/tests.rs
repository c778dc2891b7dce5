use std::time::Duration;

use gcsmount_cache::{BlockCache, Budget, CacheConfig};
use gcsmount_gcs::testing::FakeStore;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::*;
use crate::fs::FsConfig;
use crate::observer::recording::Recording;

/// A reply that says what it was given; dropped, it closes the channel.
struct Told(oneshot::Sender<Result<Bytes, Errno>>);

impl Refuse for Told {
    fn fail(self, errno: Errno) {
        let _ = self.0.send(Err(errno));
    }
}

impl Answer<Bytes> for Told {
    fn ok(self, value: Bytes) {
        let _ = self.0.send(Ok(value));
    }

    fn content(value: &Bytes) -> u64 {
        value.len() as u64
    }
}

fn adapter() -> (Adapter, Arc<Recording>) {
    let recording = Arc::new(Recording::default());
    let config = FsConfig {
        deadline: Duration::from_secs(9),
        observer: Some(recording.clone()),
        ..FsConfig::default()
    };
    let cache = BlockCache::new(&Budget::new(8 << 20), CacheConfig::default());
    let fs = Fs::new(config, Arc::new(FakeStore::new()), cache, Handle::current());
    (Adapter::new(fs), recording)
}

/// Has a request answered, and tells how.
async fn request(
    adapter: &Adapter,
    operation: Operation,
    now: Option<Result<Bytes>>,
    later: impl Future<Output = Result<Bytes>> + Send + 'static,
) -> Option<Result<Bytes, Errno>> {
    let (reply, told) = oneshot::channel();
    adapter.ask(operation, Told(reply), |_| now, |_| later);
    told.await.ok()
}

#[tokio::test(start_paused = true)]
async fn each_request_is_observed_once_however_it_ends() {
    let (adapter, recording) = adapter();
    let none = || Err(Error::of(Errno::ENOENT));
    let bytes = || Ok(Bytes::from_static(b"12345"));
    let at_once = request(&adapter, Operation::ReadFile, Some(bytes()), async move {
        none()
    });
    assert_eq!(at_once.await, Some(Ok(Bytes::from_static(b"12345"))));
    let later = request(
        &adapter,
        Operation::ReadSymlink,
        None,
        async move { bytes() },
    );
    assert!(later.await.is_some_and(|answer| answer.is_ok()));
    let failed = request(&adapter, Operation::ReadFile, None, async move { none() });
    assert_eq!(failed.await, Some(Err(Errno::ENOENT)));
    let late = std::future::pending();
    let late = request(&adapter, Operation::LookUpInode, None, late);
    assert_eq!(late.await, Some(Err(Errno::ETIMEDOUT)));
    let panics = async { panic!("as a test asks") };
    let panics = request(&adapter, Operation::FlushFile, None, panics);
    assert_eq!(panics.await, None);
    let (reply, told) = oneshot::channel();
    adapter.refuse(Operation::CreateLink, Told(reply), Errno::EPERM);
    assert_eq!(told.await.unwrap(), Err(Errno::EPERM));
    // The one that panicked lets go of its reply and of what is told of it in either order.
    while recording.answered.lock().len() < 6 {
        tokio::task::yield_now().await;
    }
    let answered: Vec<_> = recording
        .answered
        .lock()
        .iter()
        .map(|a| (a.operation, a.errno, a.bytes))
        .collect();
    let mut expected = vec![
        (Operation::ReadFile, None, 5),
        (Operation::ReadSymlink, None, 0),
        (Operation::ReadFile, Some(Errno::ENOENT), 0),
        (Operation::LookUpInode, Some(Errno::ETIMEDOUT), 0),
        (Operation::FlushFile, Some(Errno::EIO), 0),
        (Operation::CreateLink, Some(Errno::EPERM), 0),
    ];
    let by_name = |answered: &(Operation, Option<Errno>, u64)| (answered.0.name(), answered.2);
    let mut answered = answered;
    answered.sort_by_key(by_name);
    expected.sort_by_key(by_name);
    assert_eq!(answered, expected);
}

#[tokio::test]
async fn a_panic_on_the_session_thread_is_an_eio() {
    let (adapter, recording) = adapter();
    let (reply, told) = oneshot::channel();
    let never = |_| async { Ok(Bytes::new()) };
    adapter.act(
        Operation::OpenFile,
        Told(reply),
        |_| panic!("as a test asks"),
        never,
    );
    assert!(told.await.is_err(), "the reply answers by itself");
    let answered = recording.answered.lock();
    assert_eq!(answered.len(), 1);
    assert_eq!(answered[0].errno, Some(Errno::EIO));
}
