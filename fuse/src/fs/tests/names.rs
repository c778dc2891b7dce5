use std::ffi::OsStr;

use gcsmount_gcs::Kind as StoreKind;
use gcsmount_gcs::testing::{Fault, Method};
use tokio::time::advance;

use super::super::*;
use super::kit::{READ, Sink, WRITE, bench, bench_with};
use crate::metadata::Posix;

#[tokio::test]
async fn an_unknown_name_costs_a_pair_of_calls_and_a_known_one_none() {
    let bench = bench();
    bench.store.put("d/f", "x");
    let dir = bench.ino("d").await;
    assert_eq!(bench.store.calls().total(), 2);
    bench.ino("d/f").await;
    assert_eq!(bench.store.calls().total(), 4);
    bench.ino("d/f").await;
    assert_eq!(bench.store.calls().total(), 4);
    let none = bench.lookup(dir, "none").await;
    assert_eq!(none.unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(bench.store.calls().total(), 6);
}

#[tokio::test]
async fn names_of_a_listed_directory_cost_nothing() {
    let bench = bench();
    for name in ["d/a", "d/b", "d/sub/x"] {
        bench.store.put(name, "x");
    }
    let dir = bench.ino("d").await;
    let fh = bench.fs.opendir(dir).unwrap();
    bench
        .fs
        .readdir(fh, 0, &mut Sink::new(false, 100))
        .await
        .unwrap();
    bench.store.reset_calls();
    for name in ["a", "b", "sub"] {
        bench.lookup(dir, name).await.unwrap();
    }
    let none = bench.lookup(dir, "none").await;
    assert_eq!(none.unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(bench.store.calls().total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_change_elsewhere_is_seen_when_what_is_known_has_aged() {
    let bench = bench();
    bench.store.put("f", "1");
    let ino = bench.ino("f").await;
    bench.store.put("f", "22");
    assert_eq!(bench.fs.getattr(ino).await.unwrap().0.size, 1);
    advance(bench.fs.config().ttl).await;
    let (attr, ttl) = bench.fs.getattr(ino).await.unwrap();
    assert_eq!((attr.size, ttl), (2, bench.fs.config().ttl));
    let _ = bench.store.remove("f");
    advance(bench.fs.config().ttl).await;
    let gone = bench.fs.getattr(ino).await;
    assert_eq!(gone.unwrap_err().errno(), Errno::ESTALE);
}

#[tokio::test]
async fn lookups_are_counted_and_given_back() {
    let bench = bench();
    bench.store.put("d/f", "x");
    let ino = bench.ino("d/f").await;
    bench.lookup(bench.ino("d").await, "f").await.unwrap();
    bench.fs.forget(ino, 1);
    assert!(bench.fs.try_getattr(ino).unwrap().is_ok());
    bench.fs.forget(ino, 1);
    assert_eq!(
        bench.fs.try_getattr(ino).unwrap().unwrap_err().errno(),
        Errno::ESTALE
    );
    let dir = bench.ino("d").await;
    bench.fs.forget(dir, 3);
    assert_eq!(bench.fs.table.lock().len(), 1);
}

#[tokio::test]
async fn readdir_hands_out_pages_in_any_portions() {
    let bench = bench_with(|config| config.list_page = 7);
    for i in 0..50 {
        bench.store.put(&format!("{i:02}"), "x");
    }
    for (plus, room) in [(false, 1), (true, 3), (true, 1000)] {
        let fh = bench.fs.opendir(Ino::ROOT).unwrap();
        let (mut at, mut names) = (0, Vec::new());
        loop {
            let mut sink = Sink::new(plus, room);
            bench.fs.readdir(fh, at, &mut sink).await.unwrap();
            let Some((next, _, _)) = sink.taken.last() else {
                break;
            };
            at = *next;
            for (_, ino, name) in sink.taken {
                if plus && name != "." && name != ".." {
                    bench.fs.forget(ino, 1);
                }
                names.push(name.into_string().unwrap());
            }
        }
        assert_eq!(names.len(), 52);
        assert_eq!(names[..2], [".", ".."]);
        assert!(
            names[2..]
                .iter()
                .enumerate()
                .all(|(i, n)| *n == format!("{i:02}"))
        );
        bench.fs.releasedir(fh);
    }
    // Every lookup that was handed out is accounted for.
    assert_eq!(bench.fs.table.lock().len(), 1);
    assert_eq!(bench.fs.open_handles(), 0);
}

#[tokio::test]
async fn an_unpublished_file_is_listed_and_found() {
    let bench = bench();
    bench.store.put("old", "x");
    let (ino, fh) = bench.create("new").await;
    let dir = bench.fs.opendir(Ino::ROOT).unwrap();
    let mut sink = Sink::new(true, 100);
    bench.fs.readdir(dir, 0, &mut sink).await.unwrap();
    let more = sink.taken.last().unwrap().0;
    bench.fs.readdir(dir, more, &mut sink).await.unwrap();
    let names: Vec<_> = sink
        .taken
        .iter()
        .map(|(_, _, name)| name.to_str().unwrap())
        .collect();
    assert_eq!(names, [".", "..", "new", "old"]);
    assert_eq!(bench.ino("new").await, ino);
    bench.fs.release(fh).await;
}

#[tokio::test]
async fn a_directory_that_only_looks_empty_is_kept() {
    let bench = bench();
    bench.store.put("hidden/", "");
    for name in ["hidden//x", "hidden/./y", "bytes/"] {
        bench.store.put(name, "x");
    }
    bench.store.put("empty/", "");
    let root = Ino::ROOT;
    let (from, mode) = (OsStr::new("empty"), RenameMode::Replace);
    for name in ["hidden", "bytes"] {
        let kept = OsStr::new(name);
        let removed = bench.fs.rmdir(root, kept).await;
        assert_eq!(removed.unwrap_err().errno(), Errno::ENOTEMPTY);
        let replaced = bench.fs.rename(root, from, root, kept, mode).await;
        assert_eq!(replaced.unwrap_err().errno(), Errno::ENOTEMPTY);
    }
    bench.fs.rmdir(root, from).await.unwrap();
    let left = ["bytes/", "hidden/", "hidden/./y", "hidden//x"];
    assert_eq!(bench.store.names(), left);
    // A rename takes them along.
    let hidden = OsStr::new("hidden");
    bench
        .fs
        .rename(root, hidden, root, from, mode)
        .await
        .unwrap();
    let moved = ["bytes/", "empty/", "empty/./y", "empty//x"];
    assert_eq!(bench.store.names(), moved);
    let (_, fh) = bench.create("e2").await;
    let not = bench.fs.rmdir(root, OsStr::new("e2")).await;
    assert_eq!(not.unwrap_err().errno(), Errno::ENOTDIR);
    bench.fs.release(fh).await;
}

#[tokio::test]
async fn a_placeholder_that_has_changed_is_kept() {
    let bench = bench();
    bench.store.put("d/", "");
    bench.ino("d").await;
    let fault = Fault::Before(StoreKind::Precondition);
    bench.faults.inject(Method::Delete, 1, fault);
    let (root, name) = (Ino::ROOT, OsStr::new("d"));
    let removed = bench.fs.rmdir(root, name).await;
    assert_eq!(removed.unwrap_err().errno(), Errno::ENOTEMPTY);
    bench.fs.rmdir(root, name).await.unwrap();
    assert!(bench.store.names().is_empty());
}

#[tokio::test]
async fn a_directory_with_unpublished_files_is_not_empty() {
    let bench = bench();
    let dir = bench
        .fs
        .mkdir(Ino::ROOT, OsStr::new("d"), Posix::default())
        .await
        .unwrap()
        .attr
        .ino;
    let (_, opened) = bench
        .fs
        .create(dir, OsStr::new("f"), WRITE, Posix::default())
        .await
        .unwrap();
    let not = bench.fs.rmdir(Ino::ROOT, OsStr::new("d")).await;
    assert_eq!(not.unwrap_err().errno(), Errno::ENOTEMPTY);
    bench.fs.release(opened.fh).await;
}

#[tokio::test]
async fn a_service_that_cannot_move_copies_and_deletes() {
    let bench = bench();
    bench.put("a", "content").await;
    let fault = Fault::Before(StoreKind::Unsupported);
    bench.faults.inject(Method::Rename, 1, fault);
    let (root, mode) = (Ino::ROOT, RenameMode::Replace);
    let renamed = bench
        .fs
        .rename(root, OsStr::new("a"), root, OsStr::new("b"), mode);
    renamed.await.unwrap();
    assert_eq!(bench.store.names(), ["b"]);
    assert_eq!(bench.content("b").await, "content");
}

#[tokio::test]
async fn a_file_that_has_changed_elsewhere_is_moved_as_it_is() {
    let bench = bench();
    bench.put("a", "mine").await;
    bench.store.put("a", "theirs");
    let (root, mode) = (Ino::ROOT, RenameMode::Replace);
    let renamed = bench
        .fs
        .rename(root, OsStr::new("a"), root, OsStr::new("b"), mode);
    renamed.await.unwrap();
    assert_eq!(bench.store.bytes("b").unwrap(), "theirs");
}

#[tokio::test]
async fn without_replacing_a_name_taken_elsewhere_is_kept() {
    let bench = bench();
    let root = Ino::ROOT;
    bench.put("a", "mine").await;
    let dir = bench.fs.opendir(root).unwrap();
    bench
        .fs
        .readdir(dir, 0, &mut Sink::new(false, 9))
        .await
        .unwrap();
    // The listing says that b is free, which is not so any more.
    bench.store.put("b", "theirs");
    let mode = RenameMode::NoReplace;
    let refused = bench
        .fs
        .rename(root, OsStr::new("a"), root, OsStr::new("b"), mode)
        .await;
    assert_eq!(refused.unwrap_err().errno(), Errno::EEXIST);
    assert_eq!(bench.store.names(), ["a", "b"]);
}

#[tokio::test]
async fn a_broken_directory_rename_is_finished_by_another() {
    let bench = bench();
    let root = Ino::ROOT;
    for i in 0..20 {
        bench.store.put(&format!("old/{i:02}"), "x");
    }
    bench.ino("old").await;
    bench.faults.pass(Method::Rename, 10);
    bench
        .faults
        .inject(Method::Rename, 1, Fault::Before(StoreKind::Unavailable));
    let (old, new, mode) = (OsStr::new("old"), OsStr::new("new"), RenameMode::Replace);
    let broken = bench.fs.rename(root, old, root, new, mode).await;
    assert_eq!(broken.unwrap_err().errno(), Errno::EIO);
    assert_eq!(
        bench.store.names().len(),
        20,
        "each is in one of two places"
    );
    // Moving what is left is up to the caller: the target is not empty now.
    let new_ino = bench.ino("new").await;
    assert!(bench.fs.try_getattr(new_ino).unwrap().is_ok());
    let again = bench.fs.rename(root, old, root, new, mode).await;
    assert_eq!(again.unwrap_err().errno(), Errno::ENOTEMPTY);
}

#[tokio::test]
async fn a_mount_of_a_directory_sees_that_only() {
    let bench = bench_with(|config| config.only_dir = Some("/in/side/".into()));
    bench.store.put("in/side/f", "x");
    bench.store.put("in/out", "x");
    assert_eq!(bench.content("f").await, "x");
    bench.put("g", "y").await;
    assert_eq!(bench.store.names(), ["in/out", "in/side/f", "in/side/g"]);
}

#[tokio::test]
async fn a_link_in_the_standard_form_is_read_from_its_content() {
    let bench = bench();
    let mut attributes = gcsmount_gcs::object::Attributes::default();
    let key = "goog-reserved-file-is-symlink".to_owned();
    attributes.metadata.insert(key, "true".to_owned());
    bench.store.put_with("l", "a/target", attributes);
    let ino = bench.ino("l").await;
    assert_eq!(bench.fs.readlink(ino).await.unwrap(), b"a/target");
    bench.store.put("f", "x");
    let file = bench.ino("f").await;
    assert_eq!(
        bench.fs.readlink(file).await.unwrap_err().errno(),
        Errno::EINVAL
    );
}

#[tokio::test]
async fn pages_are_kept_for_the_same_content_only() {
    let bench = bench();
    bench.put("f", "x").await;
    let ino = bench.ino("f").await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let opened = bench.fs.open(ino, READ).await.unwrap();
        kept.push(opened.keep_cache);
        bench.fs.release(opened.fh).await;
    }
    let writing = bench.fs.open(ino, WRITE).await.unwrap();
    assert!(writing.direct_io);
    bench.write(writing.fh, "more").await;
    bench.fs.flush(writing.fh).await.unwrap();
    bench.fs.release(writing.fh).await;
    kept.push(bench.fs.open(ino, READ).await.unwrap().keep_cache);
    assert_eq!(kept, [false, true, false]);
}

#[tokio::test]
async fn a_file_is_deleted_on_the_condition_of_its_generation_so_that_the_store_may_repeat() {
    let bench = bench();
    bench.store.put("f", "1");
    bench.ino("f").await;
    bench.store.reset_calls();
    bench.fs.unlink(Ino::ROOT, OsStr::new("f")).await.unwrap();
    let calls = bench.store.calls();
    assert_eq!((calls.of(Method::Delete), calls.total()), (1, 1));

    // What is known may be outdated; the name goes all the same.
    bench.store.put("g", "1");
    bench.ino("g").await;
    bench.store.put("g", "another's");
    bench.store.reset_calls();
    bench.fs.unlink(Ino::ROOT, OsStr::new("g")).await.unwrap();
    let calls = bench.store.calls();
    assert_eq!((calls.of(Method::Delete), calls.of(Method::Stat)), (2, 1));
    assert!(bench.store.names().is_empty());
}
