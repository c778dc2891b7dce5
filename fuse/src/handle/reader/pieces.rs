//! The bytes of a read: from one block a slice of it, from several a copy.
//!
//! The copy is not under the budget, which may not be waited for here: it is at most one FUSE request, and there are
//! only so many of those at a time.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use gcsmount_cache::Block;

use super::fetch::length;

/// The bytes of one read, under way.
pub(super) struct Pieces {
    wanted: Range<u64>,
    slice: Bytes,
    copy: BytesMut,
}

impl Pieces {
    pub(super) fn new(wanted: &Range<u64>) -> Self {
        Self {
            wanted: wanted.clone(),
            slice: Bytes::new(),
            copy: BytesMut::new(),
        }
    }

    /// Takes what is wanted of the block that holds `bytes` of the object. Blocks come in order.
    pub(super) fn add(&mut self, bytes: &Range<u64>, block: &Block) {
        let start = self.wanted.start.max(bytes.start);
        let end = self.wanted.end.min(bytes.end);
        let inside = length(&(bytes.start..start))..length(&(bytes.start..end));
        if (start..end) == self.wanted {
            self.slice = block.bytes.slice(inside);
        } else {
            self.copy.reserve(length(&(start..self.wanted.end)));
            self.copy.extend_from_slice(&block.bytes[inside]);
        }
    }

    pub(super) fn finish(self) -> Bytes {
        if self.copy.is_empty() {
            self.slice
        } else {
            self.copy.freeze()
        }
    }
}
