//! unlink, rmdir.

use std::ffi::OsStr;

use futures_util::{TryStreamExt, stream};
use gcsmount_gcs::store::{ListRequest, Preconditions};
use gcsmount_gcs::{Kind, ObjectName};
use nix::errno::Errno;

use super::{Fs, Place};
use crate::errno::{Error, Result};
use crate::inode::{Ino, Table};
use crate::names;

/// Objects that are moved or deleted side by side.
pub(super) const PARALLEL: usize = 16;

impl Fs {
    /// Removes a file's name and object. Open handles go on: with what was written and not published, and with what is
    /// in memory of what was.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`; the store's.
    pub async fn unlink(&self, parent: Ino, name: &OsStr) -> Result<()> {
        let ino = self.resolve(parent, name).await?;
        let (place, writer) = {
            let table = self.table.lock();
            let place = self.place(&table, parent, name)?;
            let inode = table.get(ino).ok_or(Error::of(Errno::ENOENT))?;
            let file = inode.file().ok_or(Error::of(Errno::EISDIR))?;
            (place, file.writer.clone())
        };
        let object = parse(&place)?;
        let deleted = match writer {
            Some(writer) => {
                let deleted = writer.unlink(|_| self.delete(&object)).await;
                if is_gone(&deleted) {
                    // Somebody else was first. What was written here could not be published any more.
                    writer.replaced().await;
                }
                deleted
            }
            None => self.delete(&object).await,
        };
        if deleted.is_ok() || is_gone(&deleted) {
            self.table.lock().remove(parent, &place.name);
        }
        deleted
    }

    pub(super) async fn delete(&self, object: &ObjectName) -> Result<()> {
        let any = Preconditions::default();
        let deleted = self.workshop.call(self.store.delete(object, &any)).await;
        Ok(deleted?)
    }

    /// Removes an empty directory, with what is in it that nobody can see: names that the kernel cannot hold.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`; the store's.
    pub async fn rmdir(&self, parent: Ino, name: &OsStr) -> Result<()> {
        let ino = self.resolve(parent, name).await?;
        let place = {
            let mut table = self.table.lock();
            let place = self.place(&table, parent, name)?;
            check_no_local(&mut table, ino)?;
            place
        };
        self.remove_below(&place, true).await?;
        self.table.lock().remove(parent, &place.name);
        Ok(())
    }

    /// Checks that nothing of a directory can be seen and, with `remove`, deletes what is left of it.
    pub(super) async fn remove_below(&self, dir: &Place, remove: bool) -> Result<()> {
        let prefix = format!("{}/", dir.object);
        let mut unseen = Vec::new();
        let mut request = ListRequest {
            prefix: prefix.clone(),
            // A visible name is nearly always among the first two: the placeholder comes first.
            max_results: Some(2),
            ..ListRequest::default()
        };
        loop {
            let page = self.workshop.call(self.store.list(&request)).await?;
            for object in page.objects {
                let suffix = &object.name.as_str()[prefix.len()..];
                if !suffix.is_empty() && names::is_reachable(suffix) {
                    return Err(Error::of(Errno::ENOTEMPTY));
                }
                unseen.push(object.name);
            }
            let Some(token) = page.next_page_token else {
                break;
            };
            request.page_token = Some(token);
            request.max_results = Some(self.config.list_page);
        }
        if !remove {
            return Ok(());
        }
        // The placeholder goes last: it holds the directory in place while anything else fails.
        let placeholder = unseen.iter().position(|name| name.as_str() == prefix);
        let placeholder = placeholder.map(|at| unseen.swap_remove(at));
        stream::iter(unseen.into_iter().map(Ok))
            .try_for_each_concurrent(
                PARALLEL,
                |name| async move { self.delete_gone(&name).await },
            )
            .await?;
        match placeholder {
            Some(name) => self.delete_gone(&name).await,
            None => Ok(()),
        }
    }

    /// Deletes an object that may be gone already.
    async fn delete_gone(&self, name: &ObjectName) -> Result<()> {
        match self.delete(name).await {
            Err(error) if error.kind() == Some(Kind::NotFound) => Ok(()),
            result => result,
        }
    }
}

/// Whether an answer proves that there is no such object.
pub(super) fn is_gone<T>(answer: &Result<T>) -> bool {
    let error = answer.as_ref().err();
    error.is_some_and(|error| error.kind() == Some(Kind::NotFound))
}

/// Whether a directory has files that the bucket does not know of yet.
pub(super) fn check_no_local(table: &mut Table, dir: Ino) -> Result<()> {
    let inode = table.get(dir).ok_or(Error::of(Errno::ENOENT))?;
    inode.dir().ok_or(Error::of(Errno::ENOTDIR))?;
    match table.local_children(dir).next() {
        Some(_) => Err(Error::of(Errno::ENOTEMPTY)),
        None => Ok(()),
    }
}

pub(super) fn parse(place: &Place) -> Result<ObjectName> {
    ObjectName::parse(&place.object).map_err(|_| Error::of(Errno::EINVAL))
}
