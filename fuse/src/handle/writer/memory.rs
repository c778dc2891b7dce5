//! Content that is small enough to hold.

use bytes::{Bytes, BytesMut};
use gcsmount_cache::Lease;

/// The least that is taken from the budget at a time, so that many small writes take few leases.
const STEP: usize = 4 << 10;

/// Bytes of a file from some offset to its end.
#[derive(Debug)]
pub(super) struct Memory {
    /// Where in the file the bytes begin. What is before is the base's.
    pub(super) start: u64,
    bytes: BytesMut,
    leases: Vec<Lease>,
    /// Whether the bucket does not have this.
    pub(super) dirty: bool,
}

impl Memory {
    /// Nothing, behind `start` bytes of the base.
    pub(super) fn from(start: u64) -> Self {
        Self {
            start,
            bytes: BytesMut::new(),
            leases: Vec::new(),
            dirty: true,
        }
    }

    /// Length in bytes, without what is before the start.
    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Where the file ends.
    pub(super) fn end(&self) -> u64 {
        self.start + self.len()
    }

    /// Makes room for `len` bytes in all, under what `lease` gives. `false`: the memory is not there, and nothing has
    /// changed.
    pub(super) fn reserve(&mut self, len: u64, lease: impl FnOnce(usize) -> Option<Lease>) -> bool {
        let Ok(len) = usize::try_from(len) else {
            return false;
        };
        let leased: usize = self.leases.iter().map(Lease::bytes).sum();
        if len > leased {
            // Doubling, as the buffer itself grows.
            let want = len.next_power_of_two().max(STEP);
            let Some(lease) = lease(want - leased) else {
                return false;
            };
            self.leases.push(lease);
        }
        self.bytes.reserve(len.saturating_sub(self.bytes.len()));
        true
    }

    /// Puts `data` at `offset` of the file, at or behind the start; a gap is filled with zeros. There is room for it.
    pub(super) fn put(&mut self, offset: u64, data: &[u8]) {
        let at = index(offset - self.start);
        let end = at + data.len();
        if at == self.bytes.len() {
            self.bytes.extend_from_slice(data);
        } else {
            if end > self.bytes.len() {
                self.bytes.resize(end, 0);
            }
            self.bytes[at..end].copy_from_slice(data);
        }
        self.dirty = true;
    }

    /// Ends the file at `size`, at or behind the start. There is room for it.
    pub(super) fn resize(&mut self, size: u64) {
        self.bytes.resize(index(size - self.start), 0);
        self.dirty = true;
    }

    /// The bytes from `offset` of the file, at or behind the start, at most `len`.
    pub(super) fn slice(&self, offset: u64, len: usize) -> &[u8] {
        let at = index(offset - self.start).min(self.bytes.len());
        let end = at.saturating_add(len).min(self.bytes.len());
        &self.bytes[at..end]
    }

    /// Takes the bytes out for the time of an upload; [`Memory::give_back`] returns them.
    pub(super) fn lend(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).freeze()
    }

    /// Takes the bytes back. Copies them only if the store has kept a reference.
    pub(super) fn give_back(&mut self, bytes: Bytes) {
        self.bytes = bytes
            .try_into_mut()
            .unwrap_or_else(|kept| BytesMut::from(kept.as_ref()));
    }
}

/// An offset in a buffer that is in memory.
fn index(offset: u64) -> usize {
    // The crate is for 64-bit machines only.
    usize::try_from(offset).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use gcsmount_cache::{Budget, Priority};

    use super::*;

    fn from(budget: &Budget) -> impl Fn(usize) -> Option<Lease> {
        |bytes| budget.try_acquire(bytes, Priority::Upload)
    }

    #[test]
    fn gaps_are_zeros_and_overwrites_stay_in_place() {
        let budget = Budget::new(1 << 20);
        let mut memory = Memory::from(10);
        assert!(memory.reserve(8, from(&budget)));
        memory.put(10, b"ab");
        memory.put(14, b"ef");
        memory.put(11, b"B");
        assert_eq!(memory.slice(10, 100), b"aB\0\0ef");
        assert_eq!(memory.end(), 16);
        memory.resize(13);
        assert_eq!(memory.slice(11, 1), b"B");
        assert_eq!(memory.slice(13, 1), b"");
    }

    #[test]
    fn memory_is_leased_and_returned() {
        let budget = Budget::new(64 << 10);
        let mut memory = Memory::from(0);
        assert!(memory.reserve(5 << 10, from(&budget)));
        assert_eq!(budget.used(), 8 << 10);
        assert!(memory.reserve(6 << 10, from(&budget)));
        assert_eq!(budget.used(), 8 << 10);
        assert!(!memory.reserve(60 << 10, from(&budget)));
        drop(memory);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn lent_bytes_come_back() {
        let budget = Budget::new(64 << 10);
        let mut memory = Memory::from(0);
        assert!(memory.reserve(3, from(&budget)));
        memory.put(0, b"abc");
        let lent = memory.lend();
        let kept = lent.clone();
        memory.give_back(lent);
        memory.put(0, b"x");
        assert_eq!(memory.slice(0, 9), b"xbc");
        assert_eq!(kept, "abc");
    }
}
