//! Files by calls of the standard library.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::time::{Duration, SystemTime};

use gcsmount_gcs::testing::Method;
use nix::errno::Errno;

use crate::kit::{Mount, errno, no_forks, pattern, run};

#[test]
fn a_file_is_in_the_bucket_when_close_returns() {
    run(|| {
        let mount = Mount::new();
        fs::write(mount.path("a"), "hello").unwrap();
        assert_eq!(mount.bucket.store.bytes("a").unwrap(), "hello");
        assert_eq!(fs::read(mount.path("a")).unwrap(), b"hello");
        assert_eq!(fs::metadata(mount.path("a")).unwrap().len(), 5);
    });
}

#[test]
fn a_large_file_goes_up_in_parts_or_as_a_stream_and_reads_back() {
    run(|| {
        let _calm = no_forks();
        let content = pattern(40 << 20);
        for in_parts in [true, false] {
            let mount = Mount::with(|config| config.parts = config.parts.filter(|_| in_parts));
            fs::write(mount.path("big"), &content).unwrap();
            assert!(mount.bucket.store.bytes("big").unwrap() == content);
            assert_eq!(mount.bucket.store.names(), ["big"]);
            let calls = mount.bucket.store.calls();
            assert_eq!(calls.of(Method::UploadFinish), u64::from(!in_parts));
            assert_eq!(calls.of(Method::Compose), u64::from(in_parts));
            assert!(fs::read(mount.path("big")).unwrap() == content);
            let mut part = [0; 1000];
            let file = File::open(mount.path("big")).unwrap();
            file.read_exact_at(&mut part, 31_234_567).unwrap();
            assert_eq!(part, content[31_234_567..][..1000]);
        }
    });
}

#[test]
fn a_file_grows_in_the_mount_before_it_is_published() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::new();
        let mut file = File::create(mount.path("a")).unwrap();
        file.write_all(b"12345").unwrap();
        assert_eq!(fs::metadata(mount.path("a")).unwrap().len(), 5);
        assert_eq!(fs::read(mount.path("a")).unwrap(), b"12345");
        assert_eq!(fs::read_dir(mount.root()).unwrap().count(), 1);
        assert!(mount.bucket.store.bytes("a").is_none());
        file.sync_all().unwrap();
        assert_eq!(mount.bucket.store.bytes("a").unwrap(), "12345");
        file.write_all(b"678").unwrap();
        drop(file);
        assert_eq!(mount.bucket.store.bytes("a").unwrap(), "12345678");
    });
}

#[test]
fn appending_sends_the_tail_only() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::new();
        let content = pattern(3 << 20);
        mount.bucket.store.put("log", content.clone());
        mount.bucket.store.reset_calls();
        let append = || OpenOptions::new().append(true).open(mount.path("log"));
        append().unwrap().write_all(b"tail").unwrap();
        let bytes = mount.bucket.store.bytes("log").unwrap();
        assert_eq!(bytes.len(), content.len() + 4);
        assert!(bytes.starts_with(&content) && bytes.ends_with(b"tail"));
        let calls = mount.bucket.store.calls();
        assert_eq!((calls.of(Method::Compose), calls.of(Method::Read)), (1, 0));
        assert_eq!(mount.bucket.store.names(), ["log"]);
        let mut file = append().unwrap();
        for line in ["a", "b", "c"] {
            file.write_all(line.as_bytes()).unwrap();
            file.sync_all().unwrap();
        }
        drop(file);
        let bytes = mount.bucket.store.bytes("log").unwrap();
        assert!(bytes.ends_with(b"tailabc"));
    });
}

#[test]
fn writes_in_any_order_are_right() {
    run(|| {
        let mount = Mount::with(|config| config.buffer_limit = 1 << 20);
        for size in [1000, 3 << 20] {
            let mut content = pattern(size);
            fs::write(mount.path("f"), &content).unwrap();
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .open(mount.path("f"))
                .unwrap();
            file.write_all_at(b"middle", size as u64 / 2).unwrap();
            content[size / 2..size / 2 + 6].copy_from_slice(b"middle");
            file.write_all_at(b"beyond", size as u64 + 10).unwrap();
            content.resize(size + 10, 0);
            content.extend_from_slice(b"beyond");
            let mut seen = Vec::new();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_end(&mut seen).unwrap();
            assert!(seen == content);
            drop(file);
            assert!(mount.bucket.store.bytes("f").unwrap() == content);
            assert!(fs::read(mount.path("f")).unwrap() == content);
        }
    });
}

#[test]
fn a_stream_that_is_sought_back_in_is_right() {
    run(|| {
        let mount = Mount::with(|config| config.buffer_limit = 1 << 20);
        let mut content = pattern(5 << 20);
        let mut file = File::create(mount.path("f")).unwrap();
        file.write_all(&content).unwrap();
        file.seek(SeekFrom::Start(2)).unwrap();
        file.write_all(b"head").unwrap();
        content[2..6].copy_from_slice(b"head");
        drop(file);
        assert!(mount.bucket.store.bytes("f").unwrap() == content);
    });
}

#[test]
fn lengths_are_set() {
    run(|| {
        let mount = Mount::with(|config| config.buffer_limit = 1 << 20);
        for size in [100_usize, 4 << 20] {
            let content = pattern(size);
            fs::write(mount.path("f"), &content).unwrap();
            let cut = |len: usize| {
                let file = OpenOptions::new()
                    .write(true)
                    .open(mount.path("f"))
                    .unwrap();
                file.set_len(len as u64).unwrap();
                drop(file);
                mount.bucket.store.bytes("f").unwrap()
            };
            assert!(cut(size - 10) == content[..size - 10]);
            let grown = cut(size + 5);
            assert!(grown[..size - 10] == content[..size - 10]);
            assert_eq!(grown[size - 10..], [0; 15]);
            assert_eq!(cut(0), "");
        }
        fs::write(mount.path("f"), "0123456789").unwrap();
        nix::unistd::truncate(&mount.path("f"), 4).unwrap();
        assert_eq!(mount.bucket.store.bytes("f").unwrap(), "0123");
    });
}

#[test]
fn truncating_at_open_fetches_nothing() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::new();
        mount.bucket.store.put("f", pattern(1 << 20));
        mount.bucket.store.reset_calls();
        fs::write(mount.path("f"), "new").unwrap();
        assert_eq!(mount.bucket.store.bytes("f").unwrap(), "new");
        assert_eq!(mount.bucket.store.calls().of(Method::Read), 0);
    });
}

#[test]
fn times_survive() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::new();
        let modified = || fs::metadata(mount.path("f")).unwrap().modified().unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
        let mut file = File::create(mount.path("f")).unwrap();
        file.write_all(b"x").unwrap();
        file.set_modified(then).unwrap();
        drop(file);
        assert_eq!(modified(), then);
        assert_eq!(mount.bucket.store.calls().of(Method::Patch), 0);
        let object = mount.bucket.store.object("f").unwrap();
        let metadata = &object.attributes.metadata;
        assert_eq!(metadata["gcsfuse_mtime"], "2001-09-09T01:46:40.123456789Z");
        assert_eq!(metadata["goog-reserved-file-mtime"], "1000000000");

        let later = then + Duration::from_secs(5);
        let file = File::open(mount.path("f")).unwrap();
        file.set_modified(later).unwrap();
        assert_eq!(modified(), later);
        assert_eq!(mount.bucket.store.calls().of(Method::Patch), 1);
        let patched = mount.bucket.store.object("f").unwrap();
        assert_eq!(patched.generation, object.generation);
    });
}

#[test]
fn modes_and_owners_are_accepted_and_ignored() {
    run(|| {
        let mount = Mount::with(|config| config.file_mode = 0o640);
        fs::write(mount.path("f"), "x").unwrap();
        let mode = || fs::metadata(mount.path("f")).unwrap().mode() & 0o7777;
        assert_eq!(mode(), 0o640);
        fs::set_permissions(mount.path("f"), fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::chown(mount.path("f"), Some(1), Some(1)).unwrap();
        assert_eq!(mode(), 0o640);
    });
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    run(|| {
        let mount = Mount::new();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(mount.path("temp"))
            .unwrap();
        file.write_all(b"scratch").unwrap();
        fs::remove_file(mount.path("temp")).unwrap();
        file.write_all(b" more").unwrap();
        let mut seen = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "scratch more");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        fs::write(mount.path("temp"), "another").unwrap();
        drop(file);
        assert_eq!(mount.bucket.store.bytes("temp").unwrap(), "another");
    });
}

#[test]
fn direct_writes_of_many_requests_are_right() {
    run(|| {
        let mount = Mount::with(|config| config.buffer_limit = 1 << 20);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(nix::fcntl::OFlag::O_DIRECT.bits())
            .open(mount.path("f"))
            .unwrap();
        let content = pattern(4 << 20);
        for _ in 0..4 {
            file.write_all(&content).unwrap();
        }
        drop(file);
        let bytes = mount.bucket.store.bytes("f").unwrap();
        assert_eq!(bytes.len(), 16 << 20);
        assert!(bytes.chunks(4 << 20).all(|chunk| chunk == content));
    });
}

#[test]
fn an_exclusive_create_asks_the_store() {
    run(|| {
        let mount = Mount::new();
        fs::create_dir(mount.path("d")).unwrap();
        // The directory is known to be empty, which it is not any more.
        mount.bucket.store.put("d/lock", "theirs");
        let taken = File::create_new(mount.path("d/lock"));
        assert_eq!(errno(taken), Errno::EEXIST);
        let mut lock = File::create_new(mount.path("d/lock2")).unwrap();
        lock.write_all(b"mine").unwrap();
        let taken = File::create_new(mount.path("d/lock2"));
        assert_eq!(errno(taken), Errno::EEXIST);
    });
}
