//! Uploads of unknown length.
//!
//! Bytes gather until they fill a chunk. While one chunk is on its way in a task the next one fills, so that an upload
//! holds two at most. An upload that ends before its first chunk is full is one request and needs no session.

mod courier;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::{Client, Shared};
use super::payload::Payload;
use super::session::{Checksum, Chunk};
use super::write::OPERATION;
use crate::store::{Upload, WriteRequest};
use crate::{Error, Kind, Object, Result};
use courier::Courier;

/// The store takes chunks in multiples of this.
const QUANTUM: u64 = 256 << 10;

/// Chunks that an upload holds at most: one under way and one that fills.
const HELD: u64 = 2;

/// Smaller pieces are gathered, so that a chunk of them costs neither a descriptor nor an allocation each.
const SMALL: usize = 64 << 10;

/// Cancelling is a courtesy that must not hold up a close.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

/// Bytes of one chunk.
fn chunk_size(client: &Client) -> u64 {
    client.upload_chunk.max(1).next_multiple_of(QUANTUM)
}

/// See [`Store::upload_memory`](crate::Store::upload_memory).
pub(super) fn memory(client: &Client) -> usize {
    usize::try_from(HELD * chunk_size(client)).unwrap_or(usize::MAX)
}

/// See [`Upload`].
pub(super) struct JsonUpload {
    courier: Arc<Courier>,
    chunk: u64,
    filling: Filling,
    /// Offset of the first byte that is still filling.
    offset: u64,
    crc32c: u32,
    state: State,
}

enum State {
    /// No chunk is under way.
    Idle,
    Sending(Task),
    /// A call that was dropped half-way has left a gap, or `finish` is under way.
    Torn,
    Finished,
    Failed(Error),
}

/// A chunk on its way; gone with its owner.
struct Task(JoinHandle<Result<()>>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl JsonUpload {
    pub(super) fn new(client: &Shared, request: &WriteRequest) -> Self {
        Self {
            chunk: chunk_size(client),
            courier: Arc::new(Courier {
                client: Shared::clone(client),
                request: request.clone(),
                session: Mutex::new(None),
            }),
            filling: Filling::default(),
            offset: 0,
            crc32c: 0,
            state: State::Idle,
        }
    }

    /// Takes the state out, so that a call that is dropped leaves the upload torn.
    fn enter(&mut self) -> Result<State> {
        let name = &self.courier.request.name;
        let over = |kind, why| Err(Error::new(kind, OPERATION, name, why));
        match std::mem::replace(&mut self.state, State::Torn) {
            state @ (State::Idle | State::Sending(_)) => Ok(state),
            State::Torn => over(Kind::Canceled, "an earlier call on the upload was dropped"),
            State::Finished => {
                self.state = State::Finished;
                over(Kind::Invalid, "the upload is already finished")
            }
            State::Failed(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    fn leave<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.filling = Filling::default();
            self.state = State::Failed(error.clone());
        }
        result
    }

    async fn append(&mut self, mut state: State, mut bytes: Bytes) -> Result<State> {
        self.crc32c = crc32c::crc32c_append(self.crc32c, &bytes);
        while !bytes.is_empty() {
            let space = self.chunk - self.filling.len();
            let fits = usize::try_from(space).map_or(bytes.len(), |s| s.min(bytes.len()));
            self.filling.push(bytes.split_to(fits));
            if self.filling.len() == self.chunk {
                self.settle(state).await?;
                let chunk = self.chunk(None);
                let courier = Arc::clone(&self.courier);
                let task = tokio::spawn(async move { courier.store(chunk).await });
                state = State::Sending(Task(task));
            }
        }
        Ok(state)
    }

    /// What has gathered, as the chunk that is next.
    fn chunk(&mut self, last: Option<Checksum>) -> Chunk {
        let payload = std::mem::take(&mut self.filling).into_payload();
        let chunk = Chunk {
            offset: self.offset,
            payload,
            last,
        };
        self.offset = chunk.end();
        chunk
    }

    /// Waits for the chunk under way.
    async fn settle(&self, state: State) -> Result<()> {
        let State::Sending(mut task) = state else {
            return Ok(());
        };
        match (&mut task.0).await {
            Ok(stored) => stored,
            Err(_) => {
                let name = &self.courier.request.name;
                let why = "the runtime stopped the upload";
                Err(Error::new(Kind::Canceled, OPERATION, name, why))
            }
        }
    }

    async fn publish(&mut self, state: State) -> Result<Object> {
        self.settle(state).await?;
        let crc32c = self.crc32c;
        let chunk = self.chunk(Some(Checksum(crc32c)));
        if chunk.offset == 0 {
            let Courier {
                client, request, ..
            } = &*self.courier;
            return client.insert(request, &chunk.payload, crc32c).await;
        }
        self.courier.publish(chunk, crc32c).await
    }
}

#[async_trait]
impl Upload for JsonUpload {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let state = self.enter()?;
        let result = self.append(state, bytes).await;
        self.state = self.leave(result)?;
        Ok(())
    }

    async fn finish(&mut self) -> Result<Object> {
        let state = self.enter()?;
        let result = self.publish(state).await;
        let object = self.leave(result)?;
        self.state = State::Finished;
        Ok(object)
    }

    async fn cancel(&mut self) {
        if matches!(self.state, State::Finished) {
            return;
        }
        let request = &self.courier.request;
        let canceled = Error::new(
            Kind::Canceled,
            OPERATION,
            &request.name,
            "the upload was canceled",
        );
        if !matches!(self.state, State::Failed(_)) {
            self.state = State::Failed(canceled);
        }
        self.filling = Filling::default();
        let session = self.courier.session.lock().take();
        if let Some(session) = session {
            let ended = self.courier.client.end_session(&session, &request.name);
            let _ = timeout(CANCEL_LIMIT, ended).await;
        }
    }
}

impl fmt::Debug for JsonUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonUpload")
            .field("name", &self.courier.request.name)
            .field("offset", &self.offset)
            .field("filling", &self.filling.len())
            .finish_non_exhaustive()
    }
}

/// Bytes that do not fill a chunk yet.
#[derive(Default)]
struct Filling {
    payload: Payload,
    small: BytesMut,
}

impl Filling {
    fn len(&self) -> u64 {
        self.payload.len() + self.small.len() as u64
    }

    fn push(&mut self, bytes: Bytes) {
        if bytes.len() < SMALL {
            self.small.extend_from_slice(&bytes);
        }
        if bytes.len() >= SMALL || self.small.len() >= SMALL {
            self.payload.push(self.small.split().freeze());
        }
        if bytes.len() >= SMALL {
            self.payload.push(bytes);
        }
    }

    fn into_payload(mut self) -> Payload {
        self.payload.push(self.small.freeze());
        self.payload
    }
}
