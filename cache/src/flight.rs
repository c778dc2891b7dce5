//! One fetch of a block, shared by all who want it.

use std::sync::Arc;

use gcsmount_gcs::{Error, Result};
use tokio::sync::watch;

use crate::memory::BlockCache;
use crate::{Block, BlockKey};

type Outcome = Result<Block, Error>;

/// The duty to bring a block. Dropping it unfulfilled wakes the followers, one of which takes over.
#[derive(Debug)]
pub struct Filler {
    cache: Arc<BlockCache>,
    key: BlockKey,
    outcome: watch::Sender<Option<Outcome>>,
    /// The flight has left the cache's table, where a later one of the same block may have taken its place.
    landed: bool,
}

/// Waits for a block that somebody brings.
#[derive(Debug, Clone)]
pub struct Follower(watch::Receiver<Option<Outcome>>);

impl Filler {
    pub(crate) fn new(cache: Arc<BlockCache>, key: BlockKey) -> (Self, Follower) {
        let (outcome, follower) = watch::channel(None);
        let filler = Self {
            cache,
            key,
            outcome,
            landed: false,
        };
        (filler, Follower(follower))
    }

    /// Which block is wanted.
    #[must_use]
    pub fn key(&self) -> &BlockKey {
        &self.key
    }

    /// Publishes the block and hands it to the followers.
    pub fn fill(mut self, block: Block) {
        // The cache's own table holds one receiver.
        let wanted = self.outcome.receiver_count() > 1;
        self.cache.land(&self.key, block.clone(), wanted);
        self.landed = true;
        self.outcome.send_replace(Some(Ok(block)));
        // Only now has everybody the block who waits for it, and it may give way.
        self.cache.budget().relieve();
    }

    /// Tells the followers of this fetch why there is no block. The next claim fetches again.
    pub fn fail(mut self, error: Error) {
        self.cache.abandon(&self.key);
        self.landed = true;
        self.outcome.send_replace(Some(Err(error)));
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        if !self.landed {
            self.cache.abandon(&self.key);
        }
    }
}

impl Follower {
    /// The block or the error of its fetch; `None` when the fetch was given up, and the block must be claimed again.
    pub async fn wait(mut self) -> Option<Outcome> {
        let outcome = self.0.wait_for(Option::is_some).await.ok()?;
        outcome.clone()
    }
}
