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
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::ending::{self, Event};
use crate::mounter::{Fault, Mounter};
use crate::report::Report;
use crate::retry::Backoff;
use crate::tending::{End, Tending};

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
    /// How often to look for sockets and for the exit file.
    pub look: Duration,
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
        outcome: Outcome::default(),
    };
    let mut look = interval(config.look);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut signalled = 0;
    loop {
        let event = tokio::select! {
            _ = look.tick() => {
                volumes.look();
                ending::take_exit_file(&config.base.exit_file()).then_some(Event::ExitFile)
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

/// The volumes that are tended.
struct Volumes {
    tending: Tending,
    tasks: JoinSet<End>,
    known: Vec<(Id, Volume)>,
    /// What is being found out beside everything else: volumes whose socket is there.
    looking: Option<JoinHandle<io::Result<Vec<Volume>>>>,
    outcome: Outcome,
}

impl Volumes {
    /// Begins to look for volumes whose socket is there and that are not tended yet.
    fn look(&mut self) {
        if self.looking.is_some() {
            return;
        }
        let base = self.tending.config.base.clone();
        let busy: HashSet<String> = self.known.iter().map(|(_, v)| v.name.clone()).collect();
        let room = MOST_VOLUMES.saturating_sub(busy.len());
        // The directory is a local one, but a runtime thread is not to wait for any.
        self.looking = Some(spawn_blocking(move || {
            let volumes = base.volumes()?.into_iter();
            let waiting = volumes.filter(|v| !busy.contains(&v.name) && v.socket().exists());
            Ok(waiting.take(room).collect())
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

    fn found(&mut self, found: io::Result<Vec<Volume>>) {
        match found {
            Ok(found) => found.into_iter().for_each(|volume| self.start(volume)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "looking for volumes"),
        }
    }

    fn start(&mut self, volume: Volume) {
        let task = self.tending.clone().volume(volume.clone());
        let id = self.tasks.spawn(task).id();
        self.known.push((id, volume));
    }

    /// Waits until no volume is tended any more. Cancel safe.
    async fn all_ended(&mut self) {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.note(ended);
        }
    }

    /// Notes the volumes that do not end in time. They are being served: nothing else goes on after being told to end.
    fn give_up(&mut self) {
        for (_, volume) in &self.known {
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
        let index = self.known.iter().position(|(known, _)| *known == id);
        let volume = index.map(|index| self.known.swap_remove(index).1);
        match (ended, volume) {
            (Ok((_, End::Served(unsaved))), _) => {
                self.outcome.served += 1;
                self.outcome.unsaved.extend(unsaved);
            }
            (Err(error), Some(volume)) => {
                // Its descriptor went with it, so nobody waits at its mount point; the others do not notice.
                tracing::error!(volume = volume.name, %error, "a volume broke off");
                Report::of(&volume).fault(&Fault {
                    code: Code::Internal,
                    sentence: "the volume broke off by a fault of gcsmount; its log has more"
                        .into(),
                    lasting: true,
                });
            }
            (Ok((_, End::Never)), _) | (Err(_), None) => {}
        }
    }
}
