//! What the caller is told when the store fails, and when somebody else writes.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use gcsmount_gcs::Kind;
use gcsmount_gcs::testing::{Fault, Method};
use nix::errno::Errno;

use crate::kit::{Mount, errno, no_forks, run};

#[test]
fn close_tells_the_truth() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::new();
        mount.bucket.store.put("f", "old");
        let table = [
            (Kind::Denied, Errno::EACCES),
            (Kind::Unavailable, Errno::EIO),
            (Kind::Held, Errno::EPERM),
        ];
        for (kind, expected) in table {
            let mut file = File::create(mount.path("f")).unwrap();
            file.write_all(b"new").unwrap();
            let fault = Fault::Before(kind);
            mount.bucket.faults.inject(Method::Write, 1, fault);
            assert_eq!(nix::unistd::close(file).unwrap_err(), expected);
            assert_eq!(mount.bucket.store.bytes("f").unwrap(), "old");
        }
        assert_eq!(fs::read(mount.path("f")).unwrap(), b"old");
    });
}

#[test]
fn a_file_that_was_never_stored_is_gone() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::new();
        let mut file = File::create(mount.path("f")).unwrap();
        file.write_all(b"lost").unwrap();
        let fault = Fault::Before(Kind::Denied);
        mount.bucket.faults.inject(Method::Write, 1, fault);
        assert_eq!(nix::unistd::close(file).unwrap_err(), Errno::EACCES);
        mount.wait_for_release();
        assert_eq!(errno(File::open(mount.path("f"))), Errno::ENOENT);
        fs::write(mount.path("f"), "kept").unwrap();
        assert_eq!(mount.bucket.store.bytes("f").unwrap(), "kept");
    });
}

#[test]
fn the_second_of_two_writers_is_told() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::new();
        mount.bucket.store.put("f", "old");
        let mut file = OpenOptions::new()
            .append(true)
            .open(mount.path("f"))
            .unwrap();
        file.write_all(b"+mine").unwrap();
        mount.bucket.store.put("f", "theirs");
        assert_eq!(errno(file.sync_all()), Errno::ESTALE);
        assert_eq!(errno(file.write_all(b"more")), Errno::ESTALE);
        assert_eq!(nix::unistd::close(file).unwrap_err(), Errno::ESTALE);
        assert_eq!(mount.bucket.store.bytes("f").unwrap(), "theirs");
        // What was known of the file is what the last publication left; it is known to be old.
        assert_eq!(fs::read(mount.path("f")).unwrap(), b"theirs");
    });
}

#[test]
fn a_replaced_object_is_stale_for_who_has_it_open() {
    run(|| {
        let mount = Mount::new();
        mount.bucket.store.put("f", "old content");
        let file = File::open(mount.path("f")).unwrap();
        mount.bucket.store.put("f", "new content");
        let mut bytes = [0; 3];
        assert_eq!(errno(file.read_exact_at(&mut bytes, 0)), Errno::ESTALE);
        drop(file);
        assert_eq!(fs::read(mount.path("f")).unwrap(), b"new content");
    });
}

#[test]
fn the_kernel_forgets_the_length_of_replaced_content() {
    run(|| {
        // So long that only the notification can be it.
        let mount = Mount::with(|config| config.ttl = Duration::from_secs(3_600));
        mount.bucket.store.put("f", "short");
        let file = File::open(mount.path("f")).unwrap();
        mount.bucket.store.put("f", "much longer");
        assert_eq!(errno(file.read_at(&mut [0; 1], 0)), Errno::ESTALE);
        drop(file);
        while fs::metadata(mount.path("f")).unwrap().len() != 11 {
            std::thread::yield_now();
        }
        assert_eq!(fs::read(mount.path("f")).unwrap(), b"much longer");
    });
}

#[test]
fn a_store_that_does_not_answer_is_an_error_and_no_hang() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::with(|config| config.deadline = Duration::from_millis(500));
        let faults = &mount.bucket.faults;
        mount.bucket.store.put("f", "x");
        faults.inject(Method::Stat, 1, Fault::Stall);
        assert_eq!(errno(fs::metadata(mount.path("f"))), Errno::ETIMEDOUT);
        faults.inject(Method::List, 1, Fault::Stall);
        let listed = fs::read_dir(mount.root()).and_then(|mut dir| dir.next().transpose());
        assert_eq!(errno(listed), Errno::ETIMEDOUT);
        let file = File::open(mount.path("f")).unwrap();
        faults.inject(Method::Read, 1, Fault::StallBody(0));
        let read = file.read_at(&mut [0; 1], 0);
        assert_eq!(errno(read), Errno::ETIMEDOUT);
        faults.inject(Method::Write, 1, Fault::Stall);
        let mut written = File::create(mount.path("g")).unwrap();
        written.write_all(b"y").unwrap();
        assert_eq!(errno(written.sync_all()), Errno::ETIMEDOUT);
        written.sync_all().unwrap();
        assert_eq!(mount.bucket.store.bytes("g").unwrap(), "y");
        // And the mount recovers.
        mount.bucket.store.put("h", "z");
        assert_eq!(fs::read(mount.path("h")).unwrap(), b"z");
    });
}
