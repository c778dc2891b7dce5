//! Ranged requests for one generation, poured into blocks as the bytes arrive.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::StreamExt;
use gcsmount_cache::{BlockBuffer, Budget, Filler, Lease, Priority};
use gcsmount_gcs::store::{Preconditions, Read, ReadRequest};
use gcsmount_gcs::{Error, Kind, Result, Store};

use super::OpenObject;

/// Where the bytes come from.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) store: Arc<dyn Store>,
    pub(super) object: OpenObject,
    /// A request has succeeded that required the generation to be the live one. The metadata of an open may be from a
    /// cache; this makes sure once, at no cost, that it is not a superseded content that the store still keeps.
    validated: AtomicBool,
}

/// Neighbouring blocks that one request brings: each with its duty and its length.
#[derive(Debug)]
pub(super) struct Group {
    range: Range<u64>,
    blocks: Vec<(Filler, usize)>,
}

impl Group {
    /// Of one block, which holds the bytes of `range`.
    pub(super) fn new(range: Range<u64>, filler: Filler) -> Self {
        let blocks = vec![(filler, length(&range))];
        Self { range, blocks }
    }

    /// The bytes of the object that it covers.
    pub(super) fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// Whether `block` is the next neighbour and the group stays within `max` bytes.
    pub(super) fn has_room_for(&self, block: &Range<u64>, max: u64) -> bool {
        self.range.end == block.start && block.end - self.range.start <= max
    }

    /// Takes the next neighbour in.
    pub(super) fn push(&mut self, block: &Range<u64>, filler: Filler) {
        self.range.end = block.end;
        self.blocks.push((filler, length(block)));
    }
}

impl Source {
    pub(super) fn new(store: Arc<dyn Store>, object: OpenObject) -> Self {
        Self {
            store,
            object,
            validated: AtomicBool::new(false),
        }
    }

    /// Waits for memory, then fetches blocks that somebody waits for.
    pub(super) async fn demanded(&self, group: Group, budget: &Budget) {
        let bytes = length(&group.range);
        let lease = budget.acquire(bytes, Priority::Reader).await;
        self.blocks(group, lease).await;
    }

    /// Fetches a group into memory that `lease` allows for.
    pub(super) async fn blocks(&self, group: Group, mut lease: Lease) {
        let mut pending = group
            .blocks
            .into_iter()
            .map(|(filler, bytes)| (filler, BlockBuffer::new(lease.split(bytes))))
            .collect();
        if let Err(error) = self.pour(group.range, &mut pending).await {
            for (filler, _) in pending {
                filler.fail(error.clone());
            }
        }
    }

    /// Exactly these bytes, past the blocks.
    pub(super) async fn exact(&self, range: Range<u64>, budget: &Budget) -> Result<Bytes> {
        let bytes = length(&range);
        let lease = budget.acquire(bytes, Priority::Reader).await;
        let mut buffer = BlockBuffer::new(lease);
        let mut body = self.open(range).await?.body;
        while let Some(piece) = body.next().await {
            let piece = piece?;
            if buffer.fill(&piece) < piece.len() {
                return Err(self.corrupt("more bytes came than were asked for"));
            }
        }
        if buffer.remaining() > 0 {
            return Err(self.corrupt("fewer bytes came than were asked for"));
        }
        Ok(buffer.freeze().bytes)
    }

    /// Publishes each block when its last byte is in; leaves those that it has not brought.
    async fn pour(
        &self,
        range: Range<u64>,
        pending: &mut VecDeque<(Filler, BlockBuffer)>,
    ) -> Result<()> {
        let mut body = self.open(range).await?.body;
        while let Some(piece) = body.next().await {
            let piece = piece?;
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let Some((_, buffer)) = pending.front_mut() else {
                    return Err(self.corrupt("more bytes came than were asked for"));
                };
                let filled = buffer.fill(rest);
                rest = &rest[filled..];
                if buffer.remaining() == 0
                    && let Some((filler, buffer)) = pending.pop_front()
                {
                    filler.fill(buffer.freeze());
                }
            }
        }
        if pending.is_empty() {
            Ok(())
        } else {
            Err(self.corrupt("fewer bytes came than were asked for"))
        }
    }

    async fn open(&self, range: Range<u64>) -> Result<Read> {
        let generation = self.object.generation;
        let preconditions = if self.validated.load(Ordering::Relaxed) {
            Preconditions::default()
        } else {
            Preconditions::generation(generation)
        };
        let request = ReadRequest {
            name: self.object.name.clone(),
            generation: Some(generation),
            range: Some(range.clone()),
            preconditions,
        };
        let read = self.store.read(&request).await?;
        if read.generation != generation {
            return Err(self.corrupt("another generation came than was asked for"));
        }
        if read.range != range || read.size != self.object.size {
            return Err(self.corrupt("another range came than was asked for"));
        }
        self.validated.store(true, Ordering::Relaxed);
        Ok(read)
    }

    pub(super) fn corrupt(&self, why: &str) -> Error {
        self.error(Kind::Corrupt, why)
    }

    pub(super) fn error(&self, kind: Kind, why: &str) -> Error {
        Error::new(kind, "storage.objects.get", &self.object.name, why)
    }
}

/// The length of a range that fits into memory.
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on every platform that is supported"
)]
pub(super) fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}
