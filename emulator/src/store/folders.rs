//! The folders of a bucket with a hierarchical namespace. A rename takes along what is in the folder, all at once:
//! objects keep their generations, since nothing is written but names.
//!
//! GCS answers 409 to whatever is in a folder's way: another one, a parent that is missing, something inside, or a
//! bucket without a hierarchical namespace.

use std::sync::Arc;

use super::{Store, Transaction};
use crate::error::{ApiError, Kind};
use crate::hierarchy::{self, Folder, FolderPage, FolderQuery, Folders, Rename};
use crate::name::{BucketName, FolderName, ObjectName};
use crate::object::Object;
use crate::precondition::{Preconditions, Version};

fn conflict(message: String) -> ApiError {
    ApiError::new(Kind::Conflict, message)
}

fn flat() -> ApiError {
    conflict("The bucket does not have a hierarchical namespace.".to_owned())
}

fn missing(name: &FolderName) -> ApiError {
    ApiError::new(Kind::ObjectNotFound, format!("No such folder: {name}"))
}

/// A folder has no generation: it counts as one that never changes.
fn version(folder: &Folder) -> Version {
    Version {
        generation: 1,
        metageneration: folder.metageneration,
        md5: None,
    }
}

impl Store {
    pub(crate) fn create_folder(
        &self,
        bucket: &BucketName,
        name: &FolderName,
        recursive: bool,
    ) -> Result<Arc<Folder>, ApiError> {
        self.transact(bucket, |tx| {
            let folders = tx.folders()?;
            if folders.contains_key(name) {
                return Err(conflict(format!("The folder already exists: {name}")));
            }
            let mut above = Vec::new();
            let mut parent = name.parent();
            while let Some(folder) = parent.filter(|folder| !folders.contains_key(folder)) {
                parent = folder.parent();
                above.push(folder);
            }
            if let Some(lacking) = above.first().filter(|_| !recursive) {
                return Err(conflict(format!(
                    "The parent folder does not exist: {lacking}"
                )));
            }
            above.iter().for_each(|folder| tx.house(folder));
            tx.house(name);
            tx.folder(name)
        })
    }

    pub(crate) fn folder(
        &self,
        bucket: &BucketName,
        name: &FolderName,
    ) -> Result<Arc<Folder>, ApiError> {
        self.with_folders(bucket, |folders| {
            folders.get(name).cloned().ok_or_else(|| missing(name))
        })
    }

    pub(crate) fn list_folders(
        &self,
        bucket: &BucketName,
        query: &FolderQuery,
    ) -> Result<FolderPage, ApiError> {
        self.with_folders(bucket, |folders| Ok(hierarchy::page(folders, query)))
    }

    fn with_folders<T>(
        &self,
        bucket: &BucketName,
        look: impl FnOnce(&Folders) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let inner = self.inner.lock();
        let bucket = inner.bucket(bucket.as_str())?;
        look(bucket.folders.as_ref().ok_or_else(flat)?)
    }

    pub(crate) fn delete_folder(
        &self,
        bucket: &BucketName,
        name: &FolderName,
        conditions: &Preconditions,
    ) -> Result<(), ApiError> {
        self.transact(bucket, |tx| {
            conditions.check_write(version(&*tx.folder(name)?))?;
            let inside = below(tx.folders()?, name.as_str(), FolderName::as_str);
            let is_empty = inside.len() == 1 && tx.objects_below(name).is_empty();
            if !is_empty {
                return Err(conflict(format!("The folder is not empty: {name}")));
            }
            tx.unhouse(name);
            Ok(())
        })
    }

    /// Moves a folder with everything in it, and keeps the outcome under `id`.
    pub(crate) fn rename_folder(
        &self,
        bucket: &BucketName,
        (source, target): (&FolderName, &FolderName),
        conditions: &Preconditions,
        id: String,
    ) -> Result<Arc<Rename>, ApiError> {
        if target.as_str().starts_with(source.as_str()) {
            let message = "A folder cannot be renamed to itself or to what is in it.";
            return Err(ApiError::invalid(message));
        }
        self.transact(bucket, |tx| {
            conditions.check_write(version(&*tx.folder(source)?))?;
            tx.check_vacant(target)?;
            let folders = below(tx.folders()?, source.as_str(), FolderName::as_str);
            let folders = renamed(
                &folders,
                source,
                target,
                |folder| &folder.name,
                FolderName::parse,
            )?;
            let objects = tx.objects_below(source);
            for object in &objects {
                tx.check_version_free(object)?;
            }
            let objects = renamed(
                &objects,
                source,
                target,
                |object| &object.name,
                ObjectName::parse,
            )?;
            for (folder, name) in folders {
                tx.unhouse(&folder.name);
                tx.set_folder(folder.moved(name, tx.now));
            }
            for (object, name) in objects {
                tx.take_live(&object.name);
                let moved = Object {
                    name,
                    ..Object::clone(&object)
                };
                tx.set(Arc::new(moved));
            }
            let rename = Arc::new(Rename {
                id,
                source: source.clone(),
                target: tx.folder(target)?,
                at: tx.now,
            });
            tx.renames.add(Arc::clone(&rename));
            Ok(rename)
        })
    }

    /// What became of a rename.
    pub(crate) fn rename(&self, bucket: &BucketName, id: &str) -> Result<Arc<Rename>, ApiError> {
        let inner = self.inner.lock();
        let found = inner.bucket(bucket.as_str())?.renames.find(id);
        found.ok_or_else(|| ApiError::new(Kind::NothingHere, "No such operation."))
    }
}

impl Transaction<'_> {
    fn folders(&self) -> Result<&Folders, ApiError> {
        self.folders.as_deref().ok_or_else(flat)
    }

    fn folder(&self, name: &FolderName) -> Result<Arc<Folder>, ApiError> {
        let found = self.folders()?.get(name);
        found.cloned().ok_or_else(|| missing(name))
    }

    /// Refuses a name under which a folder cannot come to be.
    fn check_vacant(&self, name: &FolderName) -> Result<(), ApiError> {
        let folders = self.folders()?;
        if folders.contains_key(name) {
            return Err(conflict(format!("The folder already exists: {name}")));
        }
        match name.parent().filter(|parent| !folders.contains_key(parent)) {
            None => Ok(()),
            Some(parent) => Err(conflict(format!(
                "The parent folder does not exist: {parent}"
            ))),
        }
    }

    fn objects_below(&self, folder: &FolderName) -> Vec<Arc<Object>> {
        below(self.objects, folder.as_str(), ObjectName::as_str)
    }

    /// Makes a folder where there is none.
    pub(super) fn house(&mut self, name: &FolderName) {
        let folders = self.folders.as_deref();
        if folders.is_some_and(|folders| !folders.contains_key(name)) {
            self.set_folder(Folder::new(name.clone(), self.now));
        }
    }

    fn set_folder(&mut self, folder: Folder) {
        if let Some(folders) = &mut self.folders {
            self.touched.folders.insert(folder.name.clone());
            folders.insert(folder.name.clone(), Arc::new(folder));
        }
    }

    fn unhouse(&mut self, name: &FolderName) {
        if let Some(folders) = &mut self.folders {
            self.touched.folders.insert(name.clone());
            folders.remove(name);
        }
    }
}

/// What is named like a folder or below it.
fn below<N: Ord + std::borrow::Borrow<[u8]>, T>(
    map: &std::collections::BTreeMap<N, Arc<T>>,
    folder: &str,
    text: impl Fn(&N) -> &str,
) -> Vec<Arc<T>> {
    let from = map.range::<[u8], _>((
        std::ops::Bound::Included(folder.as_bytes()),
        std::ops::Bound::Unbounded,
    ));
    let inside = from.take_while(|(name, _)| text(name).starts_with(folder));
    inside.map(|(_, value)| Arc::clone(value)).collect()
}

/// Each of them with the name that it has below `target`.
fn renamed<T, N: std::fmt::Display, E: Into<ApiError>>(
    things: &[Arc<T>],
    source: &FolderName,
    target: &FolderName,
    name: impl Fn(&T) -> &N,
    parse: impl Fn(&str) -> Result<N, E>,
) -> Result<Vec<(Arc<T>, N)>, ApiError> {
    let rename = |thing: &Arc<T>| {
        let old = name(thing).to_string();
        let rest = &old[source.as_str().len()..];
        let new = parse(&format!("{target}{rest}")).map_err(Into::into)?;
        Ok((Arc::clone(thing), new))
    };
    things.iter().map(rename).collect()
}
