//! setattr: lengths and times. Owner and permission bits are those of the mount; changing them succeeds and does nothing,
//! as with gcsfuse, since tools that copy them treat a refusal as a failure of the copy.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gcsmount_gcs::Object;
use gcsmount_gcs::store::Preconditions;
use nix::errno::Errno;

use super::attr::Attr;
use super::{Fh, Fs};
use crate::errno::{Error, Result};
use crate::handle::writer::{Writer, stale};
use crate::inode::{Body, Ino};
use crate::metadata;

/// What to change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last modification.
    pub mtime: Option<SystemTime>,
}

impl Fs {
    /// Changes attributes. A length that is set through a handle is published when the handle is flushed, one that is
    /// set by name before this returns. A time rides in the next publication if there is one to come.
    ///
    /// # Errors
    /// `ESTALE` where the object is gone or somebody else has changed it; `EISDIR` for the length of a directory; the
    /// store's.
    pub async fn setattr(
        &self,
        ino: Ino,
        fh: Option<Fh>,
        set: SetAttr,
    ) -> Result<(Attr, Duration)> {
        if let Some(size) = set.size {
            self.set_size(ino, fh, size).await?;
        }
        if let Some(mtime) = set.mtime {
            self.set_mtime(ino, mtime).await?;
        }
        self.getattr(ino).await
    }

    async fn set_size(&self, ino: Ino, fh: Option<Fh>, size: u64) -> Result<()> {
        let open = fh.and_then(|fh| self.file(fh).ok()?.writer.clone());
        if let Some(writer) = open {
            let cut = writer.truncate(size).await;
            self.adopt(ino, &writer);
            return cut;
        }
        let writer = self.hold_writer(ino).await?;
        let cut = match writer.truncate(size).await {
            Ok(()) => self.publish(ino, &writer).await,
            Err(error) => Err(error),
        };
        self.drop_writer(ino, &writer).await;
        cut
    }

    async fn set_mtime(&self, ino: Ino, mtime: SystemTime) -> Result<()> {
        let writer = {
            let mut table = self.table.lock();
            let inode = table.get_mut(ino).ok_or(Error::of(Errno::ESTALE))?;
            let linked = inode.linked;
            match &mut inode.body {
                Body::Dir(dir) => {
                    // Directories have no object that lasts; the time is kept as long as the kernel knows them.
                    dir.mtime = mtime;
                    return Ok(());
                }
                Body::File(_) if !linked => return Ok(()),
                Body::File(file) => file.writer.clone(),
            }
        };
        if let Some(writer) = &writer
            && writer.set_mtime(mtime).await
        {
            return Ok(());
        }
        let patched = self.patch_mtime(ino, mtime).await?;
        if let Some(writer) = writer {
            self.take_patch(&writer, patched.clone(), mtime).await;
        }
        self.set_object(ino, patched);
        Ok(())
    }

    async fn take_patch(&self, writer: &Writer, patched: Arc<Object>, mtime: SystemTime) {
        writer.rebase(patched, mtime).await;
    }

    async fn patch_mtime(&self, ino: Ino, mtime: SystemTime) -> Result<Arc<Object>> {
        let object = self.fresh_object(ino).await?;
        let patch = metadata::mtime_patch(mtime);
        if patch.metadata.is_empty() {
            return Err(Error::of(Errno::EINVAL));
        }
        let only_this = Preconditions::generation(object.generation);
        let call = self.store.patch(&object.name, &patch, &only_this);
        match self.workshop.call(call).await {
            Ok(patched) => Ok(Arc::new(patched)),
            Err(error) => {
                self.table.lock().outdate(ino);
                Err(stale(error))
            }
        }
    }
}
