//! What became of a mutation whose answer was lost.
//!
//! Such a call either acted or did not, and repeating it may meet its own echo: a precondition that it has itself
//! invalidated, a source that it has itself removed. Looking tells; where looking cannot tell, the caller hears that
//! the outcome is unknown, never that somebody else was there.

use futures_util::future;

use super::call::Failed;
use super::client::Client;
use crate::object::{Attributes, Digest};
use crate::store::{ComposeSource, Patch, Preconditions, Sources, TransferRequest, WriteRequest};
use crate::{Error, Generation, Kind, Object, ObjectName, Result};

/// A content that a call may have published.
pub(super) struct Sent<'a> {
    pub(super) name: &'a ObjectName,
    /// The generation that it was to replace.
    pub(super) base: Option<Generation>,
    pub(super) size: u64,
    pub(super) crc32c: u32,
    pub(super) attributes: &'a Attributes,
}

impl Sent<'_> {
    /// Whether `live` is it.
    fn is(&self, live: &Object) -> bool {
        let sent = self.attributes;
        live.size == self.size
            && live.crc32c == Some(self.crc32c)
            && Some(live.generation) != self.base
            && live.attributes.metadata == sent.metadata
            && (sent.content_type.is_none() || live.attributes.content_type == sent.content_type)
    }
}

impl Failed {
    /// Whether looking can turn this failure into a success.
    fn is_open(&self) -> bool {
        self.may_have_acted
            && match self.error.kind {
                Kind::Precondition | Kind::NotFound | Kind::Gone | Kind::Unavailable => true,
                Kind::Exists
                | Kind::NotEmpty
                | Kind::Denied
                | Kind::Unauthenticated
                | Kind::Throttled
                | Kind::Canceled
                | Kind::Corrupt
                | Kind::OutOfRange
                | Kind::TooLarge
                | Kind::Held
                | Kind::Unsupported
                | Kind::Invalid => false,
            }
    }

    /// Itself where a look may tell the outcome, else the error to report.
    fn worth_a_look(self) -> Result<Self> {
        if !self.is_open() {
            Err(self.error)
        } else if self.in_vain {
            Err(self.unknown())
        } else {
            Ok(self)
        }
    }

    /// The error of an outcome that looking did not tell.
    fn unknown(self) -> Error {
        if !self.is_open() {
            return self.error;
        }
        Error {
            kind: Kind::Unavailable,
            message: format!("the outcome is unknown: {}", self.error.message),
            ..self.error
        }
    }
}

impl Client {
    /// The object that `sent` became, or the failure as it stands.
    pub(super) async fn resolve_sent(&self, failed: Failed, sent: &Sent<'_>) -> Result<Object> {
        let failed = failed.worth_a_look()?;
        match self.stat(sent.name).await {
            Ok(live) if sent.is(&live) => Ok(live),
            // The live object is known not to be ours, and the old one may still be there: a plain failure.
            Ok(_) => Err(failed.error),
            Err(error) if error.kind == Kind::NotFound => Err(failed.error),
            Err(_) => Err(failed.unknown()),
        }
    }

    /// Whether the object is gone after a delete that may have acted.
    pub(super) async fn resolve_deleted(&self, failed: Failed, name: &ObjectName) -> Result<()> {
        let failed = failed.worth_a_look()?;
        if failed.error.kind == Kind::NotFound {
            return Ok(());
        }
        match self.stat(name).await {
            Err(error) if error.kind == Kind::NotFound => Ok(()),
            Ok(_) => Err(failed.error),
            Err(_) => Err(failed.unknown()),
        }
    }

    /// The target of a rename that may have acted: the source is gone, and what is at the target came after whatever
    /// was known of either. Without such knowledge nothing tells a move from two strangers' acts.
    pub(super) async fn resolve_renamed(
        &self,
        failed: Failed,
        request: &TransferRequest,
    ) -> Result<Object> {
        let failed = failed.worth_a_look()?;
        match self.stat(&request.source).await {
            Err(error) if error.kind == Kind::NotFound => {}
            Ok(_) => return Err(failed.error),
            Err(_) => return Err(failed.unknown()),
        }
        let (Some(source), base) = (
            request.source_preconditions.generation,
            request.target_preconditions.generation,
        ) else {
            return Err(failed.unknown());
        };
        match self.stat(&request.target).await {
            Ok(live) if live.generation > source && Some(live.generation) != base => Ok(live),
            _ => Err(failed.unknown()),
        }
    }

    /// The target of a copy that may have acted: it equals the source and is not what was there before.
    pub(super) async fn resolve_copied(
        &self,
        failed: Failed,
        request: &TransferRequest,
    ) -> Result<Object> {
        let failed = failed.worth_a_look()?;
        let (Ok(source), Ok(target)) = (
            self.stat(&request.source).await,
            self.stat(&request.target).await,
        ) else {
            return Err(failed.unknown());
        };
        let same = target.size == source.size
            && target.crc32c == source.crc32c
            && target.attributes == source.attributes;
        if same && Some(target.generation) != request.target_preconditions.generation {
            Ok(target)
        } else {
            Err(failed.error)
        }
    }

    /// The object after a patch that may have acted: one metageneration on, with what the patch says.
    pub(super) async fn resolve_patched(
        &self,
        failed: Failed,
        name: &ObjectName,
        patch: &Patch,
        preconditions: &Preconditions,
    ) -> Result<Object> {
        let failed = failed.worth_a_look()?;
        let live = match self.stat(name).await {
            Ok(live) => live,
            Err(error) if error.kind == Kind::NotFound => return Err(failed.error),
            Err(_) => return Err(failed.unknown()),
        };
        let counted = preconditions
            .metageneration
            .is_none_or(|base| live.metageneration.0 == base.0 + 1);
        let same_content = preconditions
            .generation
            .is_none_or(|generation| generation == live.generation);
        let typed =
            patch.content_type.is_none() || live.attributes.content_type == patch.content_type;
        let keyed = patch
            .metadata
            .iter()
            .all(|(key, value)| live.attributes.metadata.get(key) == value.as_ref());
        if counted && same_content && typed && keyed {
            Ok(live)
        } else {
            Err(failed.error)
        }
    }

    /// The target of a compose that may have acted, proved by the checksum of the sources joined. A compose onto one
    /// of its sources, or one that deletes them, has used them up, and then only the caller can know what they were.
    pub(super) async fn resolve_composed(
        &self,
        failed: Failed,
        request: &WriteRequest,
        sources: &[ComposeSource],
        after: Sources,
    ) -> Result<Object> {
        let failed = failed.worth_a_look()?;
        let digests = sources
            .iter()
            .map(|source| self.digest(source, &request.name));
        let digests = future::join_all(digests).await;
        let joined = digests
            .into_iter()
            .try_fold(Digest::EMPTY, |joined, digest| joined.then(digest?));
        let Some(joined) = joined else {
            return Err(failed.unknown());
        };
        let sent = Sent {
            name: &request.name,
            base: request.preconditions.generation,
            size: joined.size,
            crc32c: joined.crc32c,
            attributes: &request.attributes,
        };
        let object = self.resolve_sent(failed, &sent).await?;
        if after == Sources::Delete
            && let Err(error) = self.delete_joined(&request.name, sources).await
        {
            // The target is there: whoever is told of a failure would take it for a stranger's.
            tracing::debug!(%error, "a source of a compose stays behind");
        }
        Ok(object)
    }

    /// Deletes what the store may have left of sources that were joined, each by its generation.
    async fn delete_joined(&self, target: &ObjectName, sources: &[ComposeSource]) -> Result<()> {
        let others = sources.iter().filter(|source| source.name != *target);
        let deletions = others.map(|source| async {
            let exact = Preconditions {
                generation: source.generation,
                ..Preconditions::default()
            };
            match self.delete(&source.name, &exact).await {
                // Gone, or another object by now.
                Err(error) if matches!(error.kind, Kind::NotFound | Kind::Precondition) => Ok(()),
                deleted => deleted,
            }
        });
        future::try_join_all(deletions).await.map(|_| ())
    }

    /// What a source of a compose onto `target` holds.
    async fn digest(&self, source: &ComposeSource, target: &ObjectName) -> Option<Digest> {
        if source.known.is_some() || source.name == *target {
            return source.known;
        }
        let live = self.stat(&source.name).await.ok()?;
        let same = source
            .generation
            .is_none_or(|taken| taken == live.generation);
        Digest::of(&live).filter(|_| same)
    }
}
