//! A stock gcsfuse on the descriptor of each volume, with our broker at its token socket: for those who want the identity
//! of a pod on the host's network first, and the file system later.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use command_fds::{CommandFdExt, FdMapping};
use gcsmount_auth::{Routes, SocketConfig, TokenSocket};
use gcsmount_k8s_contract::defaulting::Defaulting;
use gcsmount_k8s_contract::gcsfuse::{self, FUSE_FD, Launch, Start};
use gcsmount_k8s_contract::layout::{Base, Volume};
use gcsmount_sidecar::{Config, Fault, Mounter, Order, Prepared, Session};
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{fault, options};
use crate::cli::Settings;
use crate::config::MountConfig;
use crate::exit::{Exit, Failure};
use crate::identity::Source;
use crate::memory;
use crate::wire::{Access, Shared};

/// The most that an error file takes of what gcsfuse says: the driver reads it whole, again and again.
const MOST_SAID: u64 = 64 << 10;
/// How long the probe of `numactl` may take.
const PROBE: Duration = Duration::from_secs(5);

/// Starts gcsfuses.
#[derive(Debug)]
pub(super) struct Gcsfuses {
    program: PathBuf,
    settings: Settings,
    base: Base,
    shared: Shared,
}

impl Gcsfuses {
    /// Of the program at `program`.
    ///
    /// # Errors
    /// [`Exit::Usage`] where there is none.
    pub(super) fn new(
        program: &Path,
        settings: Settings,
        config: &Config,
    ) -> Result<Self, Failure> {
        if !program.is_file() {
            let sentence = format!(
                "--gcsfuse-path {} is not a file: name the program",
                program.display()
            );
            return Err(Failure::new(Exit::Usage, sentence));
        }
        Ok(Self {
            program: program.into(),
            settings,
            base: config.base.clone(),
            // The file data is gcsfuse's.
            shared: Shared::new(0),
        })
    }

    async fn ready(&self, order: &Order) -> Result<Ready, Failure> {
        let (settings, theirs) = options::identity_of(&self.settings, &order.options)?;
        // `_` is gcsfuse's to understand; for the identity any bucket will do.
        let identity = MountConfig::for_volume(&settings, "any-bucket")?.identity;
        tracing::info!(volume = order.volume.name, %identity, "identity chosen");
        let access = self.shared.access(&identity)?;
        // GKE's metadata server is asked by gcsfuse itself, once it is known to speak for the pod.
        let token_socket = !matches!(identity.source, Source::Metadata { .. } | Source::Anonymous);
        let socket = self.tokens(&order.volume, &access, token_socket).await?;
        let defaulting = Defaulting::read(&self.base).unwrap_or_else(|error| {
            tracing::warn!(%error, "what the driver knows of the machine cannot be read");
            Defaulting::default()
        });
        let launch = gcsfuse::launch(Start {
            volume: &order.volume,
            bucket: &order.bucket,
            options: &theirs,
            defaulting: &defaulting,
            // It would listen on every address of the node.
            prometheus_port: 0,
            token_socket,
        })
        .map_err(|mistake| Failure::new(Exit::Usage, mistake.to_string()))?;
        lay_out(&order.volume, &launch)?;
        let numactl = launch.numa_node.is_some() && numactl_works().await;
        Ok(Ready {
            command: launch.command(&self.program, numactl),
            gomemlimit: memory::available()
                .filter(|memory| memory.limited)
                .and_then(|memory| launch.gomemlimit(memory.bytes)),
            volume: order.volume.clone(),
            socket,
            access,
        })
    }

    /// Waits for the first token, and serves the tokens where gcsfuse looks for them, if it does.
    async fn tokens(
        &self,
        volume: &Volume,
        access: &Access,
        serve: bool,
    ) -> Result<Option<TokenSocket>, Failure> {
        let Some(broker) = access.broker.clone() else {
            return Ok(None);
        };
        let token = broker.token().await;
        token.map_err(|error| access.explain(&error))?;
        if !serve {
            return Ok(None);
        }
        let config = SocketConfig::new(volume.token_socket(), Routes::Any(broker));
        let socket = TokenSocket::bind(config).await;
        socket
            .map(Some)
            .map_err(|error| Failure::new(Exit::Other, format!("the token socket: {error}")))
    }
}

#[async_trait]
impl Mounter for Gcsfuses {
    async fn prepare(&self, order: &Order) -> Result<Box<dyn Prepared>, Fault> {
        match self.ready(order).await {
            Ok(ready) => Ok(Box::new(ready)),
            Err(failure) => Err(fault(failure)),
        }
    }
}

/// Writes the configuration and makes the directory for staged files.
fn lay_out(volume: &Volume, launch: &Launch) -> Result<(), Failure> {
    let failed = |what: &Path, error: io::Error| {
        Failure::new(
            Exit::Other,
            format!("{} cannot be made: {error}", what.display()),
        )
    };
    let (config, temp) = (volume.config(), volume.temp_dir());
    std::fs::create_dir_all(&temp).map_err(|error| failed(&temp, error))?;
    match std::fs::remove_file(&config) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed(&config, error));
        }
        _ => {}
    }
    // Other containers may write to the directory: a link is not followed, and the file is nobody's to change.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o400)
        .open(&config);
    file.and_then(|mut file| file.write_all(launch.config.as_bytes()))
        .map_err(|error| failed(&config, error))
}

/// Whether processes can be bound to a NUMA node here, which takes the program and the right to it.
async fn numactl_works() -> bool {
    let mut probe = Command::new("numactl");
    probe
        .args(["--cpunodebind=0", "--membind=0", "true"])
        .kill_on_drop(true);
    let works = timeout(PROBE, probe.status()).await;
    matches!(works, Ok(Ok(status)) if status.success())
}

/// A gcsfuse that can be started.
struct Ready {
    command: Vec<std::ffi::OsString>,
    gomemlimit: Option<u64>,
    volume: Volume,
    socket: Option<TokenSocket>,
    access: Access,
}

impl Prepared for Ready {
    fn serve(self: Box<Self>, fuse: OwnedFd) -> Result<Box<dyn Session>, Fault> {
        let failed = |why: String| {
            fault(Failure::new(
                Exit::Other,
                format!("gcsfuse cannot be started: {why}"),
            ))
        };
        let [program, args @ ..] = self.command.as_slice() else {
            return Err(failed("there is no command".into()));
        };
        let mut command = std::process::Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(limit) = self.gomemlimit {
            command.env("GOMEMLIMIT", limit.to_string());
        }
        let passed = FdMapping {
            parent_fd: fuse,
            child_fd: FUSE_FD,
        };
        command
            .fd_mappings(vec![passed])
            .map_err(|error| failed(error.to_string()))?;
        let mut command = Command::from(command);
        let child = command
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        // The mapping holds a descriptor too. Whoever forgets one lets the workload wait for ever once gcsfuse is gone.
        drop(command);
        let (stop, stopped) = watch::channel(None);
        let (ended, _) = watch::channel(false);
        tokio::spawn(tend(child, self.volume, stopped, ended.clone()));
        Ok(Box::new(Running {
            stop,
            ended,
            _socket: self.socket,
            _access: self.access,
        }))
    }
}

/// A gcsfuse that runs. It has its tokens as long as it does.
struct Running {
    stop: watch::Sender<Option<Duration>>,
    ended: watch::Sender<bool>,
    _socket: Option<TokenSocket>,
    _access: Access,
}

#[async_trait]
impl Session for Running {
    async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as `self`.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    async fn drain(&self, limit: Duration) -> Vec<String> {
        self.stop.send_replace(Some(limit));
        self.ended().await;
        // What gcsfuse could not save, it has said itself.
        Vec::new()
    }
}

/// Waits for the end of a gcsfuse, or brings it about: asked first, and killed when its time is over.
async fn tend(
    mut child: Child,
    volume: Volume,
    mut stop: watch::Receiver<Option<Duration>>,
    ended: watch::Sender<bool>,
) {
    let said = child
        .stderr
        .take()
        .map(|said| tokio::spawn(pass_on(said, volume.clone())));
    let limit = tokio::select! {
        status = child.wait() => {
            note(&volume, status);
            None
        }
        // A session that is dropped has nobody who waits.
        limit = stop.wait_for(Option::is_some) => limit.ok().and_then(|limit| *limit).or(Some(Duration::ZERO)),
    };
    if let Some(limit) = limit {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        match timeout(limit, child.wait()).await {
            Ok(status) => note(&volume, status),
            Err(_) => {
                tracing::error!(
                    volume = volume.name,
                    ?limit,
                    "gcsfuse does not end when it is asked, and is killed"
                );
                let _ = child.kill().await;
            }
        }
    }
    if let Some(said) = said {
        let _ = said.await;
    }
    ended.send_replace(true);
}

fn note(volume: &Volume, status: io::Result<ExitStatus>) {
    match status {
        Ok(status) if status.success() => tracing::info!(volume = volume.name, "gcsfuse has ended"),
        Ok(status) => {
            tracing::error!(volume = volume.name, %status, "gcsfuse has failed");
            let sentence = format!("gcsfuse exited with error: {}\n", in_words(status));
            if let Err(error) = append(&volume.error(), sentence.as_bytes()) {
                tracing::error!(volume = volume.name, %error, "the driver cannot be told");
            }
        }
        Err(error) => {
            tracing::error!(volume = volume.name, %error, "the end of gcsfuse is not known");
        }
    }
}

/// An end in the words of Go, by which the driver tells an end for want of memory from one that was asked for.
fn in_words(status: ExitStatus) -> String {
    match status.signal() {
        Some(nix::libc::SIGKILL) => "signal: killed".into(),
        Some(nix::libc::SIGTERM) => "signal: terminated".into(),
        Some(_) | None => status.to_string(),
    }
}

/// Copies what gcsfuse says of errors to the container's log and to the file that the driver reads.
async fn pass_on(mut said: ChildStderr, volume: Volume) {
    let mut piece = vec![0; 4096];
    loop {
        let length = match said.read(&mut piece).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        let _ = io::stderr().write_all(&piece[..length]);
        if let Err(error) = append(&volume.error(), &piece[..length]) {
            tracing::debug!(volume = volume.name, %error, "the driver cannot be told");
        }
    }
}

/// Adds to the error file, up to its bound.
fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o644)
        .custom_flags(flags)
        .open(path)?;
    if file.metadata()?.len() >= MOST_SAID {
        return Ok(());
    }
    file.write_all(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_knows_an_end_by_gos_words() {
        for (raw, words) in [
            (9, "signal: killed"),
            (15, "signal: terminated"),
            (1 << 8, "exit status: 1"),
        ] {
            assert_eq!(in_words(ExitStatus::from_raw(raw)), words);
        }
    }
}
