//! The demo as a person runs it: to its end, kept, and stopped half-way.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

use crate::kit::{LIMIT, can_mount, gcsmount, is_mounted};

/// A demo that runs with a temporary directory of its own.
struct Demo {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    scratch: TempDir,
}

impl Demo {
    fn start(words: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let mut command = gcsmount();
        command
            .arg("demo")
            .args(words)
            .arg(scratch.path().join("dir"));
        command.env("TMPDIR", scratch.path()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            lines,
            scratch,
        }
    }

    /// Reads on until a line holds `part`.
    async fn until(&mut self, part: &str) {
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                assert!(!line.contains("FAILED"), "{line}");
                if line.contains(part) {
                    return true;
                }
            }
            false
        };
        assert!(
            timeout(LIMIT, found).await.expect("the demo hangs"),
            "{part:?} was not said"
        );
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("it runs");
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// The exit code, once nothing is left of it.
    async fn ended(mut self) -> Option<i32> {
        let rest = async { while self.lines.next_line().await.unwrap().is_some() {} };
        timeout(LIMIT, rest).await.expect("the demo hangs");
        let status = timeout(Duration::from_secs(60), self.child.wait())
            .await
            .expect("it ends")
            .unwrap();
        assert!(!is_mounted(&self.scratch.path().join("dir")));
        let left: Vec<_> = fs::read_dir(self.scratch.path())
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        assert_eq!(left, Vec::<std::path::PathBuf>::new(), "nothing is left");
        status.code()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_it_stays_until_it_is_told_to_stop_and_ends_well() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut demo = Demo::start(&["--keep", "--soak", "1s"]);
        demo.until("stays mounted").await;
        assert!(is_mounted(&demo.scratch.path().join("dir")));
        demo.signal(signal);
        demo.until("every check held").await;
        assert_eq!(demo.ended().await, Some(0), "{signal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_half_way_it_leaves_nothing() {
    if !can_mount() {
        return;
    }
    for line in ["process", "copy a tree in"] {
        let mut demo = Demo::start(&[]);
        demo.until(line).await;
        demo.signal(Signal::SIGINT);
        assert_eq!(demo.ended().await, Some(11), "after {line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_holds_something_is_not_toured() {
    if !can_mount() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    fs::write(scratch.path().join("mine"), "precious").unwrap();
    let output = gcsmount()
        .arg("demo")
        .arg(scratch.path())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("empty directory"), "{said}");
    assert_eq!(
        fs::read(Path::new(&scratch.path().join("mine"))).unwrap(),
        b"precious"
    );
}
