//! The blocks of one bucket that are in memory.
//!
//! Blocks that somebody has read are kept up to a size and are the first to give way. Blocks that were fetched ahead
//! and not read yet stay until a reader or a writer needs their memory, so that one handle's prefetch does not throw
//! out another's. A block that is being fetched is in the table of flights, and whoever asks for it waits for that.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Weak};

use gcsmount_gcs::{Generation, ObjectName};
use lru::LruCache;
use parking_lot::Mutex;

use crate::budget::Evict;
use crate::{Block, BlockKey, Budget, Filler, Follower, Priority};

/// Sizes of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// Bytes in a block; the last one of an object is shorter. 1 MiB by default: the largest FUSE request, so that an
    /// aligned one is one slice.
    pub block_size: usize,
    /// The most bytes of blocks to keep after they were read. 32 MiB by default: the kernel's page cache has them too,
    /// so this is for readers of one object that run close behind each other.
    pub max_read: usize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            block_size: 1 << 20,
            max_read: 32 << 20,
        }
    }
}

/// Blocks of one bucket, seen by one identity. Caches of several buckets share a [`Budget`].
pub struct BlockCache {
    config: CacheConfig,
    budget: Budget,
    /// Held for map work only. Blocks are dropped after it is released.
    shelf: Mutex<Shelf>,
}

struct Shelf {
    /// Fetched ahead, not read yet.
    fresh: LruCache<BlockKey, Block>,
    /// Read at least once, or not wanted any more.
    read: LruCache<BlockKey, Block>,
    read_bytes: usize,
    flights: HashMap<BlockKey, Follower>,
}

/// What becomes of a block that somebody needs.
#[derive(Debug)]
pub enum Claim {
    /// Here it is.
    Ready(Block),
    /// Somebody is fetching it.
    InFlight(Follower),
    /// The caller has to fetch it, and can wait for it like everybody else.
    Absent(Filler, Follower),
}

/// Where a block is, the best place first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// In memory.
    Ready,
    /// Being fetched.
    InFlight,
    /// Nowhere.
    Absent,
}

impl BlockCache {
    /// An empty cache under `budget`.
    #[must_use]
    pub fn new(budget: &Budget, config: CacheConfig) -> Arc<Self> {
        let cache = Arc::new(Self {
            config,
            budget: budget.clone(),
            shelf: Mutex::new(Shelf::new()),
        });
        let evictable: Weak<dyn Evict> = Arc::<Self>::downgrade(&cache);
        budget.add_evictable(evictable);
        cache
    }

    /// The sizes.
    #[must_use]
    pub fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// The budget that the blocks are held under.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The block, if it is in memory. Takes one short lock and counts as a read of it.
    #[must_use]
    pub fn get(&self, key: &BlockKey) -> Option<Block> {
        let mut shelf = self.shelf.lock();
        let block = shelf.get(key)?;
        let surplus = shelf.trim(self.config.max_read);
        drop(shelf);
        drop(surplus);
        Some(block)
    }

    /// The block for somebody who needs it, or how to come by it.
    #[must_use]
    pub fn claim(self: &Arc<Self>, key: &BlockKey) -> Claim {
        if let Some(block) = self.get(key) {
            return Claim::Ready(block);
        }
        // Between the two locks the block may have landed: `board` looks again.
        self.board(key)
    }

    /// The duty to fetch a block ahead of its readers; `None` when it is here or on its way.
    #[must_use]
    pub fn lead(self: &Arc<Self>, key: &BlockKey) -> Option<Filler> {
        match self.presence(key) {
            Presence::Absent => match self.board(key) {
                Claim::Absent(filler, _) => Some(filler),
                Claim::Ready(_) | Claim::InFlight(_) => None,
            },
            Presence::Ready | Presence::InFlight => None,
        }
    }

    /// Where the block is at this moment. Does not count as a read.
    #[must_use]
    pub fn presence(&self, key: &BlockKey) -> Presence {
        let shelf = self.shelf.lock();
        if shelf.fresh.contains(key) || shelf.read.contains(key) {
            Presence::Ready
        } else if shelf.flights.contains_key(key) {
            Presence::InFlight
        } else {
            Presence::Absent
        }
    }

    /// Says that nobody is going to read these blocks, given by index, that were fetched ahead: they go first.
    pub fn disown(&self, name: &ObjectName, generation: Generation, indices: Range<u64>) {
        let mut shelf = self.shelf.lock();
        for index in indices {
            let key = BlockKey {
                name: name.clone(),
                generation,
                index,
            };
            shelf.disown(&key);
        }
        let surplus = shelf.trim(self.config.max_read);
        drop(shelf);
        drop(surplus);
    }

    /// Drops one block, because it turned out to be wrong.
    pub fn remove(&self, key: &BlockKey) {
        let removed = self.shelf.lock().remove(key);
        drop(removed);
    }

    /// Drops every block of a content.
    pub fn remove_all(&self, name: &ObjectName, generation: Generation) {
        let mut shelf = self.shelf.lock();
        let keys = shelf.keys_of(name, generation);
        let removed: Vec<_> = keys.iter().map(|key| shelf.remove(key)).collect();
        drop(shelf);
        drop(removed);
    }

    /// Drops every block. Fetches go on.
    pub fn clear(&self) {
        let everything = self.shelf.lock().evict(usize::MAX, true);
        drop(everything);
    }

    /// Bytes in blocks: fetched ahead and not read yet, and read.
    #[must_use]
    pub fn bytes(&self) -> (usize, usize) {
        let shelf = self.shelf.lock();
        let fresh = shelf.fresh.iter().map(|(_, b)| b.bytes.len()).sum();
        (fresh, shelf.read_bytes)
    }

    /// Blocks being fetched.
    #[must_use]
    pub fn flights(&self) -> usize {
        self.shelf.lock().flights.len()
    }

    fn board(self: &Arc<Self>, key: &BlockKey) -> Claim {
        let mut shelf = self.shelf.lock();
        if let Some(block) = shelf.get(key) {
            return Claim::Ready(block);
        }
        match shelf.flights.entry(key.clone()) {
            Entry::Occupied(flight) => Claim::InFlight(flight.get().clone()),
            Entry::Vacant(free) => {
                let (filler, follower) = Filler::new(self.clone(), key.clone());
                free.insert(follower.clone());
                Claim::Absent(filler, follower)
            }
        }
    }

    /// Ends a flight with its block; `read` says that somebody has waited for it.
    pub(crate) fn land(&self, key: &BlockKey, block: Block, read: bool) {
        let mut shelf = self.shelf.lock();
        shelf.flights.remove(key);
        shelf.insert(key.clone(), block, read);
        let surplus = shelf.trim(self.config.max_read);
        drop(shelf);
        drop(surplus);
    }

    /// Ends a flight without a block.
    pub(crate) fn abandon(&self, key: &BlockKey) {
        self.shelf.lock().flights.remove(key);
    }
}

impl Evict for BlockCache {
    fn evict(&self, bytes: usize, priority: Priority) -> usize {
        let fresh_too = match priority {
            Priority::Prefetch => false,
            Priority::Upload | Priority::Reader => true,
        };
        let evicted = self.shelf.lock().evict(bytes, fresh_too);
        evicted.iter().map(|block| block.bytes.len()).sum()
    }
}

impl Shelf {
    fn new() -> Self {
        Self {
            fresh: LruCache::unbounded(),
            read: LruCache::unbounded(),
            read_bytes: 0,
            flights: HashMap::new(),
        }
    }

    fn get(&mut self, key: &BlockKey) -> Option<Block> {
        if let Some(block) = self.read.get(key) {
            return Some(block.clone());
        }
        let (key, block) = self.fresh.pop_entry(key)?;
        self.insert(key, block.clone(), true);
        Some(block)
    }

    fn insert(&mut self, key: BlockKey, block: Block, read: bool) {
        if read {
            self.read_bytes += block.bytes.len();
            let before = self.read.put(key, block);
            self.read_bytes -= before.map_or(0, |block| block.bytes.len());
        } else {
            self.fresh.put(key, block);
        }
    }

    fn remove(&mut self, key: &BlockKey) -> Option<Block> {
        let read = self.read.pop(key);
        self.read_bytes -= read.as_ref().map_or(0, |block| block.bytes.len());
        read.or_else(|| self.fresh.pop(key))
    }

    fn disown(&mut self, key: &BlockKey) {
        if let Some((key, block)) = self.fresh.pop_entry(key) {
            self.insert(key.clone(), block, true);
            self.read.demote(&key);
        }
    }

    fn keys_of(&self, name: &ObjectName, generation: Generation) -> Vec<BlockKey> {
        let all = self.fresh.iter().chain(self.read.iter());
        all.map(|(key, _)| key)
            .filter(|key| key.generation == generation && key.name == *name)
            .cloned()
            .collect()
    }

    fn pop_read(&mut self) -> Option<Block> {
        let (_, block) = self.read.pop_lru()?;
        self.read_bytes -= block.bytes.len();
        Some(block)
    }

    /// Takes out what was read and is more than `max` bytes, oldest first.
    fn trim(&mut self, max: usize) -> Vec<Block> {
        let mut surplus = Vec::new();
        while self.read_bytes > max
            && let Some(block) = self.pop_read()
        {
            surplus.push(block);
        }
        surplus
    }

    fn evict(&mut self, bytes: usize, fresh_too: bool) -> Vec<Block> {
        let mut evicted = Vec::new();
        let mut sum = 0;
        while sum < bytes {
            let block = match self.pop_read() {
                None if fresh_too => self.fresh.pop_lru().map(|(_, block)| block),
                read => read,
            };
            let Some(block) = block else { break };
            sum += block.bytes.len();
            evicted.push(block);
        }
        evicted
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fresh, read) = self.bytes();
        f.debug_struct("BlockCache")
            .field("fresh_bytes", &fresh)
            .field("read_bytes", &read)
            .field("flights", &self.flights())
            .finish_non_exhaustive()
    }
}
