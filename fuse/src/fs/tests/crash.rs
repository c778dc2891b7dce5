use std::fs;

use bytes::Bytes;
use gcsmount_gcs::Kind as StoreKind;
use gcsmount_gcs::testing::{FakeStore, Fault, FaultyStore, Method};

use super::super::*;
use super::kit::{Bench, bench_over};
use crate::handle::writer::Outcome;

fn bench(dir: &std::path::Path, store: &FaultyStore<FakeStore>) -> Bench {
    bench_over(store, |config| {
        config.temp_dir = dir.to_owned();
        config.staging_name = Some("home".to_owned());
        config.buffer_limit = 8;
    })
}

#[tokio::test]
async fn a_close_that_a_crash_cuts_off_is_finished_by_the_next_mount() {
    let dir = tempfile::tempdir().unwrap();
    let store = FaultyStore::new(FakeStore::new());
    let before = bench(dir.path(), &store);
    for name in ["closed", "open"] {
        let (_, fh) = before.create(name).await;
        let far = Bytes::from_static(b"far");
        before.fs.write(fh, 20, far, false).await.unwrap();
        if name == "closed" {
            let fault = Fault::Before(StoreKind::Unavailable);
            store.inject(Method::UploadFinish, 1, fault);
            before.fs.flush(fh).await.unwrap_err();
        }
    }
    drop(before);
    let after = bench(dir.path(), &store);
    let mut recovered = after.fs.recover().await;
    recovered.sort_by_key(|one| one.object.clone());
    let [closed, open] = &recovered[..] else {
        panic!("{recovered:?}");
    };
    assert_eq!(closed.object.as_deref(), Some("closed"));
    assert!(matches!(closed.outcome, Outcome::Finished));
    assert_eq!(open.object.as_deref(), Some("open"));
    assert!(matches!(open.outcome, Outcome::Unsealed(_)));
    assert!(after.content("closed").await.ends_with(b"far"));
    assert_eq!(after.store.names(), ["closed"]);
    assert!(after.fs.recover().await.is_empty());
}

#[tokio::test]
async fn what_no_close_could_store_is_kept_aside() {
    let dir = tempfile::tempdir().unwrap();
    let store = FaultyStore::new(FakeStore::new());
    let bench = bench(dir.path(), &store);
    let (_, fh) = bench.create("f").await;
    let far = Bytes::from_static(b"far");
    bench.fs.write(fh, 20, far, false).await.unwrap();
    bench.store.put("f", "theirs");
    let lost = bench.fs.flush(fh).await.unwrap_err();
    assert_eq!(lost.errno(), Errno::ESTALE);
    bench.fs.release(fh).await;
    let aside = dir.path().join("home").join("lost+found");
    let kept: Vec<_> = fs::read_dir(aside)
        .unwrap()
        .map(|entry| fs::read(entry.unwrap().path()).unwrap())
        .collect();
    assert_eq!(kept.len(), 2);
    assert!(kept.iter().any(|bytes| bytes.ends_with(b"\0far")));
    assert_eq!(bench.content("f").await, "theirs");
    assert_eq!(bench.fs.figures().staged_bytes, 0);
}
