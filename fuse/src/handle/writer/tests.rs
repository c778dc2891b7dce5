use gcsmount_cache::{Budget, CacheConfig, Priority};
use gcsmount_gcs::Kind;
use gcsmount_gcs::testing::{FakeStore, Fault, FaultyStore, Method};
use proptest::prelude::*;

use super::*;
use crate::slow_store::SlowStore;

const LIMIT: usize = 64 << 10;

struct Bench {
    store: FakeStore,
    faults: FaultyStore<FakeStore>,
    budget: Budget,
    workshop: Arc<Workshop>,
}

fn config() -> WorkshopConfig {
    WorkshopConfig {
        buffer_limit: LIMIT,
        max_streams: 2,
        temp_dir: std::env::temp_dir(),
        staging_limit: 1 << 30,
        tails: ".gcsmount/m/".to_owned(),
        deadline: Duration::from_secs(60),
    }
}

fn bench_with(change: impl FnOnce(&mut WorkshopConfig)) -> Bench {
    let store = FakeStore::new();
    let faults = FaultyStore::new(store.clone());
    let budget = Budget::new(32 << 20);
    let cache = BlockCache::new(&budget, CacheConfig::default());
    let mut config = config();
    change(&mut config);
    let workshop = Workshop::new(Arc::new(faults.clone()), cache, Handle::current(), config);
    Bench {
        store,
        faults,
        budget,
        workshop,
    }
}

fn bench() -> Bench {
    bench_with(|_| {})
}

impl Bench {
    fn create(&self) -> Arc<Writer> {
        Writer::create(
            self.workshop.clone(),
            ObjectName::parse("f").unwrap(),
            false,
        )
    }

    fn open(&self, content: &[u8]) -> Arc<Writer> {
        let base = Arc::new(self.store.put("f", content.to_vec()));
        let mtime = base.updated;
        self.store.reset_calls();
        Writer::open(self.workshop.clone(), base, mtime)
    }

    fn bytes(&self) -> Option<Bytes> {
        self.store.bytes("f")
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 7 + i / 4096) % 251).unwrap())
        .collect()
}

async fn append(writer: &Writer, bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    writer.write(Place::End, bytes).await.unwrap();
}

async fn errno(result: impl Future<Output = Result<impl Sized>>) -> Errno {
    match result.await {
        Ok(_) => panic!("succeeded"),
        Err(error) => error.errno(),
    }
}

#[tokio::test]
async fn small_content_is_one_call() {
    let bench = bench();
    let writer = bench.create();
    for _ in 0..100 {
        assert!(writer.try_write(Place::End, b"0123456789").unwrap().is_ok());
    }
    assert!(writer.view().dirty);
    assert_eq!(bench.bytes(), None);
    writer.publish().await.unwrap();
    assert_eq!(bench.bytes().unwrap().len(), 1000);
    assert_eq!(bench.store.calls().total(), 1);
    // And nothing to do for another.
    writer.publish().await.unwrap();
    assert_eq!(bench.store.calls().total(), 1);
}

#[tokio::test]
async fn large_content_streams_and_goes_on_as_a_tail() {
    let bench = bench();
    let writer = bench.create();
    let content = pattern(3 << 20);
    for piece in content.chunks(10_000) {
        append(&writer, piece).await;
    }
    assert_eq!(writer.view().size, 3 << 20);
    writer.publish().await.unwrap();
    assert!(bench.bytes().unwrap() == content);
    assert_eq!(bench.store.calls().of(Method::UploadFinish), 1);
    assert_eq!(bench.store.calls().of(Method::Write), 0);
    // A short tail, then one that streams itself.
    for tail in [10, 1 << 20] {
        bench.store.reset_calls();
        append(&writer, &pattern(tail)).await;
        let before = bench.bytes().unwrap();
        writer.publish().await.unwrap();
        let now = bench.bytes().unwrap();
        assert!(now.starts_with(&before) && now.ends_with(&pattern(tail)));
        assert_eq!(bench.store.calls().of(Method::Compose), 1);
        assert_eq!(bench.store.calls().of(Method::Read), 0);
        assert_eq!(bench.store.names(), ["f"]);
    }
}

#[tokio::test]
async fn attributes_of_the_base_are_kept() {
    let bench = bench();
    let attributes = gcsmount_gcs::object::Attributes {
        content_type: Some("text/x".into()),
        cache_control: Some("no-store".into()),
        ..Default::default()
    };
    let big = vec![0; 300 << 10];
    for content in [b"small".to_vec(), big] {
        let base = Arc::new(bench.store.put_with("f", content, attributes.clone()));
        let mtime = base.updated;
        let writer = Writer::open(bench.workshop.clone(), base, mtime);
        append(&writer, b"more").await;
        let then = SystemTime::UNIX_EPOCH + Duration::from_secs(77);
        assert!(writer.set_mtime(then).await);
        let published = writer.publish().await.unwrap().unwrap();
        assert_eq!(published.attributes.content_type, attributes.content_type);
        assert_eq!(published.attributes.cache_control, attributes.cache_control);
        assert_eq!(crate::metadata::mtime(&published), then);
        assert!(!writer.set_mtime(then).await, "there is nothing to ride in");
    }
}

#[tokio::test]
async fn a_failed_publication_keeps_the_old_object_and_the_new_bytes() {
    let bench = bench();
    let writer = bench.open(b"old");
    append(&writer, b"+new").await;
    bench
        .faults
        .inject(Method::Write, 1, Fault::Before(Kind::Unavailable));
    assert_eq!(errno(writer.publish()).await, Errno::EIO);
    assert_eq!(bench.bytes().unwrap(), "old");
    assert!(writer.view().failed);
    // The error meets every write until a publication succeeds.
    let refused = writer.write(Place::End, Bytes::from_static(b"!"));
    assert_eq!(errno(refused).await, Errno::EIO);
    assert!(writer.try_write(Place::End, b"!").unwrap().is_err());
    writer.publish().await.unwrap();
    assert_eq!(bench.bytes().unwrap(), "old+new");
    append(&writer, b"!").await;
    writer.publish().await.unwrap();
    assert_eq!(bench.bytes().unwrap(), "old+new!");
}

#[tokio::test]
async fn a_broken_stream_fails_for_good() {
    let bench = bench();
    let writer = bench.create();
    let fault = Fault::Before(Kind::Unavailable);
    bench.faults.inject(Method::UploadFinish, 1, fault);
    append(&writer, &pattern(LIMIT + 1)).await;
    assert_eq!(errno(writer.publish()).await, Errno::EIO);
    assert_eq!(errno(writer.publish()).await, Errno::EIO);
    let refused = writer.write(Place::End, Bytes::from_static(b"!"));
    assert_eq!(errno(refused).await, Errno::EIO);
    assert_eq!(errno(writer.read(0, 1)).await, Errno::EIO);
    assert_eq!(bench.bytes(), None);
    // But a new beginning is one.
    writer.truncate(0).await.unwrap();
    append(&writer, b"again").await;
    writer.publish().await.unwrap();
    assert_eq!(bench.bytes().unwrap(), "again");
}

#[tokio::test]
async fn a_write_learns_that_its_stream_broke() {
    let bench = bench();
    let writer = bench.create();
    let fault = Fault::Before(Kind::Denied);
    bench.faults.inject(Method::Upload, 1, fault);
    let mut outcome = Ok(());
    for _ in 0..10 {
        let piece = Bytes::from(pattern(1 << 20));
        outcome = writer.write(Place::End, piece).await;
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!(outcome.unwrap_err().errno(), Errno::EACCES);
    assert_eq!(errno(writer.publish()).await, Errno::EACCES);
    assert_eq!(bench.bytes(), None);
}

#[tokio::test]
async fn of_two_writers_one_is_told() {
    let bench = bench();
    for content in [b"base".to_vec(), pattern(300 << 10)] {
        let one = bench.open(&content);
        append(&one, b"+one").await;
        bench.store.put("f", "two");
        assert_eq!(errno(one.publish()).await, Errno::ESTALE);
        assert_eq!(errno(one.publish()).await, Errno::ESTALE);
        assert_eq!(bench.store.bytes("f").unwrap(), "two");
        assert_eq!(bench.store.names(), ["f"], "no tail stays");
    }
    let _ = bench.store.remove("f");
    let new = bench.create();
    append(&new, b"mine").await;
    bench.store.put("f", "theirs");
    assert_eq!(errno(new.publish()).await, Errno::ESTALE);
    assert_eq!(bench.bytes().unwrap(), "theirs");
}

#[tokio::test]
async fn staged_content_can_be_published_again() {
    let bench = bench();
    let content = pattern(LIMIT * 2);
    let writer = bench.open(&content);
    writer
        .write(Place::At(5), Bytes::from_static(b"five"))
        .await
        .unwrap();
    assert!(bench.workshop.staged_bytes() >= content.len() as u64);
    bench
        .faults
        .inject(Method::UploadWrite, 1, Fault::Before(Kind::Unavailable));
    assert_eq!(errno(writer.publish()).await, Errno::EIO);
    assert!(bench.bytes().unwrap() == content);
    writer.publish().await.unwrap();
    let mut expected = content;
    expected[5..9].copy_from_slice(b"five");
    assert!(bench.bytes().unwrap() == expected);
    drop(writer);
    assert_eq!(bench.workshop.staged_bytes(), 0);
}

#[tokio::test]
async fn a_full_staging_area_refuses_the_write() {
    let bench = bench_with(|config| config.staging_limit = 1000);
    let content = pattern(LIMIT * 2);
    let writer = bench.open(&content);
    let refused = writer.write(Place::At(0), Bytes::from_static(b"x"));
    assert_eq!(errno(refused).await, Errno::ENOSPC);
    // The refusal is of this write; nothing was lost.
    assert!(!writer.view().dirty);
    append(&writer, b"tail").await;
    writer.publish().await.unwrap();
    assert!(bench.bytes().unwrap().ends_with(b"tail"));
}

#[tokio::test]
async fn without_memory_content_is_staged() {
    let bench = bench();
    // What is left is kept for the upload of a staged file.
    let held = bench.budget.try_acquire(26 << 20, Priority::Upload);
    assert!(held.is_some());
    let writer = bench.create();
    append(&writer, &pattern(1000)).await;
    writer.publish().await.unwrap();
    assert_eq!(bench.bytes().unwrap(), pattern(1000));
    assert_eq!(bench.workshop.staged_bytes(), 1000);
}

#[tokio::test]
async fn streams_are_bounded() {
    let bench = bench_with(|config| config.max_streams = 1);
    let (one, two) = (
        bench.create(),
        Writer::create(
            bench.workshop.clone(),
            ObjectName::parse("g").unwrap(),
            false,
        ),
    );
    append(&one, &pattern(LIMIT + 1)).await;
    append(&two, &pattern(LIMIT + 1)).await;
    assert_eq!(bench.workshop.staged_bytes(), LIMIT as u64 + 1);
    one.publish().await.unwrap();
    two.publish().await.unwrap();
    for name in ["f", "g"] {
        assert!(bench.store.bytes(name).unwrap() == pattern(LIMIT + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stalls_ends_in_an_error() {
    let bench = bench();
    let writer = bench.create();
    append(&writer, b"x").await;
    bench.faults.inject(Method::Write, 1, Fault::Stall);
    assert_eq!(errno(writer.publish()).await, Errno::ETIMEDOUT);
    writer.publish().await.unwrap();
    assert!(bench.store.remove("f"));
    bench.faults.inject(Method::Upload, 1, Fault::Stall);
    let stalled = bench.create();
    let mut outcome = Ok(());
    for _ in 0..10 {
        let piece = Bytes::from(pattern(1 << 20));
        outcome = stalled.write(Place::End, piece).await;
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!(outcome.unwrap_err().errno(), Errno::ETIMEDOUT);
}

#[tokio::test]
async fn an_unlinked_file_is_never_published() {
    let bench = bench();
    let writer = bench.create();
    append(&writer, b"x").await;
    writer
        .unlink(|_| async { panic!("there is nothing to delete") })
        .await
        .unwrap();
    append(&writer, b"y").await;
    assert!(writer.publish().await.unwrap().is_none());
    assert_eq!(writer.read(0, 10).await.unwrap(), "xy");
    assert_eq!(bench.bytes(), None);
    // One that was streaming is forgotten by the store.
    let writer = bench.create();
    append(&writer, &pattern(LIMIT + 1)).await;
    writer.unlink(|_| async { Ok(()) }).await.unwrap();
    append(&writer, b"z").await;
    assert!(writer.publish().await.unwrap().is_none());
    writer.abandon().await;
    assert_eq!(bench.bytes(), None);
    assert_eq!(bench.store.calls().of(Method::UploadCancel), 1);
}

#[tokio::test]
async fn memory_goes_back_to_the_budget() {
    let bench = bench();
    for size in [10, LIMIT / 2, LIMIT * 2] {
        let writer = bench.create();
        append(&writer, &pattern(size)).await;
        assert!(bench.budget.used() > 0);
        writer.publish().await.unwrap();
        drop(writer);
        let _ = bench.store.remove("f");
    }
    assert_eq!(bench.budget.used(), 0);
}

#[tokio::test]
async fn what_uploads_hold_is_leased() {
    const EACH: usize = 2 << 20;
    for (at, streams) in [(2_500_000, 0), (0, 1)] {
        let fake = FakeStore::new();
        fake.set_upload_memory(EACH);
        let store = SlowStore::new(fake.clone());
        let budget = Budget::new(16 << 20);
        store.watch_uploads(EACH, budget.clone());
        let cache = BlockCache::new(&budget, CacheConfig::default());
        let config = WorkshopConfig {
            max_streams: 16,
            ..config()
        };
        let workshop = Workshop::new(Arc::new(store.clone()), cache, Handle::current(), config);
        let writers: Vec<_> = (0..16)
            .map(|i| {
                let name = ObjectName::parse(format!("{i}")).unwrap();
                Writer::create(workshop.clone(), name, false)
            })
            .collect();
        // Out of order, or in order: all of them are open before the first is closed.
        for writer in &writers {
            let data = Bytes::from(pattern(3_000_000 - at));
            writer.write(Place::At(at as u64), data).await.unwrap();
        }
        let staged = workshop.staged_bytes() / 3_000_000;
        assert!(staged <= 16 - streams && staged >= 8, "{staged}");
        let published = writers.iter().map(|writer| writer.publish());
        for published in futures_util::future::join_all(published).await {
            assert_eq!(published.unwrap().unwrap().size, 3_000_000);
        }
        let (peak, unleased) = store.uploads_held();
        assert!(peak > EACH, "uploads ran side by side");
        assert_eq!(unleased, 0);
        assert!(budget.peak() <= budget.limit(), "{}", budget.peak());
        drop(writers);
        assert_eq!(budget.used(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_turn_ends_where_nobody_gets_on() {
    let bench = bench();
    let writer = bench.open(&pattern(LIMIT * 2));
    let write = writer.write(Place::At(0), Bytes::from_static(b"x"));
    write.await.unwrap();
    let held = bench.budget.try_acquire(28 << 20, Priority::Upload);
    assert_eq!(errno(writer.publish()).await, Errno::ETIMEDOUT);
    drop(held);
    writer.publish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_gets_on_outlasts_the_deadline() {
    let bench = bench();
    let store = SlowStore::new(bench.store.clone());
    store.set_piece_time(Duration::from_secs(50));
    let cache = BlockCache::new(&bench.budget, CacheConfig::default());
    let workshop = Workshop::new(Arc::new(store), cache, Handle::current(), config());
    let begun = tokio::time::Instant::now();
    for at in [0, 1] {
        // Streamed, then staged.
        let name = ObjectName::parse(format!("{at}")).unwrap();
        let writer = Writer::create(workshop.clone(), name, at == 1);
        append(&writer, &pattern(5 << 20)).await;
        writer.publish().await.unwrap();
    }
    assert!(begun.elapsed() >= Duration::from_secs(500));
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, usize),
    Append(usize),
    Truncate(usize),
    Read(usize, usize),
    Publish,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..24_000_usize;
    let len = 1..6_000_usize;
    prop_oneof![
        (at.clone(), len.clone()).prop_map(|(at, len)| Step::Write(at, len)),
        len.clone().prop_map(Step::Append),
        len.clone().prop_map(Step::Append),
        at.clone().prop_map(Step::Truncate),
        (at, len).prop_map(|(at, len)| Step::Read(at, len)),
        Just(Step::Publish),
        Just(Step::Reopen),
    ]
}

/// Runs the steps on a writer and on a plain vector.
async fn follow(steps: Vec<Step>, read_back: bool) -> std::result::Result<(), TestCaseError> {
    let bench = bench_with(|config| config.buffer_limit = 8_000);
    let mut writer = bench.create();
    let mut model: Vec<u8> = Vec::new();
    if read_back {
        writer.expect_reads().await;
    }
    for (number, step) in steps.into_iter().enumerate() {
        let fill = u8::try_from(number % 250 + 1).unwrap();
        match step {
            Step::Write(at, len) => {
                let data = Bytes::from(vec![fill; len]);
                if writer.try_write(Place::At(at as u64), &data).is_none() {
                    writer.write(Place::At(at as u64), data).await.unwrap();
                }
                model.resize(model.len().max(at + len), 0);
                model[at..at + len].fill(fill);
            }
            Step::Append(len) => {
                append(&writer, &vec![fill; len]).await;
                model.resize(model.len() + len, fill);
            }
            Step::Truncate(len) => {
                writer.truncate(len as u64).await.unwrap();
                model.resize(len, 0);
            }
            Step::Read(at, len) => {
                let read = writer.read(at as u64, len).await.unwrap();
                let end = (at + len).min(model.len());
                prop_assert_eq!(&read[..], &model[at.min(end)..end]);
            }
            Step::Publish => {
                writer.publish().await.unwrap();
                prop_assert_eq!(&bench.bytes().unwrap()[..], &model[..]);
            }
            Step::Reopen => {
                let base = writer.publish().await.unwrap().unwrap();
                let mtime = crate::metadata::mtime(&base);
                writer = Writer::open(bench.workshop.clone(), base, mtime);
            }
        }
        prop_assert_eq!(writer.view().size, model.len() as u64);
    }
    writer.publish().await.unwrap();
    prop_assert_eq!(&bench.bytes().unwrap()[..], &model[..]);
    prop_assert_eq!(bench.store.names(), ["f"]);
    drop(writer);
    prop_assert_eq!(bench.workshop.staged_bytes(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is written, cut, read and published in whatever order, the bucket ends up with what a file would have.
    #[test]
    fn a_writer_is_a_file(steps in prop::collection::vec(step(), 1..40), read_back: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(follow(steps, read_back))?;
    }
}
