//! unlink, rmdir.

use std::ffi::OsStr;

use gcsmount_gcs::store::{ListRequest, Preconditions};
use gcsmount_gcs::{Generation, Kind, Object, ObjectName};
use nix::errno::Errno;

use super::{Fs, Place};
use crate::errno::{Error, Result};
use crate::inode::{Ino, Table};
use crate::names;

impl Fs {
    /// Removes a file's name and object. Open handles go on: with what was written and not published, and with what is
    /// in memory of what was.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`; the store's.
    pub async fn unlink(&self, parent: Ino, name: &OsStr) -> Result<()> {
        let ino = self.resolve(parent, name).await?;
        let (place, writer, known) = {
            let table = self.table.lock();
            let place = self.place(&table, parent, name)?;
            let inode = table.get(ino).ok_or(Error::of(Errno::ENOENT))?;
            let file = inode.file().ok_or(Error::of(Errno::EISDIR))?;
            (place, file.writer.clone(), file.object.clone())
        };
        let object = parse(&place)?;
        let deleted = match writer {
            Some(writer) => {
                let deleted = writer
                    .unlink(|base| self.delete_live(&object, Some(base.generation)))
                    .await;
                if is_gone(&deleted) {
                    // Somebody else was first. What was written here could not be published any more.
                    writer.replaced().await;
                }
                deleted
            }
            None => {
                let generation = known.map(|known| known.generation);
                self.delete_live(&object, generation).await
            }
        };
        if deleted.is_ok() || is_gone(&deleted) {
            self.table.lock().remove(parent, &place.name);
        }
        deleted
    }

    /// Deletes whatever generation is live, which is probably the one that is known.
    ///
    /// Always on the condition of a generation: only then can the store repeat what a passing fault has struck, without
    /// the risk of deleting what somebody else has made since.
    async fn delete_live(&self, object: &ObjectName, known: Option<Generation>) -> Result<()> {
        if let Some(generation) = known {
            let deleted = self
                .delete(object, &Preconditions::generation(generation))
                .await;
            if !matches!(&deleted, Err(error) if error.kind() == Some(Kind::Precondition)) {
                return deleted;
            }
        }
        let live = self.workshop.call(self.store.stat(object)).await?;
        self.delete(object, &Preconditions::generation(live.generation))
            .await
    }

    async fn delete(&self, object: &ObjectName, only: &Preconditions) -> Result<()> {
        let deleted = self.workshop.call(self.store.delete(object, only)).await;
        Ok(deleted?)
    }

    /// Removes an empty directory. One that holds what nobody can see through a file system is not empty: it would be
    /// lost unseen.
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
        if let Some(placeholder) = self.check_empty(&place).await? {
            self.delete_placeholder(&placeholder).await?;
        }
        self.table.lock().remove(parent, &place.name);
        Ok(())
    }

    /// Checks that a directory has nothing but its placeholder, and returns that, if there is one.
    pub(super) async fn check_empty(&self, dir: &Place) -> Result<Option<Object>> {
        let prefix = format!("{}/", dir.object);
        let mut placeholder = None;
        let (mut unseen, mut first) = (0_u64, None);
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
                if suffix.is_empty() && object.size == 0 {
                    placeholder = Some(object);
                } else if !suffix.is_empty() && names::is_reachable(suffix) {
                    return Err(Error::of(Errno::ENOTEMPTY));
                } else {
                    unseen += 1;
                    first.get_or_insert(object.name);
                }
            }
            let Some(token) = page.next_page_token else {
                break;
            };
            request.page_token = Some(token);
            request.max_results = Some(self.config.list_page);
        }
        let Some(first) = first else {
            return Ok(placeholder);
        };
        tracing::warn!(
            dir = %dir.object, unseen, %first,
            "a directory is kept: it looks empty, but objects below it hold what a file system cannot show"
        );
        Err(Error::of(Errno::ENOTEMPTY))
    }

    /// Deletes a placeholder that may be gone already, but not one that has got content since.
    async fn delete_placeholder(&self, object: &Object) -> Result<()> {
        let only_this = Preconditions::generation(object.generation);
        match self.delete(&object.name, &only_this).await {
            Err(error) if error.kind() == Some(Kind::NotFound) => Ok(()),
            Err(error) if error.kind() == Some(Kind::Precondition) => {
                Err(error.answered_as(Errno::ENOTEMPTY))
            }
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
