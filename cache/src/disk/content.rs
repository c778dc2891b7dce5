//! How a reader sees the cache.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use gcsmount_gcs::{Generation, ObjectName};

use super::entry::Entry;
use super::index::Header;
use super::key::Key;
use super::{DiskCache, Scope};
use crate::{Block, Lease};

/// The contents of one [`Scope`].
#[derive(Debug, Clone)]
pub struct Volume {
    cache: Arc<DiskCache>,
    scope: Scope,
}

/// One generation of an object, on the disk or not. Clones are of the same.
#[derive(Debug, Clone)]
pub struct Content {
    cache: Arc<DiskCache>,
    pub(super) key: Key,
    pub(super) header: Arc<Header>,
}

/// What came of a read.
#[derive(Debug)]
pub enum Found {
    /// The block.
    Block(Block),
    /// It is not there: here is the lease to fetch it with.
    Nothing(Lease),
    /// The disk does not answer, and has kept the lease. To be fetched by whoever takes a lease of their own.
    Late,
}

/// A content with every byte on the disk. It stays there for as long as this lives.
#[derive(Debug)]
pub struct Whole {
    pub(super) file: File,
    /// What keeps it from being evicted.
    pub(super) _entry: Arc<Entry>,
}

impl AsFd for Whole {
    /// The object's bytes from its first to its last, open for reading.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Volume {
    pub(super) fn new(cache: Arc<DiskCache>, scope: Scope) -> Self {
        Self { cache, scope }
    }

    /// The cache that it is in.
    #[must_use]
    pub fn cache(&self) -> &Arc<DiskCache> {
        &self.cache
    }

    /// A generation of `size` bytes; `crc32c` is that of all of them, where the store told it. No I/O.
    #[must_use]
    pub fn content(
        &self,
        name: &ObjectName,
        generation: Generation,
        size: u64,
        crc32c: Option<u32>,
    ) -> Content {
        let header = Header {
            bucket: self.scope.bucket.as_str().to_owned(),
            realm: self.scope.realm.clone(),
            name: name.as_str().to_owned(),
            generation: generation.0,
            size,
            crc32c,
            block_size: self.cache.inner.config.block_size as u64,
        };
        Content {
            cache: self.cache.clone(),
            key: Key::new(&self.scope, name, generation),
            header: Arc::new(header),
        }
    }

    /// Drops every generation of an object, because it was deleted or replaced: what nobody will ask for need not
    /// wait for its turn to be evicted. Nobody finds it any more; its files go later. No I/O.
    pub fn forget(&self, name: &ObjectName) {
        let object = Key::new(&self.scope, name, Generation(0)).object;
        self.cache.inner.forget_object(object);
    }
}

impl Content {
    /// Whether some block of it may be on the disk. No I/O.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.cache.inner.knows(&self.key)
    }

    /// The block `index`, into memory that `lease` allows for: exactly its length. Never an error and never wrong
    /// bytes. Needs a Tokio runtime with time; dropping the future keeps its lease until the disk has answered.
    pub async fn read(&self, index: u64, lease: Lease) -> Found {
        let inner = &self.cache.inner;
        inner
            .read(self.key, self.header.clone(), index, lease)
            .await
    }

    /// Keeps a block that was fetched, if the disk keeps up. Copies it and returns. Not for blocks that came from here.
    pub fn put(&self, index: u64, block: &Block) {
        self.cache.inner.put(self.key, &self.header, index, block);
    }

    /// The whole content as one file, to be passed to the kernel; `None` where a byte is missing or wrong.
    ///
    /// What was not found right as a whole before, or was written to since, is read for it, in full: a matter of seconds for
    /// a large file, to be awaited by somebody who has the time. Needs a Tokio runtime with time.
    pub async fn whole(&self) -> Option<Whole> {
        let inner = &self.cache.inner;
        inner.check(self.key, self.header.clone()).await
    }

    /// Drops the content because its bytes turned out not to be the object's. Whoever asks for it from now on does
    /// not find it. No I/O.
    pub fn distrust(&self) {
        self.cache.inner.distrust(self.key);
    }
}
