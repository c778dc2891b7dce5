//! What an object says of itself beyond its bytes, from a mount to the next one.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use bytes::Bytes;

use crate::kit::{BUCKET, World, blocking, can_mount, run};

#[tokio::test(flavor = "multi_thread")]
async fn modes_and_owners_outlive_the_mount_where_they_are_wanted() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mount = world.mount(&["--posix-attributes"]).await;
    let path = mount.path("script");
    blocking(move || {
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        chown(&path, Some(1234), Some(4321)).unwrap();
    })
    .await;
    mount.stop().await;
    for (flags, expected) in [
        (&["--posix-attributes"][..], (0o750, 1234, 4321)),
        (&["--uid=7", "--gid=8"], (0o644, 7, 8)),
    ] {
        let mount = world.mount(flags).await;
        let path = mount.path("script");
        let seen = blocking(move || fs::metadata(path).unwrap()).await;
        let seen = (seen.mode() & 0o7777, seen.uid(), seen.gid());
        assert_eq!(seen, expected, "{flags:?}");
        mount.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extended_attributes_show_the_object_and_can_be_turned_off() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin();
    let generation = admin
        .put_object(BUCKET, "object", Bytes::from_static(b"x"))
        .unwrap();
    let ask = |path: std::path::PathBuf| async move {
        let program =
            "import os, sys; print(os.getxattr(sys.argv[1], 'user.gcs.generation').decode())";
        let words = ["-c".into(), program.into(), path.into_os_string()];
        run("python3", words as [std::ffi::OsString; 3]).await
    };
    let mount = world.mount(&[]).await;
    let (answered, said) = ask(mount.path("object")).await;
    assert!(answered, "{said}");
    assert_eq!(said.trim(), generation.to_string());
    mount.stop().await;
    let mount = world.mount(&["--xattrs=false"]).await;
    let (answered, said) = ask(mount.path("object")).await;
    assert!(!answered && said.contains("not supported"), "{said}");
    mount.stop().await;
}
