use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use gcsmount_cache::{BlockCache, Budget, CacheConfig, Priority};
use gcsmount_gcs::testing::{FakeStore, Fault, FaultyStore, Method};
use gcsmount_gcs::{Kind, Result};
use proptest::prelude::*;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{OpenObject, Reader, ReaderConfig};
use store::{Pace, RecordingStore};

mod store;

const K: usize = 1 << 10;
const M: usize = 1 << 20;

/// Everything a sixteenth of its size, so that a story costs little.
const SMALL_BLOCK: usize = 64 * K;
const SMALL: ReaderConfig = ReaderConfig {
    max_window: 2 << 20,
    part: 256 << 10,
};

struct Bench {
    faults: FaultyStore<FakeStore>,
    store: Arc<RecordingStore>,
    budget: Budget,
    cache: Arc<BlockCache>,
    config: ReaderConfig,
}

impl Bench {
    fn with(budget: usize, cache: CacheConfig, config: ReaderConfig) -> Self {
        let faults = FaultyStore::new(FakeStore::new());
        let budget = Budget::new(budget);
        Self {
            store: Arc::new(RecordingStore::new(faults.clone())),
            cache: BlockCache::new(&budget, cache),
            faults,
            budget,
            config,
        }
    }

    fn new() -> Self {
        Self::with(
            Budget::DEFAULT_LIMIT,
            CacheConfig::default(),
            ReaderConfig::default(),
        )
    }

    fn small(budget: usize) -> Self {
        let cache = CacheConfig {
            block_size: SMALL_BLOCK,
            max_read: 2 * M,
        };
        Self::with(budget, cache, SMALL)
    }

    fn put(&self, name: &str, size: usize) -> Bytes {
        let bytes = content(size);
        self.faults.inner().put(name, bytes.clone());
        bytes
    }

    fn open(&self, name: &str) -> Reader {
        let object = self.faults.inner().object(name).unwrap();
        self.open_as(OpenObject {
            name: object.name,
            generation: object.generation,
            size: object.size,
            crc32c: object.crc32c,
        })
    }

    fn open_as(&self, object: OpenObject) -> Reader {
        Reader::new(
            self.store.clone(),
            self.cache.clone(),
            object,
            Handle::current(),
            self.config,
        )
    }

    /// Returns once every lease has come back; what the cache keeps must be dropped first.
    async fn all_memory_is_back(&self) {
        let everything = self.budget.acquire(self.budget.limit(), Priority::Reader);
        assert_eq!(everything.await.bytes(), self.budget.limit());
        assert_eq!(self.budget.used(), 0);
        assert_eq!(self.cache.flights(), 0);
    }
}

fn content(size: usize) -> Bytes {
    let mut state = 0x9e37_79b9_u32;
    let words = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_le_bytes()
    });
    let mut bytes: Vec<u8> = words.take(size.div_ceil(4)).flatten().collect();
    bytes.truncate(size);
    bytes.into()
}

/// A read as the file system does it.
async fn pull(reader: &Reader, offset: usize, len: usize) -> Result<Bytes> {
    match reader.try_read(offset as u64, len) {
        Some(bytes) => Ok(bytes),
        None => reader.read(offset as u64, len).await,
    }
}

/// Polls once.
async fn is_pending_at_first(mut future: Pin<&mut impl Future>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}

/// Reads on from `offset` until `end` and compares.
async fn read_and_compare(reader: &Reader, bytes: &Bytes, from: usize, to: usize, len: usize) {
    let mut offset = from;
    while offset < to {
        let got = pull(reader, offset, len).await.unwrap();
        let end = (offset + len).min(bytes.len());
        assert!(got == bytes[offset..end], "bytes {offset}..{end}");
        offset = end;
    }
}

#[tokio::test]
async fn a_sequential_read_fetches_every_byte_once_in_few_requests() {
    let bench = Bench::new();
    let bytes = bench.put("large", 64 * M + 5);
    let reader = bench.open("large");
    read_and_compare(&reader, &bytes, 0, bytes.len(), 128 * K).await;
    assert_eq!(bench.store.bytes(), bytes.len() as u64);
    let requests = bench.store.ranges().len();
    assert!(requests <= 26, "{requests} requests");
    let peak = bench.budget.peak();
    assert!(peak <= 72 * M, "{} MiB at the peak", peak / M);
    assert!(reader.try_read(bytes.len() as u64, 1).unwrap().is_empty());
    assert!(reader.read(u64::MAX, 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn an_aligned_read_of_a_block_is_a_slice_of_it() {
    let bench = Bench::new();
    bench.put("object", 3 * M);
    let reader = bench.open("object");
    let first = reader.read(M as u64, M).await.unwrap();
    let second = reader.try_read(M as u64, 4 * K);
    assert!(second.is_none(), "a lone read is exact and is not kept");
    assert_eq!(first.len(), M);
    let first = reader.read(0, M).await.unwrap();
    let again = reader.try_read(4 * K as u64, 4 * K).unwrap();
    assert_eq!(again.as_ptr(), first[4 * K..].as_ptr());
}

#[tokio::test]
async fn random_reads_fetch_what_was_asked() {
    let bench = Bench::new();
    let bytes = bench.put("large", 64 * M);
    let reader = bench.open("large");
    let mut state = 7_u64;
    for _ in 0..256 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let offset = usize::try_from(state >> 33).unwrap() % (64 * M / (4 * K)) * 4 * K;
        read_and_compare(&reader, &bytes, offset, offset + 4 * K, 4 * K).await;
    }
    let asked = 256 * 4 * K as u64;
    assert!(bench.store.ranges().len() <= 256);
    let bytes = bench.store.bytes();
    assert!(
        bytes <= asked + M as u64,
        "{bytes} bytes for {asked}: at most one chance pair"
    );
    drop(reader);
    bench.all_memory_is_back().await;
}

#[tokio::test]
async fn a_small_object_is_one_request_wherever_the_first_read_is() {
    let bench = Bench::new();
    let bytes = bench.put("small", M - 1);
    let reader = bench.open("small");
    for offset in [700 * K, 0, 12, M - 2] {
        read_and_compare(&reader, &bytes, offset, offset + 1, 4 * K).await;
    }
    assert_eq!(bench.store.requests().len(), 1);
    assert_eq!(bench.store.bytes(), M as u64 - 1);
}

#[tokio::test]
async fn an_empty_object_needs_no_request() {
    let bench = Bench::new();
    bench.put("empty", 0);
    let reader = bench.open("empty");
    assert!(reader.try_read(0, 4 * K).unwrap().is_empty());
    assert!(reader.read(0, 4 * K).await.unwrap().is_empty());
    assert!(bench.store.ranges().is_empty());
}

#[tokio::test]
async fn handles_on_one_object_share_its_blocks() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("shared", 4 * M);
    let (one, two) = (bench.open("shared"), bench.open("shared"));
    for offset in (0..bytes.len()).step_by(32 * K) {
        let (a, b) = tokio::join!(pull(&one, offset, 32 * K), pull(&two, offset, 32 * K));
        assert!(a.unwrap() == bytes[offset..offset + 32 * K]);
        assert!(b.unwrap() == bytes[offset..offset + 32 * K]);
    }
    assert_eq!(bench.store.bytes(), bytes.len() as u64);
}

#[tokio::test]
async fn a_jump_and_return_does_not_lose_the_window() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("straight", 8 * M);
    bench.put("jumpy", 8 * M);
    read_and_compare(&bench.open("straight"), &bytes, 0, 8 * M, 32 * K).await;
    let straight = bench.store.ranges().len();

    let reader = bench.open("jumpy");
    read_and_compare(&reader, &bytes, 0, 2 * M, 32 * K).await;
    read_and_compare(&reader, &bytes, 8 * M - 8, 8 * M, 8).await;
    read_and_compare(&reader, &bytes, 7 * M, 7 * M + 16 * K, 16 * K).await;
    read_and_compare(&reader, &bytes, 2 * M, 8 * M, 32 * K).await;
    assert_eq!(bench.store.ranges().len(), 2 * straight + 2);
    assert_eq!(bench.store.bytes(), (16 * M + 16 * K + 8) as u64);
}

#[tokio::test(start_paused = true)]
async fn a_distant_store_is_read_at_the_rate_of_a_full_window() {
    let bench = Bench::small(16 * M);
    let size = 64 * M;
    let bytes = bench.put("large", size);
    let reader = bench.open("large");
    // 20 ms, and a part takes twice that to transfer: as 4 MiB at 100 MB/s.
    let pace = Pace {
        latency: Duration::from_millis(20),
        byte: Duration::from_nanos(160),
    };
    bench.store.set_pace(pace);
    let start = Instant::now();
    read_and_compare(&reader, &bytes, 0, size, 8 * K).await;
    let took = start.elapsed();
    let part = pace.latency + pace.byte * u32::try_from(SMALL.part).unwrap();
    let windows = u32::try_from(size as u64 / SMALL.max_window).unwrap();
    let ideal = part * windows;
    assert!(took <= ideal * 5 / 4, "{took:?} instead of {ideal:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_readers_stay_inside_the_budget() {
    const LIMIT: usize = 2 * M;
    let bench = Arc::new(Bench::small(LIMIT));
    let bytes = content(5 * SMALL_BLOCK + 17);
    let mut readers = JoinSet::new();
    for i in 0..200 {
        let name = format!("object-{i}");
        bench.faults.inner().put(&name, bytes.clone());
        let (bench, bytes) = (bench.clone(), bytes.clone());
        readers.spawn(async move {
            // Requests that cross blocks, so that a read needs two of them.
            let reader = bench.open(&name);
            read_and_compare(&reader, &bytes, 0, bytes.len(), 48 * K).await;
        });
    }
    while let Some(outcome) = readers.join_next().await {
        outcome.unwrap();
    }
    assert!(bench.budget.peak() <= LIMIT, "{}", bench.budget.peak());
    assert_eq!(bench.budget.waiting(), 0);
    bench.all_memory_is_back().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_open_files_share_one_block_of_memory() {
    const FILES: usize = 10_000;
    let bench = Bench::small(SMALL_BLOCK);
    let bytes = content(4 * K);
    let readers: Vec<_> = (0..FILES)
        .map(|i| {
            let name = format!("object-{i}");
            bench.faults.inner().put(&name, bytes.clone());
            Arc::new(bench.open(&name))
        })
        .collect();
    let mut reads = JoinSet::new();
    for reader in &readers {
        let reader = reader.clone();
        reads.spawn(async move { reader.read(0, 4 * K).await });
    }
    while let Some(read) = reads.join_next().await {
        assert!(read.unwrap().unwrap() == bytes);
    }
    assert!(
        bench.budget.peak() <= SMALL_BLOCK,
        "{}",
        bench.budget.peak()
    );
    assert_eq!(bench.store.ranges().len(), FILES);
    drop(readers);
    bench.all_memory_is_back().await;
}

#[tokio::test]
async fn one_block_of_memory_is_enough_for_any_read() {
    let bench = Bench::small(SMALL_BLOCK);
    let bytes = bench.put("object", 4 * SMALL_BLOCK);
    let reader = bench.open("object");
    read_and_compare(&reader, &bytes, 0, bytes.len(), 48 * K).await;
    read_and_compare(&reader, &bytes, 0, bytes.len(), bytes.len()).await;
    assert_eq!(bench.budget.peak(), SMALL_BLOCK);
}

#[tokio::test]
async fn a_failed_fetch_fails_its_reads_and_the_next_one_recovers() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("object", 4 * SMALL_BLOCK);
    let reader = bench.open("object");
    let unavailable = Fault::Before(Kind::Unavailable);
    bench.faults.inject(Method::Read, 1, unavailable);
    let (one, two) = tokio::join!(reader.read(0, 8), reader.read(8, 8));
    assert_eq!(one.unwrap_err().kind, Kind::Unavailable);
    assert_eq!(two.unwrap_err().kind, Kind::Unavailable);
    assert_eq!(bench.store.ranges().len(), 1, "they shared the fetch");
    read_and_compare(&reader, &bytes, 0, bytes.len(), 32 * K).await;
}

#[tokio::test]
async fn a_body_that_breaks_costs_only_the_blocks_behind_the_break() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("object", 4 * SMALL_BLOCK);
    let reader = bench.open("object");
    let broken = Fault::BreakBody(SMALL_BLOCK as u64 + 100, Kind::Unavailable);
    bench.faults.inject(Method::Read, 1, broken);
    let _ = reader.read(0, 2 * SMALL_BLOCK).await;
    assert!(reader.try_read(0, SMALL_BLOCK).unwrap() == bytes[..SMALL_BLOCK]);
    read_and_compare(&reader, &bytes, 0, bytes.len(), 32 * K).await;
    let starts = bench.store.ranges().iter().filter(|r| r.start == 0).count();
    assert_eq!(starts, 1);
}

#[tokio::test]
async fn a_body_that_ends_early_is_corrupt() {
    let bench = Bench::small(16 * M);
    bench.put("object", 8 * SMALL_BLOCK);
    let reader = bench.open("object");
    bench.faults.inject(Method::Read, 2, Fault::ShortBody(10));
    let error = reader.read(0, 32 * K).await.unwrap_err();
    assert_eq!(error.kind, Kind::Corrupt);
    let error = reader
        .read(5 * SMALL_BLOCK as u64, 4 * K)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Corrupt, "an exact read");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_stalls_ends_in_the_stores_error() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("object", 8 * SMALL_BLOCK);
    let reader = bench.open("object");
    for fault in [Fault::Stall, Fault::StallBody(100)] {
        bench.faults.inject(Method::Read, 2, fault);
        for offset in [0, 5 * SMALL_BLOCK] {
            let error = pull(&reader, offset, 4 * K).await.unwrap_err();
            assert_eq!(error.kind, Kind::Unavailable, "{fault:?} at {offset}");
        }
    }
    read_and_compare(&reader, &bytes, 0, bytes.len(), 32 * K).await;
}

#[tokio::test]
async fn dropping_a_reader_ends_its_fetches_and_returns_their_memory() {
    let bench = Bench::small(16 * M);
    bench.put("object", 64 * SMALL_BLOCK);
    let reader = Arc::new(bench.open("object"));
    bench
        .faults
        .inject(Method::Read, usize::from(u8::MAX), Fault::StallBody(100));
    let waiting = tokio::spawn({
        let reader = reader.clone();
        async move { reader.read(0, 2 * SMALL_BLOCK).await }
    });
    while bench.store.ranges().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(bench.budget.used() > 0);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(reader);
    bench.all_memory_is_back().await;
}

#[tokio::test]
async fn what_was_fetched_ahead_of_a_closed_handle_gives_way_to_prefetch() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("object", 64 * SMALL_BLOCK);
    let reader = bench.open("object");
    read_and_compare(&reader, &bytes, 0, 4 * SMALL_BLOCK, SMALL_BLOCK).await;
    while bench.cache.flights() > 0 {
        tokio::task::yield_now().await;
    }
    let fresh = || bench.cache.bytes().0;
    assert!(fresh() > 0, "something is ahead");
    drop(reader);
    assert_eq!(fresh(), 0);
    bench.cache.clear();
    bench.all_memory_is_back().await;
}

#[tokio::test]
async fn a_dropped_read_does_not_end_its_fetch() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("object", SMALL_BLOCK);
    let reader = bench.open("object");
    {
        let read = reader.read(0, 4 * K);
        tokio::pin!(read);
        assert!(is_pending_at_first(read.as_mut()).await);
    }
    read_and_compare(&reader, &bytes, 0, bytes.len(), 4 * K).await;
    assert_eq!(bench.store.ranges().len(), 1);
}

#[tokio::test]
async fn a_reader_takes_over_the_fetch_of_a_handle_that_closes() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("object", SMALL_BLOCK);
    let (first, second) = (Arc::new(bench.open("object")), bench.open("object"));
    bench.faults.inject(Method::Read, 1, Fault::StallBody(100));
    let leading = tokio::spawn({
        let first = first.clone();
        async move { first.read(0, 4 * K).await }
    });
    while bench.faults.pending(Method::Read) > 0 {
        tokio::task::yield_now().await;
    }
    let follow = second.read(0, SMALL_BLOCK);
    tokio::pin!(follow);
    assert!(is_pending_at_first(follow.as_mut()).await);
    leading.abort();
    assert!(leading.await.is_err());
    drop(first);
    assert!(follow.await.unwrap() == bytes);
    assert_eq!(bench.store.ranges().len(), 2);
}

#[tokio::test]
async fn bytes_of_another_generation_never_come() {
    let bench = Bench::small(16 * M);
    bench.put("object", 8 * SMALL_BLOCK);
    let reader = bench.open("object");
    bench.put("object", 8 * SMALL_BLOCK);
    for offset in [0, 5 * SMALL_BLOCK] {
        let error = pull(&reader, offset, 4 * K).await.unwrap_err();
        assert_eq!(error.kind, Kind::NotFound);
    }
}

#[tokio::test]
async fn requests_ask_for_the_live_generation_until_one_has_succeeded() {
    let bench = Bench::small(16 * M);
    bench.put("object", 8 * SMALL_BLOCK);
    let reader = bench.open("object");
    bench
        .faults
        .inject(Method::Read, 1, Fault::Before(Kind::Unavailable));
    for _ in 0..3 {
        let _ = reader.read(0, 2 * SMALL_BLOCK).await;
        let _ = reader.read(6 * SMALL_BLOCK as u64, 8).await;
    }
    let generation = bench.faults.inner().object("object").unwrap().generation;
    let sent: Vec<_> = bench.store.requests();
    assert!(sent.iter().all(|r| r.generation == Some(generation)));
    let validating = sent.iter().filter(|r| !r.preconditions.is_empty()).count();
    assert_eq!(
        validating, 2,
        "the one that failed and the first that did not"
    );
}

#[tokio::test]
async fn an_object_of_another_length_than_at_open_is_corrupt() {
    let bench = Bench::small(16 * M);
    bench.put("object", 8 * SMALL_BLOCK);
    let object = bench.faults.inner().object("object").unwrap();
    let reader = bench.open_as(OpenObject {
        name: object.name,
        generation: object.generation,
        size: object.size + 1,
        crc32c: None,
    });
    let error = reader.read(0, 8).await.unwrap_err();
    assert_eq!(error.kind, Kind::Corrupt);
}

/// The whole object in order, or the error and where it came.
async fn read_to_end(reader: &Reader, size: usize) -> std::result::Result<(), (usize, Kind)> {
    for offset in (0..size).step_by(32 * K) {
        if let Err(error) = pull(reader, offset, 32 * K).await {
            return Err((offset, error.kind));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_wrong_byte_is_an_error_in_place_of_the_last_block() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("object", 4 * SMALL_BLOCK);
    let reader = bench.open("object");
    bench.faults.inject(Method::Read, 1, Fault::WrongByte(100));
    let last = 3 * SMALL_BLOCK;
    let outcome = read_to_end(&reader, bytes.len()).await;
    assert_eq!(outcome, Err((last, Kind::Corrupt)));
    let retried = bench.store.ranges().pop().unwrap();
    assert_eq!(retried, last as u64..bytes.len() as u64);

    let fetched = bench.store.ranges().len();
    let reader = bench.open("object");
    assert_eq!(read_to_end(&reader, bytes.len()).await, Ok(()));
    assert!(
        bench.store.ranges().len() > fetched,
        "nothing wrong is kept"
    );
}

#[tokio::test]
async fn a_wrong_last_block_is_mended_by_one_more_request() {
    let bench = Bench::small(16 * M);
    let bytes = bench.put("object", SMALL_BLOCK);
    let reader = bench.open("object");
    bench.faults.inject(Method::Read, 1, Fault::WrongByte(100));
    read_and_compare(&reader, &bytes, 0, bytes.len(), 4 * K).await;
    assert_eq!(bench.store.ranges().len(), 2);
}

#[test]
fn a_runtime_that_is_gone_is_an_error_and_not_a_hang() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let bench = Bench::small(16 * M);
    bench.put("object", SMALL_BLOCK);
    let reader = runtime.block_on(async { bench.open("object") });
    drop(runtime);
    let other = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let error = other.block_on(reader.read(0, 8)).unwrap_err();
    assert_eq!(error.kind, Kind::Canceled);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Any reads through two handles, with faults in between, are the object's bytes or the fault.
    #[test]
    fn any_reads_are_the_objects_bytes(
        size in 1..20 * SMALL_BLOCK,
        budget in 1..40_usize,
        reads in prop::collection::vec((0..2_usize, 0.0..1.1_f64, 1..3 * SMALL_BLOCK, 0..10_u8), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::small(budget * SMALL_BLOCK);
            let bytes = bench.put("object", size);
            let readers = [bench.open("object"), bench.open("object")];
            let mut position = [0; 2];
            for (handle, jump, len, what) in reads {
                if what == 0 {
                    bench.faults.inject(Method::Read, 1, Fault::Before(Kind::Unavailable));
                }
                if what < 4 {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        clippy::cast_precision_loss,
                        reason = "somewhere in the object or behind it"
                    )]
                    let offset = (size as f64 * jump) as usize;
                    position[handle] = offset;
                }
                let start = position[handle].min(size);
                let end = (start + len).min(size);
                match pull(&readers[handle], position[handle], len).await {
                    Ok(got) => prop_assert!(got == bytes[start..end]),
                    Err(error) => prop_assert_eq!(error.kind, Kind::Unavailable),
                }
                position[handle] = end;
            }
            // A copy that joins blocks is not the budget's, and one exact read may be larger than all of it.
            prop_assert!(bench.budget.peak() <= bench.budget.limit().max(3 * SMALL_BLOCK));
            drop(readers);
            bench.cache.clear();
            bench.all_memory_is_back().await;
            Ok(())
        })?;
    }
}
