//! What a journal says, as it stands after its last frame.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Batch, Change};
use crate::hierarchy::{Folder, Folders};
use crate::history::Entry;
use crate::name::{BucketName, FolderName, ObjectName};
use crate::role::Role;
use crate::store::BucketInfo;

/// Changes in one frame of a journal that is written anew.
const CHUNK: usize = 256;

/// Everything that is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    pub(crate) last_generation: u64,
    pub(crate) buckets: BTreeMap<BucketName, MirrorBucket>,
}

/// One bucket of it.
#[derive(Clone, Debug)]
pub(crate) struct MirrorBucket {
    pub(crate) info: Arc<BucketInfo>,
    /// Every name with all its versions.
    pub(crate) names: BTreeMap<ObjectName, Vec<Entry>>,
    pub(crate) folders: Folders,
    pub(crate) bindings: Vec<(String, Role)>,
}

impl Mirror {
    pub(crate) fn apply(&mut self, batch: &Batch) {
        self.last_generation = self.last_generation.max(batch.last_generation);
        batch.changes.iter().for_each(|change| self.change(change));
    }

    /// What is said of a bucket that is gone by then means nothing.
    fn change(&mut self, change: &Change) {
        match change {
            Change::Bucket(info) => self.set_bucket(info),
            Change::BucketGone(name) => {
                self.buckets.remove(name);
            }
            Change::Name {
                bucket,
                name,
                versions,
            } => {
                if let Some(bucket) = self.buckets.get_mut(bucket) {
                    bucket.set_name(name, versions);
                }
            }
            Change::Folder {
                bucket,
                name,
                folder,
            } => {
                if let Some(bucket) = self.buckets.get_mut(bucket) {
                    bucket.set_folder(name, folder.as_ref());
                }
            }
            Change::Grants { bucket, bindings } => {
                if let Some(bucket) = self.buckets.get_mut(bucket) {
                    bucket.bindings.clone_from(bindings);
                }
            }
        }
    }

    fn set_bucket(&mut self, info: &Arc<BucketInfo>) {
        match self.buckets.get_mut(&info.name) {
            Some(bucket) => bucket.info = Arc::clone(info),
            None => {
                let bucket = MirrorBucket {
                    info: Arc::clone(info),
                    names: BTreeMap::new(),
                    folders: Folders::new(),
                    bindings: Vec::new(),
                };
                self.buckets.insert(info.name.clone(), bucket);
            }
        }
    }

    /// Batches that make this mirror out of an empty one.
    pub(super) fn batches(&self) -> impl Iterator<Item = Batch> {
        let changes = self.buckets.values().flat_map(MirrorBucket::changes);
        let mut changes = changes.peekable();
        std::iter::from_fn(move || {
            changes.peek()?;
            Some(Batch {
                last_generation: self.last_generation,
                changes: changes.by_ref().take(CHUNK).collect(),
            })
        })
    }

    /// Bytes of all versions.
    pub(super) fn bytes(&self) -> u64 {
        let names = self
            .buckets
            .values()
            .flat_map(|bucket| bucket.names.values());
        names.flatten().map(|entry| entry.object.size()).sum()
    }
}

impl MirrorBucket {
    fn set_name(&mut self, name: &ObjectName, versions: &[Entry]) {
        if versions.is_empty() {
            self.names.remove(name);
        } else {
            self.names.insert(name.clone(), versions.to_vec());
        }
    }

    fn set_folder(&mut self, name: &FolderName, folder: Option<&Arc<Folder>>) {
        match folder {
            Some(folder) => self.folders.insert(name.clone(), Arc::clone(folder)),
            None => self.folders.remove(name),
        };
    }

    fn changes(&self) -> impl Iterator<Item = Change> {
        let bucket = &self.info.name;
        let names = self.names.iter().map(|(name, versions)| Change::Name {
            bucket: bucket.clone(),
            name: name.clone(),
            versions: versions.clone(),
        });
        let folders = self.folders.iter().map(|(name, folder)| Change::Folder {
            bucket: bucket.clone(),
            name: name.clone(),
            folder: Some(Arc::clone(folder)),
        });
        let grants = Change::Grants {
            bucket: bucket.clone(),
            bindings: self.bindings.clone(),
        };
        [Change::Bucket(Arc::clone(&self.info)), grants]
            .into_iter()
            .chain(folders)
            .chain(names)
    }
}
