//! Finishing what another process has left behind.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use gcsmount_gcs::object::Digest;
use gcsmount_gcs::{Generation, Kind, Object};

use super::Workshop;
use super::staged::{Record, Slot, Staged, Unreadable};
use crate::errno::{Error, Result};

/// A staged file that was found, and what became of it.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// The object that it was written for; `None` where its record does not tell.
    pub object: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a staged file that was found.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It is published now.
    Finished,
    /// The bucket had its content already: only the answer had been lost.
    AlreadyThere,
    /// Somebody else has replaced or deleted the object since. It is kept here.
    Conflict(PathBuf),
    /// No flush or fsync had begun to publish it, or it was written again since. It is kept here.
    Unsealed(PathBuf),
    /// What was written down of it cannot be made out, or its content is another. It is kept here.
    Unreadable(PathBuf),
    /// That is not known yet: this went wrong, and the next start tries again.
    Waiting(Error),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("it is stored now"),
            Self::AlreadyThere => f.write_str("it had been stored"),
            Self::Conflict(path) => write!(
                f,
                "somebody else has changed the object since; the content is kept in {}",
                path.display()
            ),
            Self::Unsealed(path) => write!(
                f,
                "no close or fsync had come to it; the content is kept in {}",
                path.display()
            ),
            Self::Unreadable(path) => write!(
                f,
                "it cannot be made out; the content is kept in {}",
                path.display()
            ),
            Self::Waiting(error) => write!(f, "the next start tries again: {error}"),
        }
    }
}

/// What to do with a sealed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Publish,
    AlreadyThere,
    Conflict,
}

impl Verdict {
    /// With `live` in the bucket. A later generation of the same content is the file's own publication, or as good.
    fn of(base: Generation, sealed: Digest, live: Option<&Object>) -> Self {
        let generation = live.map_or(Generation::ABSENT, |live| live.generation);
        if generation == base {
            Self::Publish
        } else if live.and_then(Digest::of) == Some(sealed) {
            Self::AlreadyThere
        } else {
            Self::Conflict
        }
    }
}

impl Workshop {
    /// See [`crate::Fs::recover`].
    pub(crate) async fn recover(self: &Arc<Self>) -> Vec<Recovered> {
        let area = self.staging.clone();
        let left = match self.staging.run(move || area.left_behind()).await {
            Ok(left) => left,
            Err(error) => {
                tracing::error!(%error, "staged files of an earlier run could not be looked for");
                return Vec::new();
            }
        };
        let mut recovered = Vec::new();
        for slot in left {
            let one = self.recover_one(slot).await;
            log(&one);
            recovered.push(one);
        }
        recovered
    }

    async fn recover_one(self: &Arc<Self>, slot: Slot) -> Recovered {
        let from = slot.clone();
        let record = match self.staging.run(move || from.read_record()).await {
            Ok(record) => record,
            Err(error) => return Recovered::unnamed(Outcome::Waiting(error)),
        };
        let record = match record {
            Ok(record) => record,
            Err(why @ (Unreadable::Version | Unreadable::Damaged)) => {
                tracing::warn!(%why, "a staged file of an earlier run is not read");
                let outcome = self.set_aside(&slot, Outcome::Unreadable).await;
                return Recovered::unnamed(outcome);
            }
        };
        let outcome = match record.sealed {
            None => self.set_aside(&slot, Outcome::Unsealed).await,
            Some(sealed) => match self.finish(&slot, &record, sealed).await {
                Ok(outcome) => outcome,
                Err(error) => Outcome::Waiting(error),
            },
        };
        Recovered {
            object: Some(record.name.to_string()),
            outcome,
        }
    }

    async fn finish(
        self: &Arc<Self>,
        slot: &Slot,
        record: &Record,
        sealed: Digest,
    ) -> Result<Outcome> {
        let Some(mut staged) = Staged::reopen(&self.staging, slot, record, sealed).await? else {
            return Ok(self.set_aside(slot, Outcome::Unreadable).await);
        };
        let live = self.live(record).await?;
        let mut verdict = Verdict::of(record.base, sealed, live.as_ref());
        let mut published = Outcome::AlreadyThere;
        if verdict == Verdict::Publish {
            match self.put_staged(&record.request(), &staged).await {
                Ok(_) => {
                    if let (Some(observer), Some(live)) = (&self.observer, live) {
                        observer.superseded(live.size);
                    }
                    verdict = Verdict::AlreadyThere;
                }
                Err(error) => {
                    // It may have happened all the same.
                    let live = self.live(record).await?;
                    verdict = Verdict::of(record.base, sealed, live.as_ref());
                    if verdict == Verdict::Publish {
                        return Err(error);
                    }
                }
            }
            published = Outcome::Finished;
        }
        if verdict == Verdict::Conflict {
            return Ok(self.set_aside(slot, Outcome::Conflict).await);
        }
        staged.forget().await;
        Ok(published)
    }

    /// What the bucket has now.
    async fn live(&self, record: &Record) -> Result<Option<Object>> {
        match self.call(self.store.stat(&record.name)).await {
            Ok(live) => Ok(Some(live)),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn set_aside(&self, slot: &Slot, outcome: impl FnOnce(PathBuf) -> Outcome) -> Outcome {
        let slot = slot.clone();
        match self.staging.run(move || slot.set_aside()).await {
            Ok(path) => outcome(path),
            Err(error) => Outcome::Waiting(error),
        }
    }
}

impl Recovered {
    fn unnamed(outcome: Outcome) -> Self {
        Self {
            object: None,
            outcome,
        }
    }
}

fn log(Recovered { object, outcome }: &Recovered) {
    let object = object.as_deref().unwrap_or("unknown");
    match outcome {
        Outcome::Finished | Outcome::AlreadyThere => {
            tracing::info!(
                object,
                "a staged file of an earlier run was found: {outcome}"
            );
        }
        Outcome::Conflict(_)
        | Outcome::Unsealed(_)
        | Outcome::Unreadable(_)
        | Outcome::Waiting(_) => {
            tracing::warn!(
                object,
                "a staged file of an earlier run was found: {outcome}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use gcsmount_gcs::testing::FakeStore;

    use super::*;

    #[test]
    fn a_sealed_file_replaces_what_it_was_meant_to_replace_and_nothing_else() {
        let store = FakeStore::new();
        let base = store.put("f", "old");
        let foreign = store.put("f", "theirs");
        let ours = store.put("f", "new");
        let sealed = Digest::of(&ours).unwrap();
        for (replaces, live, expected) in [
            (Generation::ABSENT, None, Verdict::Publish),
            (Generation::ABSENT, Some(&foreign), Verdict::Conflict),
            (Generation::ABSENT, Some(&ours), Verdict::AlreadyThere),
            (base.generation, None, Verdict::Conflict),
            (base.generation, Some(&base), Verdict::Publish),
            (base.generation, Some(&foreign), Verdict::Conflict),
            (base.generation, Some(&ours), Verdict::AlreadyThere),
            // It may still lack the attributes.
            (ours.generation, Some(&ours), Verdict::Publish),
        ] {
            let verdict = Verdict::of(replaces, sealed, live);
            assert_eq!(verdict, expected, "{replaces} {live:?}");
        }
    }
}
