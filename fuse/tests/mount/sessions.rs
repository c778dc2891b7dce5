//! Mounting, serving a passed descriptor, unmounting.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::Path;

use gcsmount_fuse::session::{self, Error, MountOptions, MountPoint};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount as mount2, umount2};

use crate::kit::{Bucket, Mount, command, errno, is_mounted, run};

/// Opens the device and mounts it, as a CSI node driver does before it passes the descriptor on.
fn mount_device(dir: &Path, kind: &str) -> File {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions",
        device.as_raw_fd()
    );
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID;
    mount2(Some("bucket"), dir, Some(kind), flags, Some(data.as_str())).unwrap();
    device
}

#[test]
fn a_user_unmounts_and_the_session_ends() {
    run(|| {
        let mount = Mount::new();
        let root = mount.root().to_str().unwrap();
        command("fusermount3", &["-u", root], Path::new("/"));
        mount.bucket.block_on(mount.mounted.wait());
        mount.mounted.join().unwrap();
        assert!(mount.mounted.has_ended());
        assert!(!is_mounted(mount.root()));
        // And again does nothing.
        mount.mounted.unmount().unwrap();
    });
}

#[test]
fn a_dropped_mount_is_gone() {
    run(|| {
        let mount = Mount::new();
        let root = mount.root().to_owned();
        fs::write(root.join("f"), "x").unwrap();
        assert!(is_mounted(&root));
        drop(mount);
        assert!(!is_mounted(&root));
        assert!(!root.exists());
    });
}

#[test]
fn a_busy_mount_is_unmounted_for_newcomers_at_once() {
    run(|| {
        let mount = Mount::new();
        let file = File::create(mount.path("f")).unwrap();
        mount.mounted.unmounter().unmount().unwrap();
        assert!(!is_mounted(mount.root()));
        assert!(!mount.mounted.has_ended());
        drop(file);
        mount.bucket.block_on(mount.mounted.wait());
        assert_eq!(mount.bucket.store.names(), ["f"]);
    });
}

#[test]
fn another_mount_on_top_is_left_alone() {
    run(|| {
        let mount = Mount::new();
        let (none, flags) = (None::<&str>, MsFlags::empty());
        mount2(none, mount.root(), Some("tmpfs"), flags, none).unwrap();
        assert!(matches!(mount.mounted.unmount(), Err(Error::Covered(_))));
        umount2(mount.root(), MntFlags::MNT_DETACH).unwrap();
        mount.mounted.unmount().unwrap();
        assert!(!is_mounted(mount.root()));
    });
}

#[test]
fn a_passed_descriptor_is_served() {
    run(|| {
        let dir = tempfile::tempdir().unwrap();
        let device = mount_device(dir.path(), "fuse");
        let bucket = Bucket::new(|_| {});
        bucket.store.put("f", "x");
        let passed = format!("/dev/fd/{}", device.into_raw_fd());
        let at = MountPoint::parse(Path::new(&passed)).unwrap();
        assert!(matches!(at, MountPoint::Fd(_)));
        let mounted = session::mount(bucket.fs.clone(), at, &MountOptions::default()).unwrap();
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"x");
        fs::write(dir.path().join("g"), "y").unwrap();
        assert_eq!(bucket.store.bytes("g").unwrap(), "y");
        // The mount is not ours to take away.
        mounted.unmount().unwrap();
        assert!(is_mounted(dir.path()));
        assert!(!is_mounted(Path::new("/dev/fuse")));
        umount2(dir.path(), MntFlags::empty()).unwrap();
        bucket.block_on(mounted.wait());
    });
}

#[test]
fn bad_mount_points_are_named() {
    run(|| {
        let mount = Mount::new();
        let other = Bucket::new(|_| {});
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(mount.root(), &link).unwrap();
        let try_at = |path: &Path, extra: &[&str]| {
            let options = MountOptions {
                extra: extra.iter().map(|o| (*o).to_owned()).collect(),
                ..MountOptions::default()
            };
            let at = MountPoint::Dir(path.to_owned());
            session::mount(other.fs.clone(), at, &options).unwrap_err()
        };
        let missing = dir.path().join("no");
        assert!(matches!(try_at(&missing, &[]), Error::Missing(_)));
        assert!(matches!(try_at(&file, &[]), Error::NotADirectory(_)));
        let around = mount.root().join("x/..");
        for taken in [mount.root(), &around, &link] {
            let refused = try_at(taken, &[]);
            assert!(matches!(refused, Error::AlreadyMounted { .. }), "{taken:?}");
        }
        let refused = try_at(dir.path(), &["no_such_option"]);
        assert!(matches!(refused, Error::Mount { .. }));
        assert!(!is_mounted(dir.path()));
    });
}

#[test]
fn a_dead_mount_is_named() {
    run(|| {
        let dir = tempfile::tempdir().unwrap();
        drop(mount_device(dir.path(), "fuse.gcsmount"));
        let bucket = Bucket::new(|_| {});
        let at = MountPoint::Dir(dir.path().to_owned());
        let refused = session::mount(bucket.fs.clone(), at, &MountOptions::default());
        umount2(dir.path(), MntFlags::MNT_DETACH).unwrap();
        assert!(matches!(refused.unwrap_err(), Error::Stale(_)));
    });
}

#[test]
fn the_mount_says_what_it_is() {
    run(|| {
        let bucket = Bucket::new(|_| {});
        let dir = tempfile::tempdir().unwrap();
        let options = MountOptions {
            fs_name: "my-bucket".into(),
            read_only: true,
            ..MountOptions::default()
        };
        let at = MountPoint::Dir(dir.path().to_owned());
        let mounted = session::mount(bucket.fs.clone(), at, &options).unwrap();
        let args = ["-no", "FSTYPE,SOURCE", dir.path().to_str().unwrap()];
        let shown = command("findmnt", &args, Path::new("/"));
        let shown: Vec<_> = shown.split_whitespace().collect();
        assert_eq!(shown, ["fuse.gcsmount", "my-bucket"]);
        let refused = fs::write(dir.path().join("f"), "x");
        assert_eq!(errno(refused), Errno::EROFS);
        drop(mounted);
        assert!(!is_mounted(dir.path()));
    });
}
