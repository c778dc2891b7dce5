//! From a reader to the disk, on one thread.

use std::io;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::entry::{COST, Entry, OVERHEAD};
use super::home::{Found, Home};
use super::index::Header;
use super::key::{Key, Role};
use super::queue::{Fill, Work};
use super::shelf::{Aside, Room, Shelf};
use super::{Inner, State, count};
use crate::Block;

/// Space on a disk comes in pages.
const PAGE: u64 = 4096;

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filled {
    Written,
    /// It was there already.
    Needless,
    /// There is no room for it.
    NoRoom,
    /// It is not what was fetched.
    Corrupt,
}

impl Inner {
    /// Attaches for the first time.
    pub(super) fn begin(&self) {
        if let Err(error) = self.home() {
            self.fills.fail(Instant::now(), &error);
        }
    }

    /// Queues a block, or drops it.
    pub(super) fn put(&self, key: Key, header: &Arc<Header>, index: u64, block: &Block) {
        let sound = header.length(index) == Some(block.bytes.len() as u64);
        let queued = sound
            && self.fills.allows(Instant::now())
            && self
                .queue
                .push(key, header, index, &block.bytes, block.crc32c);
        if !queued {
            count(&self.counts.dropped);
        }
    }

    /// Makes a content unfindable, and its files go.
    pub(super) fn distrust(&self, key: Key) {
        self.queue.purge(|other| *other == key);
        self.discard(&key);
    }

    /// The same, but for what is about to be written.
    pub(super) fn discard(&self, key: &Key) {
        self.doom(key);
        self.queue.tidy();
    }

    /// Makes a content unfindable. Its files go the next time that the doomed are buried.
    fn doom(&self, key: &Key) {
        let closed = self.state.lock().shelf.doom(key);
        drop(closed);
    }

    /// Makes every generation of an object unfindable, and their files go.
    pub(super) fn forget_object(&self, object: u128) {
        self.queue.purge(|other| other.object == object);
        let closed = self.state.lock().shelf.doom_object(object);
        drop(closed);
        self.queue.tidy();
    }

    /// Writes what is queued until the queue is closed.
    pub(super) fn write(&self) {
        while let Some(work) = self.queue.next() {
            match &work {
                Work::Fill(fill) => self.fill(fill),
                Work::Tidy => self.tidy(),
            }
            self.queue.done(work);
        }
    }

    fn tidy(&self) {
        let home = self.state.lock().home.clone();
        if let Some(Err(error)) = home.map(|home| self.bury(&home)) {
            self.fills.fail(Instant::now(), &error);
        }
    }

    fn fill(&self, fill: &Fill) {
        // The disk may have failed while this was waiting.
        let filled = if self.fills.allows(Instant::now()) {
            self.try_fill(fill)
        } else {
            Ok(Filled::NoRoom)
        };
        match filled {
            Ok(Filled::Written) => {
                count(&self.counts.filled);
                self.fills.succeed();
            }
            Ok(Filled::Needless) => {}
            Ok(Filled::NoRoom) => count(&self.counts.dropped),
            Ok(Filled::Corrupt) => self.corrupt("a block on its way", &fill.header.name),
            Err(error) => {
                count(&self.counts.dropped);
                if is_of_the_disk(&error) {
                    self.fills.fail(Instant::now(), &error);
                } else {
                    tracing::debug!(%error, "a block is not kept");
                }
            }
        }
    }

    fn try_fill(&self, fill: &Fill) -> io::Result<Filled> {
        if crc32c::crc32c(&fill.bytes) != fill.crc32c {
            return Ok(Filled::Corrupt);
        }
        let home = self.home()?;
        self.bury(&home)?;
        match self.opened(&fill.key) {
            Some(entry) if entry.header().is_of(&fill.header) => {
                if entry.has(fill.index)? {
                    return Ok(Filled::Needless);
                }
                let cost = cost(fill);
                if !self.make_room(&home, &fill.key, cost, Some((&entry, fill.index)))? {
                    return Ok(Filled::NoRoom);
                }
                self.write_block(&entry, fill, cost)?;
            }
            // It cannot be opened at this moment.
            None if self.knows(&fill.key) => return Ok(Filled::NoRoom),
            other => {
                // In blocks of another size, or another object whose hash is the same.
                if other.is_some() {
                    self.doom(&fill.key);
                }
                drop(other);
                self.bury(&home)?;
                if !self.fill_new(&home, fill)? {
                    return Ok(Filled::NoRoom);
                }
            }
        }
        Ok(Filled::Written)
    }

    /// Writes the first block of a content.
    fn fill_new(&self, home: &Arc<Home>, fill: &Fill) -> io::Result<bool> {
        let cost = cost(fill);
        // Somebody may still use what had the name before.
        let taken = self.state.lock().shelf.is_doomed(&fill.key);
        if taken || !self.make_room(home, &fill.key, cost, None)? {
            return Ok(false);
        }
        let created = Entry::create(home, fill.key, (*fill.header).clone());
        let mut state = self.state.lock();
        // It counts from now on, so that it is found and removed where it is not finished.
        state.shelf.add(fill.key, 0);
        let entry = match created {
            Ok(entry) => Arc::new(entry),
            Err(error) => {
                state.shelf.settle(&fill.key, cost, None);
                drop(state);
                self.doom(&fill.key);
                return Err(error);
            }
        };
        let (_, closed) = state.shelf.install(entry.clone());
        drop(state);
        drop(closed);
        let written = self.write_block(&entry, fill, cost);
        if written.is_err() && entry.is_empty().unwrap_or(true) {
            // A full disk needs the room back, which it has when nobody uses the files.
            drop(entry);
            self.doom(&fill.key);
            self.bury(home)?;
        }
        written.map(|()| true)
    }

    /// Writes a block for which `cost` is reserved.
    fn write_block(&self, entry: &Entry, fill: &Fill, cost: u64) -> io::Result<()> {
        let written = entry.write(fill.index, &fill.bytes, fill.crc32c);
        let allocated = entry.allocated();
        let mut state = self.state.lock();
        state
            .shelf
            .settle(&fill.key, cost, allocated.as_ref().ok().copied());
        drop(state);
        written
    }

    /// Reserves `bytes` for `key`, evicting for it; blocks of `own` but the one given are the last to go.
    fn make_room(
        &self,
        home: &Home,
        key: &Key,
        bytes: u64,
        own: Option<(&Entry, u64)>,
    ) -> io::Result<bool> {
        loop {
            let room = self.state.lock().shelf.reserve(key, bytes);
            match room {
                Room::Reserved => return Ok(true),
                Room::Bury(closed) => {
                    count(&self.counts.evictions);
                    drop(closed);
                    self.bury(home)?;
                }
                Room::Unlink(aside) => self.unlink(home, aside)?,
                Room::Full => {
                    let Some((entry, index)) = own else {
                        return Ok(false);
                    };
                    if bytes > self.config.limit || !self.shrink(entry, index)? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Gives up a block of a content for another of the same. `false`: that frees nothing.
    fn shrink(&self, entry: &Entry, spared: u64) -> io::Result<bool> {
        let before = entry.allocated()?;
        if !entry.give_way(spared)? {
            return Ok(false);
        }
        let after = entry.allocated()?;
        self.state.lock().shelf.settle(&entry.key, 0, Some(after));
        count(&self.counts.evictions);
        Ok(after < before)
    }

    /// Removes the files of what is doomed. Where somebody uses one, only its index: it is not found by a later process
    /// either, and its bytes count until nobody uses them.
    fn bury(&self, home: &Home) -> io::Result<()> {
        let graves = self.state.lock().shelf.graves();
        for (key, used) in graves {
            home.unlink(&key.index())?;
            if !used {
                home.unlink(&key.data())?;
                self.state.lock().shelf.buried(&key);
            }
        }
        Ok(())
    }

    fn unlink(&self, home: &Home, aside: Aside) -> io::Result<()> {
        let unlinked = aside.names.iter().try_for_each(|name| home.unlink(name));
        let mut state = self.state.lock();
        state.shelf.unlinked(&aside);
        if unlinked.is_err() {
            state.shelf.add_aside(aside);
        }
        unlinked
    }

    /// The directory, taken again if somebody has removed it.
    fn home(&self) -> io::Result<Arc<Home>> {
        let home = self.state.lock().home.clone();
        if let Some(home) = home.filter(|home| !home.is_gone()) {
            return Ok(home);
        }
        let home = Arc::new(Home::attach(&self.config.dir)?);
        let mut shelf = Shelf::new(self.config.limit, self.max_entries);
        stock(&mut shelf, &home)?;
        let state = State {
            home: Some(home.clone()),
            shelf,
        };
        let before = std::mem::replace(&mut *self.state.lock(), state);
        drop(before);
        self.evict_surplus(&home)?;
        Ok(home)
    }

    /// Evicts what is more than the limit, which may have been another when it was written.
    fn evict_surplus(&self, home: &Home) -> io::Result<()> {
        let nobody = Key::first_of(0);
        if self.make_room(home, &nobody, 0, None)? {
            self.state.lock().shelf.settle(&nobody, 0, None);
        }
        Ok(())
    }
}

/// Puts what is in the directory on the shelf, in the order of its last use, and removes what is not whole.
fn stock(shelf: &mut Shelf, home: &Home) -> io::Result<()> {
    let mut pairs: Vec<(SystemTime, Key, u64)> = Vec::new();
    let mut data: Option<(Key, Found)> = None;
    for found in home.scan()? {
        match found.role {
            Role::Data(key) => {
                if let Some((_, orphan)) = data.replace((key, found)) {
                    home.clear(&orphan.name)?;
                }
            }
            Role::Index(key) => match data.take() {
                Some((same, data)) if same == key => {
                    let bytes = data.bytes + found.bytes + OVERHEAD;
                    pairs.push((found.modified, key, bytes));
                }
                other => {
                    home.clear(&found.name)?;
                    data = other;
                }
            },
            Role::Aside => shelf.add_aside(Aside {
                names: vec![found.name],
                bytes: found.bytes + OVERHEAD,
            }),
            Role::Other => {}
        }
    }
    if let Some((_, orphan)) = data {
        home.clear(&orphan.name)?;
    }
    pairs.sort_unstable();
    for (_, key, bytes) in pairs {
        shelf.add(key, bytes);
    }
    Ok(())
}

/// The most that writing a block takes on the disk.
fn cost(fill: &Fill) -> u64 {
    (fill.bytes.len() as u64).next_multiple_of(PAGE) + COST
}

/// Whether an error says something of the disk, and not of one file.
fn is_of_the_disk(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput, Unsupported};
    !matches!(
        error.kind(),
        FileTooLarge | InvalidData | InvalidInput | Unsupported
    )
}
