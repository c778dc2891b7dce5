//! Tails: what is appended waits in a hidden object until a compose joins it to the base.
//!
//! The compose cannot delete the tail. It would delete all of its sources, and one of them is the base, which is its target
//! too; that is no request to make of a service. So a tail is removed by a call of its own. One whose removal fails in
//! passing, or of which nobody knows whether it is there, is remembered and removed behind a later one.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use gcsmount_gcs::store::{ComposeSource, Preconditions, Sources, WriteRequest};
use gcsmount_gcs::{Generation, Kind, Object, ObjectName};
use nix::errno::Errno;
use parking_lot::Mutex;

use super::content::State;
use super::parts::hidden_request;
use super::{Workshop, overdue};
use crate::errno::{Error, Result};

/// Tails that are remembered. Of more, the oldest stays in the bucket.
const REMEMBERED: usize = 256;
/// Old ones that are removed behind a new one, which makes them fewer and no publication long.
const AT_ONCE: usize = 4;

/// Tails that may still be in the bucket.
#[derive(Debug, Default)]
pub(super) struct Leftovers(Mutex<VecDeque<Tail>>);

/// A tail that nobody needs any more.
#[derive(Debug, Clone)]
struct Tail {
    name: ObjectName,
    /// `None`: not known, nor whether there is one. No other object ever has the name.
    generation: Option<Generation>,
}

impl Leftovers {
    fn remember(&self, tail: Tail) {
        let mut tails = self.0.lock();
        if tails.len() == REMEMBERED {
            tails.pop_front();
        }
        tails.push_back(tail);
    }

    fn take(&self) -> Option<Tail> {
        self.0.lock().pop_front()
    }
}

impl Workshop {
    /// What is asked of the store to hold a tail until it is composed.
    pub(super) fn tail_request(&self) -> Result<WriteRequest> {
        hidden_request(&self.hidden("tail")).map_err(|_| Error::of(Errno::ENAMETOOLONG))
    }

    /// Clears away a tail whose upload has failed, if it may be there all the same.
    pub(super) async fn doubt_tail(&self, name: ObjectName, error: &gcsmount_gcs::Error) {
        if is_passing(error.kind) {
            let generation = None;
            self.remove_tail(Tail { name, generation }).await;
        }
    }

    /// Removes a tail, and behind it a few of those that could not be removed before.
    async fn remove_tail(&self, tail: Tail) {
        if self.try_remove(tail).await {
            for _ in 0..AT_ONCE {
                if !self.remove_leftover().await {
                    return;
                }
            }
        }
    }

    /// Removes one of the tails that could not be removed before. `false`: there is none, or it does not go now either.
    async fn remove_leftover(&self) -> bool {
        match self.leftovers.take() {
            Some(tail) => self.try_remove(tail).await,
            None => false,
        }
    }

    /// Removes all tails that could not be removed before, until one does not go now either.
    pub(crate) async fn remove_leftovers(&self) {
        while self.remove_leftover().await {}
    }

    /// Whether it makes sense to go on removing.
    async fn try_remove(&self, tail: Tail) -> bool {
        let exact = Preconditions {
            generation: tail.generation,
            ..Preconditions::default()
        };
        match self.call(self.store.delete(&tail.name, &exact)).await {
            Ok(()) => true,
            Err(error) if error.kind == Kind::NotFound => true,
            Err(error) if is_passing(error.kind) => {
                tracing::debug!(%error, "a temporary object stays in the bucket for a while");
                self.leftovers.remember(tail);
                false
            }
            Err(error) => {
                tracing::warn!(%error, "a temporary object stays in the bucket");
                true
            }
        }
    }
}

/// Whether an error says nothing of what the store has, or will do another time.
fn is_passing(kind: Kind) -> bool {
    kind.is_transient() || matches!(kind, Kind::Canceled | Kind::Unauthenticated)
}

impl State {
    /// Puts a tail into the bucket, and appends it.
    pub(super) async fn put_tail(
        &self,
        workshop: &Arc<Workshop>,
        request: &WriteRequest,
        bytes: Bytes,
    ) -> gcsmount_gcs::Result<Object> {
        let tail = workshop
            .tail_request()
            .map_err(|_| overdue("the name of a tail is too long"))?;
        let size = bytes.len();
        let write = workshop.store.write(&tail, bytes);
        match workshop.send(size, write).await {
            Ok(tail) => self.join(workshop, request, tail).await,
            Err(error) => {
                workshop.doubt_tail(tail.name, &error).await;
                Err(error)
            }
        }
    }

    /// Appends a tail to the base in one step, and deletes it.
    pub(super) async fn join(
        &self,
        workshop: &Arc<Workshop>,
        request: &WriteRequest,
        tail: Object,
    ) -> gcsmount_gcs::Result<Object> {
        let base = self.base.as_deref().map(ComposeSource::from);
        let mut sources: Vec<_> = base.into_iter().collect();
        sources.push(ComposeSource::from(&tail));
        let composed = workshop
            .call(workshop.store.compose(request, &sources, Sources::Keep))
            .await;
        let generation = Some(tail.generation);
        let name = tail.name;
        workshop.remove_tail(Tail { name, generation }).await;
        composed
    }
}
