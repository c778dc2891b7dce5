//! rename: of files in one step, of directories object by object.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use gcsmount_gcs::store::{ListRequest, Preconditions, TransferRequest};
use gcsmount_gcs::{Generation, Kind, Object, ObjectName};
use nix::errno::Errno;

use super::unlink::{check_no_local, parse};
use super::{Fs, Place};
use crate::errno::{Error, Result};
use crate::handle::writer::{Writer, stale};
use crate::inode::Ino;

/// Objects that are moved side by side.
const PARALLEL: usize = 16;

/// What becomes of a target that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// The rename fails.
    NoReplace,
}

/// A rename whose two ends are known.
struct Ends {
    ino: Ino,
    from: Place,
    to: Place,
    new_parent: Ino,
    is_dir: bool,
    /// What has the new name now.
    target: Option<Ino>,
    mode: RenameMode,
}

impl Fs {
    /// Gives a file or a directory another name, over a file or an empty directory that has it.
    ///
    /// A file moves in one step, and open handles of it go on. A directory of a bucket without folders moves object by
    /// object: when that breaks off, each object is in one of the two places, and doing it again finishes it.
    ///
    /// # Errors
    /// `EEXIST` with [`RenameMode::NoReplace`]; `EISDIR`, `ENOTDIR`, `ENOTEMPTY`, `EINVAL` as rename(2) has them; the
    /// store's.
    pub async fn rename(
        &self,
        parent: Ino,
        name: &OsStr,
        new_parent: Ino,
        new_name: &OsStr,
        mode: RenameMode,
    ) -> Result<()> {
        let ino = self.resolve(parent, name).await?;
        let target = match self.resolve(new_parent, new_name).await {
            Ok(target) => Some(target),
            Err(error) if error.errno() == Errno::ENOENT => None,
            Err(error) => return Err(error),
        };
        if target == Some(ino) {
            return Ok(());
        }
        let ends = self.ends(ino, (parent, name), (new_parent, new_name), target, mode)?;
        if ends.is_dir {
            self.rename_dir(&ends).await
        } else {
            self.rename_file(&ends).await
        }
    }

    fn ends(
        &self,
        ino: Ino,
        (parent, name): (Ino, &OsStr),
        (new_parent, new_name): (Ino, &OsStr),
        target: Option<Ino>,
        mode: RenameMode,
    ) -> Result<Ends> {
        let mut table = self.table.lock();
        let from = self.place(&table, parent, name)?;
        let is_dir = table
            .get(ino)
            .ok_or(Error::of(Errno::ENOENT))?
            .dir()
            .is_some();
        let tail = if is_dir { "/" } else { "" };
        let (to_name, _) = self.new_place(&table, new_parent, new_name, tail)?;
        let to = self.place(&table, new_parent, OsStr::new(&*to_name))?;
        if is_dir && table.is_within(new_parent, ino) {
            return Err(Error::of(Errno::EINVAL));
        }
        if let Some(target) = target {
            let target_is_dir = table.get(target).is_some_and(|inode| inode.dir().is_some());
            match (mode, is_dir, target_is_dir) {
                (RenameMode::NoReplace, _, _) => return Err(Error::of(Errno::EEXIST)),
                (RenameMode::Replace, false, true) => return Err(Error::of(Errno::EISDIR)),
                (RenameMode::Replace, true, false) => return Err(Error::of(Errno::ENOTDIR)),
                (RenameMode::Replace, true, true) => check_no_local(&mut table, target)?,
                (RenameMode::Replace, false, false) => {}
            }
        }
        Ok(Ends {
            ino,
            from,
            to,
            new_parent,
            is_dir,
            target,
            mode,
        })
    }

    async fn rename_file(&self, ends: &Ends) -> Result<()> {
        let (source, target) = (parse(&ends.from)?, parse(&ends.to)?);
        let moved = match self.writer_of(ends.ino) {
            Some(writer) => {
                let moving =
                    writer.rename(|live| self.move_known(source.clone(), &target, live, ends.mode));
                moving.await
            }
            None => {
                let live = self.fresh_object(ends.ino).await?;
                self.move_known(source, &target, live, ends.mode).await
            }
        };
        let moved = match moved {
            Ok(moved) => moved,
            Err(error) => return Err(self.learn_from(ends, error).await),
        };
        self.set_object(ends.ino, moved);
        let replaced = ends.target.and_then(|target| self.writer_of(target));
        self.table
            .lock()
            .rename(ends.ino, ends.new_parent, &ends.to.name);
        if let Some(writer) = replaced {
            writer.replaced().await;
        }
        Ok(())
    }

    /// Takes in what a move that failed says of the two names.
    async fn learn_from(&self, ends: &Ends, error: Error) -> Error {
        if error.errno() == Errno::EEXIST {
            return self.taken(ends.new_parent, error);
        }
        let writer = self.writer_of(ends.ino);
        let clean = writer.as_ref().is_none_or(|writer| !writer.view().dirty);
        if error.errno() != Errno::ENOENT || !clean {
            self.table.lock().outdate(ends.ino);
            return error;
        }
        // It is gone, also for those who have it open.
        if let Some(writer) = writer {
            writer.replaced().await;
        }
        let mut table = self.table.lock();
        if let Some(parent) = table.get(ends.ino).map(|inode| inode.parent) {
            table.remove(parent, &ends.from.name);
        }
        error
    }

    fn writer_of(&self, ino: Ino) -> Option<Arc<Writer>> {
        let table = self.table.lock();
        table.get(ino)?.file()?.writer.clone()
    }

    /// Moves an object that is thought to be `known`. Where it has changed since, what it is now is moved.
    async fn move_known(
        &self,
        source: ObjectName,
        target: &ObjectName,
        known: Arc<Object>,
        mode: RenameMode,
    ) -> Result<Arc<Object>> {
        let first = self.move_object(&source, target, known.generation, mode);
        let error = match first.await {
            Ok(moved) => return Ok(Arc::new(moved)),
            Err(error) if error.kind == Kind::Precondition => error,
            Err(error) => return Err(error.into()),
        };
        if mode == RenameMode::NoReplace && self.stat(target.as_str()).await?.is_some() {
            return Err(Error::from(error).answered_as(Errno::EEXIST));
        }
        let live = self.stat(source.as_str()).await?;
        let live = live.ok_or(Error::of(Errno::ENOENT))?;
        let again = self.move_object(&source, target, live.generation, mode);
        again.await.map(Arc::new).map_err(stale)
    }

    /// Moves one generation: in one step, or as a copy and a deletion where the service cannot move.
    async fn move_object(
        &self,
        source: &ObjectName,
        target: &ObjectName,
        generation: Generation,
        mode: RenameMode,
    ) -> gcsmount_gcs::Result<Object> {
        let request = TransferRequest {
            source: source.clone(),
            target: target.clone(),
            source_preconditions: Preconditions::generation(generation),
            target_preconditions: match mode {
                RenameMode::Replace => Preconditions::default(),
                RenameMode::NoReplace => Preconditions::absent(),
            },
        };
        match self.workshop.call(self.store.rename(&request)).await {
            Err(error) if error.kind == Kind::Unsupported => {}
            result => return result,
        }
        let copied = self.workshop.call(self.store.copy(&request)).await?;
        let only_this = Preconditions::generation(generation);
        self.workshop
            .call(self.store.delete(source, &only_this))
            .await?;
        Ok(copied)
    }

    async fn rename_dir(&self, ends: &Ends) -> Result<()> {
        if ends.target.is_some() {
            self.check_empty(&ends.to).await?;
        }
        let result = self.move_below(ends).await;
        self.enter_moved(ends, result.is_ok());
        result?;
        // Files that were begun while the rest was moved.
        self.move_writers(ends).await
    }

    fn enter_moved(&self, ends: &Ends, complete: bool) {
        let mut table = self.table.lock();
        if complete {
            table.rename(ends.ino, ends.new_parent, &ends.to.name);
        } else {
            // Some of it is at its new place already.
            table.distrust_below(ends.new_parent);
        }
        table.distrust_below(ends.ino);
    }

    /// Moves everything below a directory, its placeholder last.
    async fn move_below(&self, ends: &Ends) -> Result<()> {
        self.move_writers(ends).await?;
        let inodes = self.published_below(ends.ino);
        let (old, new) = prefixes(ends);
        let mut request = ListRequest {
            prefix: old.clone(),
            max_results: Some(self.config.list_page),
            ..ListRequest::default()
        };
        let mut placeholder = None;
        loop {
            let page = self.workshop.call(self.store.list(&request)).await?;
            let mut objects = page.objects;
            if let Some(at) = objects.iter().position(|o| o.name.as_str() == old) {
                placeholder = Some(objects.swap_remove(at));
            }
            stream::iter(objects.into_iter().map(Ok))
                .try_for_each_concurrent(PARALLEL, |object| {
                    self.move_listed(object, &old, &new, &inodes)
                })
                .await?;
            let Some(token) = page.next_page_token else {
                break;
            };
            request.page_token = Some(token);
        }
        match placeholder {
            Some(object) => self.move_listed(object, &old, &new, &inodes).await,
            None => Ok(()),
        }
    }

    async fn move_listed(
        &self,
        object: Object,
        old: &str,
        new: &str,
        inodes: &HashMap<ObjectName, Ino>,
    ) -> Result<()> {
        let source = object.name.clone();
        let target = moved_name(&source, old, new)?;
        let moved = self.move_known(
            source.clone(),
            &target,
            Arc::new(object),
            RenameMode::Replace,
        );
        match (moved.await, inodes.get(&source)) {
            (Ok(moved), Some(ino)) => {
                self.set_object(*ino, moved);
                Ok(())
            }
            (Ok(_), None) => Ok(()),
            // Deleted since it was listed.
            (Err(error), _) if error.errno() == Errno::ENOENT => Ok(()),
            (Err(error), _) => Err(error),
        }
    }

    /// Moves the files below a directory that somebody writes.
    async fn move_writers(&self, ends: &Ends) -> Result<()> {
        let (old, new) = prefixes(ends);
        let writers = self.writers_below(ends.ino, &old);
        let mut moves = stream::iter(writers)
            .map(|(ino, writer, source)| {
                let (old, new) = (&old, &new);
                async move {
                    let target = moved_name(&source, old, new)?;
                    let mode = RenameMode::Replace;
                    let moving =
                        writer.rename(|live| self.move_known(source.clone(), &target, live, mode));
                    let moved = moving.await?;
                    self.set_object(ino, moved);
                    Ok::<_, Error>(())
                }
            })
            .buffer_unordered(PARALLEL);
        while let Some(result) = moves.next().await {
            result?;
        }
        Ok(())
    }

    fn writers_below(&self, dir: Ino, old: &str) -> Vec<(Ino, Arc<Writer>, ObjectName)> {
        let table = self.table.lock();
        table
            .iter()
            .filter(|inode| inode.linked && table.is_within(inode.ino, dir))
            .filter_map(|inode| {
                let writer = inode.file()?.writer.clone()?;
                let name = writer.view().name?;
                name.as_str()
                    .starts_with(old)
                    .then_some((inode.ino, writer, name))
            })
            .collect()
    }

    fn published_below(&self, dir: Ino) -> HashMap<ObjectName, Ino> {
        let table = self.table.lock();
        table
            .iter()
            .filter(|inode| inode.linked && table.is_within(inode.ino, dir))
            .filter_map(|inode| Some((inode.file()?.object.as_ref()?.name.clone(), inode.ino)))
            .collect()
    }
}

fn prefixes(ends: &Ends) -> (String, String) {
    (
        format!("{}/", ends.from.object),
        format!("{}/", ends.to.object),
    )
}

fn moved_name(source: &ObjectName, old: &str, new: &str) -> Result<ObjectName> {
    let suffix = source.as_str().strip_prefix(old).unwrap_or_default();
    ObjectName::parse(format!("{new}{suffix}")).map_err(|_| Error::of(Errno::ENAMETOOLONG))
}
