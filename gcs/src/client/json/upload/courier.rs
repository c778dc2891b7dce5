//! The way of one chunk: sent, asked after, sent again from where the store is.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::client::json::call::Failed;
use crate::client::json::client::Shared;
use crate::client::json::operation::Operation;
use crate::client::json::resolve::Sent;
use crate::client::json::session::{Chunk, Progress, Session};
use crate::client::json::write::{OPERATION, check};
use crate::store::WriteRequest;
use crate::{Error, Kind, Object, Result};

/// Carries chunks to the store until it has them.
pub(super) struct Courier {
    pub(super) client: Shared,
    pub(super) request: WriteRequest,
    /// Guards nothing else; taken for a copy, never across a call.
    pub(super) session: Mutex<Option<Session>>,
}

impl Courier {
    /// Has the store keep a chunk that is not the last.
    pub(super) async fn store(&self, chunk: Chunk) -> Result<()> {
        match self.deliver(&chunk).await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(self.error(Kind::Corrupt, "the object was published too early")),
            Err(failed) => Err(failed.error),
        }
    }

    /// Has the store publish what it holds with the last chunk.
    pub(super) async fn publish(&self, chunk: Chunk, crc32c: u32) -> Result<Object> {
        let sent = Sent {
            name: &self.request.name,
            base: self.request.preconditions.generation,
            size: chunk.end(),
            crc32c,
            attributes: &self.request.attributes,
        };
        match self.deliver(&chunk).await {
            Ok(Some(object)) => check(*object, &sent),
            Ok(None) => Err(self.error(Kind::Corrupt, "the store does not publish the object")),
            Err(failed) => self.client.resolve_sent(failed, &sent).await,
        }
    }

    /// Sends `chunk` and whatever of it is not stored again, until it is, or until nothing moves any more.
    async fn deliver(&self, chunk: &Chunk) -> Result<Option<Box<Object>>, Failed> {
        let mut rest = chunk.clone();
        let mut patience = Patience::new(&self.client);
        let mut may_have_acted = false;
        let mut requests = 0;
        loop {
            let session = self.session().await.map_err(Failed::certain)?;
            let sent = self
                .client
                .send_chunk(&session, &self.request, &rest, &mut requests)
                .await;
            if let Err(failed) = &sent {
                patience.deadline += failed.moving;
            }
            let (progress, error) = match sent {
                Err(failed) if failed.error.kind == Kind::Unavailable && !failed.in_vain => {
                    // Only the last chunk publishes; asking with the total may do it as well.
                    may_have_acted |= chunk.last.is_some();
                    let total = chunk.last.map(|_| chunk.end());
                    let asked = self.client.query_session(&session, &self.request, total);
                    (asked.await, Some(failed.error))
                }
                sent => (sent, None),
            };
            let stored = match progress {
                Ok(Progress::Published(object)) => return Ok(Some(object)),
                Ok(Progress::Stored(stored)) => stored,
                Err(failed)
                    if is_gone(&failed.error) && !may_have_acted && patience.restart(chunk) =>
                {
                    self.again(&failed.error, Duration::ZERO);
                    *self.session.lock() = None;
                    rest = chunk.clone();
                    continue;
                }
                Err(failed) => return Err(self.lost(failed, may_have_acted)),
            };
            if stored < chunk.offset {
                let error = self.error(Kind::Gone, "the store lost bytes that it had");
                return Err(Failed::certain(error));
            }
            if stored > chunk.end() {
                let error = self.error(Kind::Corrupt, "the store has more than was sent");
                return Err(Failed::certain(error));
            }
            if stored == chunk.end() && chunk.last.is_none() {
                return Ok(None);
            }
            let error = error.unwrap_or_else(|| {
                self.error(Kind::Unavailable, "the store kept only some of the bytes")
            });
            rest = chunk.behind(stored);
            let Some(pause) = patience.pause(stored, &error) else {
                let attempts = u16::try_from(patience.futile).unwrap_or(u16::MAX);
                return Err(Failed {
                    may_have_acted,
                    ..Failed::certain(Error { attempts, ..error })
                });
            };
            self.again(&error, pause);
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    /// The session, begun with the first full chunk.
    async fn session(&self) -> Result<Session> {
        let known = self.session.lock().clone();
        if let Some(session) = known {
            return Ok(session);
        }
        let session = self.client.begin_session(&self.request).await?;
        *self.session.lock() = Some(session.clone());
        Ok(session)
    }

    /// Tells that what is left of a chunk is about to be sent again.
    fn again(&self, error: &Error, pause: Duration) {
        self.client
            .failed_once(Operation::SessionChunk, error, pause);
    }

    fn lost(&self, mut failed: Failed, may_have_acted: bool) -> Failed {
        failed.may_have_acted |= may_have_acted;
        if is_gone(&failed.error) {
            failed.error = Error {
                kind: Kind::Gone,
                message: format!("the upload session is lost: {}", failed.error.message),
                ..failed.error
            };
        }
        failed
    }

    fn error(&self, kind: Kind, message: &str) -> Error {
        Error::new(kind, OPERATION, &self.request.name, message)
    }
}

/// A session answers 404 or 410 when it is over.
fn is_gone(error: &Error) -> bool {
    matches!(error.kind, Kind::Gone | Kind::NotFound)
}

/// How much longer a chunk that does not move is tried.
struct Patience<'a> {
    client: &'a Shared,
    deadline: Instant,
    furthest: u64,
    futile: u32,
    restarts: u32,
}

impl<'a> Patience<'a> {
    fn new(client: &'a Shared) -> Self {
        Self {
            client,
            deadline: Instant::now() + client.timeouts.operation,
            furthest: 0,
            futile: 0,
            restarts: 1,
        }
    }

    /// Whether an upload may begin again: once, and only while all of its bytes are held.
    fn restart(&mut self, chunk: &Chunk) -> bool {
        let allowed = chunk.offset == 0 && self.restarts > 0;
        self.restarts = self.restarts.saturating_sub(1);
        self.furthest = 0;
        allowed
    }

    /// How long to pause: not at all after progress, with which it starts anew. `None` where it is over after `error`.
    fn pause(&mut self, stored: u64, error: &Error) -> Option<Duration> {
        if stored > self.furthest {
            *self = Self {
                furthest: stored,
                restarts: self.restarts,
                ..Self::new(self.client)
            };
            return Some(Duration::ZERO);
        }
        self.futile += 1;
        if self.futile >= self.client.retry.attempts {
            return None;
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.client.pause_of_body(error, self.futile, left)
    }
}
