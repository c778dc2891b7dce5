//! write, flush, fsync.

use bytes::Bytes;
use nix::errno::Errno;

use super::{Fh, Fs};
use crate::errno::{Error, Result};
use crate::handle::writer::Place;

impl Fs {
    /// Writes to an open file, if that takes no waiting. `None`: use [`Fs::write`].
    #[must_use]
    pub fn try_write(&self, fh: Fh, offset: u64, data: &[u8], mapped: bool) -> Option<Result<()>> {
        let file = self.file(fh).ok()?;
        let writer = file.writer.as_ref()?;
        let append = file.flags.append && !mapped;
        writer.try_write(place(append, offset), data)
    }

    /// Writes to an open file. Through a handle that appends, the bytes go to the end, wherever the kernel thinks that
    /// is; but not those of a mapping, which have their place.
    ///
    /// # Errors
    /// `EBADF` for a handle that may not write; those of [`crate::handle::writer::Writer::write`].
    pub async fn write(&self, fh: Fh, offset: u64, data: Bytes, mapped: bool) -> Result<()> {
        let file = self.file(fh)?;
        let writer = file.writer.as_ref().ok_or(Error::of(Errno::EBADF))?;
        let place = place(file.flags.append && !mapped, offset);
        let written = writer.write(place, data).await;
        // A write out of order may have published what streamed before it.
        self.adopt(file.ino, writer);
        written
    }

    /// Says what close(2) returns: whether all that was written is in the bucket.
    ///
    /// # Errors
    /// `ESTALE` where somebody else has changed the object; the store's. The bucket then has what it had before.
    pub async fn flush(&self, fh: Fh) -> Result<()> {
        let file = self.file(fh)?;
        match &file.writer {
            Some(writer) => self.publish(file.ino, writer).await,
            None => Ok(()),
        }
    }

    /// [`Fs::flush`], if there is nothing to do. `None`: use the other.
    #[must_use]
    pub fn try_flush(&self, fh: Fh) -> Option<Result<()>> {
        let file = match self.file(fh) {
            Ok(file) => file,
            Err(error) => return Some(Err(error)),
        };
        let view = match &file.writer {
            Some(writer) => writer.view(),
            None => return Some(Ok(())),
        };
        (!view.dirty && !view.failed).then_some(Ok(()))
    }

    /// Makes what was written so far durable; writing can go on.
    ///
    /// # Errors
    /// As [`Fs::flush`].
    pub async fn fsync(&self, fh: Fh) -> Result<()> {
        self.flush(fh).await
    }
}

fn place(append: bool, offset: u64) -> Place {
    if append {
        Place::End
    } else {
        Place::At(offset)
    }
}
