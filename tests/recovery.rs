//! The service goes away and comes back.

use std::fs;
use std::io::Read;

use bytes::Bytes;
use gcsmount_emulator::{Emulator, FaultAction, FaultRule};
use nix::errno::Errno;

use crate::kit::{BUCKET, World, blocking, can_mount};
use crate::pod::until;

const SIZE: usize = 64 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_dies_in_the_middle_of_a_read_is_an_error_and_not_a_hang() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(BUCKET, "big", Bytes::from(vec![5; SIZE]))
        .unwrap();
    let address = world.emulator.local_addrs()[0];
    let mount = world
        .mount(&["--metadata-cache-ttl=1s", "--operation-timeout=10s"])
        .await;
    let path = mount.path("big");
    let mut file = blocking(move || {
        let mut file = fs::File::open(path).unwrap();
        file.read_exact(&mut vec![0; 4 << 20]).unwrap();
        file
    })
    .await;
    world.emulator.shutdown().await;
    let error = blocking(move || file.read_to_end(&mut Vec::new()).unwrap_err()).await;
    println!("the reader got: {error}");

    let emulator = Emulator::resume(&[address], admin)
        .await
        .expect("the address is free again");
    emulator
        .admin()
        .put_object(BUCKET, "new", Bytes::from_static(b"back"))
        .unwrap();
    let (new, written, again) = (mount.path("new"), mount.path("written"), mount.path("big"));
    let read = blocking(move || {
        fs::write(written, "after").unwrap();
        (fs::read(new).unwrap(), fs::read(again).unwrap())
    })
    .await;
    assert_eq!(read.0, b"back");
    assert!(read.1 == vec![5; SIZE]);
    mount.stop().await;
    emulator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passing_fault_is_nobodys_concern() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mount = world.mount(&[]).await;
    for method in [
        "storage.objects.insert",
        "storage.objects.get.media",
        "storage.objects.delete",
    ] {
        let unavailable = FaultAction::Status {
            code: 503,
            reason: None,
            retry_after: None,
        };
        for action in [unavailable, FaultAction::Reset, FaultAction::LostAnswer] {
            world
                .emulator
                .admin()
                .add_fault(FaultRule::once(method, action));
            let path = mount.path("file");
            blocking(move || {
                fs::write(&path, method).unwrap();
                assert_eq!(fs::read(&path).unwrap(), method.as_bytes());
                fs::remove_file(&path).unwrap();
                assert!(!path.exists());
            })
            .await;
        }
    }
    mount.stop().await;
}

fn status(code: u16, reason: Option<&str>) -> FaultAction {
    FaultAction::Status {
        code,
        reason: reason.map(Into::into),
        retry_after: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_for_good_is_asked_once_and_has_its_errno() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    let mount = world.mount(&["--metadata-cache-ttl", "0"]).await;
    for (code, errnos) in [
        (400, &[Errno::EIO][..]),
        (403, &[Errno::EACCES]),
        (404, &[Errno::ENOENT, Errno::ESTALE]),
        (410, &[Errno::EIO]),
        (412, &[Errno::ESTALE, Errno::EACCES]),
        (416, &[Errno::EIO]),
    ] {
        let name = format!("object-{code}");
        admin
            .put_object(BUCKET, &name, Bytes::from_static(b"x"))
            .unwrap();
        let path = mount.path(&name);
        let mut file = blocking(move || fs::File::open(path).unwrap()).await;
        admin.add_fault(FaultRule {
            count: u64::MAX,
            ..FaultRule::once("storage.objects.get.media", status(code, None))
        });
        let before = admin.counters().of("storage.objects.get.media");
        let error = blocking(move || file.read_to_end(&mut Vec::new()).unwrap_err()).await;
        let errno = error.raw_os_error().map(Errno::from_raw).unwrap();
        assert!(errnos.contains(&errno), "{code} is {errno}");
        let calls = admin.counters().of("storage.objects.get.media") - before;
        println!("{code}: {calls} calls");
        assert!(calls <= 3, "{code}: {calls} calls\n{}", mount.log());
        admin.clear_faults();
        if errnos.contains(&Errno::ESTALE) {
            // The object went or changed, which happens; it is the reader's concern and no operator's.
            continue;
        }
        // The line for the operator: what, of which object, the status, and how often it was tried.
        let log = mount.log();
        let line = log
            .lines()
            .find(|line| line.contains(&name))
            .unwrap_or_else(|| panic!("{code} in {log}"));
        for part in ["storage.objects.get", &format!("status {code}"), "attempt"] {
            assert!(line.contains(part), "{part} is not in: {line}");
        }
    }
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_failures_is_outlived_by_every_operation() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(BUCKET, "there", Bytes::from(vec![7; 3 << 20]))
        .unwrap();
    let mount = world.mount(&["--metadata-cache-ttl", "0"]).await;
    for code in [408, 429, 500, 502, 503, 504] {
        for (method, count) in [
            ("storage.objects.get", 3),
            ("storage.objects.get.media", 5),
            ("storage.objects.insert*", 5),
            ("storage.objects.list", 3),
            ("storage.objects.delete", 3),
        ] {
            admin.add_fault(FaultRule {
                count,
                ..FaultRule::once(method, status(code, None))
            });
        }
        let (there, new, dir) = (
            mount.path("there"),
            mount.path(&format!("new-{code}")),
            mount.dir.clone(),
        );
        blocking(move || {
            assert!(fs::read(there).unwrap() == vec![7; 3 << 20], "{code}");
            let mut file = fs::File::create(&new).unwrap();
            std::io::Write::write_all(&mut file, &[9; 1 << 20]).unwrap();
            file.sync_all().unwrap();
            drop(file);
            assert!(fs::read_dir(dir).unwrap().count() >= 2, "{code}");
            fs::remove_file(new).unwrap();
        })
        .await;
        admin.clear_faults();
    }
    mount.stop().await;
}

/// More failures than a count of attempts would bear, in less time than a call may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_close_outlives_an_outage_that_is_shorter_than_its_deadline() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    let mount = world.mount(&[]).await;
    admin.add_fault(FaultRule {
        count: 9,
        ..FaultRule::once("storage.objects.insert*", status(503, None))
    });
    let path = mount.path("kept");
    blocking(move || fs::write(path, "through the outage").unwrap()).await;
    assert_eq!(admin.counters().of("storage.objects.insert"), 10);
    mount.stop().await;
}

/// A close that a crash of the mount cuts off is finished by the next one on the same directory.
#[tokio::test(flavor = "multi_thread")]
async fn the_next_mount_finishes_what_a_crash_left_staged() {
    // More than is held in memory, so that it is staged.
    const LARGE: usize = 12 << 20;
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(BUCKET, "edited", Bytes::from(vec![b'o'; LARGE]))
        .unwrap();
    let mut mount = world.mount(&[]).await;
    admin.add_fault(FaultRule {
        count: u64::MAX,
        ..FaultRule::once(
            "storage.objects.insert.*",
            FaultAction::Stall {
                duration: std::time::Duration::from_secs(600),
            },
        )
    });
    let path = mount.path("edited");
    let closing = tokio::spawn(blocking(move || {
        let file = fs::File::options().write(true).open(path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"TWO", 4).unwrap();
        file.sync_all().unwrap_err()
    }));
    until("the upload has begun", || {
        admin.counters().of("storage.objects.insert.start") > 0
    })
    .await;
    mount.signal(nix::sys::signal::Signal::SIGKILL);
    mount.ended().await;
    closing.await.unwrap();
    admin.clear_faults();
    drop(mount);
    let mount = world.mount(&[]).await;
    until("it is stored", || mount.log().contains("it is stored now")).await;
    let path = mount.path("edited");
    let there = blocking(move || fs::read(path).unwrap()).await;
    assert!(there.len() == LARGE && there.starts_with(b"ooooTWOo"));
    mount.stop().await;
}
