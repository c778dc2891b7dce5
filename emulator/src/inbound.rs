//! The body of a request as it comes in: counted, capped, paced, and never waited for without a deadline.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use crate::counters::Tally;
use crate::error::{ApiError, Failure, Kind};
use crate::gate::{Cut, Gate};

/// Largest JSON or form body.
const SMALL_BODY: u64 = 1 << 20;

/// What is drained of a body that nobody wants, so that the answer reaches a caller that is still sending.
const DRAIN_LIMIT: u64 = 64 << 20;

/// What is reserved on a caller's word; beyond it memory grows with what arrives.
const RESERVE_LIMIT: u64 = 64 << 20;

const DRAIN_TIME: Duration = Duration::from_secs(5);

/// One request body.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// `None` for a body that was at hand from the start.
    body: Option<Incoming>,
    gate: Option<Gate>,
    /// Received, and not yet let through by the gate.
    stash: Bytes,
    /// Met while looking ahead, to be told behind the stash.
    failure: Option<Failure>,
    idle: Duration,
    received: u64,
    limit: u64,
    tally: Arc<Tally>,
}

impl Inbound {
    pub(crate) fn new(body: Incoming, limit: u64, idle: Duration, tally: Arc<Tally>) -> Self {
        Self {
            body: Some(body),
            gate: None,
            stash: Bytes::new(),
            failure: None,
            idle,
            received: 0,
            limit,
            tally,
        }
    }

    /// The body of a call that came inside another one.
    pub(crate) fn at_hand(body: Bytes, tally: Arc<Tally>) -> Self {
        Self {
            body: None,
            gate: None,
            stash: body,
            failure: None,
            idle: Duration::ZERO,
            received: 0,
            limit: SMALL_BODY,
            tally,
        }
    }

    pub(crate) fn shape(&mut self, gate: Option<Gate>) {
        self.gate = gate;
    }

    /// The length that the caller announced, less what was taken.
    pub(crate) fn announced(&self) -> Option<u64> {
        let to_come = match &self.body {
            Some(body) => body.size_hint().exact()?,
            None => 0,
        };
        Some(self.stash.len() as u64 + to_come)
    }

    /// Looks ahead, at most `limit` bytes or a piece more, until `find` finds something in the beginning of the body.
    /// Nothing of the body is lost.
    pub(crate) async fn look_ahead<T>(
        &mut self,
        limit: usize,
        find: impl Fn(&Bytes) -> Option<T>,
    ) -> Option<T> {
        loop {
            let found = find(&self.stash);
            if found.is_some() || self.stash.len() >= limit || self.failure.is_some() {
                return found;
            }
            match self.receive().await {
                Ok(Some(piece)) => self.stash = [self.stash.as_ref(), &piece].concat().into(),
                Ok(None) => return None,
                Err(failure) => self.failure = Some(failure),
            }
        }
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if self.stash.is_empty() {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            let Some(piece) = self.receive().await? else {
                return Ok(None);
            };
            self.stash = piece;
        }
        let Some(gate) = &mut self.gate else {
            return Ok(Some(std::mem::take(&mut self.stash)));
        };
        let allowance = std::future::poll_fn(|cx| gate.poll_allowance(cx)).await;
        let allowed = allowance.map_err(|cut| match cut {
            Cut::Dropped => Failure::Broken,
            Cut::Refused(code) => ApiError::scripted(code).into(),
        })?;
        let piece = self.stash.split_to(allowed.min(self.stash.len()));
        gate.passed(piece.len());
        Ok(Some(piece))
    }

    /// The next frame with data in it.
    async fn receive(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(body) = &mut self.body else {
            return Ok(None);
        };
        loop {
            let frame = match timeout(self.idle, body.frame()).await {
                Ok(None) => return Ok(None),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) => return Err(Failure::Broken),
                Err(_) => {
                    let message = "The request body stopped arriving.";
                    return Err(ApiError::new(Kind::RequestTimeout, message).into());
                }
            };
            let piece = frame.into_data().unwrap_or_default();
            self.tally.received(piece.len());
            self.received += piece.len() as u64;
            if self.received > self.limit {
                return Err(too_large().into());
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }

    fn is_at_end(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    /// The whole of a body that is a JSON document or a form.
    pub(crate) async fn collect_small(&mut self) -> Result<Bytes, Failure> {
        self.limit = self.limit.min(SMALL_BODY);
        self.collect().await
    }

    /// The whole body in one piece.
    pub(crate) async fn collect(&mut self) -> Result<Bytes, Failure> {
        if self.announced().is_some_and(|length| length > self.limit) {
            return Err(too_large().into());
        }
        let Some(first) = self.next().await? else {
            return Ok(Bytes::new());
        };
        if self.stash.is_empty() && self.is_at_end() {
            return Ok(first);
        }
        let left = self.announced().unwrap_or(0).min(RESERVE_LIMIT);
        let mut whole = BytesMut::with_capacity(first.len() + usize::try_from(left).unwrap_or(0));
        whole.extend_from_slice(&first);
        while let Some(piece) = self.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Reads and forgets what is left, within reason.
    pub(crate) async fn drain(&mut self) {
        self.gate = None;
        self.limit = self.limit.min(self.received.saturating_add(DRAIN_LIMIT));
        let everything = async { while let Ok(Some(_)) = self.next().await {} };
        // Whatever does not arrive in time is cut off with the connection.
        let _ = timeout(DRAIN_TIME, everything).await;
    }
}

fn too_large() -> ApiError {
    ApiError::new(Kind::BodyTooLarge, "The request body is too large.")
}
