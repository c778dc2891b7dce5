//! Making content the live generation, and fetching the one that is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use gcsmount_gcs::store::{Preconditions, ReadRequest, WriteRequest};
use gcsmount_gcs::{Generation, Kind, Object, ObjectName};
use nix::errno::Errno;

use super::content::{Content, State};
use super::staged::Staged;
use super::transfer::Transfer;
use super::{PIECE, Workshop};
use crate::errno::{Error, Result};
use crate::metadata::{self, Edits};

/// What is asked of the store to make the next generation behind `base`.
pub(super) fn request(
    name: ObjectName,
    base: Option<&Object>,
    mtime: SystemTime,
    edits: &Edits,
) -> WriteRequest {
    WriteRequest {
        name,
        attributes: metadata::next_attributes(base, edits, mtime),
        preconditions: Preconditions::generation(
            base.map_or(Generation::ABSENT, |base| base.generation),
        ),
    }
}

/// What a pinned generation that is gone means: somebody else has replaced or deleted the file.
pub(crate) fn stale(error: gcsmount_gcs::Error) -> Error {
    let gone = matches!(error.kind, Kind::NotFound | Kind::Precondition);
    let error = Error::from(error);
    if gone {
        error.answered_as(Errno::ESTALE)
    } else {
        error
    }
}

impl Workshop {
    /// A name for an object of ours, which no other has, also of another mount.
    pub(super) fn hidden(&self, what: &str) -> String {
        let number = self.next_hidden.fetch_add(1, Ordering::Relaxed);
        format!("{}{what}-{number}", self.hidden)
    }

    /// Uploads a staged file.
    pub(super) async fn put_staged(
        self: &Arc<Self>,
        request: &WriteRequest,
        staged: &Staged,
    ) -> Result<Object> {
        // The place is let go of after the upload.
        let (_slot, memory) = self.put_turn(staged.length).await?;
        let mut transfer = Transfer::of_size(self, request, staged.length, memory).await?;
        let mut at = 0;
        while at < staged.length {
            let piece = match staged.read(at, PIECE).await {
                Ok(piece) => piece,
                Err(error) => {
                    transfer.cancel().await;
                    return Err(error);
                }
            };
            at += piece.len() as u64;
            transfer.write(piece).await?;
        }
        Ok(transfer.finish().await?)
    }
}

impl State {
    /// See [`super::Writer::publish`].
    pub(super) async fn publish(
        &mut self,
        workshop: &Arc<Workshop>,
    ) -> Result<Option<Arc<Object>>> {
        let Some(name) = self.name.clone() else {
            return Ok(None);
        };
        if !self.content.is_dirty() {
            if !self.edits.is_empty() {
                return self.pay(workshop).await;
            }
            // Nothing to publish is only a success if nothing was lost before.
            return match self.failed.clone() {
                Some(error) => Err(error),
                None => Ok(self.base.clone()),
            };
        }
        if let Some(refused) = &self.refused {
            let error = refused.error.clone();
            return Err(self.fail(error));
        }
        if matches!(self.content, Content::Stream(_)) {
            // It cannot be sent again, so this is asked before.
            self.meet_foreign(workshop, &name).await;
        }
        let streamed = matches!(&self.content, Content::Stream(stream) if stream.start == 0);
        let mut put = self.put(workshop, name.clone()).await;
        if let Err(error) = &put
            && error.kind() == Some(Kind::Precondition)
            && !matches!(self.content, Content::Lost)
            && self.meet_foreign(workshop, &name).await
        {
            put = self.put(workshop, name).await;
        }
        match put {
            Ok(object) => {
                let owed = streamed.then(|| self.owed(&object));
                let asked = !self.edits.is_empty();
                if let (Some(observer), Some(base)) = (&workshop.observer, &self.base) {
                    observer.superseded(base.size);
                }
                self.published(Arc::new(object));
                self.slim();
                match owed.filter(|owed| !owed.is_empty()) {
                    Some(owed) => self.owe(workshop, owed, asked).await,
                    None => Ok(self.base.clone()),
                }
            }
            // The base is gone: what it was to be appended to is no more.
            Err(error) if error.kind() == Some(Kind::NotFound) => {
                Err(self.fail(error.answered_as(Errno::ESTALE)))
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Puts the dirty content into the bucket. On an error it is as dirty as before, or lost.
    async fn put(&mut self, workshop: &Arc<Workshop>, name: ObjectName) -> Result<Object> {
        let mut request = request(name, self.base.as_deref(), self.mtime, &self.edits);
        if !matches!(self.content, Content::Stream(_)) {
            // What others have said of the object meanwhile is not overwritten unseen.
            request.preconditions.metageneration =
                self.base.as_ref().map(|base| base.metageneration);
        }
        match std::mem::replace(&mut self.content, Content::Lost) {
            Content::Memory(mut memory) => {
                let bytes = memory.lend();
                let put = match memory.start {
                    0 => {
                        let write = workshop.store.write(&request, bytes.clone());
                        workshop.send(bytes.len(), write).await
                    }
                    _ => self.put_tail(workshop, &request, bytes.clone()).await,
                };
                memory.give_back(bytes);
                memory.dirty = put.is_err();
                self.content = Content::Memory(memory);
                Ok(put?)
            }
            Content::Staged(mut staged) => {
                // Nobody may wait for memory while holding some.
                self.let_reader_go();
                let put = match staged.seal(&request).await {
                    Ok(()) => workshop.put_staged(&request, &staged).await,
                    Err(error) => Err(error),
                };
                staged.dirty = put.is_err();
                if !staged.dirty {
                    staged.forget().await;
                }
                self.content = Content::Staged(staged);
                put
            }
            Content::Stream(stream) => {
                let tail = (stream.start > 0).then(|| stream.name.clone());
                let object = match (stream.finish().await, tail) {
                    (Ok(object), None) => object,
                    (Ok(object), Some(_)) => self.join(workshop, &request, object).await?,
                    (Err(error), None) => return Err(error.into()),
                    (Err(error), Some(name)) => {
                        workshop.doubt_tail(name, &error).await;
                        return Err(error.into());
                    }
                };
                self.content = Content::Published;
                Ok(object)
            }
            // Neither is dirty in a way that a publication can help.
            Content::Published => {
                self.content = Content::Published;
                Err(Error::of(Errno::EIO))
            }
            Content::Lost => Err(self.failed.clone().unwrap_or(Error::of(Errno::EIO))),
        }
    }

    /// The first `size` bytes of the base.
    pub(super) async fn fetch(&self, workshop: &Workshop, size: u64) -> Result<Fetch> {
        let Some(base) = self.base.as_ref().filter(|_| size > 0) else {
            return Ok(Fetch(None));
        };
        let request = ReadRequest {
            name: base.name.clone(),
            generation: Some(base.generation),
            range: Some(0..size),
            preconditions: Preconditions::default(),
        };
        let read = workshop.call(workshop.store.read(&request)).await;
        Ok(Fetch(Some(read.map_err(stale)?.body)))
    }
}

/// Bytes of the base as they arrive.
pub(super) struct Fetch(Option<BoxStream<'static, gcsmount_gcs::Result<Bytes>>>);

impl Fetch {
    pub(super) async fn next(&mut self, workshop: &Workshop) -> Result<Option<Bytes>> {
        let Some(body) = &mut self.0 else {
            return Ok(None);
        };
        let piece = workshop.call(async { body.next().await.transpose() }).await;
        piece.map_err(stale)
    }
}
