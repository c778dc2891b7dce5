//! What is known of a name only moves forward.

use std::ffi::OsStr;

use gcsmount_cache::{Budget, CacheConfig};
use gcsmount_gcs::Kind as StoreKind;
use gcsmount_gcs::testing::{FakeStore, Fault, Method};

use super::super::*;
use super::kit::{READ, Sink, WRITE, bench};
use crate::metadata::Posix;
use crate::slow_store::SlowStore;

fn slow(fake: &FakeStore) -> (SlowStore, Arc<Fs>) {
    let store = SlowStore::new(fake.clone());
    let cache = BlockCache::new(&Budget::new(64 << 20), CacheConfig::default());
    let fs = Fs::new(
        FsConfig::default(),
        Arc::new(store.clone()),
        cache,
        Handle::current(),
    );
    (store, fs)
}

async fn write(fs: &Fs, fh: Fh, bytes: &'static str) {
    let bytes = bytes::Bytes::from_static(bytes.as_bytes());
    fs.write(fh, 0, bytes, false).await.unwrap();
}

const APPEND: OpenFlags = OpenFlags {
    append: true,
    ..WRITE
};

#[tokio::test]
async fn a_late_answer_does_not_turn_a_shared_writer_back() {
    for truncate in [false, true] {
        let fake = FakeStore::new();
        fake.put("f", "gen1 ");
        let (store, fs) = slow(&fake);
        let ino = fs.lookup(Ino::ROOT, OsStr::new("f")).await.unwrap();
        let ino = ino.attr.ino;
        let a = fs.open(ino, APPEND).await.unwrap().fh;
        let held = store.hold_stat();
        let late = fs.clone();
        let flags = OpenFlags {
            access: Access::ReadWrite,
            truncate,
            ..APPEND
        };
        let opening = tokio::spawn(async move { late.open(ino, flags).await.unwrap().fh });
        held.taken.await.unwrap();
        write(&fs, a, "A-data ").await;
        fs.fsync(a).await.unwrap();
        let newer = fs.getattr(ino).await.unwrap().0.size;
        held.arrive.send(()).unwrap();
        let b = opening.await.unwrap();
        let before = if truncate { "" } else { "gen1 A-data " };
        assert_eq!(newer, 12);
        assert_eq!(fs.read(b, 0, 100).await.unwrap(), before);
        let c = fs.open(ino, READ).await.unwrap().fh;
        assert_eq!(fs.read(c, 0, 100).await.unwrap(), before);
        for fh in [b, a] {
            write(&fs, fh, "more ").await;
            fs.fsync(fh).await.unwrap();
        }
        let after = format!("{before}more more ");
        assert_eq!(fake.bytes("f").unwrap(), after);
    }
}

#[tokio::test]
async fn a_late_answer_does_not_start_a_writer_from_what_was() {
    let fake = FakeStore::new();
    fake.put("f", "gen1 ");
    let (store, fs) = slow(&fake);
    let ino = fs.lookup(Ino::ROOT, OsStr::new("f")).await.unwrap();
    let ino = ino.attr.ino;
    let a = fs.open(ino, APPEND).await.unwrap().fh;
    let held = store.hold_stat();
    let late = fs.clone();
    let opening = tokio::spawn(async move { late.open(ino, APPEND).await.unwrap().fh });
    held.taken.await.unwrap();
    // The writer is gone before the answer is there.
    write(&fs, a, "A-data ").await;
    fs.flush(a).await.unwrap();
    fs.release(a).await;
    held.arrive.send(()).unwrap();
    let b = opening.await.unwrap();
    write(&fs, b, "B-data").await;
    fs.flush(b).await.unwrap();
    assert_eq!(fake.bytes("f").unwrap(), "gen1 A-data B-data");
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_bring_back_a_name_that_was_moved() {
    let fake = FakeStore::new();
    fake.put("a", "content");
    let (store, fs) = slow(&fake);
    let ino = fs.lookup(Ino::ROOT, OsStr::new("a")).await.unwrap();
    let ino = ino.attr.ino;
    tokio::time::advance(fs.config().ttl).await;
    let held = store.hold_stat();
    let late = fs.clone();
    let asking = tokio::spawn(async move { late.open(ino, READ).await });
    held.taken.await.unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    let (a, b, root) = (OsStr::new("a"), OsStr::new("b"), Ino::ROOT);
    let moved = fs.rename(root, a, root, b, RenameMode::Replace).await;
    moved.unwrap();
    held.arrive.send(()).unwrap();
    let fh = asking.await.unwrap().unwrap().fh;
    assert_eq!(fs.read(fh, 0, 100).await.unwrap(), "content");
    let gone = fs.lookup(root, a).await;
    assert_eq!(gone.unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(fs.lookup(root, b).await.unwrap().attr.ino, ino);
}

#[tokio::test]
async fn a_file_that_was_deleted_elsewhere_is_no_ghost() {
    let (root, name, mode) = (Ino::ROOT, OsStr::new("f"), RenameMode::Replace);
    for (flags, rename) in [(WRITE, false), (READ, false), (WRITE, true), (READ, true)] {
        let bench = bench();
        bench.put("f", "hello").await;
        let ino = bench.ino("f").await;
        let fh = bench.fs.open(ino, flags).await.unwrap().fh;
        assert!(bench.store.remove("f"));
        let failed = if rename {
            bench
                .fs
                .rename(root, name, root, OsStr::new("g"), mode)
                .await
        } else {
            bench.fs.unlink(root, name).await
        };
        assert_eq!(failed.unwrap_err().errno(), Errno::ENOENT);
        let found = bench.lookup(root, "f").await;
        assert_eq!(found.unwrap_err().errno(), Errno::ENOENT);
        bench.fs.release(fh).await;
        assert!(bench.store.names().is_empty());
    }
}

#[tokio::test]
async fn a_new_file_that_could_not_be_stored_keeps_its_name_while_it_is_open() {
    let bench = bench();
    let (ino, fh) = bench.create("f").await;
    bench.write(fh, "hello").await;
    let fault = Fault::Before(StoreKind::Unavailable);
    bench.faults.inject(Method::Write, 1, fault);
    assert_eq!(bench.fs.fsync(fh).await.unwrap_err().errno(), Errno::EIO);
    assert_eq!(bench.ino("f").await, ino);
    assert_eq!(bench.fs.getattr(ino).await.unwrap().0.size, 5);
    bench.fs.fsync(fh).await.unwrap();
    bench.fs.release(fh).await;
    assert_eq!(bench.content("f").await, "hello");
}

#[tokio::test(start_paused = true)]
async fn a_descriptor_with_nothing_unpublished_does_not_keep_what_others_have_deleted_or_replaced()
{
    for replaced in [false, true] {
        let bench = bench();
        bench.store.put("f", vec![b'x'; 300 << 10]);
        let ino = bench.ino("f").await;
        let fh = bench.fs.open(ino, WRITE).await.unwrap().fh;
        bench.store.remove("f");
        if replaced {
            bench.store.put("f", "theirs");
        }
        // Known as long as anything is believed.
        assert_eq!(bench.ino("f").await, ino);
        tokio::time::advance(bench.fs.config().ttl).await;
        if replaced {
            assert_eq!(bench.content("f").await, "theirs");
            assert_eq!(bench.fs.getattr(ino).await.unwrap().0.size, 6);
        } else {
            let gone = bench.lookup(Ino::ROOT, "f").await;
            assert_eq!(gone.unwrap_err().errno(), Errno::ENOENT);
            let (_, new) = bench.create("f").await;
            bench.write(new, "anew").await;
            bench.fs.flush(new).await.unwrap();
            bench.fs.release(new).await;
        }
        // What is written through the old descriptor is about a file that is no more.
        bench.write(fh, "late").await;
        assert_eq!(bench.fs.flush(fh).await.unwrap_err().errno(), Errno::ESTALE);
        let unsaved = bench.fs.drain(Duration::from_secs(1)).await;
        assert_eq!(unsaved.len(), 1, "{unsaved:?}");
        bench.fs.release(fh).await;
        let now = if replaced { "theirs" } else { "anew" };
        assert_eq!(bench.store.bytes("f").unwrap(), now);
    }
}

#[tokio::test]
async fn unpublished_bytes_outlive_a_deletion_elsewhere() {
    let bench = bench();
    let base = vec![b'x'; 300 << 10];
    bench.store.put("f", base);
    let ino = bench.ino("f").await;
    let fh = bench.fs.open(ino, WRITE).await.unwrap().fh;
    bench.write(fh, "tail").await;
    assert!(bench.store.remove("f"));
    let (root, mode) = (Ino::ROOT, RenameMode::Replace);
    let moved = bench
        .fs
        .rename(root, OsStr::new("f"), root, OsStr::new("g"), mode);
    assert_eq!(moved.await.unwrap_err().errno(), Errno::ESTALE);
    assert_eq!(bench.fs.flush(fh).await.unwrap_err().errno(), Errno::ESTALE);
    bench.fs.release(fh).await;
}

#[tokio::test]
async fn proof_that_a_name_exists_is_taken_in_at_once() {
    let bench = bench();
    let root = Ino::ROOT;
    let listed = async || {
        let dir = bench.fs.opendir(root).unwrap();
        let mut sink = Sink::new(false, 100);
        bench.fs.readdir(dir, 0, &mut sink).await.unwrap();
        let more = sink.taken.last().unwrap().0;
        bench.fs.readdir(dir, more, &mut sink).await.unwrap();
        bench.fs.releasedir(dir);
    };
    listed().await;
    bench.store.put("f", "theirs");
    let absent = bench.lookup(root, "f").await;
    assert_eq!(absent.unwrap_err().errno(), Errno::ENOENT);
    let (_, fh) = bench.create("f").await;
    bench.write(fh, "mine").await;
    assert_eq!(bench.fs.flush(fh).await.unwrap_err().errno(), Errno::ESTALE);
    // Also before the last close, which the kernel tells of late.
    assert_eq!(bench.content("f").await, "theirs");
    bench.fs.release(fh).await;
    assert_eq!(bench.content("f").await, "theirs");

    for (number, tail) in ["", "", "/", "", ""].into_iter().enumerate() {
        let name = format!("new{number}");
        listed().await;
        bench.store.put(&format!("{name}{tail}"), "");
        let absent = bench.lookup(root, &name).await;
        assert_eq!(absent.unwrap_err().errno(), Errno::ENOENT);
        let taken = OsStr::new(&name);
        let exclusive = OpenFlags {
            exclusive: true,
            ..WRITE
        };
        let refused = match number {
            0 => bench
                .fs
                .mknod(root, taken, Posix::default())
                .await
                .map(drop),
            1 => bench
                .fs
                .symlink(root, taken, taken, Posix::default())
                .await
                .map(drop),
            2 => bench
                .fs
                .mkdir(root, taken, Posix::default())
                .await
                .map(drop),
            3 => bench
                .fs
                .create(root, taken, exclusive, Posix::default())
                .await
                .map(drop),
            _ => {
                let (from, mode) = (OsStr::new("f"), RenameMode::NoReplace);
                bench.fs.rename(root, from, root, taken, mode).await
            }
        };
        assert_eq!(refused.unwrap_err().errno(), Errno::EEXIST, "{name}");
        assert!(bench.lookup(root, &name).await.is_ok(), "{name}");
    }
}
