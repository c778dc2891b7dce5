//! Buckets and the live version of each object.
//!
//! One lock guards the maps and is held for map work only: bodies are received before a version is published and
//! sent after it was looked up, and a version that is replaced is freed outside. Versions are immutable, so a
//! reader, a listing and a stat see whole ones.

mod folders;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Timestamp};
use crate::config::{BucketSettings, MutationLimit};
use crate::content::Content;
use crate::error::{ApiError, Kind};
use crate::hierarchy::{Folders, Renames};
use crate::hold;
use crate::limit::Limiter;
use crate::listing::{self, ListQuery, Page, View};
use crate::name::{BucketName, FolderName, ObjectName};
use crate::object::{Attributes, Object};
use crate::precondition::{Preconditions, Version};

/// The live objects of a bucket in the order of their names.
pub(crate) type Objects = BTreeMap<ObjectName, Arc<Object>>;

/// What is known of a bucket beside its objects.
#[derive(Clone, Debug)]
pub(crate) struct BucketInfo {
    pub(crate) name: BucketName,
    pub(crate) generation: u64,
    pub(crate) metageneration: u64,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    /// Whether it has folders. That is for good.
    pub(crate) hierarchical: bool,
    pub(crate) settings: BucketSettings,
}

/// A bucket to be created.
#[derive(Clone, Debug)]
pub(crate) struct NewBucket {
    pub(crate) name: BucketName,
    pub(crate) hierarchical: bool,
    pub(crate) settings: BucketSettings,
}

#[derive(Debug)]
struct Bucket {
    info: Arc<BucketInfo>,
    objects: Objects,
    /// `None` where the namespace is flat.
    folders: Option<Folders>,
    renames: Renames,
}

impl Bucket {
    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.folders.as_ref().is_none_or(Folders::is_empty)
    }
}

#[derive(Debug)]
struct Inner {
    buckets: BTreeMap<BucketName, Bucket>,
    limiter: Option<Limiter>,
    last_generation: u64,
}

/// The content and attributes of a version to be published.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) content: Content,
    pub(crate) attributes: Attributes,
}

/// Whether an object may take the place of a live one: replacing needs the permission to delete as well, which a
/// caller who may only create lacks.
#[derive(Clone, Debug)]
pub(crate) struct Replacing(pub(crate) Result<(), ApiError>);

/// On what terms an object is put under a name.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) conditions: Preconditions,
    pub(crate) replacing: Replacing,
}

impl Terms {
    /// Holds the live version against them.
    pub(crate) fn check(&self, live: Version) -> Result<(), ApiError> {
        self.conditions.check_write(live)?;
        if live == Version::default() {
            return Ok(());
        }
        self.replacing.0.clone()
    }
}

/// All buckets of one emulator.
#[derive(Debug)]
pub(crate) struct Store {
    clock: Clock,
    inner: Mutex<Inner>,
}

impl Store {
    pub(crate) fn new(clock: Clock, limit: Option<MutationLimit>) -> Self {
        let inner = Inner {
            buckets: BTreeMap::new(),
            limiter: limit.map(Limiter::new),
            last_generation: 0,
        };
        Self {
            clock,
            inner: Mutex::new(inner),
        }
    }

    pub(crate) fn create_bucket(&self, new: NewBucket) -> Result<Arc<BucketInfo>, ApiError> {
        check_settings(new.hierarchical, &new.settings)?;
        let created = self.clock.now();
        let mut inner = self.inner.lock();
        if inner.buckets.contains_key(&new.name) {
            let message = "Your previous request to create the named bucket succeeded and you already own it.";
            return Err(ApiError::new(Kind::Conflict, message));
        }
        let info = Arc::new(BucketInfo {
            name: new.name.clone(),
            generation: inner.next_generation(created),
            metageneration: 1,
            created,
            updated: created,
            hierarchical: new.hierarchical,
            settings: new.settings,
        });
        let bucket = Bucket {
            info: Arc::clone(&info),
            objects: Objects::new(),
            folders: new.hierarchical.then(Folders::new),
            renames: Renames::default(),
        };
        inner.buckets.insert(new.name, bucket);
        Ok(info)
    }

    pub(crate) fn set_bucket(&self, name: &str, settings: BucketSettings) -> Result<(), ApiError> {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let bucket = inner
            .buckets
            .get_mut(name)
            .ok_or_else(ApiError::bucket_not_found)?;
        check_settings(bucket.info.hierarchical, &settings)?;
        bucket.info = Arc::new(BucketInfo {
            metageneration: bucket.info.metageneration + 1,
            updated: now,
            settings,
            ..BucketInfo::clone(&bucket.info)
        });
        Ok(())
    }

    pub(crate) fn delete_bucket(&self, name: &str) -> Result<(), ApiError> {
        let mut inner = self.inner.lock();
        if !inner.bucket(name)?.is_empty() {
            let message = "The bucket you tried to delete is not empty.";
            return Err(ApiError::new(Kind::Conflict, message));
        }
        inner.buckets.remove(name);
        Ok(())
    }

    pub(crate) fn bucket(&self, name: &str) -> Result<Arc<BucketInfo>, ApiError> {
        let inner = self.inner.lock();
        Ok(Arc::clone(&inner.bucket(name)?.info))
    }

    pub(crate) fn buckets(&self) -> Vec<Arc<BucketInfo>> {
        let inner = self.inner.lock();
        inner
            .buckets
            .values()
            .map(|bucket| Arc::clone(&bucket.info))
            .collect()
    }

    /// The live version of an object; a `generation` that is not the live one is not found.
    pub(crate) fn find(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        generation: Option<u64>,
    ) -> Result<Arc<Object>, ApiError> {
        let inner = self.inner.lock();
        let objects = &inner.bucket(bucket.as_str())?.objects;
        find(objects, bucket, name, generation)
    }

    pub(crate) fn list(&self, bucket: &BucketName, query: &ListQuery) -> Result<Page, ApiError> {
        let inner = self.inner.lock();
        let bucket = inner.bucket(bucket.as_str())?;
        let view = View {
            objects: &bucket.objects,
            folders: bucket.folders.as_ref(),
        };
        Ok(listing::page(&view, query))
    }

    /// Runs `work` with the bucket to itself. What it does to the maps is visible to others all at once.
    /// `work` checks everything before it changes anything: there is no rolling back.
    pub(crate) fn transact<T>(
        &self,
        bucket: &BucketName,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let mut replaced = Vec::new();
        let result = {
            let mut inner = self.inner.lock();
            let now = self.clock.now();
            let inner = &mut *inner;
            let entry = inner
                .buckets
                .get_mut(bucket)
                .ok_or_else(ApiError::bucket_not_found)?;
            work(&mut Transaction {
                bucket,
                retention: entry.info.settings.retention,
                objects: &mut entry.objects,
                folders: entry.folders.as_mut(),
                renames: &mut entry.renames,
                limiter: inner.limiter.as_mut(),
                last_generation: &mut inner.last_generation,
                now,
                replaced: &mut replaced,
            })
        };
        // Freeing gigabytes takes a while: after the lock is released.
        drop(replaced);
        result
    }
}

impl Inner {
    fn bucket(&self, name: &str) -> Result<&Bucket, ApiError> {
        let found = self.buckets.get(name);
        found.ok_or_else(ApiError::bucket_not_found)
    }

    fn next_generation(&mut self, now: Timestamp) -> u64 {
        next_generation(&mut self.last_generation, now)
    }
}

/// Folders have no access lists of their own.
fn check_settings(hierarchical: bool, settings: &BucketSettings) -> Result<(), ApiError> {
    if hierarchical && !settings.uniform_access {
        let message = "A bucket with a hierarchical namespace needs uniform bucket-level access.";
        return Err(ApiError::invalid(message));
    }
    Ok(())
}

/// Microseconds as GCS has them, and never the same twice.
fn next_generation(last: &mut u64, now: Duration) -> u64 {
    let micros = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    *last = micros.max(*last + 1);
    *last
}

fn find(
    objects: &Objects,
    bucket: &BucketName,
    name: &ObjectName,
    generation: Option<u64>,
) -> Result<Arc<Object>, ApiError> {
    let live = objects
        .get(name)
        .filter(|object| generation.is_none_or(|wanted| wanted == object.generation));
    live.cloned()
        .ok_or_else(|| ApiError::object_not_found(bucket, name))
}

/// One bucket under the lock.
pub(crate) struct Transaction<'a> {
    bucket: &'a BucketName,
    retention: Option<Duration>,
    objects: &'a mut Objects,
    folders: Option<&'a mut Folders>,
    renames: &'a mut Renames,
    limiter: Option<&'a mut Limiter>,
    last_generation: &'a mut u64,
    now: Timestamp,
    /// Versions that went out of the maps, to be freed by the caller.
    replaced: &'a mut Vec<Arc<Object>>,
}

impl Transaction<'_> {
    pub(crate) fn find(
        &self,
        name: &ObjectName,
        generation: Option<u64>,
    ) -> Result<Arc<Object>, ApiError> {
        find(self.objects, self.bucket, name, generation)
    }

    /// The version that preconditions are held against.
    pub(crate) fn version(&self, name: &ObjectName) -> Version {
        let live = self.objects.get(name);
        live.map_or_else(Version::default, |object| object.version())
    }

    /// Refuses to end the live version of a name, if there is one, while a hold or the retention policy keeps it.
    pub(crate) fn check_free(&self, name: &ObjectName) -> Result<(), ApiError> {
        match self.objects.get(name) {
            Some(live) => hold::check_free(live, self.retention, self.now),
            None => Ok(()),
        }
    }

    /// Refuses a name that this bucket's namespace has no place for.
    pub(crate) fn check_place(&self, name: &ObjectName) -> Result<(), ApiError> {
        if self.folders.is_some() {
            FolderName::above(name)?;
        }
        Ok(())
    }

    /// Counts one mutation of each name against the limit.
    pub(crate) fn spend(&mut self, names: &[&ObjectName]) -> Result<(), ApiError> {
        let Some(limiter) = self.limiter.as_mut() else {
            return Ok(());
        };
        limiter
            .spend(self.bucket, names, self.now)
            .map_err(|name| ApiError::rate_limited(self.bucket, name))
    }

    /// Makes `draft` the live version under a new generation.
    pub(crate) fn put(&mut self, name: &ObjectName, draft: Draft) -> Arc<Object> {
        let object = Arc::new(Object {
            bucket: self.bucket.clone(),
            name: name.clone(),
            generation: next_generation(self.last_generation, self.now),
            metageneration: 1,
            created: self.now,
            updated: self.now,
            retained_from: self.now,
            content: draft.content,
            attributes: draft.attributes,
        });
        self.set(Arc::clone(&object));
        object
    }

    /// Makes a version with other attributes and the next metageneration live.
    pub(crate) fn amend(&mut self, live: &Object, attributes: Attributes) -> Arc<Object> {
        let released = live.attributes.holds.event_based && !attributes.holds.event_based;
        let object = Arc::new(Object {
            retained_from: if released {
                self.now
            } else {
                live.retained_from
            },
            metageneration: live.metageneration + 1,
            updated: self.now.max(live.updated + Duration::from_millis(1)),
            attributes,
            ..live.clone()
        });
        self.set(Arc::clone(&object));
        object
    }

    pub(crate) fn remove(&mut self, name: &ObjectName) {
        self.displace(name);
    }

    fn displace(&mut self, name: &ObjectName) {
        self.replaced.extend(self.objects.remove(name));
    }

    /// Makes a version live, in folders that come to be with it.
    fn set(&mut self, object: Arc<Object>) {
        if self.folders.is_some() {
            let above = FolderName::above(&object.name);
            above.iter().flatten().for_each(|folder| self.house(folder));
        }
        self.replaced
            .extend(self.objects.insert(object.name.clone(), object));
    }
}
