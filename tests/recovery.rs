//! The service goes away and comes back.

use std::fs;
use std::io::Read;

use bytes::Bytes;
use gcsmount_emulator::{Emulator, FaultAction, FaultRule};

use crate::kit::{BUCKET, World, blocking, can_mount};

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
    let mount = world.mount(&["--metadata-cache-ttl", "1s"]).await;
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
