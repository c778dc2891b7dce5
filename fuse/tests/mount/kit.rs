//! A mount of a bucket in memory for one test: its own directory, a time limit, and nothing left behind.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, mpsc};
use std::time::Duration;

use gcsmount_cache::{BlockCache, Budget, CacheConfig};
use gcsmount_fuse::session::{self, MountOptions, MountPoint, Mounted};
use gcsmount_fuse::{Fs, FsConfig};
use gcsmount_gcs::Store;
use gcsmount_gcs::testing::{FakeStore, FaultyStore};
use nix::errno::Errno;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// No test comes near it; one that does hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// A file system over a bucket in memory, not mounted.
pub(crate) struct Bucket {
    pub(crate) store: FakeStore,
    pub(crate) faults: FaultyStore<FakeStore>,
    pub(crate) fs: Arc<Fs>,
    runtime: Option<Runtime>,
}

impl Bucket {
    pub(crate) fn new(change: impl FnOnce(&mut FsConfig)) -> Self {
        Self::over(change, |faults| Arc::new(faults))
    }

    /// Over whatever `wrap` makes of the store.
    pub(crate) fn over(
        change: impl FnOnce(&mut FsConfig),
        wrap: impl FnOnce(FaultyStore<FakeStore>) -> Arc<dyn Store>,
    ) -> Self {
        let store = FakeStore::new();
        let faults = FaultyStore::new(store.clone());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let mut config = FsConfig::default();
        change(&mut config);
        let cache = BlockCache::new(&Budget::new(64 << 20), CacheConfig::default());
        let handle = runtime.handle().clone();
        Self {
            fs: Fs::new(config, wrap(faults.clone()), cache, handle),
            store,
            faults,
            runtime: Some(runtime),
        }
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(future)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A mounted bucket. Fields are dropped in order: first the mount goes, then the directory.
pub(crate) struct Mount {
    pub(crate) mounted: Mounted,
    pub(crate) bucket: Bucket,
    dir: TempDir,
}

impl Mount {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut FsConfig)) -> Self {
        let bucket = Bucket::new(change);
        let dir = tempfile::tempdir().unwrap();
        let at = MountPoint::Dir(dir.path().to_owned());
        let mounted = session::mount(bucket.fs.clone(), at, &MountOptions::default()).unwrap();
        Self {
            mounted,
            bucket,
            dir,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }
}

impl Mount {
    /// Waits until every handle is closed, which the kernel does in its own time behind the last close.
    pub(crate) fn wait_for_release(&self) {
        while self.bucket.fs.open_handles() > 0 {
            std::thread::yield_now();
        }
    }
}

/// Runs `test` on a thread of its own, within the time limit.
pub(crate) fn run(test: impl FnOnce() + Send + 'static) {
    if !has_fuse() {
        return;
    }
    let (done, finished) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match finished.recv_timeout(LIMIT) {
        Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        // The thread may sit in the kernel for good; ending the process frees it, and its mounts fail from then on.
        Err(mpsc::RecvTimeoutError::Timeout) => {
            eprintln!("a test on a mount did not end within {LIMIT:?}");
            std::process::abort();
        }
    }
}

fn has_fuse() -> bool {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    let Err(error) = opened else { return true };
    let required = std::env::var_os("GCSMOUNT_REQUIRE_FUSE").is_some_and(|v| v == "1");
    assert!(!required, "/dev/fuse cannot be opened: {error}");
    // To the descriptor itself: what the macros print is swallowed when a test passes.
    let _ = writeln!(std::io::stderr(), "NOT RUN: needs /dev/fuse ({error})");
    false
}

/// Whether anything is mounted at `path`.
pub(crate) fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = path.to_str().unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(point))
}

/// Held by tests to which it matters when a file is flushed: a child process closes its copies of all descriptors when
/// it begins, and to a file system that looks like a close.
pub(crate) fn no_forks() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap_or_else(PoisonError::into_inner)
}

static FORKS: RwLock<()> = RwLock::new(());

/// Runs a program to its end and returns what it printed; it has to succeed.
pub(crate) fn command(program: &str, args: &[&str], dir: &Path) -> String {
    let child = {
        let _alone = FORKS.write().unwrap_or_else(PoisonError::into_inner);
        Command::new(program)
            .args(args)
            .current_dir(dir)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    };
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {args:?}: {printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

/// The errno of a call that has to fail.
pub(crate) fn errno<T>(result: std::io::Result<T>) -> Errno {
    match result {
        Ok(_) => panic!("succeeded"),
        Err(error) => Errno::from_raw(error.raw_os_error().unwrap()),
    }
}

/// Bytes that differ from their neighbours and from those a block further on.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| u8::try_from((i * 7 + i / 4096) % 251).unwrap())
        .collect()
}
