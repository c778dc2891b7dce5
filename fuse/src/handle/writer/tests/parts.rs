use gcsmount_gcs::object::Attributes;

use super::*;

const MIB: usize = 1 << 20;
const FROM: usize = 2 * MIB;
const PART: usize = 256 << 10;

fn parts() -> PartsConfig {
    PartsConfig {
        from: FROM,
        part: PART,
        in_flight: 4,
    }
}

fn bench() -> Bench {
    bench_with(|config| config.parts = Some(parts()))
}

/// A bench whose bucket was tried already.
async fn tried() -> Bench {
    let bench = bench();
    let writer = bench.create();
    append(&writer, &pattern(FROM)).await;
    writer.publish().await.unwrap();
    assert!(bench.store.remove("f"));
    bench.store.reset_calls();
    bench
}

impl Bench {
    /// A file with all of `content` unpublished, written in order or not.
    async fn written(&self, staged: bool, content: &[u8]) -> Arc<Writer> {
        let name = ObjectName::parse("f").unwrap();
        let base = self.store.object("f").map(Arc::new);
        let writer = match base {
            None => Writer::create(self.workshop.clone(), name, staged, Edits::default()),
            Some(base) => {
                let mtime = base.updated;
                let writer = Writer::open(self.workshop.clone(), base, mtime);
                writer.truncate(0).await.unwrap();
                writer
            }
        };
        if staged {
            writer.expect_reads().await;
        }
        append(&writer, content).await;
        assert_eq!(self.workshop.staged_bytes() > 0, staged);
        writer
    }

    /// Waits until the bucket has a part, and tells its name.
    async fn part(&self) -> String {
        for _ in 0..10_000 {
            if let Some(name) = self.store.names().into_iter().find(|name| name != "f") {
                return name;
            }
            tokio::task::yield_now().await;
        }
        panic!("no part comes");
    }
}

#[tokio::test]
async fn what_is_large_goes_up_in_parts_and_leaves_nothing_but_the_file() {
    for staged in [false, true] {
        for (size, in_parts) in [
            (LIMIT + 1, false),
            (FROM - 1, false),
            (FROM, true),
            (FROM + 1, true),
            (9 * MIB + 12_345, true),
        ] {
            let bench = tried().await;
            let writer = bench.written(staged, &pattern(size)).await;
            assert_eq!(bench.bytes(), None, "nothing shows before the end");
            let object = writer.publish().await.unwrap().unwrap();
            let label = format!("{size} staged: {staged}");
            assert!(bench.bytes().unwrap() == pattern(size), "{label}");
            assert_eq!(bench.store.object("f"), Some((*object).clone()));
            assert_eq!(bench.store.names(), ["f"], "{label}");
            let calls = bench.store.calls();
            let writes = if in_parts {
                size.div_ceil(PART) as u64
            } else {
                0
            };
            assert_eq!(calls.of(Method::Write), writes, "{label}");
            assert_eq!(calls.of(Method::UploadFinish), u64::from(!in_parts));
            drop(writer);
            assert_eq!(bench.budget.used(), 0, "{label}");
        }
    }
}

#[tokio::test]
async fn a_bucket_is_tried_once_and_only_for_a_large_file() {
    let bench = bench();
    for (size, asked) in [(FROM - 1, 0), (FROM, 1), (FROM, 1)] {
        let writer = bench.create();
        append(&writer, &pattern(size)).await;
        writer.publish().await.unwrap();
        assert!(bench.store.remove("f"));
        let calls = bench.store.calls();
        assert_eq!(calls.of(Method::Permissions), asked);
    }
    assert!(bench.store.names().is_empty());
}

#[tokio::test]
async fn attributes_of_the_base_are_those_of_the_joined() {
    let bench = tried().await;
    let attributes = Attributes {
        cache_control: Some("no-store".into()),
        storage_class: Some("STANDARD".into()),
        ..Attributes::default()
    };
    let old = bench.store.put_with("f", "old", attributes);
    let writer = bench.written(false, &pattern(3 * MIB)).await;
    let object = writer.publish().await.unwrap().unwrap();
    assert!(object.generation > old.generation);
    assert_eq!(object.attributes.cache_control.as_deref(), Some("no-store"));
    assert_eq!(bench.store.calls().of(Method::UploadFinish), 0);
}

#[tokio::test]
async fn a_time_that_is_set_while_a_file_is_sent_is_kept() {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(77);
    for (size, patches) in [(10, 0), (FROM - 1, 1), (3 * MIB, 1)] {
        let bench = tried().await;
        let writer = bench.create();
        append(&writer, &pattern(size)).await;
        assert!(set_mtime(&writer, then).await);
        let object = writer.publish().await.unwrap().unwrap();
        assert_eq!(crate::metadata::mtime(&object), then, "{size}");
        assert_eq!(bench.store.object("f"), Some((*object).clone()));
        assert_eq!(bench.store.calls().of(Method::Patch), patches);
    }
    // A write after it is the later time.
    let bench = tried().await;
    let writer = bench.create();
    append(&writer, &pattern(3 * MIB)).await;
    assert!(set_mtime(&writer, then).await);
    append(&writer, b"more").await;
    let object = writer.publish().await.unwrap().unwrap();
    assert_ne!(crate::metadata::mtime(&object), then);
    assert_eq!(bench.store.calls().of(Method::Patch), 0);
}

#[tokio::test]
async fn a_publication_in_between_makes_the_rest_a_tail() {
    let bench = tried().await;
    let content = pattern(8 * MIB);
    let (first, second) = content.split_at(3 * MIB);
    let writer = bench.written(false, first).await;
    writer.publish().await.unwrap();
    assert!(bench.bytes().unwrap() == first);
    append(&writer, second).await;
    assert!(bench.bytes().unwrap() == first);
    writer.publish().await.unwrap();
    assert!(bench.bytes().unwrap() == content);
    assert_eq!(bench.store.names(), ["f"]);
    assert_eq!(bench.store.calls().of(Method::UploadFinish), 0);
}

#[tokio::test]
async fn a_bucket_that_keeps_what_is_deleted_gets_streams() {
    let keeping: [fn(&Bench); 3] = [
        |bench| bench.store.permit_only(&[]),
        |bench| {
            let held = Fault::Before(Kind::Held);
            bench.faults.inject(Method::Delete, 1, held);
        },
        |bench| {
            let denied = Fault::Before(Kind::Denied);
            bench.faults.inject(Method::Delete, 1, denied);
        },
    ];
    for keep in keeping {
        for staged in [false, true] {
            let bench = bench();
            keep(&bench);
            for streams in 1..=2 {
                let writer = bench.written(staged, &pattern(3 * MIB)).await;
                writer.publish().await.unwrap();
                assert!(bench.bytes().unwrap() == pattern(3 * MIB));
                let calls = bench.store.calls();
                assert_eq!(calls.of(Method::UploadFinish), streams);
                assert_eq!(calls.of(Method::Compose), 0);
                assert_eq!(calls.of(Method::Permissions), 1, "what it says is kept");
            }
        }
    }
}

#[tokio::test]
async fn a_bucket_that_keeps_versions_gets_streams() {
    let fake = FakeStore::new();
    let store = SlowStore::new(fake.clone());
    store.keep_versions();
    let cache = BlockCache::new(&Budget::new(32 << 20), CacheConfig::default());
    let config = WorkshopConfig {
        parts: Some(parts()),
        ..config()
    };
    let workshop = Workshop::new(Arc::new(store), cache, Handle::current(), config);
    let writer = Writer::create(
        workshop,
        ObjectName::parse("f").unwrap(),
        false,
        Edits::default(),
    );
    append(&writer, &pattern(3 * MIB)).await;
    writer.publish().await.unwrap();
    assert!(fake.bytes("f").unwrap() == pattern(3 * MIB));
    assert_eq!(fake.calls().of(Method::UploadFinish), 1);
    assert_eq!(fake.calls().of(Method::Compose), 0);
}

#[tokio::test]
async fn a_class_that_bills_weeks_gets_a_stream() {
    let bench = tried().await;
    let attributes = Attributes {
        storage_class: Some("NEARLINE".into()),
        ..Attributes::default()
    };
    bench.store.put_with("f", "old", attributes);
    let writer = bench.written(false, &pattern(3 * MIB)).await;
    writer.publish().await.unwrap();
    assert_eq!(bench.store.calls().of(Method::UploadFinish), 1);
    assert_eq!(bench.store.calls().of(Method::Write), 0);
}

#[tokio::test]
async fn what_could_not_be_found_out_is_asked_again() {
    let bench = bench();
    for method in [
        Method::Permissions,
        Method::Write,
        Method::Delete,
        Method::Read,
    ] {
        let away = Fault::Before(Kind::Unavailable);
        bench.faults.inject(method, 1, away);
        let writer = bench.written(false, &pattern(3 * MIB)).await;
        writer.publish().await.unwrap();
        assert_eq!(bench.faults.pending(method), 0, "{method:?}");
        assert_eq!(bench.store.calls().of(Method::Compose), 0, "{method:?}");
    }
    let writer = bench.written(false, &pattern(3 * MIB)).await;
    writer.publish().await.unwrap();
    assert_eq!(bench.store.calls().of(Method::Compose), 1);
}

#[tokio::test]
async fn what_fails_leaves_the_old_object_and_no_parts() {
    let fails = Fault::Before(Kind::Unavailable);
    let lost = Fault::After(Kind::Unavailable);
    let denied = Fault::Before(Kind::Denied);
    let throttled = Fault::Before(Kind::Throttled);
    // 40 parts, that is two joins and the last one.
    let content = pattern(40 * PART);
    for staged in [false, true] {
        for (method, pass, fault, errno_of) in [
            (Method::Write, 0, fails, Errno::EIO),
            (Method::Write, 39, fails, Errno::EIO),
            (Method::Write, 0, lost, Errno::EIO),
            (Method::Write, 17, lost, Errno::EIO),
            (Method::Write, 39, lost, Errno::EIO),
            (Method::Write, 5, denied, Errno::EACCES),
            (Method::Compose, 0, fails, Errno::EIO),
            (Method::Compose, 0, lost, Errno::EIO),
            (Method::Compose, 1, lost, Errno::EIO),
            (Method::Compose, 2, fails, Errno::EIO),
            (Method::Compose, 2, throttled, Errno::EBUSY),
        ] {
            let label = format!("{method:?} {pass} {fault:?} staged: {staged}");
            let bench = tried().await;
            bench.store.put("f", "old");
            bench.faults.pass(method, pass);
            bench.faults.inject(method, 1, fault);
            let writer = match staged {
                true => bench.written(true, &content).await,
                false => {
                    let writer = bench.written(false, &content[..FROM]).await;
                    for piece in content[FROM..].chunks(MIB) {
                        // A write learns what became of those before it.
                        let piece = Bytes::copy_from_slice(piece);
                        let _ = writer.write(Place::End, piece).await;
                    }
                    writer
                }
            };
            assert_eq!(errno(writer.publish()).await, errno_of, "{label}");
            assert_eq!(bench.faults.pending(method), 0, "{label}");
            assert_eq!(bench.bytes().unwrap(), "old", "{label}");
            assert_eq!(bench.store.names(), ["f"], "{label}");
            if staged {
                writer.publish().await.unwrap();
                assert!(bench.bytes().unwrap() == content, "{label}");
                assert_eq!(bench.store.names(), ["f"], "{label}");
            }
            writer.abandon().await;
            drop(writer);
            assert_eq!(bench.budget.used(), 0, "{label}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_lost_at_the_end_leaves_the_whole_file() {
    for (method, times, errno_of) in [
        (Method::Compose, 1, Some(Errno::EIO)),
        (Method::Delete, 12, None),
    ] {
        let bench = tried().await;
        let lost = Fault::After(Kind::Unavailable);
        bench.faults.inject(method, times, lost);
        let writer = bench.written(false, &pattern(12 * PART)).await;
        let published = writer.publish().await;
        assert_eq!(published.err().map(|error| error.errno()), errno_of);
        assert!(bench.bytes().unwrap() == pattern(12 * PART));
        assert_eq!(bench.store.names(), ["f"]);
    }
}

#[tokio::test]
async fn a_stranger_in_between_is_a_conflict() {
    for staged in [false, true] {
        for old in [None, Some("old")] {
            let bench = tried().await;
            if let Some(old) = old {
                bench.store.put("f", old);
            }
            let writer = bench.written(staged, &pattern(3 * MIB)).await;
            bench.store.put("f", "theirs");
            assert_eq!(errno(writer.publish()).await, Errno::ESTALE);
            assert_eq!(bench.bytes().unwrap(), "theirs");
            assert_eq!(bench.store.names(), ["f"]);
        }
    }
}

#[tokio::test]
async fn a_part_that_somebody_takes_away_is_named_and_nothing_is_published() {
    let bench = tried().await;
    let writer = bench.written(false, &pattern(3 * MIB)).await;
    let part = bench.part().await;
    assert!(part.starts_with(".gcsmount/m/parts-"), "{part}");
    assert!(bench.store.remove(&part));
    let error = writer.publish().await.unwrap_err();
    assert_eq!(error.errno(), Errno::EIO);
    assert!(
        error.to_string().contains("somebody else has deleted it"),
        "{error}"
    );
    assert!(bench.store.names().is_empty());
}

#[tokio::test]
async fn a_part_that_somebody_replaces_gets_into_no_file() {
    let bench = tried().await;
    let writer = bench.written(false, &pattern(3 * MIB)).await;
    let part = bench.part().await;
    bench.store.put(&part, pattern(PART));
    assert!(writer.publish().await.is_err());
    assert_eq!(bench.bytes(), None);
}

#[tokio::test]
async fn what_is_given_up_leaves_nothing() {
    let bench = tried().await;
    let writer = bench.written(false, &pattern(5 * MIB)).await;
    bench.part().await;
    writer.unlink(|_| async { Ok(()) }).await.unwrap();
    writer.abandon().await;
    assert!(bench.store.names().is_empty());
    // A new beginning gives up the old one too.
    let writer = bench.written(false, &pattern(5 * MIB)).await;
    bench.part().await;
    writer.truncate(0).await.unwrap();
    assert!(bench.store.names().is_empty());
    append(&writer, b"again").await;
    writer.publish().await.unwrap();
    assert_eq!(bench.bytes().unwrap(), "again");
}

#[tokio::test(start_paused = true)]
async fn what_comes_slowly_goes_on_as_a_stream_and_gives_its_memory_back() {
    let bench = tried().await;
    let writer = bench.written(false, &pattern(FROM - 1)).await;
    tokio::task::yield_now().await;
    assert_eq!(bench.store.calls().of(Method::Upload), 0);
    let gathering = bench.budget.used();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(bench.store.calls().of(Method::Upload), 1);
    let given_back = gathering - bench.budget.used();
    assert_eq!(given_back, FROM + PART);
    append(&writer, &pattern(FROM)).await;
    writer.publish().await.unwrap();
    assert_eq!(bench.store.calls().of(Method::Compose), 0);
    assert_eq!(bench.bytes().unwrap().len(), 2 * FROM - 1);
}

#[tokio::test]
async fn without_memory_for_parts_there_is_a_stream() {
    let bench = tried().await;
    // Enough for a stream, a staged file, and a little.
    let held = bench.budget.try_acquire(20 << 20, Priority::Upload);
    assert!(held.is_some());
    let writer = bench.written(false, &pattern(3 * MIB)).await;
    writer.publish().await.unwrap();
    assert_eq!(bench.store.calls().of(Method::UploadFinish), 1);
    assert_eq!(bench.store.calls().of(Method::Compose), 0);
}

#[tokio::test]
async fn what_sixteen_writers_hold_is_leased() {
    const EACH: usize = MIB;
    let content = pattern(6 * MIB);
    for staged in [false, true] {
        let fake = FakeStore::new();
        fake.set_upload_memory(EACH);
        let store = SlowStore::new(fake.clone());
        let budget = Budget::new(32 << 20);
        store.watch_uploads(EACH, budget.clone());
        let cache = BlockCache::new(&budget, CacheConfig::default());
        let config = WorkshopConfig {
            max_streams: 16,
            parts: Some(parts()),
            ..config()
        };
        let workshop = Workshop::new(Arc::new(store.clone()), cache, Handle::current(), config);
        let names = (0..16).map(|i| ObjectName::parse(format!("{i}")).unwrap());
        let writers: Vec<_> = names
            .map(|name| Writer::create(workshop.clone(), name, staged, Edits::default()))
            .collect();
        for writer in &writers {
            append(writer, &content).await;
        }
        let published = writers.iter().map(|writer| writer.publish());
        for published in futures_util::future::join_all(published).await {
            published.unwrap();
        }
        for writer in 0..16 {
            assert!(fake.bytes(&writer.to_string()).unwrap() == content);
        }
        assert_eq!(fake.names().len(), 16);
        assert!(fake.calls().of(Method::Compose) > 0, "some went in parts");
        let (peak, unleased) = store.uploads_held();
        assert!(peak > PART, "parts went side by side");
        assert_eq!(unleased, 0);
        assert!(budget.peak() <= budget.limit(), "{}", budget.peak());
        drop(writers);
        assert_eq!(budget.used(), 0);
    }
}
