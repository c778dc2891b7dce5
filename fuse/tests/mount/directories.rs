//! Directories, names, renames, links.

use std::fs::{self, File};
use std::io::{Read, Write};

use gcsmount_gcs::testing::Method;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::kit::{Mount, errno, no_forks, run};

#[test]
fn what_is_in_the_bucket_is_in_the_mount() {
    run(|| {
        let mount = Mount::new();
        mount.bucket.store.put("top", "1");
        mount.bucket.store.put("dir/sub/deep", "22");
        mount.bucket.store.put("placeholder/", "");
        mount.bucket.store.put("both", "file");
        mount.bucket.store.put("both/x", "below");
        let mut names: Vec<_> = fs::read_dir(mount.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["both", "both\n", "dir", "placeholder", "top"]);
        assert_eq!(fs::read(mount.path("dir/sub/deep")).unwrap(), b"22");
        assert_eq!(fs::read(mount.path("both\n")).unwrap(), b"file");
        assert_eq!(fs::read(mount.path("both/x")).unwrap(), b"below");
        assert_eq!(errno(fs::metadata(mount.path("none"))), Errno::ENOENT);
        let mut empty = fs::read_dir(mount.path("placeholder")).unwrap();
        assert!(empty.next().is_none());
    });
}

#[test]
fn names_that_the_store_refuses_are_refused_at_once() {
    run(|| {
        let mount = Mount::new();
        let long = "x".repeat(256);
        assert_eq!(errno(File::create(mount.path("a\nb"))), Errno::EINVAL);
        assert_eq!(errno(File::create(mount.path(&long))), Errno::ENAMETOOLONG);
        assert_eq!(errno(fs::create_dir(mount.path(".gcsmount"))), Errno::EPERM);
        let odd = "50% #1?+é";
        fs::write(mount.path(odd), "x").unwrap();
        assert_eq!(mount.bucket.store.names(), [odd]);
    });
}

#[test]
fn directories_are_made_and_removed() {
    run(|| {
        let mount = Mount::new();
        fs::create_dir_all(mount.path("a/b")).unwrap();
        assert_eq!(mount.bucket.store.names(), ["a/", "a/b/"]);
        assert_eq!(errno(fs::create_dir(mount.path("a"))), Errno::EEXIST);
        fs::write(mount.path("a/b/f"), "x").unwrap();
        assert_eq!(errno(fs::remove_dir(mount.path("a/b"))), Errno::ENOTEMPTY);
        assert_eq!(errno(fs::remove_file(mount.path("a/b"))), Errno::EISDIR);
        assert_eq!(errno(fs::remove_dir(mount.path("a/b/f"))), Errno::ENOTDIR);
        fs::remove_file(mount.path("a/b/f")).unwrap();
        fs::remove_dir(mount.path("a/b")).unwrap();
        assert_eq!(mount.bucket.store.names(), ["a/"]);
        fs::remove_dir_all(mount.path("a")).unwrap();
        assert!(mount.bucket.store.names().is_empty());
    });
}

#[test]
fn files_are_renamed() {
    run(|| {
        let mount = Mount::new();
        fs::write(mount.path("a"), "a").unwrap();
        fs::write(mount.path("b"), "b").unwrap();
        let mut open = File::open(mount.path("a")).unwrap();
        fs::rename(mount.path("a"), mount.path("c")).unwrap();
        fs::rename(mount.path("c"), mount.path("b")).unwrap();
        assert_eq!(mount.bucket.store.names(), ["b"]);
        assert_eq!(fs::read(mount.path("b")).unwrap(), b"a");
        let mut seen = String::new();
        open.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "a");
        assert_eq!(errno(fs::metadata(mount.path("a"))), Errno::ENOENT);

        fs::write(mount.path("d"), "d").unwrap();
        let (from, to) = (mount.path("d"), mount.path("b"));
        let keep = RenameFlags::RENAME_NOREPLACE;
        let refused = renameat2(AT_FDCWD, &from, AT_FDCWD, &to, keep);
        assert_eq!(refused, Err(Errno::EEXIST));
        let free = mount.path("e");
        renameat2(AT_FDCWD, &from, AT_FDCWD, &free, keep).unwrap();
        assert_eq!(mount.bucket.store.names(), ["b", "e"]);
        let swap = RenameFlags::RENAME_EXCHANGE;
        let refused = renameat2(AT_FDCWD, &free, AT_FDCWD, &to, swap);
        assert_eq!(refused, Err(Errno::EINVAL));
    });
}

#[test]
fn a_file_is_renamed_while_it_is_written() {
    run(|| {
        let mount = Mount::new();
        let mut file = File::create(mount.path("a")).unwrap();
        file.write_all(b"one").unwrap();
        fs::rename(mount.path("a"), mount.path("b")).unwrap();
        file.write_all(b"two").unwrap();
        drop(file);
        assert_eq!(mount.bucket.store.names(), ["b"]);
        assert_eq!(mount.bucket.store.bytes("b").unwrap(), "onetwo");
        assert_eq!(fs::read(mount.path("b")).unwrap(), b"onetwo");
    });
}

#[test]
fn a_file_that_is_written_is_renamed_over() {
    run(|| {
        let mount = Mount::new();
        let mut old = File::create(mount.path("f")).unwrap();
        old.write_all(b"never seen again").unwrap();
        fs::write(mount.path("new"), "new").unwrap();
        fs::rename(mount.path("new"), mount.path("f")).unwrap();
        old.write_all(b"!").unwrap();
        nix::unistd::close(old).unwrap();
        assert_eq!(mount.bucket.store.names(), ["f"]);
        assert_eq!(mount.bucket.store.bytes("f").unwrap(), "new");
        assert_eq!(fs::read(mount.path("f")).unwrap(), b"new");
    });
}

#[test]
fn directories_are_renamed() {
    run(|| {
        let mount = Mount::new();
        fs::create_dir(mount.path("old")).unwrap();
        for i in 0..40 {
            fs::write(mount.path(&format!("old/{i}")), format!("{i}")).unwrap();
        }
        let mut open = File::open(mount.path("old/7")).unwrap();
        let mut written = File::create(mount.path("old/new")).unwrap();
        written.write_all(b"before ").unwrap();
        fs::create_dir(mount.path("empty")).unwrap();
        fs::rename(mount.path("old"), mount.path("empty")).unwrap();
        written.write_all(b"after").unwrap();
        drop(written);
        assert_eq!(errno(fs::metadata(mount.path("old"))), Errno::ENOENT);
        assert_eq!(fs::read_dir(mount.path("empty")).unwrap().count(), 41);
        assert_eq!(fs::read(mount.path("empty/39")).unwrap(), b"39");
        let content = fs::read(mount.path("empty/new")).unwrap();
        assert_eq!(content, b"before after");
        let mut seen = String::new();
        open.read_to_string(&mut seen).unwrap();
        assert_eq!(seen, "7");
        let names = mount.bucket.store.names();
        assert!(names.iter().all(|n| n.starts_with("empty/")), "{names:?}");
        fs::create_dir(mount.path("full")).unwrap();
        fs::write(mount.path("full/x"), "").unwrap();
        let refused = fs::rename(mount.path("empty"), mount.path("full"));
        assert_eq!(errno(refused), Errno::ENOTEMPTY);
    });
}

#[test]
fn symbolic_links_lead_somewhere() {
    run(|| {
        let mount = Mount::new();
        fs::write(mount.path("f"), "x").unwrap();
        std::os::unix::fs::symlink("f", mount.path("l")).unwrap();
        assert_eq!(fs::read_link(mount.path("l")).unwrap().to_str(), Some("f"));
        assert_eq!(fs::read(mount.path("l")).unwrap(), b"x");
        let object = mount.bucket.store.object("l").unwrap();
        assert_eq!(object.attributes.metadata["gcsfuse_symlink_target"], "f");
        assert!(fs::symlink_metadata(mount.path("l")).unwrap().is_symlink());
        let hard = fs::hard_link(mount.path("f"), mount.path("h"));
        assert_eq!(errno(hard), Errno::EPERM);
    });
}

#[test]
fn a_known_directory_takes_one_call_a_file() {
    run(|| {
        let _calm = no_forks();
        let mount = Mount::new();
        fs::create_dir(mount.path("d")).unwrap();
        mount.bucket.store.reset_calls();
        for i in 0..100 {
            fs::write(mount.path(&format!("d/{i}")), "x").unwrap();
        }
        assert_eq!(mount.bucket.store.calls().total(), 100);
    });
}

#[test]
fn a_listing_with_attributes_costs_pages_only() {
    run(|| {
        let mount = Mount::with(|config| config.list_page = 500);
        for i in 0..2_000 {
            mount.bucket.store.put(&format!("d/{i:05}"), "x");
        }
        // The directory itself, then its pages.
        fs::metadata(mount.path("d")).unwrap();
        mount.bucket.store.reset_calls();
        let mut total = 0;
        for entry in fs::read_dir(mount.path("d")).unwrap() {
            total += entry.unwrap().metadata().unwrap().len();
        }
        assert_eq!(total, 2_000);
        let calls = mount.bucket.store.calls();
        assert_eq!((calls.of(Method::List), calls.total()), (4, 4));
    });
}
