//! A block: a fixed piece of one generation of an object, in one contiguous buffer.

use bytes::Bytes;
use gcsmount_gcs::{Generation, ObjectName};

use crate::Lease;

/// Which piece of which content. Generations are immutable, so a key cannot go stale.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BlockKey {
    /// The object, in the bucket of the cache.
    pub name: ObjectName,
    /// Its content.
    pub generation: Generation,
    /// Offset divided by the block size of the cache.
    pub index: u64,
}

/// The bytes of a block, and their checksum. Clones share the bytes.
#[derive(Debug, Clone)]
pub struct Block {
    /// A full block, or the rest of the object. Their memory goes back to the budget with the last slice of them.
    pub bytes: Bytes,
    /// CRC32C of the bytes.
    pub crc32c: u32,
}

impl Block {
    /// A block of the lease's size that `read` puts into a buffer of zeros; it tells the CRC32C. The lease comes back
    /// when there is none.
    ///
    /// # Errors
    /// The lease, where `read` answers `None`.
    pub fn read(lease: Lease, read: impl FnOnce(&mut [u8]) -> Option<u32>) -> Result<Self, Lease> {
        let mut bytes = vec![0; lease.bytes()];
        match read(&mut bytes) {
            Some(crc32c) => Ok(Self {
                bytes: Bytes::from_owner(Leased { bytes, lease }),
                crc32c,
            }),
            None => Err(lease),
        }
    }
}

/// A block under construction: memory that was leased, filled from the front.
#[derive(Debug)]
pub struct BlockBuffer {
    leased: Leased,
    crc32c: u32,
}

#[derive(Debug)]
struct Leased {
    bytes: Vec<u8>,
    lease: Lease,
}

impl AsRef<[u8]> for Leased {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BlockBuffer {
    /// An empty buffer of the lease's size.
    #[must_use]
    pub fn new(lease: Lease) -> Self {
        Self {
            leased: Leased {
                bytes: Vec::with_capacity(lease.bytes()),
                lease,
            },
            crc32c: 0,
        }
    }

    /// How many bytes are still missing.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.leased.lease.bytes() - self.leased.bytes.len()
    }

    /// Copies as much of `bytes` as there is room for; how many that was.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.remaining())];
        self.leased.bytes.extend_from_slice(bytes);
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes);
        bytes.len()
    }

    /// The block, of the bytes that were filled in.
    #[must_use]
    pub fn freeze(self) -> Block {
        Block {
            bytes: Bytes::from_owner(self.leased),
            crc32c: self.crc32c,
        }
    }
}
