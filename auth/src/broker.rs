//! Keeps one identity's access token ready. A task of its own exchanges ahead of expiry, as the
//! schedule says, and publishes the token; whoever needs one loads it, with no
//! lock and no wait, for as long as a valid one is there. Only without one does a caller wait, for
//! the exchange in flight, within a deadline.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use google_cloud_auth::credentials::{Credentials, EntityTag};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::clock::{Clock, Moment};
use crate::error::{Error, Kind};
use crate::exchange::Exchange;
use crate::provider::Provider;
use crate::token::AccessToken;

mod alarm;
mod config;
mod driver;
mod identities;
mod status;

pub use config::{BrokerConfig, CLOUD_PLATFORM, Tuning};
pub use identities::{Identities, Key};
pub use status::{Failures, Status};

use driver::Driver;
use identities::Registered;
use status::Failed;

/// A handle on the broker of one identity. Clones share it; with the last one its task ends.
#[derive(Clone)]
pub struct Broker(Arc<Owner>);

struct Owner {
    core: Arc<Core>,
    task: AbortHandle,
    /// The place among [`Identities`], given up with the broker.
    _registered: Option<Registered>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What handles and driver share. No locks: the token is swapped, the rest is counters and wakes.
struct Core {
    exchange: Arc<dyn Exchange>,
    clock: Arc<dyn Clock>,
    wait: Duration,
    exchange_limit: Duration,
    /// Written by the driver only.
    token: ArcSwapOption<AccessToken>,
    /// The driver publishes here after each step that changes something; the watch closes with it.
    progress: watch::Receiver<Progress>,
    /// Wakes the driver, which then looks at `demanded` and at the token's own mark of rejection.
    wake: Notify,
    demanded: AtomicBool,
    waiters: AtomicUsize,
    granted: AtomicU64,
    failed: Failed,
}

/// How far the driver has come.
#[derive(Clone, Debug, Default)]
struct Progress {
    /// Exchanges that came to an end.
    ended: u64,
    /// Why the last one gave no token; `None` after one that did.
    last_error: Option<Error>,
    /// How long it took.
    took: Option<Duration>,
    /// When a demand can start the next one; `None` while one is in flight.
    earliest: Option<Moment>,
    /// When the next one starts without a demand; `None` while one is in flight.
    next: Option<Moment>,
}

impl Broker {
    /// Starts a broker for a workload identity on the current tokio runtime, and with it the first
    /// exchange.
    ///
    /// # Errors
    /// [`Kind::Config`] if the token service needs TLS and the system trusts no certificate, or
    /// the environment names a proxy of a kind that is not spoken here. That there is no token (yet)
    /// is not an error here.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn spawn(config: BrokerConfig) -> Result<Self, Error> {
        let tuning = config.tuning();
        Ok(Self::with_exchange(config.exchange()?, tuning))
    }

    /// Starts a broker for any way of getting tokens.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn with_exchange(exchange: Arc<dyn Exchange>, tuning: Tuning) -> Self {
        Self::start(exchange, tuning, None)
    }

    fn start(exchange: Arc<dyn Exchange>, tuning: Tuning, registered: Option<Registered>) -> Self {
        let (publish, progress) = watch::channel(Progress::default());
        let Tuning {
            wait,
            exchange_limit,
            clock,
            seed,
        } = tuning;
        let core = Arc::new(Core {
            exchange,
            clock,
            wait,
            exchange_limit,
            token: ArcSwapOption::empty(),
            progress,
            wake: Notify::new(),
            demanded: AtomicBool::new(false),
            waiters: AtomicUsize::new(0),
            granted: AtomicU64::new(0),
            failed: Failed::default(),
        });
        let driver = Driver::new(Arc::clone(&core), publish, seed);
        let task = tokio::spawn(driver.run()).abort_handle();
        Self(Arc::new(Owner {
            core,
            task,
            _registered: registered,
        }))
    }

    /// The token, if a valid one is held. An atomic load and a look at the clock.
    #[must_use]
    pub fn current(&self) -> Option<Arc<AccessToken>> {
        self.0.core.usable()
    }

    /// The token; without a valid one, that of the exchange in flight or of one started for this.
    ///
    /// # Errors
    /// The error of that exchange. If the last one failed so recently that none is started now, its
    /// error, at once. [`Kind::Timeout`] if there is no outcome within the configured wait.
    pub async fn token(&self) -> Result<Arc<AccessToken>, Error> {
        match self.current() {
            Some(token) => Ok(token),
            None => self.0.core.wait_for(|_| true).await,
        }
    }

    /// How long this token of this broker still lives; zero once it has ended.
    #[must_use]
    pub fn left(&self, token: &AccessToken) -> Duration {
        token.ends_at().since(self.0.core.clock.now())
    }

    /// Tells that a service answered 401 to this token. The first telling forces one exchange; more
    /// of the same token, and those of a token that was replaced meanwhile, do nothing. The token
    /// is handed out until the new one is there: the 401 may be a mistake of one server, and an
    /// outage of the token service must not become one of everything.
    pub fn reject(&self, token: &AccessToken) {
        self.0.core.reject(token.tag());
    }

    /// The same by tag, and waits for a token other than that one. Returns at once if it was
    /// replaced already.
    ///
    /// # Errors
    /// As [`token`](Self::token).
    pub async fn replacement(&self, rejected: &EntityTag) -> Result<Arc<AccessToken>, Error> {
        self.0.core.reject(rejected);
        self.0.core.wait_for(|token| token.tag() != rejected).await
    }

    /// What there is to tell an operator.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::of(&self.0.core)
    }

    /// The universe that the tokens are for; `None` is `googleapis.com`.
    #[must_use]
    pub fn universe_domain(&self) -> Option<String> {
        self.0.core.exchange.universe_domain()
    }

    /// Callers that wait for a token now.
    pub(crate) fn waiters(&self) -> usize {
        self.0.core.waiters.load(Ordering::Relaxed)
    }

    /// When it asks again after a failure, from now; `None` while it does, or once it was stopped.
    pub(crate) fn next_exchange_in(&self) -> Option<Duration> {
        let next = self.0.core.progress.borrow().next?;
        Some(next.since(self.0.core.clock.now()))
    }

    /// This broker as the credentials of Google's client libraries.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        Credentials::from(Provider::new(self.clone()))
    }

    /// Runs `read` on the valid token without taking a share of it, which spares the hot path an
    /// atomic counter that all threads would fight for.
    pub(crate) fn with_current<T>(&self, read: impl FnOnce(&AccessToken) -> T) -> Option<T> {
        let core = &self.0.core;
        let token = core.token.load();
        token
            .as_deref()
            .filter(|token| token.is_usable(core.clock.now()))
            .map(read)
    }
}

impl Core {
    fn usable(&self) -> Option<Arc<AccessToken>> {
        self.token
            .load_full()
            .filter(|token| token.is_usable(self.clock.now()))
    }

    fn reject(&self, tag: &EntityTag) {
        let token = self.token.load();
        if token
            .as_ref()
            .is_some_and(|token| token.tag() == tag && token.mark_rejected())
        {
            self.wake.notify_one();
        }
    }

    async fn wait_for(
        &self,
        accept: impl Fn(&AccessToken) -> bool + Send,
    ) -> Result<Arc<AccessToken>, Error> {
        let _counted = Waiter::new(&self.waiters);
        match tokio::time::timeout(self.wait, self.outcome(accept)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.no_outcome()),
        }
    }

    /// The first token that is accepted, or the error of the first exchange that ends from now on,
    /// or that of the last one if no other may start yet.
    fn outcome(
        &self,
        accept: impl Fn(&AccessToken) -> bool + Send,
    ) -> impl Future<Output = Result<Arc<AccessToken>, Error>> + Send {
        // Before the first look at the token: a change after that look is not missed.
        let mut progress = self.progress.clone();
        let asked_after = progress.borrow_and_update().ended;
        async move {
            loop {
                if let Some(token) = self.usable().filter(|token| accept(token)) {
                    return Ok(token);
                }
                let seen = progress.borrow_and_update().clone();
                let too_early = seen
                    .earliest
                    .is_some_and(|earliest| self.clock.now() < earliest);
                if let Some(error) = seen.last_error
                    && (seen.ended > asked_after || too_early)
                {
                    return Err(error);
                }
                if seen.earliest.is_some() {
                    self.demanded.store(true, Ordering::Release);
                    self.wake.notify_one();
                }
                if progress.changed().await.is_err() {
                    return Err(Error::new(
                        Kind::Stopped,
                        "the token broker was stopped: its runtime is gone",
                    ));
                }
            }
        }
    }

    fn no_outcome(&self) -> Error {
        if let Some(error) = self.progress.borrow().last_error.clone() {
            return error;
        }
        let identity = self.exchange.identity();
        let message = format!(
            "no access token within {} s for the subject token at {}",
            self.wait.as_secs_f32(),
            identity.source
        );
        Error::new(Kind::Timeout, message)
    }
}

/// Counted as waiting for as long as it lives.
struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    fn new(waiters: &'a AtomicUsize) -> Self {
        waiters.fetch_add(1, Ordering::Relaxed);
        Self(waiters)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Broker").field(&self.status()).finish()
    }
}
