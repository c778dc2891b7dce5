//! `gcsmount demo`: the whole on this machine, with no account.
//!
//! The emulator runs inside this process; the mount is a `gcsmount mount` of its own, started the way a person would,
//! so that what the demo shows is what a person gets. The projected token rotates the way kubelet does it, faster.

mod daemon;
mod projected;
mod report;
mod tour;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gcsmount_emulator::{Admin, Config, Emulator, MintRequest};
use gcsmount_fuse::MountPoint;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::explain;
use crate::lifecycle::{self, StopSignals};
use daemon::Daemon;
use projected::ProjectedVolume;
use report::Report;
use tour::{BUCKET, Root, Seed, Tour};

/// Lifetime of an access token, and of the subject token behind it.
const ACCESS_TTL: Duration = Duration::from_secs(8);
const SUBJECT_TTL: Duration = Duration::from_secs(12);
/// How long `--long` goes on.
const LONG: Duration = Duration::from_secs(600);
/// How long a step that is under way may go on when the demo is told to stop.
const LAST_STEP: Duration = Duration::from_secs(10);
/// How often the subject token is replaced.
const ROTATION: Duration = Duration::from_secs(4);
/// Who the pod is.
const NAMESPACE: &str = "training";
const SERVICE_ACCOUNT: &str = "reader";

/// Runs the role.
///
/// # Errors
/// [`Exit::Demo`] where a check did not hold; whatever keeps the scene from being set.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    if settings.arguments.len() > 1 {
        return Err(Failure::new(
            Exit::Usage,
            "expected at most one DIR: gcsmount demo [flags] [DIR]",
        ));
    }
    let dir = settings.path_argument(0)?;
    let soak = if settings.switch("long") {
        LONG
    } else {
        settings.duration("soak")
    };
    lifecycle::runtime()?.block_on(async {
        let mut signals = StopSignals::listen()?;
        let mut scene = Scene::set(dir.as_deref()).await?;
        let (mut report, interrupted) = scene.play(soak, &mut signals).await?;
        if !interrupted {
            let begun = Instant::now();
            let judged = scene.judge_identity().await;
            report.row("identity", judged, begun);
            if settings.switch("keep") {
                report.heading(&format!(
                    "  {} stays mounted until Ctrl-C",
                    scene.mount.dir.display()
                ));
                signals.next().await;
            }
        }
        let begun = Instant::now();
        let cleared = scene.clear().await;
        report.row("unmount", cleared, begun);
        match report.failed() {
            _ if interrupted => Err(Failure::new(Exit::Demo, "stopped before the tour was over")),
            0 => {
                report.heading("  every check held");
                Ok(())
            }
            n => Err(Failure::new(
                Exit::Demo,
                format!("{n} of the checks did not hold"),
            )),
        }
    })
}

/// Everything the demo runs, and the directory that it is in.
struct Scene {
    admin: Admin,
    emulator: Option<Emulator>,
    kubelet: tokio::task::JoinHandle<()>,
    rotations: watch::Receiver<u64>,
    seed: Option<Seed>,
    daemon: Option<Daemon>,
    mount: Stage,
    scratch: TempDir,
}

/// The directory to mount on; if it was made here, it goes in the end.
struct Stage {
    dir: PathBuf,
    made: bool,
}

impl Stage {
    fn at(dir: PathBuf) -> Result<Self, Failure> {
        let made = !dir.exists();
        if made {
            fs::create_dir_all(&dir).map_err(|error| other("making the mount point", &error))?;
        }
        let stage = Self { dir, made };
        let point = MountPoint::Dir(stage.dir.clone());
        point.check().map_err(|error| explain::mount(&error))?;
        stage
            .is_bare()
            .map_err(|what| Failure::new(Exit::MountPoint, what))?;
        Ok(stage)
    }

    /// The tour writes and deletes; it begins and ends on an empty directory.
    fn is_bare(&self) -> Result<(), String> {
        let dir = self.dir.display();
        match fs::read_dir(&self.dir).map(Iterator::count) {
            Ok(0) => Ok(()),
            Ok(n) => Err(format!(
                "{dir} holds {n} files or directories: name an empty directory, or one that does not exist"
            )),
            Err(error) => Err(format!("{dir}: {error}")),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.made {
            // Fails while something is mounted there, which was reported.
            let _ = fs::remove_dir(&self.dir);
        }
    }
}

fn other(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Other, format!("{what}: {error}"))
}

/// Says what stands, and how a person would type it.
fn introduce(emulator: &Emulator, token: &Path, mount: &Path, daemon: &Daemon) {
    let report = Report::default();
    let endpoint = emulator.endpoint();
    report.fact(
        "emulator",
        &format!("{endpoint}  bucket {BUCKET}, which asks for a token"),
    );
    let token = token.display();
    report.fact(
        "identity",
        &format!("{NAMESPACE}/{SERVICE_ACCOUNT}, projected to {token}"),
    );
    let (rotation, life) = (ROTATION.as_secs(), ACCESS_TTL.as_secs());
    report.fact(
        "lifetimes",
        &format!("token file rotates every {rotation} s, access tokens live {life} s"),
    );
    report.fact(
        "mount",
        &format!("{}  process {}", mount.display(), daemon.pid()),
    );
    report.heading(&format!("  $ {}", daemon.command_line()));
}

impl Scene {
    async fn set(dir: Option<&Path>) -> Result<Self, Failure> {
        let report = Report::default();
        report
            .heading("gcsmount demo: a bucket on this machine, reached with a pod's own identity");
        let scratch = tempfile::Builder::new()
            .prefix("gcsmount-demo-")
            .tempdir()
            .map_err(|error| other("making a temporary directory", &error))?;
        let mount =
            Stage::at(dir.map_or_else(|| scratch.path().join("bucket"), Path::to_path_buf))?;
        let emulator = Emulator::start(Config {
            buckets: vec![BUCKET.into()],
            access_token_ttl: ACCESS_TTL,
            ..Config::default()
        })
        .await
        .map_err(|error| other("starting the emulator", &error))?;
        let admin = emulator.admin().clone();
        let seed = Seed::plant(&admin).map_err(|error| other("filling the bucket", &error))?;
        let volume = ProjectedVolume::create(scratch.path().join("serviceaccount"), &mint(&admin))
            .map_err(|error| other("writing the projected token", &error))?;
        let token = volume.token_path();
        let (rotated, rotations) = watch::channel(0);
        let kubelet = tokio::spawn(rotate(admin.clone(), volume, rotated));
        let log = scratch.path().join("mount.log");
        let daemon = Daemon::start(&emulator.endpoint(), &token, BUCKET, &mount.dir, &log).await?;
        introduce(&emulator, &token, &mount.dir, &daemon);
        Ok(Self {
            admin,
            emulator: Some(emulator),
            kubelet,
            rotations,
            seed: Some(seed),
            daemon: Some(daemon),
            mount,
            scratch,
        })
    }

    /// Walks the tour, or the part of it that comes before the process is told to stop; the flag says which.
    async fn play(
        &mut self,
        soak: Duration,
        signals: &mut StopSignals,
    ) -> Result<(Report, bool), Failure> {
        let tour = Tour {
            root: Root::open(&self.mount.dir)
                .map_err(|error| other("opening the mount", &error))?,
            scratch: self.scratch.path().to_path_buf(),
            seed: self
                .seed
                .take()
                .ok_or_else(|| Failure::new(Exit::Other, "the tour is over"))?,
            soak,
            stop: Arc::default(),
        };
        let stop = tour.stop.clone();
        // Plain file calls block; the mount is served by another process, the emulator by this runtime's workers.
        let mut walk = tokio::task::spawn_blocking(move || {
            let mut report = Report::default();
            tour.walk(&mut report);
            report
        });
        let broke_off = |_| Failure::new(Exit::Demo, "the tour broke off");
        tokio::select! {
            report = &mut walk => Ok((report.map_err(broke_off)?, false)),
            () = signals.next() => {
                stop.store(true, Ordering::Relaxed);
                // The step under way ends by itself, or when the mount goes.
                let report = timeout(LAST_STEP, walk).await;
                Ok((report.map_or_else(|_| Ok(Report::default()), |r| r.map_err(broke_off))?, true))
            }
        }
    }

    async fn judge_identity(&mut self) -> Result<String, String> {
        // A short tour may end before the first rotation.
        let rotated = timeout(ROTATION * 2, self.rotations.wait_for(|n| *n > 0)).await;
        let rotations = rotated.ok().and_then(Result::ok).map_or(0, |n| *n);
        let counters = self.admin.counters();
        let facts = format!(
            "token rotated {rotations} times, {} exchanges, metadata server not asked",
            counters.exchanges
        );
        match (rotations, counters.exchanges, counters.metadata_calls) {
            (1.., 1.., 0) => Ok(facts),
            (_, _, asked) => Err(format!("{facts}, but {asked} times")),
        }
    }

    /// Ends everything that was started and checks that nothing is left.
    async fn clear(&mut self) -> Result<String, String> {
        self.kubelet.abort();
        let memory = self.daemon.as_ref().and_then(Daemon::peak_memory);
        if let Some(daemon) = self.daemon.take() {
            daemon.stop().await?;
        }
        if let Some(emulator) = self.emulator.take() {
            emulator.shutdown().await;
        }
        if daemon::is_mounted(&self.mount.dir) {
            return Err(format!("{} is still mounted", self.mount.dir.display()));
        }
        self.mount.is_bare()?;
        let memory = memory.map_or_else(String::new, |mib| format!("; it took {mib} MiB at most"));
        Ok(format!("no process, no mount, no file left{memory}"))
    }
}

/// What kubelet does: a fresh token well before the old one expires.
async fn rotate(admin: Admin, mut volume: ProjectedVolume, rotated: watch::Sender<u64>) {
    let mut ticks = tokio::time::interval(ROTATION);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        if volume.publish(&mint(&admin)).is_ok() {
            rotated.send_replace(volume.rotations());
        }
    }
}

fn mint(admin: &Admin) -> String {
    admin.mint_token(&MintRequest {
        namespace: NAMESPACE.into(),
        service_account: SERVICE_ACCOUNT.into(),
        ttl: SUBJECT_TTL,
        ..MintRequest::default()
    })
}
