//! How the service is talked to: what the flags of the connection change, and a service that takes everything and says
//! nothing.

use std::fs;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gcsmount_emulator::{FaultAction, FaultRule};
use nix::errno::Errno;
use nix::sys::statvfs::statvfs;

use crate::kit::{BUCKET, World, blocking, can_mount};

const SILENT: Duration = Duration::from_secs(600);

fn silence(method: &str, count: u64) -> FaultRule {
    FaultRule {
        count,
        ..FaultRule::once(method, FaultAction::Stall { duration: SILENT })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_black_hole_ends_calls_within_their_time_and_leaves_no_trace() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(BUCKET, "there", Bytes::from_static(b"x"))
        .unwrap();
    let mount = world
        .mount(&["--metadata-cache-ttl=0", "--operation-timeout=3s"])
        .await;
    let there = mount.path("there");
    let path = there.clone();
    blocking(move || fs::read(path).unwrap()).await;

    admin.add_fault(silence("*", u64::MAX));
    let (path, root) = (there.clone(), mount.dir.clone());
    blocking(move || {
        // What needs no bucket is answered meanwhile.
        statvfs(&root).unwrap();
        let error = fs::read(path).unwrap_err();
        let errno = Errno::from_raw(error.raw_os_error().unwrap());
        assert!(
            matches!(errno, Errno::EIO | Errno::ETIMEDOUT),
            "{error}: neither a success nor a claim about the file"
        );
    })
    .await;
    admin.clear_faults();
    let again = blocking(move || {
        // The requests that the emulator holds on to are given up; new ones go through.
        fs::read(there).unwrap()
    })
    .await;
    assert_eq!(again, b"x");
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_held_to_their_rate() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mount = world
        .mount(&["--metadata-cache-ttl=0", "--limit-ops-per-sec=20"])
        .await;
    let asked = || -> u64 { world.emulator.admin().counters().requests.values().sum() };
    let dir = mount.dir.clone();
    let (begun, before) = (Instant::now(), asked());
    blocking(move || {
        for n in 0..30 {
            assert!(!dir.join(format!("missing-{n}")).exists());
        }
    })
    .await;
    let (sent, took) = (asked() - before, begun.elapsed().as_secs_f64());
    assert!(sent >= 30, "nothing was remembered");
    // A second of rest has saved 20, and the count above may hold one that a second has not begun for.
    let most = 20.0 * (took + 1.0) + 1.0;
    assert!(sent as f64 <= most, "{sent} requests in {took} s");
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_wants_no_parts_gets_one_stream() {
    if !can_mount() {
        return;
    }
    const SIZE: usize = 48 << 20;
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    let composed = || admin.counters().of("storage.objects.compose");
    for (flag, parts) in [("true", true), ("false", false)] {
        let before = composed();
        let flag = format!("--parallel-uploads={flag}");
        let mount = world.mount(&[&flag, "--memory-limit=256"]).await;
        let path = mount.path(&format!("large-{parts}"));
        blocking(move || fs::write(path, vec![7; SIZE]).unwrap()).await;
        assert_eq!(composed() > before, parts, "{flag}");
        mount.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_begin_is_asked_a_second_time() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(BUCKET, "slow", Bytes::from_static(b"quick"))
        .unwrap();
    let mount = world.mount(&["--hedge-reads-after=200ms"]).await;
    admin.add_fault(silence("storage.objects.get.media", 1));
    let path = mount.path("slow");
    let begun = Instant::now();
    let read = blocking(move || fs::read(path).unwrap()).await;
    assert_eq!(read, b"quick");
    // Without a second request the first one would be given up after 30 s, and repeated.
    assert!(begun.elapsed() < Duration::from_secs(30), "a repetition");
    assert_eq!(admin.counters().of("storage.objects.get.media"), 2);
    mount.stop().await;
}
