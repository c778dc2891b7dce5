//! What an [`Observer`] is told, and when. Costs nothing where there is none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::call::Call;
use super::client::Client;
use super::operation::Operation;
use super::payload::Meter;
use super::transport::{Arrived, Lost};
use super::{Attempt, Observer, Outcome, Reason, Repetition};
use crate::{Cause, Error};

/// A request under way. Dropped without an end, it is not told.
pub(super) struct Watch<'a> {
    observer: &'a dyn Observer,
    operation: Operation,
    number: u32,
    start: Instant,
}

impl Watch<'_> {
    pub(super) fn end(self, arrived: &Result<Arrived, Lost>) {
        self.tell(match arrived {
            Ok(arrived) => Outcome::Answered(arrived.status.as_u16()),
            Err(lost) => Outcome::Lost(lost.cause),
        });
    }

    fn tell(self, outcome: Outcome) {
        self.observer.attempted(&Attempt {
            operation: self.operation.observed(),
            outcome,
            took: self.start.elapsed(),
            number: self.number,
        });
    }
}

impl Client {
    /// Begins a request of `call`.
    pub(super) fn watch(&self, call: &Call<'_>) -> Option<Watch<'_>> {
        self.watch_from(self.now_if_observed()?, call)
    }

    /// The time, where anybody wants to know how long something takes.
    pub(super) fn now_if_observed(&self) -> Option<Instant> {
        self.observer.as_ref().map(|_| Instant::now())
    }

    /// A request of `call` could not be sent for want of a token, asked for at `start`.
    pub(super) fn tokenless(&self, call: &Call<'_>, start: Option<Instant>) {
        if let Some(watch) = start.and_then(|start| self.watch_from(start, call)) {
            watch.tell(Outcome::Lost(Cause::Credentials));
        }
    }

    fn watch_from(&self, start: Instant, call: &Call<'_>) -> Option<Watch<'_>> {
        Some(Watch {
            observer: self.observer.as_deref()?,
            operation: call.operation,
            number: call.requests.fetch_add(1, Ordering::Relaxed) + 1,
            start,
        })
    }

    /// Who counts the content that `call` sends.
    pub(super) fn meter(&self, call: &Call<'_>) -> Option<Meter> {
        let observer = self
            .observer
            .as_ref()
            .filter(|_| !call.content.is_empty())?;
        Some(Meter {
            observer: Arc::clone(observer),
            content: call.content.clone(),
        })
    }

    /// It is about to be asked for again, after `error`.
    pub(super) fn failed_once(&self, operation: Operation, error: &Error, pause: Duration) {
        let reason = Reason::Failed(error.kind, error.cause);
        self.repeating(operation, reason, pause);
    }

    pub(super) fn repeating(&self, operation: Operation, reason: Reason, pause: Duration) {
        if let Some(observer) = &self.observer {
            observer.repeating(&Repetition {
                operation: operation.observed(),
                reason,
                pause,
            });
        }
    }
}
