//! The mount as a process of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::exit::{Exit, Failure};

/// How long the mount may take to stand, and to end.
const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(40);

/// A running `gcsmount mount`.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    pid: i32,
    command_line: String,
}

impl Daemon {
    /// Mounts and returns when the mount stands.
    ///
    /// # Errors
    /// What the mount process says.
    pub(super) async fn start(
        endpoint: &str,
        token: &Path,
        bucket: &str,
        dir: &Path,
        log: &Path,
    ) -> Result<Self, Failure> {
        let other = |error: std::io::Error| {
            Failure::new(Exit::Other, format!("starting the mount: {error}"))
        };
        let mut arguments: Vec<String> = ["mount", "--foreground", "--custom-endpoint", endpoint]
            .map(Into::into)
            .into();
        arguments.extend(["--sts-endpoint", endpoint, "--token-file"].map(Into::into));
        arguments.extend([
            token.display().to_string(),
            bucket.into(),
            dir.display().to_string(),
        ]);
        let command_line = format!("gcsmount {}", arguments.join(" "));
        let mut child = Command::new(std::env::current_exe().map_err(other)?)
            .args(&arguments)
            // Not for a person to type: if the demo is killed, the mount goes with it.
            .args(["--die-with-parent", "--mount-retry-timeout=0"])
            .env_remove("STORAGE_EMULATOR_HOST")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(log).map_err(other)?)
            // Ctrl-C is for the demo, which then stops the mount in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(other)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // Silence shows in the empty line.
            let _ = timeout(START, BufReader::new(output).read_line(&mut line)).await;
        }
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        match pid {
            Some(pid) if !line.is_empty() => Ok(Self {
                child,
                pid,
                command_line,
            }),
            _ => Err(Failure::new(
                Exit::Demo,
                format!("the mount did not come about: {}", last_line(log)),
            )),
        }
    }

    /// Process id.
    #[must_use]
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// The command as a person would type it.
    #[must_use]
    pub(super) fn command_line(&self) -> &str {
        &self.command_line
    }

    /// The most memory that the process has held so far, in MiB.
    #[must_use]
    pub(super) fn peak_memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib >> 10)
    }

    /// Tells the process to end and waits for it.
    ///
    /// # Errors
    /// What was wrong with its end.
    pub(super) async fn stop(mut self) -> Result<(), String> {
        let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
        match timeout(STOP, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("the mount ended with {status}")),
            Ok(Err(error)) => Err(format!("waiting for the mount: {error}")),
            Err(_) => {
                let _ = self.child.kill().await;
                Err(format!(
                    "the mount did not end within {} s of SIGTERM",
                    STOP.as_secs()
                ))
            }
        }
    }
}

/// Whether something is mounted at `dir`.
#[must_use]
pub(super) fn is_mounted(dir: &Path) -> bool {
    let wanted: PathBuf = dir.into();
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .any(|point| Path::new(point) == wanted)
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or("it said nothing").to_owned()
}
