//! A clock that follows tokio's paused time and can be suspended, and an exchange that follows a
//! script.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gcsmount_auth::clock::{Clock, Moment};
use gcsmount_auth::secret::AccessSecret;
use gcsmount_auth::{Broker, Error, Exchange, Grant, Identity, Kind, Tuning};
use tokio::time::Instant;

/// Tokio's time, plus what [`suspend`](Self::suspend) added behind the back of all timers.
#[derive(Debug)]
pub(crate) struct TestClock {
    origin: Instant,
    suspended: Mutex<Duration>,
}

impl TestClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            suspended: Mutex::new(Duration::ZERO),
        })
    }

    pub(crate) fn suspend(&self, time: Duration) {
        *self.suspended.lock().unwrap() += time;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        Moment::after_origin(self.origin.elapsed() + *self.suspended.lock().unwrap())
    }
}

/// What one exchange does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Gives `tok-N`, N being the number of the exchange, for so many seconds.
    Grant(u64),
    Fail(Kind),
    Throttle {
        retry_after: u64,
    },
    Hang,
    Panic,
    /// Gives a token that no header can carry.
    Junk,
}

/// Follows a script, and its last step for ever after. Each exchange takes some time.
#[derive(Debug)]
pub(crate) struct Scripted {
    script: Mutex<VecDeque<Step>>,
    takes: Duration,
    started: Mutex<Vec<Instant>>,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Scripted {
    pub(crate) fn new(script: impl IntoIterator<Item = Step>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            takes: Duration::from_millis(100),
            started: Mutex::default(),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        })
    }

    /// From the next exchange on, this script.
    pub(crate) fn now_follow(&self, script: impl IntoIterator<Item = Step>) {
        *self.script.lock().unwrap() = script.into_iter().collect();
    }

    pub(crate) fn count(&self) -> usize {
        self.started.lock().unwrap().len()
    }

    pub(crate) fn starts(&self) -> Vec<Instant> {
        self.started.lock().unwrap().clone()
    }

    pub(crate) fn most_at_once(&self) -> usize {
        self.most_running.load(Ordering::SeqCst)
    }

    fn next(&self) -> Step {
        let mut script = self.script.lock().unwrap();
        if script.len() > 1 {
            script.pop_front().unwrap()
        } else {
            script[0]
        }
    }
}

#[async_trait]
impl Exchange for Scripted {
    async fn exchange(&self) -> Result<Grant, Error> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let _running = Running(&self.running);
        self.most_running.fetch_max(running, Ordering::SeqCst);
        self.started.lock().unwrap().push(Instant::now());
        let number = self.count();
        let step = self.next();
        tokio::time::sleep(self.takes).await;
        let grant = |text: String, seconds| Grant {
            token: AccessSecret::new(text),
            lifetime: Duration::from_secs(seconds),
        };
        match step {
            Step::Grant(seconds) => Ok(grant(format!("tok-{number}"), seconds)),
            Step::Junk => Ok(grant("tok\r\n".to_owned(), 60)),
            Step::Fail(kind) => Err(Error::new(kind, format!("scripted {kind:?}"))),
            Step::Throttle { retry_after } => Err(Error::new(Kind::Throttled, "scripted 429")
                .with_retry_after(Some(Duration::from_secs(retry_after)))),
            Step::Hang => pending().await,
            Step::Panic => panic!("scripted panic with tok-secret in it"),
        }
    }

    fn identity(&self) -> Identity {
        Identity {
            source: "/scripted/token".to_owned(),
            ..Identity::default()
        }
    }
}

/// A broker over the script, on paused time.
pub(crate) fn broker(exchange: &Arc<Scripted>) -> (Broker, Arc<TestClock>) {
    let clock = TestClock::new();
    let tuning = Tuning {
        clock: Arc::clone(&clock) as _,
        seed: 11,
        ..Tuning::default()
    };
    (
        Broker::with_exchange(Arc::clone(exchange) as _, tuning),
        clock,
    )
}

pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
