//! Which contents are on the disk, what they take, and which goes first.
//!
//! No I/O happens here. A content that has to go is *doomed*: nobody finds it any more, and its bytes count until its
//! files are gone. Descriptors that fall out come back to the caller, who closes them without the lock.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use lru::LruCache;

use super::entry::Entry;
use super::key::Key;

/// The most contents whose files are kept open, two descriptors each: a process may have 1024 by default, and sockets
/// need theirs.
const MAX_OPEN: usize = 64;
/// The most contents. Each takes some 200 bytes of memory.
pub(super) const MAX_ENTRIES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Shelf {
    limit: u64,
    max_entries: usize,
    /// In the order of use.
    entries: LruCache<Key, Slot>,
    /// The same, in the order of objects.
    objects: BTreeSet<Key>,
    open: LruCache<Key, Arc<Entry>>,
    doomed: BTreeMap<Key, Slot>,
    /// Files that nobody reads, which go before everything else.
    aside: Vec<Aside>,
    /// Bytes on the disk, of all of these.
    used: u64,
    /// Bytes that somebody is about to write.
    reserved: u64,
}

#[derive(Debug, Default)]
struct Slot {
    bytes: u64,
    /// Whoever reads it or has passed it to the kernel.
    entry: Weak<Entry>,
}

/// Files of a version that we do not know.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Aside {
    pub(super) names: Vec<String>,
    pub(super) bytes: u64,
}

/// Where a content is.
#[derive(Debug)]
pub(super) enum Place {
    Open(Arc<Entry>),
    OnDisk,
}

/// What came of asking for room.
#[derive(Debug)]
pub(super) enum Room {
    /// It is reserved.
    Reserved,
    /// First the doomed have to be buried. The descriptors of one of them may be closed.
    Bury(Option<Arc<Entry>>),
    /// First these files have to go.
    Unlink(Aside),
    /// There is none, and nothing that may go.
    Full,
}

impl Shelf {
    /// An empty shelf for `limit` bytes in `max_entries` contents.
    pub(super) fn new(limit: u64, max_entries: usize) -> Self {
        Self {
            limit,
            max_entries,
            entries: LruCache::unbounded(),
            objects: BTreeSet::new(),
            open: LruCache::unbounded(),
            doomed: BTreeMap::new(),
            aside: Vec::new(),
            used: 0,
            reserved: 0,
        }
    }

    /// Bytes on the disk and on their way there.
    pub(super) fn bytes(&self) -> u64 {
        self.used + self.reserved
    }

    /// How many contents.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.entries.contains(key)
    }

    pub(super) fn is_doomed(&self, key: &Key) -> bool {
        self.doomed.contains_key(key)
    }

    /// Takes in a content that is on the disk, as the one used last.
    pub(super) fn add(&mut self, key: Key, bytes: u64) {
        let slot = Slot {
            bytes,
            ..Slot::default()
        };
        self.used += bytes;
        self.entries.put(key, slot);
        self.objects.insert(key);
    }

    /// Takes in files that nobody is to read.
    pub(super) fn add_aside(&mut self, aside: Aside) {
        self.used += aside.bytes;
        self.aside.push(aside);
    }

    /// A content that is used now.
    pub(super) fn find(&mut self, key: &Key) -> Option<Place> {
        let slot = self.entries.get(key)?;
        let entry = slot.entry.upgrade();
        self.open.promote(key);
        Some(entry.map_or(Place::OnDisk, Place::Open))
    }

    /// Keeps a content open. The one to use, which somebody may have opened before, and those to close.
    pub(super) fn install(&mut self, entry: Arc<Entry>) -> (Option<Arc<Entry>>, Vec<Arc<Entry>>) {
        let Some(slot) = self.entries.peek_mut(&entry.key) else {
            return (None, vec![entry]);
        };
        if let Some(first) = slot.entry.upgrade() {
            return (Some(first), vec![entry]);
        }
        slot.entry = Arc::downgrade(&entry);
        let before = self.open.put(entry.key, entry.clone());
        let mut closed: Vec<_> = before.into_iter().collect();
        while self.open.len() > MAX_OPEN
            && let Some((_, last)) = self.open.pop_lru()
        {
            closed.push(last);
        }
        (Some(entry), closed)
    }

    /// Sets a content aside; its descriptors to close.
    pub(super) fn set_aside(&mut self, key: &Key, names: Vec<String>) -> Option<Arc<Entry>> {
        let slot = self.entries.pop(key)?;
        self.objects.remove(key);
        self.aside.push(Aside {
            names,
            bytes: slot.bytes,
        });
        self.open.pop(key)
    }

    /// Makes a content go; its descriptors to close.
    pub(super) fn doom(&mut self, key: &Key) -> Option<Arc<Entry>> {
        let slot = self.entries.pop(key)?;
        self.objects.remove(key);
        self.doomed.insert(*key, slot);
        self.open.pop(key)
    }

    /// Makes every generation of an object go; the descriptors to close.
    pub(super) fn doom_object(&mut self, object: u128) -> Vec<Arc<Entry>> {
        let all: Vec<_> = self
            .objects
            .range(Key::first_of(object)..)
            .take_while(|key| key.object == object)
            .copied()
            .collect();
        all.iter().filter_map(|key| self.doom(key)).collect()
    }

    /// The doomed. Of those that somebody uses, `true`, the bytes are not free yet.
    pub(super) fn graves(&self) -> Vec<(Key, bool)> {
        let all = self.doomed.iter();
        all.map(|(key, slot)| (*key, slot.entry.strong_count() > 0))
            .collect()
    }

    /// The files of a doomed content are gone.
    pub(super) fn buried(&mut self, key: &Key) {
        if let Some(slot) = self.doomed.remove(key) {
            self.used = self.used.saturating_sub(slot.bytes);
        }
    }

    /// Files that were set aside are gone.
    pub(super) fn unlinked(&mut self, aside: &Aside) {
        self.used = self.used.saturating_sub(aside.bytes);
    }

    /// Reserves `bytes` for `key`, or says what has to go first: the one that was used longest ago, but not what
    /// somebody uses.
    pub(super) fn reserve(&mut self, key: &Key, bytes: u64) -> Room {
        let new = usize::from(!self.entries.contains(key));
        let fits = self
            .bytes()
            .checked_add(bytes)
            .is_some_and(|all| all <= self.limit);
        if fits && self.entries.len() + new <= self.max_entries {
            self.reserved += bytes;
            return Room::Reserved;
        }
        if bytes > self.limit {
            return Room::Full;
        }
        if let Some(aside) = self.aside.pop() {
            return Room::Unlink(aside);
        }
        match self.victim(key) {
            Some(victim) => Room::Bury(self.doom(&victim)),
            None => Room::Full,
        }
    }

    fn victim(&self, spared: &Key) -> Option<Key> {
        let mut oldest_first = self.entries.iter().rev();
        oldest_first
            .find(|(key, slot)| *key != spared && !self.is_pinned(key, slot))
            .map(|(key, _)| *key)
    }

    fn is_pinned(&self, key: &Key, slot: &Slot) -> bool {
        slot.entry.strong_count() > usize::from(self.open.contains(key))
    }

    /// Gives back a reservation after the content came to take `bytes`; `None` when nobody knows.
    pub(super) fn settle(&mut self, key: &Key, reserved: u64, bytes: Option<u64>) {
        self.reserved = self.reserved.saturating_sub(reserved);
        let slot = match self.entries.peek_mut(key) {
            Some(slot) => Some(slot),
            None => self.doomed.get_mut(key),
        };
        if let Some(slot) = slot {
            let now = bytes.unwrap_or(slot.bytes + reserved);
            self.used = self.used.saturating_sub(slot.bytes) + now;
            slot.bytes = now;
        }
    }
}
