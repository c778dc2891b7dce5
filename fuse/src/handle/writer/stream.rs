//! Content that is on its way to the store while it is written.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use gcsmount_cache::Lease;
use gcsmount_gcs::store::WriteRequest;
use gcsmount_gcs::{Object, ObjectName, Result};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::transfer::Transfer;
use super::{PIECE, Workshop, overdue};

/// Pieces that wait while the store is busy.
const QUEUE: usize = 2;
/// Pieces whose memory an upload holds beside what the store says: those that wait, the one that is handed over, and
/// one that a chunk of the store's has begun with.
const ON_THE_WAY: usize = QUEUE + 2;
/// How long what is written may gather before it is sent: a program that needs longer for what parts are worth is one
/// that a single connection keeps up with, and memory is not for lying in.
const GATHERING: Duration = Duration::from_secs(5);

/// An upload under way.
#[derive(Debug)]
pub(super) struct Stream {
    /// Where in the file the upload begins.
    pub(super) start: u64,
    /// Bytes handed in so far.
    length: u64,
    /// Gathered and not handed over.
    pending: BytesMut,
    /// What the upload is called: the file itself, or a tail.
    pub(super) name: ObjectName,
    pieces: mpsc::Sender<Step>,
    task: JoinHandle<Result<Object>>,
    /// For what is gathered.
    _memory: Lease,
}

#[derive(Debug)]
enum Step {
    Bytes(Bytes),
    Finish,
}

impl Workshop {
    /// Bytes that a stream holds: the store's, those on the way to it, and what is gathered.
    pub(super) fn stream_memory(&self) -> usize {
        let store = self.store.upload_memory();
        store.saturating_add((ON_THE_WAY + 1) * PIECE)
    }
}

impl Stream {
    /// Begins an upload; `None` where there are as many as there may be, or no memory for another.
    pub(super) fn begin(
        workshop: &Arc<Workshop>,
        start: u64,
        request: WriteRequest,
    ) -> Option<Self> {
        let slot = workshop.streams.clone().try_acquire_owned().ok()?;
        let held = workshop.stream_memory() - PIECE;
        let mut memory = workshop.lease(workshop.stream_memory())?;
        let claim = Claim {
            _slot: slot,
            memory: memory.split(held),
            for_parts: workshop.lease_for_parts(&request),
        };
        let (pieces, steps) = mpsc::channel(QUEUE);
        let name = request.name.clone();
        let task = workshop
            .runtime
            .spawn(upload(workshop.clone(), request, steps, claim));
        Some(Self {
            start,
            length: 0,
            pending: BytesMut::new(),
            name,
            pieces,
            task,
            _memory: memory,
        })
    }

    /// Where the file ends.
    pub(super) fn end(&self) -> u64 {
        self.start + self.length
    }

    /// Appends `data` if it only has to be gathered.
    pub(super) fn try_push(&mut self, data: &[u8]) -> bool {
        if self.pending.len() + data.len() >= PIECE {
            return false;
        }
        self.pending.reserve(PIECE - self.pending.len());
        self.pending.extend_from_slice(data);
        self.length += data.len() as u64;
        true
    }

    /// Appends `data`, waiting while the store is busy. An error is the store's, and final.
    pub(super) async fn push(&mut self, data: &[u8]) -> Result<()> {
        let mut rest = data;
        while !rest.is_empty() {
            // Small writes are gathered, in no more memory than was leased.
            self.pending.reserve(PIECE - self.pending.len());
            let room = PIECE - self.pending.len();
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.pending.extend_from_slice(now);
            self.length += now.len() as u64;
            rest = later;
            if self.pending.len() == PIECE {
                self.hand_over().await?;
            }
        }
        Ok(())
    }

    async fn hand_over(&mut self) -> Result<()> {
        let piece = std::mem::take(&mut self.pending).freeze();
        match self.pieces.send(Step::Bytes(piece)).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.end_of_task().await),
        }
    }

    /// Why the task has ended although nobody told it to.
    async fn end_of_task(&mut self) -> gcsmount_gcs::Error {
        match (&mut self.task).await {
            Ok(Err(error)) => error,
            Ok(Ok(_)) | Err(_) => overdue("the upload ended early"),
        }
    }

    /// Completes the upload.
    pub(super) async fn finish(mut self) -> Result<Object> {
        if !self.pending.is_empty() {
            self.hand_over().await?;
        }
        if self.pieces.send(Step::Finish).await.is_err() {
            return Err(self.end_of_task().await);
        }
        match (&mut self.task).await {
            Ok(result) => result,
            Err(_) => Err(overdue("the upload ended early")),
        }
    }

    /// Tells the store to forget the upload, and waits until it was told.
    pub(super) async fn abandon(mut self) {
        let (closed, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.pieces, closed));
        // The outcome is that of an upload which nobody wants.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What an upload may hold.
struct Claim {
    _slot: OwnedSemaphorePermit,
    memory: Lease,
    for_parts: Option<Lease>,
}

/// Runs one upload, for as long as it gets on. Without [`Step::Finish`] nothing becomes visible. What it may hold goes
/// back when it holds nothing any more.
async fn upload(
    workshop: Arc<Workshop>,
    request: WriteRequest,
    mut steps: mpsc::Receiver<Step>,
    claim: Claim,
) -> Result<Object> {
    let Claim {
        _slot,
        memory,
        for_parts,
    } = claim;
    let mut transfer = Transfer::begin(&workshop, request, memory, for_parts).await?;
    let patience = Instant::now() + GATHERING;
    loop {
        let step = if transfer.is_gathering() {
            match timeout_at(patience, steps.recv()).await {
                Ok(step) => step,
                Err(_) => {
                    transfer.stop_gathering().await?;
                    continue;
                }
            }
        } else {
            steps.recv().await
        };
        match step {
            Some(Step::Bytes(bytes)) => transfer.write(bytes).await?,
            Some(Step::Finish) => return transfer.finish().await,
            None => break,
        }
    }
    let forgotten = async {
        transfer.cancel().await;
        Ok(())
    };
    workshop.call(forgotten).await?;
    Err(overdue("the upload was given up"))
}
