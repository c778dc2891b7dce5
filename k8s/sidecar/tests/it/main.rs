//! A pod's volumes with a driver and a mounter that are played here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod odd;
mod silent;
mod telling;

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gcsmount_k8s_contract::handoff::{Form, MountMessage, send};
use gcsmount_k8s_contract::kernel_params::{Name, Parameter};
use gcsmount_k8s_contract::layout::{Base, Volume};
use gcsmount_k8s_contract::status::{Code, code_of};
use gcsmount_sidecar::{Backoff, Config, Fault, Mounter, Order, Outcome, Prepared, Session, run};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);

/// What becomes of a bucket here.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It fails so often, and is served then.
    ServedAfter(usize),
    Refused,
    /// It fails so often, and brings its task down then.
    PanicsAfter(usize),
    /// It is served, and saving takes so long.
    Unsaved(Duration),
    /// It is served, unmounted at once, and something is left.
    UnmountedUnsaved,
    /// It is served, and saving never ends whatever the limit.
    Deaf,
    /// Serving waits for ever for the kernel's first request.
    NoKernel,
}

#[derive(Debug, Default)]
struct Played {
    fates: HashMap<&'static str, Fate>,
    /// Kept open so that whoever waits there goes on waiting.
    silent: Mutex<Vec<std::sync::mpsc::Sender<()>>>,
    attempts: Mutex<HashMap<String, usize>>,
    served: Arc<AtomicUsize>,
    /// How often a session was asked for metrics or wishes.
    asked: Arc<AtomicUsize>,
    /// The machine of the last order.
    machine: Mutex<Option<String>>,
}

impl Played {
    fn attempts(&self, bucket: &str) -> usize {
        self.attempts
            .lock()
            .unwrap()
            .get(bucket)
            .copied()
            .unwrap_or(0)
    }
}

fn fault(lasting: bool) -> Fault {
    Fault {
        code: if lasting {
            Code::InvalidArgument
        } else {
            Code::PermissionDenied
        },
        sentence: "as it was told to".into(),
        lasting,
    }
}

#[async_trait]
impl Mounter for Played {
    async fn prepare(&self, order: &Order) -> Result<Box<dyn Prepared>, Fault> {
        *self.machine.lock().unwrap() = order.defaulting.machine_type.clone();
        let attempts = {
            let mut attempts = self.attempts.lock().unwrap();
            let attempts = attempts.entry(order.bucket.clone()).or_default();
            *attempts += 1;
            *attempts
        };
        let saving = match self.fates[order.bucket.as_str()] {
            Fate::PanicsAfter(failures) if attempts > failures => panic!("as it was told to"),
            Fate::Refused => return Err(fault(true)),
            Fate::ServedAfter(failures) if attempts <= failures => return Err(fault(false)),
            Fate::PanicsAfter(_) => return Err(fault(false)),
            Fate::ServedAfter(_) | Fate::NoKernel => None,
            Fate::Unsaved(time) => Some(time),
            Fate::UnmountedUnsaved => Some(Duration::ZERO),
            Fate::Deaf => Some(Duration::MAX),
        };
        let unmounted = matches!(self.fates[order.bucket.as_str()], Fate::UnmountedUnsaved);
        let silent = matches!(self.fates[order.bucket.as_str()], Fate::NoKernel);
        let deaf = silent.then(|| {
            let (silent, deaf) = std::sync::mpsc::channel();
            self.silent.lock().unwrap().push(silent);
            deaf
        });
        Ok(Box::new(Ready {
            deaf,
            saving,
            unmounted,
            served: Arc::clone(&self.served),
            asked: Arc::clone(&self.asked),
        }))
    }
}

struct Ready {
    /// Nobody sends there, as no kernel sends INIT.
    deaf: Option<std::sync::mpsc::Receiver<()>>,
    saving: Option<Duration>,
    unmounted: bool,
    served: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Prepared for Ready {
    fn serve(self: Box<Self>, fuse: OwnedFd) -> Result<Box<dyn Session>, Fault> {
        if let Some(never) = self.deaf {
            let _ = never.recv();
        }
        Ok(Box::new(Served {
            served: self.served,
            saving: self.saving,
            unmounted: self.unmounted,
            never: watch::channel(()).0,
            asked: self.asked,
            _fuse: fuse,
        }))
    }
}

struct Served {
    served: Arc<AtomicUsize>,
    saving: Option<Duration>,
    unmounted: bool,
    never: watch::Sender<()>,
    asked: Arc<AtomicUsize>,
    _fuse: OwnedFd,
}

#[async_trait]
impl Session for Served {
    async fn ended(&self) {
        self.served.fetch_add(1, Ordering::SeqCst);
        if !self.unmounted {
            let _ = self.never.subscribe().changed().await;
        }
    }

    async fn drain(&self, limit: Duration) -> Vec<String> {
        let Some(saving) = self.saving else {
            return Vec::new();
        };
        if saving == Duration::MAX {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(saving.min(limit)).await;
        vec!["a file could not be saved".into()]
    }

    fn kernel_params(&self) -> Vec<Parameter> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        vec![Parameter::new(Name::MaxReadAheadKb, 1024).unwrap()]
    }

    fn metrics(&self) -> Option<String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Some("fs_ops_count 7\n".into())
    }
}

/// A sidecar over a directory of its own.
struct Scene {
    _dir: TempDir,
    base: Base,
    mounter: Arc<Played>,
    signals: mpsc::Sender<()>,
    running: JoinHandle<Outcome>,
}

impl Scene {
    fn new(fates: &[(&'static str, Fate)], grace: Duration) -> Self {
        Self::of_kind(fates, grace, true)
    }

    fn of_kind(fates: &[(&'static str, Fate)], grace: Duration, native: bool) -> Self {
        Self::pausing(fates, grace, native, Duration::from_millis(10))
    }

    /// One that tries again after pauses that begin with `first`.
    fn pausing(
        fates: &[(&'static str, Fate)],
        grace: Duration,
        native: bool,
        first: Duration,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base = Base(dir.path().join(".volumes"));
        fs::create_dir(&base.0).unwrap();
        let mounter = Arc::new(Played {
            fates: fates.iter().copied().collect(),
            ..Played::default()
        });
        let (signals, heard) = mpsc::channel(2);
        let config = Config {
            backoff: Backoff {
                first,
                longest: first * 4,
            },
            look: Duration::from_millis(10),
            grace,
            device: fs::metadata("/dev/null").unwrap().rdev(),
            ..Config::new(base.clone(), native)
        };
        let running = tokio::spawn(run(config, Arc::clone(&mounter) as _, heard));
        Self {
            _dir: dir,
            base,
            mounter,
            signals,
            running,
        }
    }

    /// Offers a volume of the bucket's name. What stands for the descriptor is no FUSE device, which nobody here asks for.
    fn offer(&self, bucket: &str, options: &[&str]) -> Volume {
        self.offer_with(bucket, options, "/dev/null")
    }

    fn offer_with(&self, bucket: &str, options: &[&str], device: &'static str) -> Volume {
        let volume = self.base.volume(bucket);
        fs::create_dir_all(&volume.dir).unwrap();
        let listener = UnixListener::bind(volume.socket()).unwrap();
        let message = MountMessage {
            volume_name: None,
            bucket_name: bucket.into(),
            options: options.iter().map(|&option| option.into()).collect(),
        };
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let fuse = File::open(device).unwrap();
            send(stream.as_fd(), &message, fuse.as_fd(), Form::Stock).unwrap();
        });
        volume
    }

    fn served(&self) -> usize {
        self.mounter.served.load(Ordering::SeqCst)
    }

    async fn end(self) -> Outcome {
        self.signals.send(()).await.unwrap();
        timeout(LIMIT, self.running)
            .await
            .expect("it ends")
            .unwrap()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

fn said(volume: &Volume) -> Option<String> {
    fs::read_to_string(volume.error()).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_panics_harms_no_other() {
    let fates = [
        ("bad", Fate::PanicsAfter(0)),
        ("good", Fate::ServedAfter(0)),
        ("later", Fate::ServedAfter(0)),
    ];
    let scene = Scene::new(&fates, LIMIT);
    let bad = scene.offer("bad", &[]);
    let good = scene.offer("good", &[]);
    until("the good one is served", || scene.served() == 1).await;
    until("the bad one is told of", || {
        said(&bad).is_some_and(|text| text.contains("broke off"))
    })
    .await;
    assert_eq!(said(&good), None);
    scene.offer("later", &[]);
    until("the process goes on", || scene.served() == 2).await;
    let outcome = scene.end().await;
    assert_eq!((outcome.served, outcome.unsaved.len()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_pass_is_tried_until_it_does_and_what_may_not_once() {
    let fates = [("late", Fate::ServedAfter(9)), ("wrong", Fate::Refused)];
    let scene = Scene::new(&fates, LIMIT);
    let wrong = scene.offer("wrong", &[]);
    let late = scene.offer("late", &[]);
    until("it says why it is late", || {
        said(&late).is_some_and(|text| code_of(&text) == Code::PermissionDenied)
    })
    .await;
    until("it is served", || scene.served() == 1).await;
    until("and takes that back", || said(&late).is_none()).await;
    assert_eq!(scene.mounter.attempts("late"), 10);
    assert_eq!(code_of(&said(&wrong).unwrap()), Code::InvalidArgument);
    assert_eq!(scene.mounter.attempts("wrong"), 1);
    // The driver orders it anew, by another socket.
    scene.offer("wrong", &[]);
    until("it is tried anew", || scene.mounter.attempts("wrong") == 2).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_and_messages_that_are_wrong_are_told_of_before_anything_is_tried() {
    let scene = Scene::new(&[("any", Fate::ServedAfter(0))], LIMIT);
    let volume = scene.offer("any", &["key-file=/etc/passwd"]);
    until("it is refused", || said(&volume).is_some()).await;
    let text = said(&volume).unwrap();
    assert_eq!(code_of(&text), Code::InvalidArgument, "{text}");
    assert!(
        text.contains("key-file") && !text.contains("passwd"),
        "{text}"
    );
    assert_eq!(scene.mounter.attempts("any"), 0);

    let junk = scene.base.volume("junk");
    fs::create_dir_all(&junk.dir).unwrap();
    let listener = UnixListener::bind(junk.socket()).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, b"{\"bucketName\": 7}").unwrap();
    });
    until("junk is told of", || said(&junk).is_some()).await;
    assert!(said(&junk).unwrap().contains("the driver's socket"));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_saved_is_told_and_a_second_signal_hurries() {
    let scene = Scene::new(&[("slow", Fate::Unsaved(Duration::ZERO))], LIMIT);
    scene.offer("slow", &[]);
    until("it is served", || scene.served() == 1).await;
    assert_eq!(scene.end().await.unsaved, ["a file could not be saved"]);

    let scene = Scene::new(&[("stuck", Fate::Unsaved(LIMIT * 10))], LIMIT * 10);
    scene.offer("stuck", &[]);
    until("it is served", || scene.served() == 1).await;
    scene.signals.send(()).await.unwrap();
    // The limit of the test is far below that of the volume.
    assert_eq!(scene.end().await.unsaved, ["a file could not be saved"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_never_ends_is_named() {
    let scene = Scene::new(&[("stuck", Fate::Deaf)], LIMIT);
    scene.offer("stuck", &[]);
    while scene.served() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::thread::yield_now();
    }
    scene.signals.send(()).await.unwrap();
    scene.signals.send(()).await.unwrap();
    let outcome = scene.running.await.unwrap();
    assert_eq!(outcome.unsaved.len(), 1, "{outcome:?}");
    assert!(outcome.unsaved[0].contains("volume stuck"), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_ends_while_a_volume_cannot_be_served() {
    let scene = Scene::new(&[("never", Fate::ServedAfter(usize::MAX))], LIMIT);
    scene.offer("never", &[]);
    until("it is tried", || scene.mounter.attempts("never") > 2).await;
    assert_eq!(scene.end().await.unsaved, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_unmounted_volume_could_not_save_is_told_at_the_end() {
    let fates = [
        ("lossy", Fate::UnmountedUnsaved),
        ("never", Fate::ServedAfter(usize::MAX)),
    ];
    let scene = Scene::of_kind(&fates, LIMIT, true);
    scene.offer("lossy", &[]);
    scene.offer("never", &[]);
    until("both were tried", || {
        scene.served() == 1 && scene.mounter.attempts("never") > 0
    })
    .await;
    let outcome = scene.end().await;
    assert_eq!(outcome.unsaved, ["a file could not be saved"]);
    assert_eq!(
        outcome.served, 1,
        "a volume that never came about does not count"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_regular_sidecar_ends_although_its_last_volume_never_came_about() {
    let fates = [
        ("done", Fate::UnmountedUnsaved),
        ("wrong", Fate::PanicsAfter(20)),
    ];
    let scene = Scene::of_kind(&fates, LIMIT, false);
    let keep = scene.offer("stays", &["key-file=/refused"]);
    until("a refused volume ends nothing", || said(&keep).is_some()).await;
    assert!(!scene.running.is_finished());
    scene.offer("wrong", &[]);
    until("the other is tried", || scene.mounter.attempts("wrong") > 0).await;
    scene.offer("done", &[]);
    // Nobody sends a signal.
    let outcome = timeout(LIMIT, scene.running)
        .await
        .expect("it ends")
        .unwrap();
    assert_eq!(outcome.served, 1);
}
