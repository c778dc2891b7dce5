//! The mutations of objects, each atomic: preconditions, then the rate limit, then the change, in one transaction.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::content::Content;
use crate::error::ApiError;
use crate::history::Entry;
use crate::name::{BucketName, ObjectName};
use crate::object::{Attributes, Object};
use crate::precondition::Preconditions;
use crate::store::{Draft, Store, Terms, Transaction};

/// One source of a compose.
#[derive(Clone, Debug)]
pub(crate) struct ComposeSource {
    pub(crate) name: ObjectName,
    pub(crate) generation: Option<u64>,
    pub(crate) conditions: Preconditions,
}

/// A compose of one bucket's objects.
#[derive(Clone, Debug)]
pub(crate) struct Compose {
    pub(crate) sources: Vec<ComposeSource>,
    pub(crate) attributes: Attributes,
    pub(crate) terms: Terms,
    pub(crate) delete_sources: bool,
}

/// A move within a bucket.
#[derive(Clone, Debug)]
pub(crate) struct Move<'a> {
    pub(crate) source: &'a ObjectName,
    pub(crate) source_conditions: Preconditions,
    pub(crate) target: &'a ObjectName,
    pub(crate) target_terms: Terms,
}

/// How new attributes come about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amendment<'a> {
    /// `objects.patch`.
    Merge(&'a Map<String, Value>),
    /// `objects.update`.
    Replace(&'a Map<String, Value>),
}

impl Store {
    /// Publishes a new object or a new generation of one.
    pub(crate) fn insert(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        terms: &Terms,
        draft: Draft,
    ) -> Result<Arc<Object>, ApiError> {
        self.transact(bucket, |tx| {
            tx.check_place(name)?;
            terms.check(tx.version(name))?;
            tx.check_free(name)?;
            tx.spend(&[name])?;
            Ok(tx.put(name, draft))
        })
    }

    /// As [`Self::insert`], for the set-up of tests: no condition and no limit.
    pub(crate) fn plant(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        draft: Draft,
    ) -> Result<Arc<Object>, ApiError> {
        self.transact(bucket, |tx| {
            tx.check_place(name)?;
            Ok(tx.put(name, draft))
        })
    }

    pub(crate) fn amend(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        generation: Option<u64>,
        conditions: &Preconditions,
        amendment: Amendment<'_>,
    ) -> Result<Entry, ApiError> {
        self.transact(bucket, |tx| {
            let version = tx.look(name, generation)?;
            conditions.check_write(version.object.version())?;
            let attributes = amendment.apply(&version.object.attributes)?;
            tx.spend(&[name])?;
            Ok(tx.amend(&version, attributes))
        })
    }

    /// Deletes the live version, which versioning keeps as a noncurrent one, or the version of a `generation`, which it
    /// does not.
    pub(crate) fn delete(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        generation: Option<u64>,
        conditions: &Preconditions,
    ) -> Result<(), ApiError> {
        self.transact(bucket, |tx| {
            let version = tx.find(name, generation)?;
            conditions.check_write(version.version())?;
            tx.check_version_free(&version)?;
            tx.spend(&[name])?;
            match generation {
                None => tx.remove(name),
                Some(_) => tx.destroy(&version),
            }
            Ok(())
        })
    }

    /// Makes a soft-deleted version live again, under a new generation.
    pub(crate) fn restore(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        generation: u64,
        terms: &Terms,
    ) -> Result<Arc<Object>, ApiError> {
        self.transact(bucket, |tx| {
            let buried = tx.soft_deleted(name, generation)?;
            terms.check(tx.version(name))?;
            tx.check_free(name)?;
            tx.spend(&[name])?;
            Ok(tx.restore(&buried.object))
        })
    }

    pub(crate) fn compose(
        &self,
        bucket: &BucketName,
        target: &ObjectName,
        request: Compose,
    ) -> Result<Arc<Object>, ApiError> {
        self.transact(bucket, |tx| {
            tx.check_place(target)?;
            let sources = compose_sources(tx, &request.sources)?;
            request.terms.check(tx.version(target))?;
            tx.check_free(target)?;
            if request.delete_sources {
                let mut names = request.sources.iter().map(|source| &source.name);
                names.try_for_each(|name| tx.check_free(name))?;
            }
            tx.spend(&[target])?;
            let draft = Draft {
                content: Content::concatenate(sources.iter().map(|source| &source.content)),
                attributes: request.attributes,
            };
            let composed = tx.put(target, draft);
            if request.delete_sources {
                let others = request
                    .sources
                    .iter()
                    .filter(|source| source.name != *target);
                others.for_each(|source| tx.remove(&source.name));
            }
            Ok(composed)
        })
    }

    pub(crate) fn relocate(
        &self,
        bucket: &BucketName,
        request: &Move<'_>,
    ) -> Result<Arc<Object>, ApiError> {
        let &Move { source, target, .. } = request;
        if source == target {
            return Err(ApiError::invalid(
                "The source and destination object names must differ.",
            ));
        }
        self.transact(bucket, |tx| {
            tx.check_place(target)?;
            let live = tx.find(source, None)?;
            request.source_conditions.check_write(live.version())?;
            request.target_terms.check(tx.version(target))?;
            tx.check_free(source)?;
            tx.check_free(target)?;
            tx.spend(&[source, target])?;
            let draft = Draft {
                content: live.content.clone(),
                attributes: live.attributes.clone(),
            };
            tx.remove(source);
            Ok(tx.put(target, draft))
        })
    }
}

fn compose_sources(
    tx: &Transaction<'_>,
    sources: &[ComposeSource],
) -> Result<Vec<Arc<Object>>, ApiError> {
    let find = |source: &ComposeSource| {
        let object = tx.find(&source.name, source.generation)?;
        source.conditions.check_write(object.version())?;
        Ok(object)
    };
    sources.iter().map(find).collect()
}

impl Amendment<'_> {
    fn apply(self, live: &Attributes) -> Result<Attributes, ApiError> {
        let mut attributes = match self {
            Self::Merge(patch) => {
                let mut merged = live.clone();
                merged.merge(patch)?;
                merged
            }
            Self::Replace(resource) => Attributes::from_resource(resource)?,
        };
        // Only a rewrite changes the class of an object.
        attributes.storage_class.clone_from(&live.storage_class);
        Ok(attributes)
    }
}
