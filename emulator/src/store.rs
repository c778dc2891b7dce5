//! Buckets, the live version of each object, and former versions that a bucket keeps.
//!
//! One lock guards the maps and is held for map work only: bodies are received before a version is published and
//! sent after it was looked up, and a version that is replaced is freed outside. Versions are immutable, so a
//! reader, a listing and a stat see whole ones.

mod folders;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Timestamp};
use crate::config::{BucketSettings, MutationLimit};
use crate::content::Content;
use crate::error::{ApiError, Kind};
use crate::hierarchy::{Folders, Renames};
use crate::history::{Entry, History, Kept, Standing, Usage};
use crate::hold;
use crate::journal::{Batch, Change, Journal, Mirror, MirrorBucket};
use crate::limit::Limiter;
use crate::listing::{self, ListQuery, Page, Versions, View};
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
    /// Of objects that are given none.
    pub(crate) storage_class: String,
    pub(crate) settings: BucketSettings,
    pub(crate) labels: BTreeMap<String, String>,
}

impl BucketInfo {
    /// The version that preconditions are held against.
    pub(crate) fn version(&self) -> Version {
        Version {
            generation: self.generation,
            metageneration: self.metageneration,
            md5: None,
        }
    }
}

/// A bucket to be created.
#[derive(Clone, Debug)]
pub(crate) struct NewBucket {
    pub(crate) name: BucketName,
    pub(crate) hierarchical: bool,
    pub(crate) storage_class: String,
    pub(crate) settings: BucketSettings,
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Bucket {
    info: Arc<BucketInfo>,
    objects: Objects,
    noncurrent: History,
    soft_deleted: History,
    /// `None` where the namespace is flat.
    folders: Option<Folders>,
    renames: Renames,
}

impl Bucket {
    fn new(info: Arc<BucketInfo>) -> Self {
        Self {
            objects: Objects::new(),
            noncurrent: History::default(),
            soft_deleted: History::default(),
            folders: info.hierarchical.then(Folders::new),
            renames: Renames::default(),
            info,
        }
    }

    /// A bucket as a journal kept it.
    fn kept(kept: &MirrorBucket) -> Self {
        let mut bucket = Self::new(Arc::clone(&kept.info));
        if let Some(folders) = &mut bucket.folders {
            folders.clone_from(&kept.folders);
        }
        for entry in kept.names.values().flatten() {
            bucket.file(entry.clone());
        }
        bucket
    }

    /// Puts a version where its standing has it, in the place of one of its generation, which is returned.
    fn file(&mut self, entry: Entry) -> Option<Arc<Object>> {
        let (objects, noncurrent, soft_deleted) = (
            &mut self.objects,
            &mut self.noncurrent,
            &mut self.soft_deleted,
        );
        file(objects, noncurrent, soft_deleted, entry)
    }

    /// All versions of a name.
    fn versions(&self, name: &ObjectName) -> Vec<Entry> {
        let live = self.objects.get(name).cloned().map(Entry::live);
        let former = [self.noncurrent.of(name), self.soft_deleted.of(name)];
        live.into_iter().chain(former.concat()).collect()
    }

    /// What touched names and folders are like now.
    fn changes(&self, touched: Touched) -> Vec<Change> {
        let bucket = &self.info.name;
        let folders = touched.folders.into_iter().map(|name| Change::Folder {
            bucket: bucket.clone(),
            folder: self
                .folders
                .as_ref()
                .and_then(|all| all.get(&name))
                .cloned(),
            name,
        });
        let names = touched.names.into_iter().map(|name| Change::Name {
            bucket: bucket.clone(),
            versions: self.versions(&name),
            name,
        });
        folders.chain(names).collect()
    }

    fn is_empty(&self) -> bool {
        self.objects.is_empty()
            && self.noncurrent.is_empty()
            && self.folders.as_ref().is_none_or(Folders::is_empty)
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
    journal: Option<Arc<Journal>>,
}

impl Store {
    /// A store of what a journal held, which is told of all changes.
    pub(crate) fn new(
        clock: Clock,
        limit: Option<MutationLimit>,
        journal: Option<Arc<Journal>>,
        kept: &Mirror,
    ) -> Self {
        let buckets = kept.buckets.iter();
        let buckets = buckets.map(|(name, bucket)| (name.clone(), Bucket::kept(bucket)));
        let inner = Inner {
            buckets: buckets.collect(),
            limiter: limit.map(Limiter::new),
            last_generation: kept.last_generation,
        };
        Self {
            clock,
            inner: Mutex::new(inner),
            journal,
        }
    }

    /// Tells the journal of changes that took effect under the lock that the caller holds.
    fn note(&self, last_generation: u64, changes: Vec<Change>) {
        if let Some(journal) = self.journal.as_ref().filter(|_| !changes.is_empty()) {
            journal.add(Batch {
                last_generation,
                changes,
            });
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
            storage_class: new.storage_class,
            settings: new.settings,
            labels: new.labels,
        });
        let bucket = Bucket::new(Arc::clone(&info));
        inner.buckets.insert(new.name, bucket);
        let changes = vec![Change::Bucket(Arc::clone(&info))];
        self.note(inner.last_generation, changes);
        Ok(info)
    }

    /// Changes what `change` changes.
    pub(crate) fn set_bucket(
        &self,
        name: &str,
        change: impl FnOnce(&mut BucketInfo) -> Result<(), ApiError>,
    ) -> Result<Arc<BucketInfo>, ApiError> {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let bucket = inner
            .buckets
            .get_mut(name)
            .ok_or_else(ApiError::bucket_not_found)?;
        let mut changed = BucketInfo::clone(&bucket.info);
        change(&mut changed)?;
        check_settings(changed.hierarchical, &changed.settings)?;
        changed.metageneration += 1;
        changed.updated = now;
        bucket.info = Arc::new(changed);
        let info = Arc::clone(&bucket.info);
        let changes = vec![Change::Bucket(Arc::clone(&info))];
        self.note(inner.last_generation, changes);
        Ok(info)
    }

    /// How much a bucket holds.
    pub(crate) fn usage(&self, bucket: &BucketName) -> Result<Usage, ApiError> {
        let former = |history: &History| Kept::count(history.entries().map(|entry| &entry.object));
        self.transact(bucket, |tx| {
            Ok(Usage {
                live: Kept::count(tx.objects.values()),
                noncurrent: former(tx.noncurrent),
                soft_deleted: former(tx.soft_deleted),
            })
        })
    }

    pub(crate) fn delete_bucket(&self, name: &str) -> Result<(), ApiError> {
        let mut inner = self.inner.lock();
        if !inner.bucket(name)?.is_empty() {
            let message = "The bucket you tried to delete is not empty.";
            return Err(ApiError::new(Kind::Conflict, message));
        }
        if let Some((name, _)) = inner.buckets.remove_entry(name) {
            self.note(inner.last_generation, vec![Change::BucketGone(name)]);
        }
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

    /// The live version of an object, or with a `generation` that one, if it is live or noncurrent.
    pub(crate) fn find(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        generation: Option<u64>,
    ) -> Result<Arc<Object>, ApiError> {
        Ok(self.look(bucket, name, generation)?.object)
    }

    /// As [`Self::find`], with the standing of the version.
    pub(crate) fn look(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        generation: Option<u64>,
    ) -> Result<Entry, ApiError> {
        let inner = self.inner.lock();
        let of = inner.bucket(bucket.as_str())?;
        find(&of.objects, &of.noncurrent, bucket, name, generation)
    }

    /// A soft-deleted version.
    pub(crate) fn look_soft_deleted(
        &self,
        bucket: &BucketName,
        name: &ObjectName,
        generation: u64,
    ) -> Result<Entry, ApiError> {
        self.transact(bucket, |tx| tx.soft_deleted(name, generation))
    }

    pub(crate) fn list(&self, bucket: &BucketName, query: &ListQuery) -> Result<Page, ApiError> {
        self.transact(bucket, |tx| {
            let view = match query.of() {
                Versions::Live => View {
                    live: Some(tx.objects),
                    former: None,
                    folders: tx.folders.as_deref(),
                },
                Versions::All => View {
                    live: Some(tx.objects),
                    former: Some(tx.noncurrent),
                    folders: tx.folders.as_deref(),
                },
                Versions::SoftDeleted => View {
                    live: None,
                    former: Some(tx.soft_deleted),
                    folders: None,
                },
            };
            Ok(listing::page(&view, query))
        })
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
            let mut touched = Touched::default();
            for over in entry.soft_deleted.expire(now) {
                touched.names.insert(over.object.name.clone());
                replaced.push(over.object);
            }
            let result = work(&mut Transaction {
                bucket,
                info: &entry.info,
                noncurrent: &mut entry.noncurrent,
                soft_deleted: &mut entry.soft_deleted,
                objects: &mut entry.objects,
                folders: entry.folders.as_mut(),
                renames: &mut entry.renames,
                limiter: inner.limiter.as_mut(),
                last_generation: &mut inner.last_generation,
                now,
                touched: &mut touched,
                replaced: &mut replaced,
            });
            if self.journal.is_some() {
                self.note(inner.last_generation, entry.changes(touched));
            }
            result
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
    if hierarchical && settings.versioning {
        let message = "A bucket with a hierarchical namespace cannot have versioning.";
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
    noncurrent: &History,
    bucket: &BucketName,
    name: &ObjectName,
    generation: Option<u64>,
) -> Result<Entry, ApiError> {
    let live = objects
        .get(name)
        .filter(|object| generation.is_none_or(|wanted| wanted == object.generation));
    live.cloned()
        .map(Entry::live)
        .or_else(|| noncurrent.find(name, generation?).cloned())
        .ok_or_else(|| ApiError::object_not_found(bucket, name))
}

/// Puts a version into the map of its standing, in the place of one of its generation, which is returned.
fn file(
    objects: &mut Objects,
    noncurrent: &mut History,
    soft_deleted: &mut History,
    entry: Entry,
) -> Option<Arc<Object>> {
    match entry.standing {
        Standing::Live => objects.insert(entry.object.name.clone(), entry.object),
        Standing::Noncurrent { .. } => noncurrent.put(entry).map(|entry| entry.object),
        Standing::SoftDeleted { .. } => soft_deleted.put(entry).map(|entry| entry.object),
    }
}

/// What a transaction may have changed.
#[derive(Debug, Default)]
struct Touched {
    names: BTreeSet<ObjectName>,
    folders: BTreeSet<FolderName>,
}

/// One bucket under the lock.
pub(crate) struct Transaction<'a> {
    bucket: &'a BucketName,
    info: &'a BucketInfo,
    objects: &'a mut Objects,
    noncurrent: &'a mut History,
    soft_deleted: &'a mut History,
    folders: Option<&'a mut Folders>,
    renames: &'a mut Renames,
    limiter: Option<&'a mut Limiter>,
    last_generation: &'a mut u64,
    now: Timestamp,
    touched: &'a mut Touched,
    /// Versions that went out of the maps, to be freed by the caller.
    replaced: &'a mut Vec<Arc<Object>>,
}

impl Transaction<'_> {
    pub(crate) fn find(
        &self,
        name: &ObjectName,
        generation: Option<u64>,
    ) -> Result<Arc<Object>, ApiError> {
        Ok(self.look(name, generation)?.object)
    }

    pub(crate) fn look(
        &self,
        name: &ObjectName,
        generation: Option<u64>,
    ) -> Result<Entry, ApiError> {
        find(self.objects, self.noncurrent, self.bucket, name, generation)
    }

    pub(crate) fn soft_deleted(
        &self,
        name: &ObjectName,
        generation: u64,
    ) -> Result<Entry, ApiError> {
        let found = self.soft_deleted.find(name, generation).cloned();
        found.ok_or_else(|| ApiError::object_not_found(self.bucket, name))
    }

    /// The version that preconditions are held against.
    pub(crate) fn version(&self, name: &ObjectName) -> Version {
        let live = self.objects.get(name);
        live.map_or_else(Version::default, |object| object.version())
    }

    /// Refuses to end the live version of a name, if there is one, while a hold or the retention policy keeps it.
    pub(crate) fn check_free(&self, name: &ObjectName) -> Result<(), ApiError> {
        match self.objects.get(name) {
            Some(live) => self.check_version_free(live),
            None => Ok(()),
        }
    }

    /// Refuses to end a version while a hold or the retention policy keeps it.
    pub(crate) fn check_version_free(&self, version: &Object) -> Result<(), ApiError> {
        hold::check_free(version, self.info.settings.retention, self.now)
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
        let mut attributes = draft.attributes;
        let class = &self.info.storage_class;
        attributes
            .storage_class
            .get_or_insert_with(|| class.clone());
        attributes.holds.event_based |= self.info.settings.default_event_based_hold;
        let object = Arc::new(Object {
            bucket: self.bucket.clone(),
            name: name.clone(),
            generation: next_generation(self.last_generation, self.now),
            metageneration: 1,
            created: self.now,
            updated: self.now,
            retained_from: self.now,
            content: draft.content,
            attributes,
        });
        self.remove(name);
        self.set(Arc::clone(&object));
        object
    }

    /// Gives a version other attributes and the next metageneration.
    pub(crate) fn amend(&mut self, version: &Entry, attributes: Attributes) -> Entry {
        let old = &version.object;
        let released = old.attributes.holds.event_based && !attributes.holds.event_based;
        let object = Arc::new(Object {
            retained_from: if released {
                self.now
            } else {
                old.retained_from
            },
            metageneration: old.metageneration + 1,
            updated: self.now.max(old.updated + Duration::from_millis(1)),
            attributes,
            ..Object::clone(old)
        });
        let amended = Entry {
            object,
            standing: version.standing,
        };
        self.file(amended.clone());
        amended
    }

    /// Ends the live version of a name: versioning keeps it, else it is destroyed.
    pub(crate) fn remove(&mut self, name: &ObjectName) {
        let Some(object) = self.take_live(name) else {
            return;
        };
        if self.info.settings.versioning {
            let standing = Standing::Noncurrent { since: self.now };
            self.file(Entry { object, standing });
        } else {
            self.bury(object);
        }
    }

    /// Ends a version for good, live or not: a soft delete policy still keeps it for a while.
    pub(crate) fn destroy(&mut self, version: &Object) {
        let live = self.objects.get(&version.name);
        let object = if live.is_some_and(|live| live.generation == version.generation) {
            self.take_live(&version.name)
        } else {
            self.touched.names.insert(version.name.clone());
            let taken = self.noncurrent.take(&version.name, version.generation);
            taken.map(|entry| entry.object)
        };
        if let Some(object) = object {
            self.bury(object);
        }
    }

    /// Makes a new live version of a soft-deleted one, which is none then.
    pub(crate) fn restore(&mut self, buried: &Object) -> Arc<Object> {
        self.touched.names.insert(buried.name.clone());
        let taken = self.soft_deleted.take(&buried.name, buried.generation);
        self.replaced.extend(taken.map(|entry| entry.object));
        let draft = Draft {
            content: buried.content.clone(),
            attributes: buried.attributes.clone(),
        };
        self.put(&buried.name, draft)
    }

    fn bury(&mut self, object: Arc<Object>) {
        match self.info.settings.soft_delete {
            Some(period) => self.file(Entry {
                object,
                standing: Standing::SoftDeleted {
                    since: self.now,
                    until: self.now.saturating_add(period),
                },
            }),
            None => self.replaced.push(object),
        }
    }

    fn take_live(&mut self, name: &ObjectName) -> Option<Arc<Object>> {
        let taken = self.objects.remove(name)?;
        self.touched.names.insert(name.clone());
        Some(taken)
    }

    /// Makes a version live, in folders that come to be with it.
    fn set(&mut self, object: Arc<Object>) {
        if self.folders.is_some() {
            let above = FolderName::above(&object.name);
            above.iter().flatten().for_each(|folder| self.house(folder));
        }
        self.file(Entry::live(object));
    }

    /// Puts a version where its standing has it, in the place of one of its generation.
    fn file(&mut self, entry: Entry) {
        self.touched.names.insert(entry.object.name.clone());
        let replaced = file(self.objects, self.noncurrent, self.soft_deleted, entry);
        self.replaced.extend(replaced);
    }
}
