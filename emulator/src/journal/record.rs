//! The head of a frame: changes in JSON. Contents are told by numbers, and come once, behind the head that is the first
//! to tell them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Batch, Change};
use crate::clock::Timestamp;
use crate::config::BucketSettings;
use crate::content::Content;
use crate::hierarchy::Folder;
use crate::history::{Entry, Standing};
use crate::name::{BucketName, FolderName, ObjectName};
use crate::object::{Attributes, Object};
use crate::role::Role;
use crate::store::BucketInfo;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Head {
    last_generation: u64,
    /// Those whose bytes follow, one after the other.
    pub(super) contents: Vec<ContentRecord>,
    changes: Vec<Record>,
}

/// What is known of a content beside its bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct ContentRecord {
    pub(super) id: u64,
    pub(super) length: u64,
    pub(super) crc32c: u32,
    pub(super) md5: Option<[u8; 16]>,
    pub(super) components: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    Bucket(BucketRecord),
    BucketGone(BucketName),
    Name {
        bucket: BucketName,
        name: ObjectName,
        versions: Vec<VersionRecord>,
    },
    Folder {
        bucket: BucketName,
        name: FolderName,
        folder: Option<FolderRecord>,
    },
    Grants {
        bucket: BucketName,
        bindings: Vec<(String, String)>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct BucketRecord {
    name: BucketName,
    generation: u64,
    metageneration: u64,
    created: Timestamp,
    updated: Timestamp,
    hierarchical: bool,
    storage_class: String,
    settings: BucketSettings,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct VersionRecord {
    generation: u64,
    metageneration: u64,
    created: Timestamp,
    updated: Timestamp,
    retained_from: Timestamp,
    standing: Standing,
    attributes: Attributes,
    content: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct FolderRecord {
    metageneration: u64,
    created: Timestamp,
    updated: Timestamp,
}

impl Head {
    /// The head of a batch, and the contents that are to follow it: those that are not in `written`, which they are
    /// added to.
    pub(super) fn new<'b>(
        batch: &'b Batch,
        written: &mut HashSet<u64>,
    ) -> (Self, Vec<&'b Content>) {
        let versions = batch.changes.iter().flat_map(|change| match change {
            Change::Name { versions, .. } => versions.as_slice(),
            _ => &[],
        });
        let contents = versions.map(|entry| &entry.object.content);
        let fresh: Vec<&Content> = contents
            .filter(|content| written.insert(content.id))
            .collect();
        let head = Self {
            last_generation: batch.last_generation,
            contents: fresh
                .iter()
                .map(|content| ContentRecord::new(content))
                .collect(),
            changes: batch.changes.iter().map(Record::new).collect(),
        };
        (head, fresh)
    }

    /// The batch that it tells of; a content that never came is an error.
    pub(super) fn batch(self, contents: &HashMap<u64, Content>) -> Result<Batch, &'static str> {
        let changes = self.changes.into_iter();
        Ok(Batch {
            last_generation: self.last_generation,
            changes: changes
                .map(|record| record.change(contents))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl ContentRecord {
    fn new(content: &Content) -> Self {
        Self {
            id: content.id,
            length: content.rope.len(),
            crc32c: content.crc32c,
            md5: content.md5,
            components: content.components,
        }
    }
}

impl Record {
    fn new(change: &Change) -> Self {
        match change {
            Change::Bucket(info) => Self::Bucket(BucketRecord {
                name: info.name.clone(),
                generation: info.generation,
                metageneration: info.metageneration,
                created: info.created,
                updated: info.updated,
                hierarchical: info.hierarchical,
                storage_class: info.storage_class.clone(),
                settings: info.settings,
                labels: info.labels.clone(),
            }),
            Change::BucketGone(name) => Self::BucketGone(name.clone()),
            Change::Name {
                bucket,
                name,
                versions,
            } => Self::Name {
                bucket: bucket.clone(),
                name: name.clone(),
                versions: versions.iter().map(VersionRecord::new).collect(),
            },
            Change::Folder {
                bucket,
                name,
                folder,
            } => Self::Folder {
                bucket: bucket.clone(),
                name: name.clone(),
                folder: folder.as_deref().map(FolderRecord::new),
            },
            Change::Grants { bucket, bindings } => Self::Grants {
                bucket: bucket.clone(),
                bindings: bindings
                    .iter()
                    .map(|(member, role)| (member.clone(), role.name().to_owned()))
                    .collect(),
            },
        }
    }

    fn change(self, contents: &HashMap<u64, Content>) -> Result<Change, &'static str> {
        Ok(match self {
            Self::Bucket(record) => Change::Bucket(Arc::new(BucketInfo {
                name: record.name,
                generation: record.generation,
                metageneration: record.metageneration,
                created: record.created,
                updated: record.updated,
                hierarchical: record.hierarchical,
                storage_class: record.storage_class,
                settings: record.settings,
                labels: record.labels,
            })),
            Self::BucketGone(name) => Change::BucketGone(name),
            Self::Name {
                bucket,
                name,
                versions,
            } => {
                let versions = versions.into_iter();
                let versions = versions.map(|record| record.entry(&bucket, &name, contents));
                Change::Name {
                    versions: versions.collect::<Result<_, _>>()?,
                    bucket,
                    name,
                }
            }
            Self::Folder {
                bucket,
                name,
                folder,
            } => Change::Folder {
                bucket,
                folder: folder.map(|record| Arc::new(record.folder(&name))),
                name,
            },
            Self::Grants { bucket, bindings } => {
                let role =
                    |(member, role): (String, String)| Some((member, Role::from_name(&role)?));
                let bindings: Option<_> = bindings.into_iter().map(role).collect();
                let bindings = bindings.ok_or("a role that is not known")?;
                Change::Grants { bucket, bindings }
            }
        })
    }
}

impl VersionRecord {
    fn new(entry: &Entry) -> Self {
        let object = &entry.object;
        Self {
            generation: object.generation,
            metageneration: object.metageneration,
            created: object.created,
            updated: object.updated,
            retained_from: object.retained_from,
            standing: entry.standing,
            attributes: object.attributes.clone(),
            content: object.content.id,
        }
    }

    fn entry(
        self,
        bucket: &BucketName,
        name: &ObjectName,
        contents: &HashMap<u64, Content>,
    ) -> Result<Entry, &'static str> {
        let content = contents.get(&self.content);
        let object = Object {
            bucket: bucket.clone(),
            name: name.clone(),
            generation: self.generation,
            metageneration: self.metageneration,
            created: self.created,
            updated: self.updated,
            retained_from: self.retained_from,
            content: content.ok_or("a content that never came")?.clone(),
            attributes: self.attributes,
        };
        Ok(Entry {
            object: Arc::new(object),
            standing: self.standing,
        })
    }
}

impl FolderRecord {
    fn new(folder: &Folder) -> Self {
        Self {
            metageneration: folder.metageneration,
            created: folder.created,
            updated: folder.updated,
        }
    }

    fn folder(self, name: &FolderName) -> Folder {
        Folder {
            name: name.clone(),
            metageneration: self.metageneration,
            created: self.created,
            updated: self.updated,
        }
    }
}
