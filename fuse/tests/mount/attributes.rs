//! Modes, owners and extended attributes through the kernel.

#![expect(
    unsafe_code,
    reason = "neither the standard library nor nix has extended attributes"
)]

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gcsmount_fuse::{Answered, Observer, Operation};
use nix::errno::Errno;
use nix::libc;

use crate::kit::{Mount, no_forks, run};

fn path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn set(at: &Path, name: &str, value: &[u8], flags: i32) -> Result<(), Errno> {
    let (at, name) = (path(at), CString::new(name).unwrap());
    let (value, len) = (value.as_ptr().cast(), value.len());
    // SAFETY: both strings end with a NUL, and the value has as many bytes as is said.
    let set = unsafe { libc::setxattr(at.as_ptr(), name.as_ptr(), value, len, flags) };
    Errno::result(set).map(drop)
}

fn get(at: &Path, name: &str, room: usize) -> Result<Vec<u8>, Errno> {
    let (at, name) = (path(at), CString::new(name).unwrap());
    let mut value = vec![0_u8; room];
    // SAFETY: both strings end with a NUL, and the buffer has as much room as is said.
    let len =
        unsafe { libc::getxattr(at.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), room) };
    let len = usize::try_from(Errno::result(len)?).unwrap();
    if room == 0 {
        return Ok(vec![0; len]);
    }
    value.truncate(len);
    Ok(value)
}

fn list(at: &Path) -> Vec<u8> {
    let at = path(at);
    let mut names = vec![0_u8; 4096];
    // SAFETY: the string ends with a NUL, and the buffer has as much room as is said.
    let len = unsafe { libc::listxattr(at.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(Errno::result(len).unwrap()).unwrap());
    names
}

fn remove(at: &Path, name: &str) -> Result<(), Errno> {
    let (at, name) = (path(at), CString::new(name).unwrap());
    // SAFETY: both strings end with a NUL.
    let removed = unsafe { libc::removexattr(at.as_ptr(), name.as_ptr()) };
    Errno::result(removed).map(drop)
}

#[test]
fn extended_attributes_go_all_the_way() {
    run(|| {
        let mount = Mount::new();
        let file = mount.path("f");
        fs::write(&file, "x").unwrap();
        set(&file, "user.k", b"value", 0).unwrap();
        assert_eq!(get(&file, "user.k", 100).unwrap(), b"value");
        assert_eq!(get(&file, "user.k", 0).unwrap().len(), 5);
        assert_eq!(get(&file, "user.k", 3), Err(Errno::ERANGE));
        assert_eq!(list(&file), b"user.k\0");
        let create = set(&file, "user.k", b"w", libc::XATTR_CREATE);
        assert_eq!(create, Err(Errno::EEXIST));
        let replace = set(&file, "user.other", b"w", libc::XATTR_REPLACE);
        assert_eq!(replace, Err(Errno::ENODATA));
        set(&file, "user.k", b"", libc::XATTR_REPLACE).unwrap();
        assert_eq!(get(&file, "user.k", 100).unwrap(), b"");
        remove(&file, "user.k").unwrap();
        assert_eq!(get(&file, "user.k", 100), Err(Errno::ENODATA));
        assert_eq!(remove(&file, "user.k"), Err(Errno::ENODATA));
        let object = mount.bucket.store.object("f").unwrap();
        let generation = get(&file, "user.gcs.generation", 100).unwrap();
        assert_eq!(generation, object.generation.to_string().as_bytes());
        set(&file, "user.gcs.content-type", b"text/html", 0).unwrap();
        let object = mount.bucket.store.object("f").unwrap();
        assert_eq!(object.attributes.content_type.as_deref(), Some("text/html"));
        assert_eq!(set(&file, "user.gcs.md5", b"x", 0), Err(Errno::EPERM));
        assert_eq!(set(&file, "user.big", &[0; 1 << 16], 0), Err(Errno::E2BIG));
        let capability = set(&file, "security.capability", b"1", 0);
        assert!(capability.is_err());
        assert_eq!(get(&file, "trusted.x", 9), Err(Errno::EOPNOTSUPP));
        fs::create_dir(mount.path("d")).unwrap();
        set(&mount.path("d"), "user.k", b"dir", 0).unwrap();
        assert_eq!(get(&mount.path("d"), "user.k", 9).unwrap(), b"dir");
    });
}

#[test]
fn without_them_the_kernel_is_told_once() {
    run(|| {
        let counter = Arc::new(Counter::default());
        let mount = Mount::with(|config| {
            config.xattrs = false;
            config.observer = Some(counter.clone());
        });
        fs::write(mount.path("f"), "x").unwrap();
        let asked = counter.0.load(Ordering::Relaxed);
        for _ in 0..50 {
            let refused = get(&mount.path("f"), "user.k", 9);
            assert_eq!(refused, Err(Errno::EOPNOTSUPP));
        }
        assert!(asked + counter.0.load(Ordering::Relaxed) <= 2);
    });
}

/// How often the kernel asked for an extended attribute.
#[derive(Debug, Default)]
struct Counter(AtomicUsize);

impl Observer for Counter {
    fn answered(&self, request: &Answered) {
        if request.operation == Operation::GetXattr {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn superseded(&self, _bytes: u64) {}
}

#[test]
fn a_thousand_writes_ask_for_no_attribute_and_make_no_call() {
    run(|| {
        let _calm = no_forks();
        // Past the page cache and through it: the kernel goes different ways.
        for read in [false, true] {
            let counter = Arc::new(Counter::default());
            let mount = Mount::with(|config| config.observer = Some(counter.clone()));
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .read(read)
                .open(mount.path("f"))
                .unwrap();
            mount.bucket.store.reset_calls();
            for _ in 0..1000 {
                file.write_all(b"0123456789").unwrap();
            }
            assert_eq!(mount.bucket.store.calls().total(), 0);
            let asked = counter.0.load(Ordering::Relaxed);
            assert!(asked <= 3, "{asked} questions");
            drop(file);
            assert_eq!(mount.bucket.store.calls().total(), 1);
        }
    });
}

#[test]
fn modes_and_owners_outlive_the_mount_where_that_is_asked_for() {
    run(|| {
        let mount = Mount::with(|config| config.posix_attributes = true);
        let file = mount.path("f");
        let mut open = OpenOptions::new();
        open.write(true).create(true).truncate(true).mode(0o640);
        drop(open.open(&file).unwrap());
        let umasked = fs::metadata(&file).unwrap().mode() & 0o777;
        assert_eq!(umasked & !0o640, 0);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
        chown(&file, Some(1234), Some(2345)).unwrap();
        let seen = fs::metadata(&file).unwrap();
        assert_eq!((seen.uid(), seen.gid()), (1234, 2345));
        assert_eq!(seen.mode() & 0o7777, 0o755, "chown takes privileges away");
        fs::create_dir(mount.path("d")).unwrap();
        fs::set_permissions(mount.path("d"), fs::Permissions::from_mode(0o1777)).unwrap();
        let metadata = mount.bucket.store.object("f").unwrap().attributes.metadata;
        assert_eq!(metadata["goog-reserved-posix-mode"], "755");
        assert_eq!(metadata["goog-reserved-posix-uid"], "1234");
        let dir = mount.bucket.store.object("d/").unwrap();
        let dir = &dir.attributes.metadata["goog-reserved-posix-mode"];
        assert_eq!(dir, "1777");
        assert_eq!(
            fs::metadata(mount.path("d")).unwrap().mode() & 0o7777,
            0o1777
        );
    });
}

#[test]
fn a_mode_set_on_an_open_file_rides_in_its_upload() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::with(|config| config.posix_attributes = true);
        let mut file = File::create(mount.path("f")).unwrap();
        file.write_all(b"x").unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o500))
            .unwrap();
        drop(file);
        assert_eq!(
            mount
                .bucket
                .store
                .calls()
                .of(gcsmount_gcs::testing::Method::Patch),
            0
        );
        let metadata = mount.bucket.store.object("f").unwrap().attributes.metadata;
        assert_eq!(metadata["goog-reserved-posix-mode"], "500");
    });
}
