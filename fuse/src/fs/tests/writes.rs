use std::ffi::OsStr;
use std::time::SystemTime;

use bytes::Bytes;
use gcsmount_gcs::Kind as StoreKind;
use gcsmount_gcs::testing::{Fault, Method};

use super::super::*;
use super::kit::{READ, WRITE, bench, bench_with};
use crate::metadata::Posix;

#[tokio::test]
async fn flush_publishes_and_says_so() {
    let bench = bench();
    let (ino, fh) = bench.create("f").await;
    bench.write(fh, "hello").await;
    assert_eq!(bench.store.bytes("f"), None);
    assert_eq!(bench.fs.getattr(ino).await.unwrap().0.size, 5);
    bench.fs.flush(fh).await.unwrap();
    assert_eq!(bench.store.bytes("f").unwrap(), "hello");
    assert_eq!(bench.store.calls().total(), 1);
    bench.fs.release(fh).await;
    assert_eq!(bench.content("f").await, "hello");
    assert_eq!(bench.fs.open_handles(), 0);
}

#[tokio::test]
async fn a_failed_upload_is_told_and_leaves_the_old_object() {
    let bench = bench();
    bench.put("f", "old").await;
    let ino = bench.ino("f").await;
    let truncating = OpenFlags {
        truncate: true,
        ..WRITE
    };
    let fh = bench.fs.open(ino, truncating).await.unwrap().fh;
    bench.write(fh, "new").await;
    let fault = Fault::Before(StoreKind::Denied);
    bench.faults.inject(Method::Write, 1, fault);
    assert_eq!(bench.fs.flush(fh).await.unwrap_err().errno(), Errno::EACCES);
    assert_eq!(bench.store.bytes("f").unwrap(), "old");
    assert_eq!(bench.content("f").await, "old");
    // The handle has its bytes still, and another try is one.
    bench.fs.fsync(fh).await.unwrap();
    assert_eq!(bench.store.bytes("f").unwrap(), "new");
    bench.fs.release(fh).await;
}

#[tokio::test]
async fn writers_of_one_mount_write_one_content() {
    let bench = bench();
    bench.put("f", "base").await;
    let ino = bench.ino("f").await;
    let appending = OpenFlags {
        append: true,
        ..WRITE
    };
    let one = bench.fs.open(ino, appending).await.unwrap().fh;
    let two = bench.fs.open(ino, appending).await.unwrap().fh;
    for (fh, bytes) in [(one, "+1"), (two, "+2"), (one, "+3")] {
        // The kernel's idea of the end is out of date.
        let bytes = Bytes::from_static(bytes.as_bytes());
        bench.fs.write(fh, 4, bytes, false).await.unwrap();
    }
    bench.fs.flush(two).await.unwrap();
    bench.fs.flush(one).await.unwrap();
    assert_eq!(bench.store.bytes("f").unwrap(), "base+1+2+3");
    bench.fs.release(one).await;
    bench.fs.release(two).await;
}

#[tokio::test]
async fn writers_of_two_mounts_do_not_lose_each_other() {
    let one = bench();
    let cache = BlockCache::new(
        &gcsmount_cache::Budget::new(64 << 20),
        gcsmount_cache::CacheConfig::default(),
    );
    let store = Arc::new(one.store.clone());
    let other = Fs::new(FsConfig::default(), store, cache, Handle::current());
    let (_, mine) = one.create("f").await;
    one.write(mine, "mine").await;
    let (_, theirs) = other
        .create(Ino::ROOT, OsStr::new("f"), WRITE, Posix::default())
        .await
        .unwrap();
    let bytes = Bytes::from_static(b"theirs");
    other.write(theirs.fh, 0, bytes, false).await.unwrap();
    other.flush(theirs.fh).await.unwrap();
    let lost = one.fs.flush(mine).await.unwrap_err();
    assert_eq!(
        (lost.errno(), lost.kind()),
        (Errno::ESTALE, Some(StoreKind::Precondition))
    );
    one.fs.release(mine).await;
    assert_eq!(one.content("f").await, "theirs");
    assert_eq!(one.store.bytes("f").unwrap(), "theirs");
}

#[tokio::test]
async fn what_no_close_reported_on_is_published_at_the_last_release() {
    let bench = bench();
    let (_, fh) = bench.create("f").await;
    bench.fs.flush(fh).await.unwrap();
    // As from a mapping that outlives the descriptor.
    let page = Bytes::from_static(b"mapped");
    bench.fs.write(fh, 0, page, true).await.unwrap();
    bench.fs.release(fh).await;
    assert_eq!(bench.store.bytes("f").unwrap(), "mapped");
}

#[tokio::test]
async fn an_open_file_is_renamed_over() {
    let bench = bench();
    bench.put("a", "a").await;
    bench.put("b", "b").await;
    let b = bench.ino("b").await;
    let reading = bench.fs.open(b, READ).await.unwrap().fh;
    assert_eq!(bench.read(reading).await.unwrap(), "b");
    let a = bench.ino("a").await;
    let reading_a = bench.fs.open(a, READ).await.unwrap().fh;
    let (root, mode) = (Ino::ROOT, RenameMode::Replace);
    let renamed = bench
        .fs
        .rename(root, OsStr::new("a"), root, OsStr::new("b"), mode);
    renamed.await.unwrap();
    assert_eq!(bench.ino("b").await, a);
    assert_eq!(bench.read(reading_a).await.unwrap(), "a");
    assert_eq!(bench.fs.getattr(b).await.unwrap().0.links, 0);
    // Its bytes are those that were in memory; they are never those of another file.
    assert_eq!(bench.read(reading).await.unwrap(), "b");
}

#[tokio::test]
async fn a_read_finds_that_its_content_is_gone() {
    let bench = bench();
    bench.store.put("f", "old");
    let ino = bench.ino("f").await;
    let fh = bench.fs.open(ino, READ).await.unwrap().fh;
    bench.store.put("f", "new!");
    assert_eq!(bench.read(fh).await.unwrap_err().errno(), Errno::ESTALE);
    bench.fs.release(fh).await;
    assert_eq!(bench.content("f").await, "new!");
}

#[tokio::test]
async fn a_time_is_patched_where_nothing_is_to_be_published() {
    let bench = bench();
    bench.put("f", "x").await;
    let ino = bench.ino("f").await;
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
    let set = SetAttr {
        mtime: Some(then),
        ..SetAttr::default()
    };
    let (attr, _) = bench.fs.setattr(ino, None, set).await.unwrap();
    assert_eq!(attr.mtime, then);
    assert_eq!(bench.store.calls().of(Method::Patch), 1);
    // With a handle that has written nothing, too; and it goes on from there.
    let fh = bench.fs.open(ino, WRITE).await.unwrap().fh;
    bench.fs.setattr(ino, Some(fh), set).await.unwrap();
    bench.write(fh, "y").await;
    bench.fs.flush(fh).await.unwrap();
    bench.fs.release(fh).await;
    assert_eq!(bench.store.bytes("f").unwrap(), "xy");
    // Somebody else has replaced it.
    bench.store.put("f", "z");
    let stale = bench.fs.setattr(ino, None, set).await;
    assert_eq!(stale.unwrap_err().errno(), Errno::ESTALE);
    bench.fs.setattr(ino, None, set).await.unwrap();
}

#[tokio::test]
async fn a_length_that_is_set_by_name_is_published() {
    let bench = bench();
    bench.put("f", "0123456789").await;
    let ino = bench.ino("f").await;
    let set = SetAttr {
        size: Some(3),
        ..SetAttr::default()
    };
    let (attr, _) = bench.fs.setattr(ino, None, set).await.unwrap();
    assert_eq!(attr.size, 3);
    assert_eq!(bench.store.bytes("f").unwrap(), "012");
    let dir = bench.fs.setattr(Ino::ROOT, None, set).await;
    assert_eq!(dir.unwrap_err().errno(), Errno::EISDIR);
}

#[tokio::test]
async fn draining_publishes_what_it_can_and_names_the_rest() {
    let bench = bench();
    let (_, good) = bench.create("good").await;
    bench.write(good, "x").await;
    bench.put("clean", "y").await;
    assert!(bench.fs.drain(Duration::from_secs(9)).await.is_empty());
    assert_eq!(bench.store.bytes("good").unwrap(), "x");
    let dir = bench
        .fs
        .mkdir(Ino::ROOT, OsStr::new("d"), Posix::default())
        .await
        .unwrap()
        .attr
        .ino;
    bench
        .fs
        .create(dir, OsStr::new("bad"), WRITE, Posix::default())
        .await
        .unwrap();
    bench
        .faults
        .inject(Method::Write, 1, Fault::Before(StoreKind::Denied));
    let unsaved = bench.fs.drain(Duration::from_secs(9)).await;
    assert_eq!(unsaved.len(), 1);
    assert_eq!(unsaved[0].path, "d/bad");
    assert_eq!(unsaved[0].error.errno(), Errno::EACCES);
}

#[tokio::test(start_paused = true)]
async fn draining_ends_at_its_deadline() {
    let bench = bench_with(|config| config.deadline = Duration::from_secs(1_000));
    let (_, fh) = bench.create("f").await;
    bench.write(fh, "x").await;
    bench.faults.inject(Method::Write, 1, Fault::Stall);
    let begun = tokio::time::Instant::now();
    let unsaved = bench.fs.drain(Duration::from_secs(5)).await;
    assert_eq!(unsaved[0].error.errno(), Errno::ETIMEDOUT);
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn handles_that_may_not_do_something_do_not() {
    let bench = bench();
    bench.put("f", "x").await;
    let ino = bench.ino("f").await;
    let fh = bench.fs.open(ino, READ).await.unwrap().fh;
    let refused = bench.fs.write(fh, 0, Bytes::from_static(b"y"), false).await;
    assert_eq!(refused.unwrap_err().errno(), Errno::EBADF);
    bench.fs.flush(fh).await.unwrap();
    let none = Fh(u64::MAX);
    assert_eq!(bench.read(none).await.unwrap_err().errno(), Errno::EBADF);
    let dir = bench.fs.open(Ino::ROOT, READ).await;
    assert_eq!(dir.unwrap_err().errno(), Errno::EISDIR);
    assert_eq!(bench.fs.opendir(ino).unwrap_err().errno(), Errno::ENOTDIR);
}
