//! A world for one test: an emulator in this process, a projected token, and the binary under test as a process that
//! mounts. Everything is gone when the test ends, however it ends.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use gcsmount_emulator::{Config, Emulator, MintRequest};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The bucket of every test.
pub(crate) const BUCKET: &str = "bucket-under-test";
/// The longest that one step of a test may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);
/// The longest that starting or ending a mount may take.
const TURN: Duration = Duration::from_secs(30);

/// Whether mounts can be tested here. Where they cannot this says so loudly, and fails if they must be.
pub(crate) fn can_mount() -> bool {
    let usable = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok()
        && nix::unistd::geteuid().is_root();
    if !usable {
        not_run("root and /dev/fuse");
    }
    usable
}

/// Says loudly that a test did not run, and why; fails where it must.
///
/// Written to the descriptor itself: what a test prints through the macros is swallowed when it passes.
pub(crate) fn not_run(needs: &str) {
    use std::io::Write;
    let text = format!("NOT RUN: this test needs {needs}");
    let required = std::env::var_os("GCSMOUNT_REQUIRE_FUSE").is_some();
    assert!(!required, "{text}");
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The binary under test.
pub(crate) fn gcsmount() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gcsmount"));
    for name in ["STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs blocking file calls on a mount, off the threads that serve the emulator, within [`LIMIT`].
pub(crate) async fn blocking<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    timeout(LIMIT, tokio::task::spawn_blocking(run))
        .await
        .expect("file calls hang")
        .expect("file calls panicked")
}

/// Runs a program to its end and returns whether it succeeded and what it said.
pub(crate) async fn run(
    program: &str,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> (bool, String) {
    let output = Command::new(program)
        .args(arguments)
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, output)
        .await
        .expect("the program hangs")
        .expect("the program starts");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Runs `scene` in a network namespace of its own, where the loopback device also has the metadata server's address.
///
/// Sockets and child processes belong to the namespace of the thread that makes them, so all of it happens on one.
pub(crate) fn in_network_namespace<F: Future<Output = ()>>(
    scene: impl FnOnce() -> F + Send + 'static,
) {
    let enter = || {
        let entered = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).is_ok();
        let ip = |arguments: &[&str]| {
            let status = std::process::Command::new("ip").args(arguments).status();
            status.is_ok_and(|status| status.success())
        };
        entered
            && ip(&["link", "set", "lo", "up"])
            && ip(&["addr", "add", "169.254.169.254/32", "dev", "lo"])
    };
    let thread = std::thread::spawn(move || {
        if !enter() {
            not_run("network namespaces and the program ip (iproute2)");
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(scene());
    });
    thread.join().unwrap();
}

/// An emulator and a directory.
pub(crate) struct World {
    pub(crate) emulator: Emulator,
    pub(crate) scratch: TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        let mut buckets = vec![BUCKET.into()];
        buckets.extend(config.buckets);
        let config = Config { buckets, ..config };
        Self {
            emulator: Emulator::start(config).await.expect("the emulator starts"),
            scratch: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A token of the identity that may use the bucket.
    pub(crate) fn mint(&self, ttl: Duration) -> String {
        self.emulator.admin().mint_token(&MintRequest {
            namespace: "tests".into(),
            service_account: "runner".into(),
            ttl,
            ..MintRequest::default()
        })
    }

    /// A token file with an hour to live.
    pub(crate) fn token_file(&self) -> PathBuf {
        let path = self.path("token");
        fs::write(&path, self.mint(Duration::from_secs(3600))).unwrap();
        path
    }

    /// A directory to mount on.
    pub(crate) fn mount_point(&self) -> PathBuf {
        let dir = self.path("mnt");
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// `gcsmount mount` with the emulator's addresses, without bucket and directory, that gives up at the first failure.
    pub(crate) fn command(&self) -> Command {
        self.patient_command("0")
    }

    /// The same for a mount that is tried again for `patience`.
    pub(crate) fn patient_command(&self, patience: &str) -> Command {
        let endpoint = self.emulator.endpoint();
        let mut command = gcsmount();
        command.args([
            "mount",
            "--custom-endpoint",
            &endpoint,
            "--sts-endpoint",
            &endpoint,
        ]);
        command
            .args(["--mount-retry-timeout", patience, "--temp-dir"])
            .arg(self.staging());
        command
    }

    /// Where the mount stages, to be found empty at the end.
    pub(crate) fn staging(&self) -> PathBuf {
        let dir = self.path("staging");
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// Mounts the bucket with a token file.
    pub(crate) async fn mount(&self, more: &[&str]) -> Mount {
        let mut command = self.command();
        command
            .arg("--token-file")
            .arg(self.token_file())
            .args(more);
        self.mount_with(command).await
    }

    /// Mounts the bucket with whatever `command` says.
    pub(crate) async fn mount_with(&self, command: Command) -> Mount {
        self.mount_at(command, BUCKET, self.mount_point()).await
    }

    /// Mounts `bucket` at `dir` with whatever `command` says.
    pub(crate) async fn mount_at(&self, mut command: Command, bucket: &str, dir: PathBuf) -> Mount {
        let log = self.path(&format!("log-of-{bucket}"));
        command
            .args(["--foreground", bucket])
            .arg(&dir)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap());
        let mut child = command.spawn().expect("gcsmount starts");
        let pid = i32::try_from(child.id().expect("it runs")).unwrap();
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        let read = timeout(TURN, BufReader::new(output).read_line(&mut line)).await;
        let mount = Mount {
            child,
            pid,
            dir,
            log,
        };
        assert!(matches!(read, Ok(Ok(1..))), "no mount: {}", mount.log());
        mount
    }
}

/// A mount served by a process of its own.
pub(crate) struct Mount {
    child: Child,
    pid: i32,
    pub(crate) dir: PathBuf,
    log: PathBuf,
}

impl Mount {
    /// What the process has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The most memory that the process has held so far.
    pub(crate) fn peak_mib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("it runs");
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("VmHWM:"))
            .expect("Linux says");
        line.split_whitespace()
            .next()
            .and_then(|n| n.parse::<u64>().ok())
            .expect("a number")
            >> 10
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("it runs");
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        timeout(TURN, self.child.wait())
            .await
            .expect("the mount does not end")
            .expect("a child")
    }

    /// Stops the process and checks that it ends well and leaves no mount.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.ended().await;
        assert!(status.success(), "{status}: {}", self.log());
        assert!(!is_mounted(&self.dir));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the mount's log:\n{}", self.log());
        }
        // The process may be gone, and the mount with it.
        let _ = self.child.start_kill();
        if is_mounted(&self.dir) {
            let _ = nix::mount::umount2(&self.dir, nix::mount::MntFlags::MNT_DETACH);
        }
    }
}

/// Whether something is mounted at `dir`.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| Path::new(point) == dir)
}
