//! The task behind a broker: turns what happens into events, does what the schedule says,
//! publishes. It decides nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};

use super::alarm::{Alarm, Loudness};
use super::{Core, Progress};
use crate::clock::Moment;
use crate::error::{Error, Kind};
use crate::exchange::Grant;
use crate::schedule::{Action, Event, Life, State};
use crate::token::AccessToken;

/// The longest sleep in one piece. Timers stand still in suspend while the clock goes on, so after
/// it the clock is looked at within this time even if nobody asks for a token.
const LONGEST_SLEEP: Duration = Duration::from_secs(15);

pub(super) struct Driver {
    core: Arc<Core>,
    publish: watch::Sender<Progress>,
    state: State,
    /// At most one exchange, in a task of its own so that a panic in it ends it and not this one.
    flight: JoinSet<Result<Grant, Error>>,
    /// When the one in flight, or else the last one, started.
    started: Moment,
    alarm: Alarm,
}

impl Driver {
    pub(super) fn new(core: Arc<Core>, publish: watch::Sender<Progress>, seed: u64) -> Self {
        let now = core.clock.now();
        let state = State::new(now, seed);
        Self {
            core,
            publish,
            state,
            flight: JoinSet::new(),
            started: now,
            alarm: Alarm::default(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut event = Event::Woken;
        loop {
            let now = self.core.clock.now();
            let (state, action) = self.state.step(event, now);
            self.state = state;
            if action == Action::Exchange {
                self.launch(now);
            }
            self.publish_outlook();
            event = self.next_event(action, now).await;
        }
    }

    fn launch(&mut self, now: Moment) {
        self.started = now;
        let exchange = Arc::clone(&self.core.exchange);
        let limit = self.core.exchange_limit;
        self.flight.spawn(async move {
            timeout(limit, exchange.exchange())
                .await
                .unwrap_or_else(|_| {
                    let source = exchange.identity().source;
                    let message = format!(
                        "the exchange for {source} had no end within {} s",
                        limit.as_secs_f32()
                    );
                    Err(Error::new(Kind::Timeout, message))
                })
        });
    }

    /// Wakes those who wait, if the next possible attempt is another one than they know of.
    fn publish_outlook(&self) {
        let earliest = self.state.earliest();
        self.publish.send_if_modified(|progress| {
            let changed = progress.earliest != earliest;
            progress.earliest = earliest;
            progress.next = self.state.next();
            changed
        });
    }

    async fn next_event(&mut self, action: Action, now: Moment) -> Event {
        let nap = match action {
            Action::Exchange | Action::AwaitAnswer => LONGEST_SLEEP,
            Action::SleepUntil(until) => until.since(now).min(LONGEST_SLEEP),
        };
        tokio::select! {
            biased;
            Some(ended) = self.flight.join_next() => self.ended(ended),
            () = self.core.wake.notified() => self.asked(),
            () = sleep(nap) => Event::Woken,
        }
    }

    /// Why somebody woke the driver. A rejection forces what a demand asks for, so it goes first.
    fn asked(&self) -> Event {
        let demanded = self.core.demanded.swap(false, Ordering::AcqRel);
        let rejected = self
            .core
            .token
            .load()
            .as_ref()
            .is_some_and(|token| token.is_rejected());
        match (rejected, demanded) {
            (true, _) => Event::Rejected,
            (false, true) => Event::Demanded,
            (false, false) => Event::Woken,
        }
    }

    fn ended(&mut self, ended: Result<Result<Grant, Error>, JoinError>) -> Event {
        let outcome = ended
            .unwrap_or_else(|_| {
                // The payload of a panic is not told: nobody knows what is in it.
                Err(Error::new(
                    Kind::Internal,
                    "an exchange ended in a defect of this program",
                ))
            })
            .and_then(|grant| self.accept(&grant));
        match outcome {
            Ok((token, lifetime)) => self.granted(token, lifetime),
            Err(error) => self.failed(error),
        }
    }

    fn accept(&self, grant: &Grant) -> Result<(AccessToken, Duration), Error> {
        let life = Life::new(self.started, grant.lifetime);
        if !life.is_usable(self.core.clock.now()) {
            return Err(Error::new(
                Kind::BadAnswer,
                "the access token given had expired when it came",
            ));
        }
        let token = AccessToken::new(&grant.token, life).map_err(|error| {
            let source = self.core.exchange.identity().source;
            let message = format!("{error}: what answers to the exchange for {source}?");
            Error::new(error.kind(), message)
        })?;
        Ok((token, grant.lifetime))
    }

    fn granted(&mut self, token: AccessToken, lifetime: Duration) -> Event {
        self.core.granted.fetch_add(1, Ordering::Relaxed);
        // Before the watch: who is woken by it finds the token.
        self.core.token.store(Some(Arc::new(token)));
        self.conclude(None);
        let identity = self.core.exchange.identity();
        let (source, audience) = (identity.source, identity.audience);
        let (audience, seconds) = (audience.as_deref(), lifetime.as_secs());
        match self.alarm.granted() {
            Loudness::Loud => tracing::info!(
                %source,
                audience,
                "access tokens are given again, this one for {seconds} s"
            ),
            Loudness::Quiet => {
                tracing::debug!(%source, audience, "access token for {seconds} s");
            }
        }
        Event::Granted { lifetime }
    }

    fn failed(&mut self, error: Error) -> Event {
        let kind = error.kind();
        self.core.failed.count(kind.family());
        let event = Event::Failed {
            cause: error.cause(),
            retry_after: error.retry_after(),
        };
        let held = self.core.usable().is_some();
        let fault = kind.code();
        let meanwhile = match held {
            true => ", and the one that is held goes on being used",
            false => "",
        };
        match self.alarm.failed(kind, held) {
            Loudness::Loud => tracing::warn!(fault, "no new access token{meanwhile}: {error}"),
            Loudness::Quiet => tracing::debug!(fault, "no new access token{meanwhile}: {error}"),
        }
        self.conclude(Some(error));
        event
    }

    /// Publishes the end of an exchange.
    fn conclude(&self, error: Option<Error>) {
        let took = self.core.clock.now().since(self.started);
        self.publish.send_modify(|progress| {
            progress.ended += 1;
            progress.took = Some(took);
            progress.last_error = error;
        });
    }
}
