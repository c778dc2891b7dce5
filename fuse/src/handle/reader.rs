//! Reads of one open file.
//!
//! A [`Reader`] answers from blocks in memory where it can, decides from the pattern of the reads what to fetch
//! ahead, and owns the fetches. It promises bytes of one generation only, and that a file whose every byte went
//! through blocks is never completed with a wrong checksum.
//!
//! Memory is taken from the budget before a request is sent, and nobody waits for memory while holding some: a read
//! across blocks copies each block out and lets go of it before it waits for the next one.

mod coverage;
mod fetch;
mod pattern;
mod pieces;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use gcsmount_cache::{Block, BlockCache, BlockKey, Claim, Presence, Priority};
use gcsmount_gcs::{Generation, Kind, ObjectName, Result, Store};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use coverage::Coverage;
use fetch::{Group, Source, length};
use pattern::{Geometry, Pattern, Plan};
use pieces::Pieces;

/// How often a read takes over a fetch that its owner gave up. Owners give up when their file is closed; more often
/// than this in a row means that the runtime is going down.
const MAX_TAKEOVERS: usize = 16;

/// How much a reader fetches ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderConfig {
    /// The most bytes to fetch ahead of one sequential stream. 32 MiB by default.
    pub max_window: u64,
    /// Bytes in one request of a prefetch. 4 MiB by default: long enough that the round trip is a small part of it,
    /// short enough that a window holds several in parallel.
    pub part: u64,
}

impl Default for ReaderConfig {
    fn default() -> Self {
        Self {
            max_window: 32 << 20,
            part: 4 << 20,
        }
    }
}

/// What a reader reads: one generation, as it was known at open.
#[derive(Debug, Clone)]
pub struct OpenObject {
    /// The object.
    pub name: ObjectName,
    /// Its content.
    pub generation: Generation,
    /// Stored length in bytes.
    pub size: u64,
    /// CRC32C of the whole, where the store told it.
    pub crc32c: Option<u32>,
}

/// Reads of one open file. Dropping it ends its fetches.
#[derive(Debug)]
pub struct Reader {
    source: Arc<Source>,
    cache: Arc<BlockCache>,
    geometry: Geometry,
    // Neither lock is held while the other, or one of the cache's, is taken.
    pattern: Mutex<Pattern>,
    coverage: Mutex<Coverage>,
    /// Fetches under way: those of a window, and one for each read that waits.
    fetches: Mutex<JoinSet<()>>,
    runtime: Handle,
}

impl Reader {
    /// A reader of `object` through `cache`, which holds blocks of `store`. Fetches run on `runtime` and end when the
    /// reader is dropped.
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        cache: Arc<BlockCache>,
        object: OpenObject,
        runtime: Handle,
        config: ReaderConfig,
    ) -> Self {
        let block = cache.config().block_size as u64;
        let geometry = Geometry {
            size: object.size,
            block,
            part: config.part.max(block),
            max_window: config.max_window.max(block),
        };
        Self {
            pattern: Mutex::new(Pattern::new(geometry)),
            coverage: Mutex::new(Coverage::new(object.size, object.crc32c)),
            source: Arc::new(Source::new(store, object)),
            cache,
            geometry,
            fetches: Mutex::default(),
            runtime,
        }
    }

    /// The bytes at `offset`, if they are in memory: at most `len`, fewer only at the end of the object. Never blocks
    /// on I/O, and may be called from any thread; a prefetch that is due goes on.
    #[must_use]
    pub fn try_read(&self, offset: u64, len: usize) -> Option<Bytes> {
        let range = self.clip(offset, len);
        let bytes = self.in_memory(&range)?;
        if !bytes.is_empty() {
            let plan = self.pattern.lock().observe(&range, Presence::Ready);
            self.prefetch(&plan);
        }
        Some(bytes)
    }

    /// The bytes at `offset`: at most `len`, fewer only at the end of the object. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Those of [`Store::read`]: `NotFound` or `Precondition` when the generation is not the live one any more,
    /// `Corrupt` when the bytes are not the object's.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let range = self.clip(offset, len);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let presence = self.presence(&range);
        let plan = self.pattern.lock().observe(&range, presence);
        if plan == Plan::Exact && presence == Presence::Absent {
            return self.source.exact(range, self.cache.budget()).await;
        }
        self.demand(&range);
        self.prefetch(&plan);
        self.assemble(&range).await
    }

    fn clip(&self, offset: u64, len: usize) -> Range<u64> {
        let end = offset.saturating_add(len as u64).min(self.geometry.size);
        offset.min(end)..end
    }

    fn key(&self, index: u64) -> BlockKey {
        BlockKey {
            name: self.source.object.name.clone(),
            generation: self.source.object.generation,
            index,
        }
    }

    /// The presence of the range's worst block.
    fn presence(&self, range: &Range<u64>) -> Presence {
        self.geometry
            .blocks(range)
            .map(|index| self.cache.presence(&self.key(index)))
            .max()
            .unwrap_or(Presence::Ready)
    }

    fn in_memory(&self, range: &Range<u64>) -> Option<Bytes> {
        let mut pieces = Pieces::new(range);
        for index in self.geometry.blocks(range) {
            let block = self.cache.get(&self.key(index))?;
            if !self.admit(index, &block) {
                return None;
            }
            pieces.add(&self.geometry.bytes(index), &block);
        }
        Some(pieces.finish())
    }

    async fn assemble(&self, range: &Range<u64>) -> Result<Bytes> {
        let mut pieces = Pieces::new(range);
        for index in self.geometry.blocks(range) {
            let block = self.verified(index).await?;
            pieces.add(&self.geometry.bytes(index), &block);
        }
        Ok(pieces.finish())
    }

    /// The block, unless it would complete the object with a wrong checksum even when it is fetched a second time.
    async fn verified(&self, index: u64) -> Result<Block> {
        let block = self.fetched(index).await?;
        if self.admit(index, &block) {
            return Ok(block);
        }
        drop(block);
        self.cache.remove(&self.key(index));
        let block = self.fetched(index).await?;
        if self.admit(index, &block) {
            return Ok(block);
        }
        let OpenObject {
            name, generation, ..
        } = &self.source.object;
        self.cache.remove_all(name, *generation);
        tracing::error!(%name, %generation, "the bytes do not match the object's crc32c");
        Err(self
            .source
            .corrupt("the bytes do not match the object's crc32c"))
    }

    fn admit(&self, index: u64, block: &Block) -> bool {
        let bytes = self.geometry.bytes(index);
        self.coverage.lock().admit(&bytes, block.crc32c)
    }

    /// The block, fetched by us or by whoever came first.
    async fn fetched(&self, index: u64) -> Result<Block> {
        for _ in 0..MAX_TAKEOVERS {
            let follower = match self.cache.claim(&self.key(index)) {
                Claim::Ready(block) => return Ok(block),
                Claim::InFlight(follower) => follower,
                Claim::Absent(filler, follower) => {
                    self.spawn_demanded(Group::new(self.geometry.bytes(index), filler));
                    follower
                }
            };
            if let Some(outcome) = follower.wait().await {
                return outcome;
            }
        }
        Err(self
            .source
            .error(Kind::Canceled, "the fetch was given up again and again"))
    }

    /// Begins to fetch the blocks of a read that nobody is fetching, before the read waits for the first of them.
    fn demand(&self, range: &Range<u64>) {
        // No request may need more memory than there can be.
        let max = self.geometry.part.min(self.cache.budget().limit() as u64);
        for group in self.lead(range, max) {
            self.spawn_demanded(group);
        }
    }

    /// Begins to fetch what the plan wants ahead, as far as there is memory for it.
    fn prefetch(&self, plan: &Plan) {
        let Plan::Blocks { ahead } = plan else { return };
        for group in self.lead(ahead, self.geometry.part) {
            let start = group.range().start;
            let bytes = length(group.range());
            // The rest of the groups go with this one: whoever waits for a block of theirs takes over.
            let Some(lease) = self.cache.budget().try_acquire(bytes, Priority::Prefetch) else {
                self.pattern.lock().retreat(start);
                return;
            };
            let source = self.source.clone();
            self.spawn(async move { source.blocks(group, lease).await });
        }
    }

    /// Takes on the absent blocks of `range`, in groups of neighbours of at most `max` bytes.
    fn lead(&self, range: &Range<u64>, max: u64) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for index in self.geometry.blocks(range) {
            let Some(filler) = self.cache.lead(&self.key(index)) else {
                continue;
            };
            let bytes = self.geometry.bytes(index);
            match groups.last_mut().filter(|g| g.has_room_for(&bytes, max)) {
                Some(group) => group.push(&bytes, filler),
                None => groups.push(Group::new(bytes, filler)),
            }
        }
        groups
    }

    fn spawn_demanded(&self, group: Group) {
        let source = self.source.clone();
        let budget = self.cache.budget().clone();
        self.spawn(async move { source.demanded(group, &budget).await });
    }

    fn spawn(&self, fetch: impl Future<Output = ()> + Send + 'static) {
        let mut fetches = self.fetches.lock();
        while fetches.try_join_next().is_some() {}
        fetches.spawn_on(fetch, &self.runtime);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.fetches.get_mut().abort_all();
        let OpenObject {
            name, generation, ..
        } = &self.source.object;
        for range in self.pattern.get_mut().unread() {
            let blocks = self.geometry.blocks(&range);
            self.cache.disown(name, *generation, blocks);
        }
    }
}
