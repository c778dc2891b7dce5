//! `gcsmount sidecar`: the volumes of a pod, over one pool of connections, one memory and one broker an identity.
//!
//! Which volumes there are, and when they begin and end, is `gcsmount-sidecar`'s; here is what a volume is made of.

mod options;
mod stock;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use gcsmount_fuse::session::{self, MountOptions, MountPoint, Mounted};
use gcsmount_k8s_contract::kernel_params::{Name, Parameter};
use gcsmount_k8s_contract::layout::{BUFFER_PATH, BUFFER_VOLUME, Base, NATIVE_SIDECAR_ENV, Volume};
use gcsmount_k8s_contract::options::Policy;
use gcsmount_k8s_contract::status::Code;
use gcsmount_sidecar::{Config, Fault, Mounter, Order, Prepared, Session};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cli::{Origin, Settings};
use crate::config::MountConfig;
use crate::exit::{Exit, Failure};
use crate::lifecycle::StopSignals;
use crate::metrics::{Meter, Sources};
use crate::wire::{self, Access, ForThreads, Shared};
use crate::{lifecycle, memory, mount, telemetry};

/// How often the files that are still open are counted, while the end is waited for.
const COUNT: Duration = Duration::from_millis(50);

/// Serves the volumes of the pod until it ends.
///
/// # Errors
/// [`Exit::Usage`]; [`Exit::Unsaved`] where data was left at the end.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    telemetry::start(
        settings.text("log-severity").unwrap_or("info"),
        settings.path("log-file"),
    )?;
    if let Some(stray) = settings.arguments.first() {
        return Err(Failure::new(
            Exit::Usage,
            format!(
                "{stray:?} is no flag: gcsmount sidecar [flags]; its volumes come from the node driver"
            ),
        ));
    }
    // What is wrong with the operator's own settings is wrong with every volume: said here, and once.
    MountConfig::for_volume(settings, "any-bucket")?;
    let config = config(settings);
    let runtime = lifecycle::runtime()?;
    let outcome = runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let (heard, signal) = mpsc::channel(2);
        tokio::spawn(async move {
            loop {
                signals.next().await;
                if heard.send(()).await.is_err() {
                    return;
                }
            }
        });
        let mounter: Arc<dyn Mounter> = match settings.path("gcsfuse-path") {
            None => Arc::new(Volumes::new(settings.clone())),
            Some(program) => Arc::new(stock::Gcsfuses::new(program, settings.clone(), &config)?),
        };
        Ok(gcsmount_sidecar::run(config, mounter, signal).await)
    });
    runtime.shutdown_timeout(Duration::from_millis(500));
    match outcome?.unsaved.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(Failure::new(Exit::Unsaved, first.clone())),
    }
}

fn config(settings: &Settings) -> Config {
    let base = settings.path("volume-base-path").map(Into::into);
    let native =
        std::env::var(NATIVE_SIDECAR_ENV).is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    Config {
        policy: Policy {
            // Who sends tokens without TLS on purpose, as in a test, may have volumes do so; nobody else does.
            allow_endpoints: settings.switch("anonymous-access")
                || settings
                    .text("custom-endpoint")
                    .is_some_and(|endpoint| !endpoint.starts_with("https://")),
        },
        grace: settings.duration("shutdown-timeout"),
        ..Config::new(base.map_or_else(Base::default, Base), native)
    }
}

/// Makes volumes.
#[derive(Debug)]
struct Volumes {
    /// The operator's.
    settings: Settings,
    shared: Shared,
    /// Identities that were used of late. A volume that is not served yet holds on to nothing between two attempts, and what
    /// its broker has learned of the token service, such as when to ask again, must not be lost with it.
    lately: Mutex<Vec<(Instant, Access)>>,
}

/// How long an identity counts as used: longer than the longest pause between two attempts, and an attempt.
const LATELY: Duration = Duration::from_secs(120);

impl Volumes {
    fn new(settings: Settings) -> Self {
        let memory = memory::for_files(&settings);
        tracing::info!(mebibytes = memory >> 20, "memory for file data");
        Self {
            shared: Shared::new(memory),
            settings,
            lately: Mutex::default(),
        }
    }

    fn keep(&self, access: &Access) {
        let now = Instant::now();
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        lately.retain(|(used, other)| {
            now.duration_since(*used) < LATELY && other.identity != access.identity
        });
        lately.push((now, access.clone()));
    }

    async fn ready(&self, order: &Order) -> Result<Ready, Failure> {
        if order.bucket == "_" {
            return Err(Failure::new(
                Exit::Usage,
                "bucket _: every bucket at once cannot be mounted; name one",
            ));
        }
        let settings = options::apply(&self.settings, &order.options)?;
        let mut config = MountConfig::for_volume(&settings, &order.bucket)?;
        let is_default = settings.origin("temp-dir") == Origin::Default;
        if is_default {
            config.temp_dir = buffer(&order.volume)?;
        }
        mount::check_temp_dir(&config.temp_dir).map_err(|failure| match is_default {
            // Nobody has named it: it is a fault of the pod, which may pass.
            true => Failure::new(Exit::Other, failure.sentence.replacen("--temp-dir ", "", 1)),
            false => failure,
        })?;
        tracing::info!(volume = order.volume.name, bucket = %config.bucket, identity = %config.identity, "identity chosen");
        config.limited_to()?;
        let access = self.shared.access(&config.identity)?;
        self.keep(&access);
        let meter = Arc::new(Meter::new());
        let stores = wire::stores(&config, &access, &self.shared, Some(&meter))?;
        let reached = mount::attempt(&config, &access, &*stores.probe).await;
        reached.map_err(|(failure, _)| failure)?;
        let fs = wire::file_system(
            &config,
            stores.store,
            &self.shared,
            Some(&meter),
            Handle::current(),
        );
        let sources = self.shared.sources(&fs, &access);
        let threads = self.shared.for_threads(MountOptions::default().threads);
        Ok(Ready {
            meter,
            sources,
            threads,
        })
    }
}

/// The volume's part of the pod's buffer volume, where the contract has it.
fn buffer(volume: &Volume) -> Result<PathBuf, Failure> {
    let dir = volume.temp_dir();
    if let Some(link) = link_below(Path::new(BUFFER_PATH), &dir) {
        let sentence = format!(
            "{} is a symbolic link, and what is staged must not leave the volume {BUFFER_VOLUME}: remove it",
            link.display()
        );
        return Err(Failure::new(Exit::Other, sentence));
    }
    std::fs::create_dir_all(&dir).map_err(|error| {
        let sentence = format!(
            "{} cannot be made to stage files in: {error}; mount the pod's volume {BUFFER_VOLUME} at {BUFFER_PATH}, or give --temp-dir",
            dir.display()
        );
        Failure::new(Exit::Other, sentence)
    })?;
    Ok(dir)
}

/// The symbolic link nearest to `dir` on the way to it from `base`.
fn link_below<'a>(base: &Path, dir: &'a Path) -> Option<&'a Path> {
    dir.ancestors()
        .take_while(|above| above.starts_with(base) && *above != base)
        .find(|above| above.is_symlink())
}

#[async_trait]
impl Mounter for Volumes {
    async fn prepare(&self, order: &Order) -> Result<Box<dyn Prepared>, Fault> {
        match self.ready(order).await {
            Ok(ready) => Ok(Box::new(ready)),
            Err(failure) => Err(fault(failure)),
        }
    }
}

/// What the driver is to make of a failure. All but a wrong option may pass: somebody creates the bucket, or grants.
fn fault(failure: Failure) -> Fault {
    let code = match failure.exit {
        Exit::Usage => Code::InvalidArgument,
        Exit::NoBucket => Code::NotFound,
        Exit::NoToken | Exit::Refused => Code::Unauthenticated,
        Exit::Denied => Code::PermissionDenied,
        Exit::Unreachable => Code::Unavailable,
        Exit::Other | Exit::MountPoint | Exit::NoFuse | Exit::Unsaved | Exit::Demo => {
            Code::Internal
        }
    };
    Fault {
        code,
        lasting: failure.exit == Exit::Usage,
        sentence: failure.sentence,
    }
}

/// A volume whose bucket has answered. Its store holds on to the broker of its identity.
struct Ready {
    meter: Arc<Meter>,
    sources: Sources,
    threads: Option<ForThreads>,
}

impl Prepared for Ready {
    fn serve(self: Box<Self>, fuse: OwnedFd) -> Result<Box<dyn Session>, Fault> {
        let options = MountOptions::default();
        let fs = &self.sources.fs;
        let mounted = session::mount(Arc::clone(fs), MountPoint::Fd(fuse), &options);
        let mounted =
            mounted.map_err(|error| fault(Failure::new(Exit::Other, error.to_string())))?;
        Ok(Box::new(Served {
            mounted,
            _recovery: wire::recover(fs),
            _threads: self.threads,
            meter: self.meter,
            sources: self.sources,
        }))
    }
}

/// A volume that is served.
struct Served {
    mounted: Mounted,
    _recovery: JoinSet<()>,
    _threads: Option<ForThreads>,
    meter: Arc<Meter>,
    sources: Sources,
}

#[async_trait]
impl Session for Served {
    async fn ended(&self) {
        self.mounted.wait().await;
    }

    async fn drain(&self, limit: Duration) -> Vec<String> {
        let fs = &self.sources.fs;
        let end = Instant::now() + limit;
        // Whoever has a file open may still write to it.
        while fs.open_handles() > 0 && !self.mounted.has_ended() && Instant::now() < end {
            tokio::time::sleep(COUNT).await;
        }
        let open = fs.open_handles();
        if open > 0 && !self.mounted.has_ended() {
            tracing::error!(
                open,
                "files are still open at the end; what is written to them from now on is lost"
            );
        }
        let left = end.saturating_duration_since(Instant::now()).max(LAST);
        let unsaved = fs.drain(left).await;
        let sentences = unsaved
            .iter()
            .map(|file| format!("{} could not be saved: {}", file.path, file.error));
        sentences.collect()
    }

    fn kernel_params(&self) -> Vec<Parameter> {
        let wanted = Parameter::new(Name::MaxReadAheadKb, READ_AHEAD_KIB);
        wanted.into_iter().collect()
    }

    fn metrics(&self) -> Option<String> {
        Some(self.meter.exposition(&self.sources))
    }
}

/// The kernel's own reading ahead, for which a sidecar has no right: as much as one request carries, so that a reader of small
/// pieces costs few requests. What is further ahead is fetched by us.
const READ_AHEAD_KIB: u32 = 1024;

/// What saving gets even where waiting has used up the time.
const LAST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Invocation, parse};
    use crate::params::Role;

    #[test]
    fn a_link_out_of_the_buffer_is_seen_wherever_it_is() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().join("buffer");
        let dir = base.join(".volumes/v/temp-dir");
        std::fs::create_dir_all(base.join(".volumes")).unwrap();
        assert_eq!(link_below(&base, &dir), None, "it is yet to be made");
        let link = base.join(".volumes/v");
        std::os::unix::fs::symlink(scratch.path(), &link).unwrap();
        assert_eq!(link_below(&base, &dir), Some(link.as_path()));
        assert_eq!(link_below(&link, &dir), None, "what is above is not ours");
    }

    #[test]
    fn only_an_operator_without_tls_lets_volumes_go_without() {
        for (flags, allowed) in [
            (&[][..], false),
            (&["--custom-endpoint", "https://private.example"], false),
            (&["--custom-endpoint", "http://127.0.0.1:9000"], true),
            (&["--custom-endpoint", "127.0.0.1:9000"], true),
            (&["--anonymous-access"], true),
        ] {
            let words = ["gcsmount", "sidecar"].iter().chain(flags);
            let settings = match parse(words.map(Into::into), |_| None).unwrap() {
                Invocation::Run(Role::Sidecar, settings) => settings,
                other => panic!("{other:?}"),
            };
            assert_eq!(
                config(&settings).policy.allow_endpoints,
                allowed,
                "{flags:?}"
            );
        }
    }
}
