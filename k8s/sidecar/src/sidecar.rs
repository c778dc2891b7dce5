//! All volumes of a pod.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use gcsmount_k8s_contract::layout::{Base, Volume};
use gcsmount_k8s_contract::options::Policy;
use gcsmount_k8s_contract::status::Code;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::ending::{self, Event};
use crate::intake;
use crate::mounter::Mounter;
use crate::once::Once;
use crate::report::Report;
use crate::retry::Backoff;
use crate::spent::{Identity, Spent};
use crate::tending::{End, Tending, lasting};

/// The most volumes that are tended at a time; kubelet allows far fewer a pod.
const MOST_VOLUMES: usize = 512;
/// What the process may take to end beyond what its volumes may.
const MARGIN: Duration = Duration::from_secs(2);

/// What a sidecar is told at its start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the volumes' directories are.
    pub base: Base,
    /// Whether it is an init container that restarts always.
    pub native: bool,
    /// What the options of a volume may say.
    pub policy: Policy,
    /// When a volume that failed is tried again.
    pub backoff: Backoff,
    /// How long to go on saving at the end.
    pub grace: Duration,
    /// How often to look for sockets, for the exit file, and whether a volume that waits is unmounted.
    pub look: Duration,
    /// The number (`st_rdev`) of the device that the driver's descriptors are of. 10:229 is taken besides.
    pub device: u64,
}

impl Config {
    /// The usual times.
    #[must_use]
    pub fn new(base: Base, native: bool) -> Self {
        Self {
            base,
            native,
            policy: Policy::default(),
            backoff: Backoff::default(),
            grace: Duration::from_secs(30),
            look: Duration::from_millis(100),
            device: intake::fuse_device(),
        }
    }
}

/// How it ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Volumes that were served.
    pub served: usize,
    /// A sentence for each file that could not be saved.
    pub unsaved: Vec<String>,
}

/// Tends the volumes of a pod until it ends. `signals` are SIGTERMs.
pub async fn run(
    config: Config,
    mounter: Arc<dyn Mounter>,
    mut signals: mpsc::Receiver<()>,
) -> Outcome {
    let (stop, stopped) = watch::channel(None);
    let config = Arc::new(config);
    let mut volumes = Volumes {
        tending: Tending {
            config: Arc::clone(&config),
            mounter,
            stop: stopped,
        },
        tasks: JoinSet::new(),
        known: Vec::new(),
        looking: None,
        spent: Spent::default(),
        said: Once::default(),
        outcome: Outcome::default(),
    };
    let mut look = interval(config.look);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut signalled = 0;
    let mut exit_said = Once::default();
    loop {
        let event = tokio::select! {
            _ = look.tick() => {
                volumes.look();
                ending::take_exit_file(&config.base.exit_file(), &mut exit_said).then_some(Event::ExitFile)
            }
            ended = volumes.changed() => {
                // Not before one was served: a pod whose volumes are all refused waits for better orders.
                let over = ended && volumes.tasks.is_empty() && volumes.outcome.served > 0;
                over.then_some(Event::AllUnmounted)
            }
            Some(()) = signals.recv() => {
                signalled += 1;
                Some(Event::Signal(signalled))
            }
        };
        match event {
            Some(event) if ending::ends(config.native, event) => {
                tracing::info!(?event, "ending");
                break;
            }
            Some(event) => tracing::info!(?event, native = config.native, "going on"),
            None => {}
        }
    }
    stop.send_replace(Some(config.grace));
    let ended = tokio::select! {
        ended = timeout(config.grace + MARGIN, volumes.all_ended()) => ended.is_ok(),
        Some(()) = signals.recv() => {
            tracing::warn!("told to end once more: giving up what cannot be saved at once");
            stop.send_replace(Some(Duration::ZERO));
            timeout(MARGIN, volumes.all_ended()).await.is_ok()
        }
    };
    if !ended {
        volumes.give_up();
    }
    volumes.outcome
}

/// A volume whose socket is there.
type Found = (Volume, Identity);

/// The volumes that are tended.
struct Volumes {
    tending: Tending,
    tasks: JoinSet<End>,
    known: Vec<(Id, Volume, Identity)>,
    /// What is being found out beside everything else: volumes whose socket is there.
    looking: Option<JoinHandle<io::Result<Vec<Found>>>>,
    spent: Spent,
    /// What was wrong with the directory of the volumes.
    said: Once,
    outcome: Outcome,
}

impl Volumes {
    /// Begins to look for volumes whose socket is there.
    fn look(&mut self) {
        if self.looking.is_some() {
            return;
        }
        let base = self.tending.config.base.clone();
        // The directory is a local one, but a runtime thread is not to wait for any.
        self.looking = Some(spawn_blocking(move || {
            let volumes = base.volumes()?.into_iter();
            Ok(volumes.filter_map(with_socket).collect())
        }));
    }

    /// Waits until it was found out what to tend, and begins to; or until a volume has ended. Whether it was that. Cancel
    /// safe.
    async fn changed(&mut self) -> bool {
        let looked = async {
            match &mut self.looking {
                Some(looking) => looking.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            found = looked => {
                self.looking = None;
                self.found(found.unwrap_or_else(|broken| Err(io::Error::other(broken))));
                false
            }
            Some(ended) = self.tasks.join_next_with_id() => {
                self.note(ended);
                true
            }
        }
    }

    fn found(&mut self, found: io::Result<Vec<Found>>) {
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                if self.said.is_new(&error.to_string()) {
                    let path = self.tending.config.base.0.display();
                    tracing::warn!(%path, %error, "looking for volumes");
                }
                return;
            }
        };
        self.said.over();
        let names: HashSet<&str> = found
            .iter()
            .map(|(volume, _)| volume.name.as_str())
            .collect();
        self.spent.keep(|name| names.contains(name));
        let now = Instant::now();
        for (volume, identity) in found {
            let busy = self
                .known
                .iter()
                .any(|(_, known, _)| known.name == volume.name);
            let room = self.known.len() < MOST_VOLUMES;
            if !busy && room && self.spent.may_dial(&volume.name, identity, now) {
                self.start(volume, identity);
            }
        }
    }

    fn start(&mut self, volume: Volume, identity: Identity) {
        let task = self.tending.clone().volume(volume.clone());
        let id = self.tasks.spawn(task).id();
        self.known.push((id, volume, identity));
    }

    /// Waits until no volume is tended any more. Cancel safe.
    async fn all_ended(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.note(ended);
        }
    }

    /// Notes the volumes that do not end in time. They are being served: nothing else goes on after being told to end.
    fn give_up(&mut self) {
        for (_, volume, _) in &self.known {
            let sentence = format!(
                "volume {} did not end in time; what is unsaved there is lost",
                volume.name
            );
            tracing::error!("{sentence}");
            self.outcome.served += 1;
            self.outcome.unsaved.push(sentence);
        }
    }

    /// Notes how a volume came to its end.
    fn note(&mut self, ended: Result<(Id, End), JoinError>) {
        let id = ended.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(index) = self.known.iter().position(|(known, ..)| *known == id) else {
            return;
        };
        let (_, volume, identity) = self.known.swap_remove(index);
        let backoff = self.tending.config.backoff;
        let first = self
            .spent
            .dialed(&volume.name, identity, Instant::now(), |before| {
                backoff.pause(before, rand::random())
            });
        let sentence = match ended {
            Ok((_, End::Served(unsaved))) => {
                self.outcome.served += 1;
                self.outcome.unsaved.extend(unsaved);
                return;
            }
            Ok((_, End::Never)) => return,
            Ok((_, End::NotTaken(_))) if !first => return,
            Ok((_, End::NotTaken(sentence))) => sentence,
            Err(error) => {
                // Its descriptor went with it, so nobody waits at its mount point; the others do not notice.
                tracing::error!(volume = volume.name, %error, "a volume broke off");
                "the volume broke off by a fault of gcsmount; its log has more".into()
            }
        };
        let fault = lasting(Code::Internal, sentence);
        tracing::error!(volume = volume.name, "{fault}");
        Report::of(&volume).fault(&fault);
    }
}

/// The volume, if there is anything at the place of its socket.
fn with_socket(volume: Volume) -> Option<Found> {
    let found = std::fs::symlink_metadata(volume.socket()).ok()?;
    Some((volume, Identity::of(&found)))
}
