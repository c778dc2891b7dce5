//! Disks that are full, read-only or not there.

use std::time::Instant;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::*;
use crate::disk::Found;

const SIZE: usize = 4 * BLOCK;

/// A file system of its own, unmounted when this goes.
struct Disk(TempDir);

impl Disk {
    /// `None`, loudly, where this process may not mount.
    fn new(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let options = format!("size={size},mode=700");
        let flags = MsFlags::empty();
        let mounted = mount(
            Some("disk"),
            dir.path(),
            Some("tmpfs"),
            flags,
            Some(options.as_str()),
        );
        let Err(error) = mounted else {
            return Some(Self(dir));
        };
        let required = std::env::var_os("GCSMOUNT_REQUIRE_FUSE").is_some();
        assert!(!required, "a file system is required: {error}");
        eprintln!("NOT RUN: a tmpfs cannot be mounted here: {error}");
        None
    }

    fn remount(&self, flags: MsFlags) {
        let flags = flags | MsFlags::MS_REMOUNT;
        mount(
            None::<&str>,
            self.0.path(),
            None::<&str>,
            flags,
            None::<&str>,
        )
        .unwrap();
    }

    fn bench(&self, limit: u64) -> Bench {
        let mut bench = Bench::new(limit);
        bench.close();
        bench.config.dir = self.0.path().join("cache");
        bench.reopen();
        bench
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

/// As if the pause was over.
fn try_again(bench: &Bench) {
    bench.cache().inner.fills.end_pause(Instant::now());
}

#[test]
fn a_full_disk_ends_the_filling_and_not_the_reading() {
    let Some(disk) = Disk::new("1m") else { return };
    let bench = disk.bench(64 * MB);
    for i in 0..40 {
        bench.fill(&format!("object-{i}"), SIZE);
    }
    let figures = bench.figures();
    assert!(!figures.on && figures.dropped > 0 && figures.filled > 0);
    assert!(figures.bytes <= MB + 200 * 512, "{figures:?}");
    assert_eq!(bench.present("object-0", SIZE), 4);
    // What does not fit yet changes nothing.
    try_again(&bench);
    bench.fill("object-41", SIZE);
    assert!(!bench.figures().on);
    for i in 0..10 {
        bench.volume().forget(&object(&format!("object-{i}")));
    }
    bench.settle();
    bench.fill("object-42", SIZE);
    assert_eq!(
        bench.present("object-42", SIZE),
        0,
        "it is not tried before its time"
    );
    try_again(&bench);
    bench.fill("object-42", SIZE);
    assert_eq!(bench.present("object-42", SIZE), 4);
    assert!(bench.figures().on);
    assert_eq!(bench.figures().corrupt, 0);
}

#[test]
fn a_read_only_disk_is_read() {
    let Some(disk) = Disk::new("8m") else { return };
    let mut bench = disk.bench(MB);
    let data = bench.data(&bench.fill("object", SIZE));
    flip(&data, 5);
    bench.close();
    disk.remount(MsFlags::MS_RDONLY);
    bench.reopen();
    assert_eq!(bench.present("object", SIZE), 3);
    assert_eq!(bench.present("object", SIZE), 3);
    bench.fill("object", SIZE);
    bench.fill("another", SIZE);
    let figures = bench.figures();
    assert!(!figures.on);
    assert_eq!((figures.filled, figures.dropped), (0, 8));
    disk.remount(MsFlags::empty());
    try_again(&bench);
    bench.fill("another", SIZE);
    assert_eq!(bench.present("another", SIZE), 4);
}

#[tokio::test]
async fn a_disk_that_does_not_answer_is_left_alone() {
    let bench = Bench::new(MB);
    let content = bench.fill("object", SIZE);
    let reads = &bench.cache().inner.reads;
    let read = async || {
        let lease = bench.budget.acquire(BLOCK, Priority::Reader).await;
        content.read(0, lease).await
    };
    reads.fail(Instant::now(), &"as if it had hung");
    assert!(matches!(read().await, Found::Nothing(_)));
    assert!(content.whole().await.is_none());
    reads.end_pause(Instant::now());
    assert!(matches!(read().await, Found::Block(_)));
    assert!(content.whole().await.is_some());
    assert_eq!((bench.figures().hits, bench.figures().misses), (1, 1));
}

#[test]
fn a_directory_that_cannot_be_made_is_tried_again() {
    let mut bench = Bench::new(MB);
    bench.close();
    let obstacle = bench.dir.path().join("obstacle");
    fs::write(&obstacle, "").unwrap();
    bench.config.dir = obstacle.join("cache");
    bench.reopen();
    assert!(!bench.figures().on);
    bench.fill("object", SIZE);
    assert_eq!(bench.figures().dropped, 4);
    assert_eq!(bench.present("object", SIZE), 0);
    fs::remove_file(&obstacle).unwrap();
    try_again(&bench);
    bench.fill("object", SIZE);
    assert_eq!(bench.present("object", SIZE), 4);
    assert!(bench.figures().on);
}

#[test]
fn a_directory_that_is_removed_is_made_again() {
    let bench = Bench::new(MB);
    bench.fill("object", SIZE);
    bench.fill("another", SIZE);
    fs::remove_dir_all(&bench.config.dir).unwrap();
    bench.fill("object", SIZE);
    assert_eq!(bench.present("object", SIZE), 4);
    assert_eq!(bench.present("another", SIZE), 0);
    assert!(bench.figures().on);
    bench.assert_bounded();
}
