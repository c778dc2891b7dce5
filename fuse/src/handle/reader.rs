//! Reads of one open file.
//!
//! A [`Reader`] answers from blocks in memory where it can, decides from the pattern of the reads what to fetch
//! ahead, and owns the fetches. It promises bytes of one generation only, and that a file whose every byte went
//! through blocks is never completed with a wrong checksum.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use gcsmount_cache::BlockCache;
use gcsmount_gcs::store::{Preconditions, ReadRequest};
use gcsmount_gcs::{Generation, ObjectName, Result, Store};
use tokio::runtime::Handle;

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

/// Reads of one open file.
#[derive(Debug)]
pub struct Reader {
    store: Arc<dyn Store>,
    #[expect(dead_code, reason = "blocks come next")]
    cache: Arc<BlockCache>,
    object: OpenObject,
    #[expect(dead_code, reason = "fetches ahead come next")]
    runtime: Handle,
    #[expect(dead_code, reason = "fetches ahead come next")]
    config: ReaderConfig,
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
        Self {
            store,
            cache,
            object,
            runtime,
            config,
        }
    }

    /// The bytes at `offset`, if they are in memory: at most `len`, fewer only at the end of the object. Never blocks
    /// on I/O, and may be called from any thread.
    #[must_use]
    pub fn try_read(&self, offset: u64, len: usize) -> Option<Bytes> {
        self.clip(offset, len).is_empty().then(Bytes::new)
    }

    /// The bytes at `offset`: at most `len`, fewer only at the end of the object. Dropping the future loses nothing.
    ///
    /// # Errors
    /// Those of [`Store::read`]: `NotFound` when the store no longer has the generation, `Corrupt` when the bytes are
    /// not the object's.
    pub async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let range = self.clip(offset, len);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let request = ReadRequest {
            name: self.object.name.clone(),
            generation: Some(self.object.generation),
            range: Some(range),
            preconditions: Preconditions::default(),
        };
        let mut body = self.store.read(&request).await?.body;
        let mut bytes = BytesMut::with_capacity(len);
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(bytes.freeze())
    }

    fn clip(&self, offset: u64, len: usize) -> Range<u64> {
        let end = offset.saturating_add(len as u64).min(self.object.size);
        offset.min(end)..end
    }
}
