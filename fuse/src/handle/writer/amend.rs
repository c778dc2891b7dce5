//! What is said of a file besides its bytes: changing it at once or with the next publication, and keeping what others say.
//!
//! A publication replaces everything that was said of the object, so it is conditional on the metageneration that it was
//! made from. Where only that has moved, what others have said is taken over and the publication is made once more. The
//! attributes of a stream were sent when it began; what has come since is said in a patch behind it.

use std::sync::Arc;

use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::store::Preconditions;
use gcsmount_gcs::{Kind, Object, ObjectName};
use nix::errno::Errno;

use super::Workshop;
use super::content::State;
use super::publish::stale;
use crate::errno::{Error, Result};
use crate::metadata::{self, Edits};

/// Finds, given what is said of an object, what is to be changed of it.
pub(crate) type Decide<'a> = dyn Fn(&Attributes) -> Result<Edits> + Send + Sync + 'a;

impl Workshop {
    /// Changes what is said of a published object. Where others have changed that meanwhile, it is decided once more over
    /// what they have made of it.
    pub(crate) async fn amend(
        &self,
        object: Arc<Object>,
        decide: &Decide<'_>,
    ) -> Result<Arc<Object>> {
        match self.patch(object.clone(), decide).await {
            Err(error) if error.kind() == Some(Kind::Precondition) => {
                let live = self.call(self.store.stat(&object.name)).await;
                let live = live.map_err(stale)?;
                if live.generation != object.generation {
                    return Err(error);
                }
                self.patch(Arc::new(live), decide).await
            }
            patched => patched,
        }
    }

    async fn patch(&self, object: Arc<Object>, decide: &Decide<'_>) -> Result<Arc<Object>> {
        let edits = decide(&object.attributes)?;
        if edits.is_empty() {
            return Ok(object);
        }
        let patch = edits.patch().map_err(Error::of)?;
        let only_this = Preconditions {
            generation: Some(object.generation),
            metageneration: Some(object.metageneration),
            ..Preconditions::default()
        };
        let patched = self.store.patch(&object.name, &patch, &only_this);
        let patched = self.call(patched).await.map_err(stale)?;
        Ok(Arc::new(patched))
    }
}

impl State {
    /// Takes in what others have said of the live object since it became the base, if its content is the same still.
    /// Whether there was anything.
    pub(super) async fn meet_foreign(&mut self, workshop: &Workshop, name: &ObjectName) -> bool {
        let Some(base) = &self.base else {
            return false;
        };
        let (generation, metageneration) = (base.generation, base.metageneration);
        match workshop.call(workshop.store.stat(name)).await {
            Ok(live) if live.generation == generation && live.metageneration > metageneration => {
                self.base = Some(Arc::new(live));
                true
            }
            // The publication itself will tell what is wrong.
            Ok(_) | Err(_) => false,
        }
    }

    /// What an object lacks whose attributes were sent when its upload began.
    pub(super) fn owed(&self, object: &Object) -> Edits {
        let mtime = match self.mtime_set {
            true => self.mtime,
            false => metadata::mtime(object),
        };
        let wanted = metadata::next_attributes(self.base.as_deref(), &self.edits, mtime);
        Edits::between(&object.attributes, &wanted)
    }

    /// Says the rest of an object whose content is published. `asked`: somebody was told that it would be.
    pub(super) async fn owe(
        &mut self,
        workshop: &Workshop,
        owed: Edits,
        asked: bool,
    ) -> Result<Option<Arc<Object>>> {
        self.edits = Arc::new(owed);
        match self.pay(workshop).await {
            Err(error) if !asked => {
                // The content is published, which is what whoever waits has to know.
                tracing::warn!(%error, "a file has the attributes with which its upload began, not the later ones");
                self.edits = Arc::default();
                self.failed = None;
                Ok(self.base.clone())
            }
            paid => paid,
        }
    }

    /// Says of the live object what was promised.
    pub(super) async fn pay(&mut self, workshop: &Workshop) -> Result<Option<Arc<Object>>> {
        let Some(base) = self.base.clone() else {
            return Err(Error::of(Errno::EIO));
        };
        let edits = self.edits.clone();
        match workshop.amend(base, &|_| Ok((*edits).clone())).await {
            Ok(patched) => {
                self.published(patched);
                Ok(self.base.clone())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// What is said of the file now.
    fn attributes(&self) -> Attributes {
        let none = Attributes::default();
        let base = self.base.as_deref();
        self.edits
            .applied(base.map_or(&none, |base| &base.attributes))
    }

    /// See [`super::Writer::amend`].
    pub(super) async fn amend(&mut self, workshop: &Workshop, decide: &Decide<'_>) -> Result<()> {
        self.check()?;
        match (&self.base, &self.name) {
            (Some(base), Some(_)) if !self.content.is_dirty() => {
                let patched = workshop.amend(base.clone(), decide).await?;
                let mtime = metadata::mtime(&patched);
                self.rebase(patched, mtime);
            }
            _ => {
                let mut edits = decide(&self.attributes())?;
                if let Some(mtime) = edits.mtime.take() {
                    self.mtime = mtime;
                    self.mtime_set = true;
                }
                Arc::make_mut(&mut self.edits).then(edits);
            }
        }
        Ok(())
    }
}
