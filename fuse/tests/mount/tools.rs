//! Ordinary programs on a mount.

use std::fs;
use std::path::Path;

use crate::kit::{Mount, command, pattern, run};

fn tree(root: &Path) {
    for dir in 0..5 {
        let dir = root.join(format!("dir {dir}"));
        fs::create_dir_all(dir.join("empty")).unwrap();
        for file in 0..10 {
            let content = pattern(file * file * 5_000);
            fs::write(dir.join(format!("file#{file}%?")), content).unwrap();
        }
        std::os::unix::fs::symlink("file#3%?", dir.join("link")).unwrap();
    }
}

fn same(one: &str, other: &str) {
    let args = ["-r", "--no-dereference", one, other];
    command("diff", &args, Path::new("/"));
}

#[test]
fn a_tree_is_copied_in_and_compares_equal() {
    run(|| {
        let local = tempfile::tempdir().unwrap();
        tree(local.path());
        let mount = Mount::new();
        let from = local.path().to_str().unwrap();
        let to = mount.path("copy");
        let to = to.to_str().unwrap();
        command("cp", &["-a", from, to], mount.root());
        same(from, to);
        let times = |root: &str| {
            let args = [root, "-type", "f", "-printf", "%P %s %T@\n"];
            let mut lines: Vec<_> = command("find", &args, Path::new("/"))
                .lines()
                .map(str::to_owned)
                .collect();
            lines.sort();
            lines
        };
        assert_eq!(times(from), times(to));
        command("rm", &["-r", to], mount.root());
        assert!(mount.bucket.store.names().is_empty());
    });
}

#[test]
fn tar_and_mv_work() {
    run(|| {
        let local = tempfile::tempdir().unwrap();
        tree(&local.path().join("tree"));
        let mount = Mount::new();
        let archive = mount.path("t.tar");
        let archive = archive.to_str().unwrap();
        command("tar", &["cf", archive, "tree"], local.path());
        command("tar", &["xf", archive], mount.root());
        command("mv", &["tree", "moved"], mount.root());
        let (one, other) = (local.path().join("tree"), mount.path("moved"));
        same(one.to_str().unwrap(), other.to_str().unwrap());
    });
}

#[test]
fn shell_redirections_work() {
    run(|| {
        let mount = Mount::new();
        let script = "set -e
            echo one > f
            echo two >> f
            (echo three; /bin/echo four; echo five) >> f
            printf XX | dd of=f conv=notrunc bs=1 seek=1 status=none
            cat f
            sed -i s/two/2/ f
            cat f";
        let printed = command("sh", &["-c", script], mount.root());
        let expected = "oXX\ntwo\nthree\nfour\nfive\noXX\n2\nthree\nfour\nfive\n";
        assert_eq!(printed, expected);
    });
}

#[test]
fn git_commits() {
    run(|| {
        let mount = Mount::new();
        let git = |args: &[&str]| {
            let identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"];
            command("git", &[&identity[..], args].concat(), &mount.path("repo"))
        };
        fs::create_dir(mount.path("repo")).unwrap();
        git(&["init", "--quiet"]);
        tree(&mount.path("repo"));
        git(&["add", "."]);
        git(&["commit", "--quiet", "-m", "first"]);
        fs::write(mount.path("repo/dir 0/file#0%?"), "changed").unwrap();
        git(&["commit", "--quiet", "-am", "second"]);
        assert_eq!(git(&["log", "--format=%s"]), "second\nfirst\n");
        assert_eq!(git(&["status", "--porcelain"]), "");
        git(&["fsck", "--strict"]);
    });
}
