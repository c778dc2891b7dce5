//! open, and what is open.

use std::sync::Arc;

use gcsmount_gcs::Object;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use parking_lot::Mutex;

use super::{Fh, Fs};
use crate::errno::{Error, Result};
use crate::handle::reader::Reader;
use crate::handle::writer::Writer;
use crate::inode::{Ino, Table};
use crate::metadata;
use crate::version;

/// What a handle may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Both.
    ReadWrite,
}

/// Flags of open(2) that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlags {
    /// What the handle may do.
    pub access: Access,
    /// Empty the file first.
    pub truncate: bool,
    /// Write at the end.
    pub append: bool,
    /// With create: there must be none.
    pub exclusive: bool,
}

impl OpenFlags {
    /// Reads the flags as the kernel passes them.
    #[must_use]
    pub fn from_bits(bits: i32) -> Self {
        let flags = OFlag::from_bits_retain(bits);
        let access = match flags & OFlag::O_ACCMODE {
            OFlag::O_WRONLY => Access::Write,
            OFlag::O_RDWR => Access::ReadWrite,
            _ => Access::Read,
        };
        Self {
            access,
            truncate: flags.contains(OFlag::O_TRUNC),
            append: flags.contains(OFlag::O_APPEND),
            exclusive: flags.contains(OFlag::O_EXCL),
        }
    }

    pub(super) fn writes(self) -> bool {
        match self.access {
            Access::Read => false,
            Access::Write | Access::ReadWrite => true,
        }
    }
}

/// A file that was opened, and what the kernel does with its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The handle.
    pub fh: Fh,
    /// Go past the page cache: a handle that only writes costs a quarter of the CPU that way.
    pub direct_io: bool,
    /// What the page cache has of the file is of this content.
    pub keep_cache: bool,
}

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) ino: Ino,
    pub(super) flags: OpenFlags,
    /// Reads the content that was live at open, or that this mount has published since; made with the first read.
    pub(super) reader: Mutex<Option<Arc<Reader>>>,
    /// Where writes go.
    pub(super) writer: Option<Arc<Writer>>,
}

impl Fs {
    /// Opens a file.
    ///
    /// For reading, what was learned within the TTL counts, and the content is pinned. For writing, the store is asked:
    /// what is published later replaces exactly what was met here.
    ///
    /// # Errors
    /// `ESTALE` where the object is gone, on which the kernel looks again; `EISDIR`; the store's.
    pub async fn open(&self, ino: Ino, flags: OpenFlags) -> Result<Opened> {
        if flags.writes() {
            return self.open_to_write(ino, flags).await;
        }
        if let Some(opened) = self.try_open(ino, flags) {
            return opened;
        }
        let object = self.fresh_object(ino).await?;
        Ok(self.pin(&mut self.table.lock(), ino, flags, &object))
    }

    /// Opens a file for reading, if it takes no call. `None`: use [`Fs::open`].
    #[must_use]
    pub fn try_open(&self, ino: Ino, flags: OpenFlags) -> Option<Result<Opened>> {
        if flags.writes() {
            return None;
        }
        let mut table = self.table.lock();
        let Some(inode) = table.get(ino) else {
            return Some(Err(Error::of(Errno::ESTALE)));
        };
        let Some(file) = inode.file() else {
            return Some(Err(Error::of(Errno::EISDIR)));
        };
        if inode.has_unpublished() || inode.is_local() {
            return Some(Ok(self.add_handle(&mut table, ino, flags, None, None)));
        }
        let object = file.object.clone().filter(|_| table.is_sure(inode))?;
        Some(Ok(self.pin(&mut table, ino, flags, &object)))
    }

    /// A handle that reads `object`.
    fn pin(&self, table: &mut Table, ino: Ino, flags: OpenFlags, object: &Object) -> Opened {
        let reader = self.workshop.reader(object);
        let mut opened = self.add_handle(table, ino, flags, Some(reader), None);
        if let Some(file) = table.get_mut(ino).and_then(|inode| inode.file_mut()) {
            opened.keep_cache = file.cached == Some(object.generation);
            file.cached = Some(object.generation);
        }
        opened
    }

    async fn open_to_write(&self, ino: Ino, flags: OpenFlags) -> Result<Opened> {
        let writer = self.hold_writer(ino).await?;
        let ready = async {
            if flags.access == Access::ReadWrite {
                writer.expect_reads().await;
            }
            if flags.truncate {
                writer.truncate(0).await?;
                // The kernel says only in a flag of the open, which `fuser` does not pass on, whether it should.
                if self.has_privileges(ino) {
                    self.drop_privileges(ino).await?;
                }
            }
            Ok(())
        };
        if let Err(error) = ready.await {
            self.drop_writer(ino, &writer).await;
            return Err(error);
        }
        let mut table = self.table.lock();
        Ok(self.add_handle(&mut table, ino, flags, None, Some(writer)))
    }

    /// The writer of a file, held until [`Fs::drop_writer`]. One that has nothing unpublished starts from what the
    /// store has now.
    pub(super) async fn hold_writer(&self, ino: Ino) -> Result<Arc<Writer>> {
        if let Some(writer) = self.hold_busy_writer(ino)? {
            return Ok(writer);
        }
        let live = self.refresh(ino).await?;
        let (writer, met) = {
            let mut table = self.table.lock();
            let inode = table.get_mut(ino).ok_or(Error::of(Errno::ESTALE))?;
            let file = inode.file_mut().ok_or(Error::of(Errno::EISDIR))?;
            // Another writer may have published, and left, since the store was asked.
            let live = version::newest(live, file.object.as_ref());
            let is_new = file.writer.is_none();
            let writer = file
                .writer
                .get_or_insert_with(|| {
                    let mtime = metadata::mtime(&live);
                    Writer::open(self.workshop.clone(), live.clone(), mtime)
                })
                .clone();
            file.writers += 1;
            (writer, (!is_new).then_some(live))
        };
        if let Some(live) = met {
            let mtime = metadata::mtime(&live);
            writer.rebase(live, mtime).await;
        }
        Ok(writer)
    }

    /// The writer of a file, if it has unpublished content or no name: the store has nothing to say then.
    fn hold_busy_writer(&self, ino: Ino) -> Result<Option<Arc<Writer>>> {
        let mut table = self.table.lock();
        let inode = table.get_mut(ino).ok_or(Error::of(Errno::ESTALE))?;
        let linked = inode.linked;
        let file = inode.file_mut().ok_or(Error::of(Errno::EISDIR))?;
        let busy = file
            .writer
            .clone()
            .filter(|writer| !linked || writer.view().dirty || writer.view().base.is_none());
        if busy.is_some() {
            file.writers += 1;
        }
        Ok(busy)
    }

    /// Gives up a writer. The last one to do so publishes what no close has reported on, and forgets a file that never
    /// got into the bucket.
    pub(super) async fn drop_writer(&self, ino: Ino, writer: &Writer) {
        while !self.let_go(ino, writer) {
            // What a mapping wrote behind the last close.
            if let Err(error) = self.publish(ino, writer).await {
                tracing::error!(%error, "written data could not be stored behind the last close");
            }
        }
        let view = writer.view();
        if !view.dirty || self.has_writer(ino, writer) {
            return;
        }
        let kept = writer.abandon().await;
        let (Some(name), true) = (view.name, view.failed) else {
            return;
        };
        match kept {
            Some(path) => {
                let path = path.display();
                tracing::error!(%name, %path, "written data could not be stored, and is kept there");
            }
            None => {
                tracing::error!(%name, "written data is lost: it could not be stored, and nobody has it open any more");
            }
        }
    }

    /// Gives up a writer, unless it is the last one and there is something to publish.
    fn let_go(&self, ino: Ino, writer: &Writer) -> bool {
        let mut table = self.table.lock();
        let Some(inode) = table.get_mut(ino) else {
            return true;
        };
        let (parent, name, linked) = (inode.parent, inode.name.clone(), inode.linked);
        let Some(file) = inode.file_mut() else {
            return true;
        };
        if file.writers > 1 {
            file.writers -= 1;
            return true;
        }
        let view = writer.view();
        if view.dirty && !view.failed && view.name.is_some() {
            return false;
        }
        file.writers = 0;
        file.writer = None;
        if linked && file.object.is_none() {
            table.remove(parent, &name);
        }
        true
    }

    fn has_writer(&self, ino: Ino, writer: &Writer) -> bool {
        let table = self.table.lock();
        let file = table.get(ino).and_then(|inode| inode.file());
        let current = file.and_then(|file| file.writer.as_deref());
        current.is_some_and(|current| std::ptr::eq(current, writer))
    }

    /// Makes a handle.
    pub(super) fn add_handle(
        &self,
        table: &mut Table,
        ino: Ino,
        flags: OpenFlags,
        reader: Option<Arc<Reader>>,
        writer: Option<Arc<Writer>>,
    ) -> Opened {
        let fh = self.next_fh();
        let file = OpenFile {
            ino,
            flags,
            reader: Mutex::new(reader),
            writer,
        };
        table.add_open(ino);
        self.files.lock().insert(fh, Arc::new(file));
        Opened {
            fh,
            direct_io: flags.access == Access::Write,
            keep_cache: false,
        }
    }

    pub(super) fn file(&self, fh: Fh) -> Result<Arc<OpenFile>> {
        let file = self.files.lock().get(&fh).cloned();
        file.ok_or(Error::of(Errno::EBADF))
    }

    /// Closes a handle for good. Its errors have nobody to go to: what had to be said was said by flush.
    pub async fn release(&self, fh: Fh) {
        let Some(file) = self.files.lock().remove(&fh) else {
            return;
        };
        if let Some(writer) = &file.writer {
            self.drop_writer(file.ino, writer).await;
        }
        self.table.lock().close(file.ino);
    }

    /// [`Fs::release`] at once, if nothing was written through the handle. `false`: use the other.
    #[must_use]
    pub fn try_release(&self, fh: Fh) -> bool {
        let mut files = self.files.lock();
        let Some(file) = files.get(&fh) else {
            return true;
        };
        if file.writer.is_some() {
            return false;
        }
        let removed = files.remove(&fh);
        drop(files);
        if let Some(file) = removed {
            self.table.lock().close(file.ino);
        }
        true
    }
}
