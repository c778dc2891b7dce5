//! Versions that are no longer live: noncurrent ones, which versioning keeps, and soft-deleted ones, which the soft
//! delete policy keeps for a while.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::name::ObjectName;
use crate::object::Object;

/// What a version is to its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    Live,
    Noncurrent {
        since: Timestamp,
    },
    /// It can be listed and restored until it is gone, and nothing else.
    SoftDeleted {
        since: Timestamp,
        until: Timestamp,
    },
}

/// A version and its standing.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) object: Arc<Object>,
    pub(crate) standing: Standing,
}

impl Entry {
    pub(crate) fn live(object: Arc<Object>) -> Self {
        Self {
            object,
            standing: Standing::Live,
        }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        matches!(self.standing, Standing::SoftDeleted { until, .. } if until <= now)
    }
}

/// Former versions by name, those of a name by generation.
#[derive(Debug, Default)]
pub(crate) struct History {
    by_name: BTreeMap<ObjectName, Vec<Entry>>,
    /// Before this none of them is over.
    next_end: Option<Timestamp>,
}

impl History {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Adds a version, or puts it in the place of the one of its generation, which is returned.
    pub(crate) fn put(&mut self, entry: Entry) -> Option<Entry> {
        if let Standing::SoftDeleted { until, .. } = entry.standing {
            self.next_end = Some(self.next_end.map_or(until, |end| end.min(until)));
        }
        let name = entry.object.name.clone();
        let entries = self.by_name.entry(name).or_default();
        let generation = entry.object.generation;
        match entries.binary_search_by_key(&generation, |entry| entry.object.generation) {
            Ok(at) => Some(std::mem::replace(&mut entries[at], entry)),
            Err(at) => {
                entries.insert(at, entry);
                None
            }
        }
    }

    pub(crate) fn find(&self, name: &ObjectName, generation: u64) -> Option<&Entry> {
        let entries = self.by_name.get(name)?;
        entries
            .iter()
            .find(|entry| entry.object.generation == generation)
    }

    /// The versions of a name, the oldest first.
    pub(crate) fn of(&self, name: &ObjectName) -> &[Entry] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn take(&mut self, name: &ObjectName, generation: u64) -> Option<Entry> {
        let entries = self.by_name.get_mut(name)?;
        let at = entries
            .iter()
            .position(|entry| entry.object.generation == generation)?;
        let taken = entries.remove(at);
        if entries.is_empty() {
            self.by_name.remove(name);
        }
        Some(taken)
    }

    /// Takes out what is over.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<Entry> {
        if self.next_end.is_none_or(|end| end > now) {
            return Vec::new();
        }
        let mut over = Vec::new();
        self.next_end = None;
        for entries in self.by_name.values_mut() {
            over.extend(entries.extract_if(.., |entry| entry.is_over(now)));
        }
        self.by_name.retain(|_, entries| !entries.is_empty());
        let left = self.entries().filter_map(|entry| match entry.standing {
            Standing::SoftDeleted { until, .. } => Some(until),
            Standing::Live | Standing::Noncurrent { .. } => None,
        });
        self.next_end = left.min();
        over
    }

    /// The first name in a range, with its versions, the oldest first.
    pub(crate) fn next(&self, from: Bound<&[u8]>) -> Option<(&ObjectName, &[Entry])> {
        let mut range = self.by_name.range::<[u8], _>((from, Bound::Unbounded));
        range.next().map(|(name, entries)| (name, &entries[..]))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.by_name.values().flatten()
    }
}

/// How many versions there are, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Versions.
    pub versions: u64,
    /// The sum of their sizes. Versions that share bytes here count as often as they would be billed.
    pub bytes: u64,
}

impl Kept {
    pub(crate) fn count<'a>(objects: impl Iterator<Item = &'a Arc<Object>>) -> Self {
        objects.fold(Self::default(), |kept, object| Self {
            versions: kept.versions + 1,
            bytes: kept.bytes + object.size(),
        })
    }
}

/// What a bucket holds, by what the versions are to their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Live objects.
    pub live: Kept,
    /// What versioning keeps.
    pub noncurrent: Kept,
    /// What the soft delete policy keeps.
    pub soft_deleted: Kept,
}
