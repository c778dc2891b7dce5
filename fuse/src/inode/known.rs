//! Names that are known and have no inode.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use tokio::time::Instant;

use crate::names::Node;

/// A bounded set of names, the longest unused leaving first.
#[derive(Debug)]
pub(super) struct Known(LruCache<(u64, Arc<str>), (Node, Instant)>);

impl Known {
    pub(super) fn new(limit: usize) -> Self {
        Self(LruCache::new(
            NonZeroUsize::new(limit).unwrap_or(NonZeroUsize::MIN),
        ))
    }

    /// Remembers a name of the directory with this shelf. Returns the shelf of a name that had to leave for it.
    pub(super) fn put(
        &mut self,
        shelf: u64,
        name: &Arc<str>,
        node: Node,
        checked: Instant,
    ) -> Option<u64> {
        let ((left, left_name), _) = self.0.push((shelf, name.clone()), (node, checked))?;
        (left != shelf || left_name != *name).then_some(left)
    }

    pub(super) fn take(&mut self, shelf: u64, name: &Arc<str>) -> Option<(Node, Instant)> {
        self.0.pop(&(shelf, name.clone()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
