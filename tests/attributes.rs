//! What an object says of itself beyond its bytes, from a mount to the next one.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use bytes::Bytes;
use nix::errno::Errno;

use crate::kit::{BUCKET, Mount, World, blocking, can_mount};

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
    let mount = world.mount(&[]).await;
    let answer = generation_of(&mount).await;
    assert_eq!(answer, Ok(generation.to_string()));
    mount.stop().await;
    let mount = world.mount(&["--xattrs=false"]).await;
    assert_eq!(generation_of(&mount).await, Err(Errno::EOPNOTSUPP));
    mount.stop().await;
}

async fn generation_of(mount: &Mount) -> Result<String, Errno> {
    let path = CString::new(mount.path("object").into_os_string().into_encoded_bytes()).unwrap();
    blocking(move || {
        let (name, mut value) = (c"user.gcs.generation", vec![0_u8; 64]);
        let (room, into) = (value.len(), value.as_mut_ptr().cast());
        #[expect(
            unsafe_code,
            reason = "a call of the C library that nothing safe wraps"
        )]
        // SAFETY: both strings end with a NUL, and the buffer has as much room as is said.
        let len = unsafe { nix::libc::getxattr(path.as_ptr(), name.as_ptr(), into, room) };
        value.truncate(usize::try_from(Errno::result(len)?).unwrap());
        Ok(String::from_utf8(value).unwrap())
    })
    .await
}
