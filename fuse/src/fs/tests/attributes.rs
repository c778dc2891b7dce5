//! Modes, owners and times that are kept, and what a publication does with what others say of an object.

use std::ffi::OsStr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::store::{Patch, Preconditions};
use gcsmount_gcs::testing::{Fault, Method};
use gcsmount_gcs::{Kind as StoreKind, ObjectName};

use super::super::*;
use super::kit::{Bench, READ, Sink, WRITE, bench, bench_with};
use crate::metadata::Posix;

fn posix_bench() -> Bench {
    bench_with(|config| {
        config.posix_attributes = true;
        (config.uid, config.gid) = (1, 2);
    })
}

fn said(keys: &[(&str, &str)]) -> Attributes {
    let keys = keys.iter();
    Attributes {
        metadata: keys
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..Attributes::default()
    }
}

fn mode(mode: u16) -> SetAttr {
    SetAttr {
        posix: Posix {
            mode: Some(mode),
            ..Posix::default()
        },
        ..SetAttr::default()
    }
}

fn key(bench: &Bench, name: &str, key: &str) -> Option<String> {
    let object = bench.store.object(name).unwrap();
    object.attributes.metadata.get(key).cloned()
}

/// Another program says something of an object.
pub(super) async fn foreign(bench: &Bench, name: &str, key: &str, value: &str) {
    let patch = Patch {
        metadata: vec![(key.to_owned(), Some(value.to_owned()))],
        ..Patch::default()
    };
    let name = ObjectName::parse(name).unwrap();
    let any = Preconditions::default();
    let patched = Store::patch(&bench.store, &name, &patch, &any).await;
    patched.unwrap();
    bench.store.reset_calls();
}

const FULL: [(&str, &str); 5] = [
    ("goog-reserved-file-mtime", "1000000000"),
    ("goog-reserved-file-atime", "1000000007"),
    ("goog-reserved-posix-mode", "0755"),
    ("goog-reserved-posix-uid", "1234"),
    ("goog-reserved-posix-gid", "2345"),
];

#[tokio::test]
async fn what_other_tools_keep_is_shown_where_that_is_asked_for() {
    let second = |n: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + n);
    for (asked, expected, atime) in [
        (true, (0o755, 1234, 2345), second(7)),
        (false, (0o644, 1, 2), second(0)),
    ] {
        let bench = bench_with(|config| {
            config.posix_attributes = asked;
            (config.uid, config.gid) = (1, 2);
        });
        bench.store.put_with("f", "x", said(&FULL));
        let attr = bench.lookup(Ino::ROOT, "f").await.unwrap().attr;
        assert_eq!((attr.perm, attr.uid, attr.gid), expected);
        assert_eq!((attr.mtime, attr.atime), (second(0), atime));
    }
    let bench = posix_bench();
    let broken = [
        ("goog-reserved-posix-mode", "rwx"),
        ("goog-reserved-posix-uid", "root"),
        ("goog-reserved-file-atime", ""),
    ];
    bench.store.put_with("f", "x", said(&broken));
    let attr = bench.lookup(Ino::ROOT, "f").await.unwrap().attr;
    assert_eq!((attr.perm, attr.uid, attr.gid), (0o644, 1, 2));
}

#[tokio::test]
async fn what_is_set_before_the_flush_rides_in_the_upload() {
    let bench = posix_bench();
    let born = Posix {
        mode: Some(0o600),
        uid: Some(7),
        gid: Some(8),
        atime: None,
    };
    let created = bench
        .fs
        .create(Ino::ROOT, OsStr::new("f"), WRITE, born)
        .await;
    let (entry, opened) = created.unwrap();
    assert_eq!((entry.attr.perm, entry.attr.uid), (0o600, 7));
    bench.write(opened.fh, "hello").await;
    let ino = entry.attr.ino;
    let (attr, _) = bench
        .fs
        .setattr(ino, Some(opened.fh), mode(0o4711))
        .await
        .unwrap();
    assert_eq!(attr.perm, 0o4711);
    bench.fs.flush(opened.fh).await.unwrap();
    assert_eq!(bench.store.calls().total(), 1, "one write, and no patch");
    let keys = ["posix-mode", "posix-uid", "posix-gid"];
    let kept = keys.map(|name| key(&bench, "f", &format!("goog-reserved-{name}")).unwrap());
    assert_eq!(kept, ["4711", "7", "8"]);
    assert!(key(&bench, "f", "goog-reserved-file-mtime").is_some());
    bench.fs.release(opened.fh).await;
    assert_eq!(bench.fs.getattr(ino).await.unwrap().0.perm, 0o4711);
}

#[tokio::test]
async fn on_a_published_file_it_is_one_patch_and_privileges_go_with_the_owner() {
    let bench = posix_bench();
    bench.put("f", "x").await;
    let ino = bench.ino("f").await;
    bench.store.reset_calls();
    bench.fs.setattr(ino, None, mode(0o6755)).await.unwrap();
    // What is so already takes no call.
    bench.fs.setattr(ino, None, mode(0o6755)).await.unwrap();
    assert_eq!(bench.store.calls().of(Method::Patch), 1);
    let set = SetAttr {
        posix: Posix {
            uid: Some(9),
            ..Posix::default()
        },
        ..SetAttr::default()
    };
    let (attr, _) = bench.fs.setattr(ino, None, set).await.unwrap();
    assert_eq!((attr.perm, attr.uid, attr.gid), (0o755, 9, 2));
    assert_eq!(bench.store.calls().total(), 2);
    bench.fs.setattr(ino, None, mode(0o4755)).await.unwrap();
    assert!(bench.fs.has_privileges(ino));
    bench.fs.drop_privileges(ino).await.unwrap();
    assert!(!bench.fs.has_privileges(ino));
    bench.fs.setattr(ino, None, mode(0o4755)).await.unwrap();
    let truncating = OpenFlags {
        truncate: true,
        ..WRITE
    };
    let fh = bench.fs.open(ino, truncating).await.unwrap().fh;
    assert_eq!(bench.fs.getattr(ino).await.unwrap().0.perm, 0o755);
    bench.fs.release(fh).await;
    let kept = key(&bench, "f", "goog-reserved-posix-mode");
    assert_eq!(kept.as_deref(), Some("755"));
    let uid = key(&bench, "f", "goog-reserved-posix-uid");
    assert_eq!(uid.as_deref(), Some("9"));
}

#[tokio::test]
async fn without_the_option_nothing_is_sent_and_foreign_keys_stay() {
    let bench = bench();
    bench.store.put_with("f", "x", said(&FULL));
    let ino = bench.ino("f").await;
    bench.store.reset_calls();
    bench.fs.setattr(ino, None, mode(0o700)).await.unwrap();
    assert_eq!(bench.store.calls().total(), 0);
    let fh = bench.fs.open(ino, WRITE).await.unwrap().fh;
    bench.write(fh, "y").await;
    bench.fs.flush(fh).await.unwrap();
    bench.fs.release(fh).await;
    let kept = key(&bench, "f", "goog-reserved-posix-mode");
    assert_eq!(kept.as_deref(), Some("0755"));
}

#[tokio::test]
async fn directories_keep_it_on_their_object_where_they_have_one() {
    let bench = posix_bench();
    let born = Posix {
        mode: Some(0o2700),
        ..Posix::default()
    };
    let made = bench.fs.mkdir(Ino::ROOT, OsStr::new("d"), born).await;
    let dir = made.unwrap().attr.ino;
    bench.store.reset_calls();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(77);
    let set = SetAttr {
        mtime: Some(then),
        ..mode(0o711)
    };
    bench.fs.setattr(dir, None, set).await.unwrap();
    assert_eq!(bench.store.calls().of(Method::Patch), 1);
    assert_eq!(bench.store.calls().total(), 1);
    bench.store.put("implicit/f", "x");
    // Another mount sees it, from a listing as from a lookup.
    let other = super::kit::bench_over(&bench.faults, |config| config.posix_attributes = true);
    let attr = other.lookup(Ino::ROOT, "d").await.unwrap().attr;
    assert_eq!((attr.perm, attr.mtime), (0o711, then));
    let listed = super::kit::bench_over(&bench.faults, |config| config.posix_attributes = true);
    let fh = listed.fs.opendir(Ino::ROOT).unwrap();
    listed
        .fs
        .readdir(fh, 0, &mut Sink::new(true, 10))
        .await
        .unwrap();
    bench.store.reset_calls();
    let attr = listed.lookup(Ino::ROOT, "d").await.unwrap().attr;
    assert_eq!((attr.perm, attr.mtime), (0o711, then));
    // One without an object keeps it here only.
    let implicit = listed.ino("implicit").await;
    assert_eq!(bench.store.calls().total(), 0);
    let (attr, _) = listed
        .fs
        .setattr(implicit, None, mode(0o500))
        .await
        .unwrap();
    assert_eq!(attr.perm, 0o500);
    assert_eq!(bench.store.calls().of(Method::Patch), 0);
    assert!(bench.store.object("implicit/").is_none());
}

#[tokio::test]
async fn a_directory_that_was_renamed_or_remade_is_said_of_where_it_is() {
    let bench = posix_bench();
    let made = bench
        .fs
        .mkdir(Ino::ROOT, OsStr::new("a"), Posix::default())
        .await;
    let dir = made.unwrap().attr.ino;
    let (a, b) = (OsStr::new("a"), OsStr::new("b"));
    let renamed = bench
        .fs
        .rename(Ino::ROOT, a, Ino::ROOT, b, RenameMode::Replace);
    renamed.await.unwrap();
    bench.fs.setattr(dir, None, mode(0o711)).await.unwrap();
    let kept = key(&bench, "b/", "goog-reserved-posix-mode");
    assert_eq!(kept.as_deref(), Some("711"));
    // Somebody else makes the object anew.
    bench.store.put("b/", "");
    bench.fs.setattr(dir, None, mode(0o700)).await.unwrap();
    let kept = key(&bench, "b/", "goog-reserved-posix-mode");
    assert_eq!(kept.as_deref(), Some("700"));
    bench.store.remove("b/");
    let (attr, _) = bench.fs.setattr(dir, None, mode(0o755)).await.unwrap();
    assert_eq!(attr.perm, 0o755);
}

#[tokio::test]
async fn a_publication_keeps_what_others_have_said_meanwhile() {
    const KIB: usize = 1 << 10;
    // In memory, as a tail, staged, and as a stream.
    for (base, write_at, bytes, calls) in [
        (10, 10, 5, 3),
        (300 * KIB, 300 * KIB, 5, 6),
        (300 * KIB, 3, 5, 4),
        (10, 10, 300 * KIB, 3),
    ] {
        let bench = bench_with(|config| {
            config.buffer_limit = 64 * KIB;
            config.parts = None;
        });
        bench.store.put("f", vec![b'b'; base]);
        let ino = bench.ino("f").await;
        let fh = bench.fs.open(ino, WRITE).await.unwrap().fh;
        let data = Bytes::from(vec![b'n'; bytes]);
        bench
            .fs
            .write(fh, write_at as u64, data, false)
            .await
            .unwrap();
        let name = OsStr::new("user.mine");
        let set = bench.fs.setxattr(ino, name, b"1", SetXattr::Any);
        set.await.unwrap();
        foreign(&bench, "f", "team", "x").await;
        bench.fs.flush(fh).await.unwrap();
        assert_eq!(key(&bench, "f", "team").as_deref(), Some("x"));
        let mine = key(&bench, "f", "gcsmount-xattr-mine");
        assert_eq!(mine.as_deref(), Some("1"), "{base} {write_at}");
        assert!(
            bench.store.calls().total() <= calls + 3,
            "{base} {write_at}"
        );
        let size = bench.store.object("f").unwrap().size;
        assert_eq!(size, base.max(write_at + bytes) as u64);
        bench.fs.release(fh).await;
    }
}

#[tokio::test]
async fn another_content_is_no_change_of_what_is_said() {
    let bench = bench();
    bench.put("f", "base").await;
    let ino = bench.ino("f").await;
    let fh = bench.fs.open(ino, WRITE).await.unwrap().fh;
    bench.write(fh, "+mine").await;
    bench.store.put("f", "theirs");
    assert_eq!(bench.fs.flush(fh).await.unwrap_err().errno(), Errno::ESTALE);
    assert_eq!(bench.store.bytes("f").unwrap(), "theirs");
    bench.fs.release(fh).await;
}

#[tokio::test]
async fn others_who_change_it_all_the_time_make_it_stale_in_the_end() {
    let bench = posix_bench();
    bench.put("f", "x").await;
    let ino = bench.ino("f").await;
    let fault = Fault::Before(StoreKind::Precondition);
    bench.faults.inject(Method::Patch, 2, fault);
    let refused = bench.fs.setattr(ino, None, mode(0o700)).await;
    assert_eq!(refused.unwrap_err().errno(), Errno::ESTALE);
    bench.faults.inject(Method::Patch, 1, fault);
    bench.fs.setattr(ino, None, mode(0o700)).await.unwrap();
}

#[tokio::test]
async fn what_could_not_be_said_of_a_streamed_file_is_an_error_until_it_is() {
    let bench = bench_with(|config| {
        config.posix_attributes = true;
        config.buffer_limit = 64 << 10;
        config.parts = None;
    });
    let (ino, fh) = bench.create("f").await;
    let data = Bytes::from(vec![b'n'; 300 << 10]);
    bench.fs.write(fh, 0, data, false).await.unwrap();
    bench.fs.setattr(ino, Some(fh), mode(0o600)).await.unwrap();
    let fault = Fault::Before(StoreKind::Denied);
    bench.faults.inject(Method::Patch, 1, fault);
    assert_eq!(bench.fs.flush(fh).await.unwrap_err().errno(), Errno::EACCES);
    assert_eq!(bench.store.object("f").unwrap().size, 300 << 10);
    bench.fs.fsync(fh).await.unwrap();
    let kept = key(&bench, "f", "goog-reserved-posix-mode");
    assert_eq!(kept.as_deref(), Some("600"));
    assert_eq!(bench.fs.getattr(ino).await.unwrap().0.perm, 0o600);
    bench.fs.release(fh).await;
    assert_eq!(bench.fs.open(ino, READ).await.unwrap().fh, Fh(2));
}
