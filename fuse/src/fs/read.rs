//! read.

use std::sync::Arc;

use bytes::Bytes;
use nix::errno::Errno;

use super::open::OpenFile;
use super::{Fh, Fs};
use crate::errno::{Error, Result};
use crate::handle::reader::Reader;
use crate::handle::writer::{Writer, stale};

/// Who has the bytes.
enum Source {
    Reader(Arc<Reader>),
    Writer(Arc<Writer>),
}

impl Fs {
    /// Bytes of an open file, if they are in memory. `None`: use [`Fs::read`].
    #[must_use]
    pub fn try_read(&self, fh: Fh, offset: u64, len: usize) -> Option<Bytes> {
        let file = self.file(fh).ok()?;
        match self.source(&file).ok()? {
            Source::Reader(reader) => reader.try_read(offset, len),
            Source::Writer(_) => None,
        }
    }

    /// At most `len` bytes of an open file, fewer only at its end. Whatever was written through this mount is seen,
    /// published or not.
    ///
    /// # Errors
    /// `ESTALE` where somebody else has replaced or deleted the content that was opened; the next open finds what there
    /// is. The store's.
    pub async fn read(&self, fh: Fh, offset: u64, len: usize) -> Result<Bytes> {
        let file = self.file(fh)?;
        loop {
            let reader = match self.source(&file)? {
                Source::Reader(reader) => reader,
                Source::Writer(writer) => {
                    let read = writer.read(offset, len).await;
                    self.adopt(file.ino, &writer);
                    return read;
                }
            };
            let error = match self.workshop.call(reader.read(offset, len)).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => stale(error),
            };
            // A rename or a publication of this mount's own has given the file another object in the meantime.
            let current = file.reader.lock().clone();
            let is_current = current.is_some_and(|current| Arc::ptr_eq(&current, &reader));
            if is_current || error.errno() != Errno::ESTALE {
                if error.errno() == Errno::ESTALE {
                    self.table.lock().outdate_attributes(file.ino);
                }
                return Err(error);
            }
        }
    }

    fn source(&self, file: &OpenFile) -> Result<Source> {
        let table = self.table.lock();
        let inode = table.get(file.ino).ok_or(Error::of(Errno::ESTALE))?;
        let body = inode.file().ok_or(Error::of(Errno::EISDIR))?;
        if let Some(writer) = &body.writer {
            let view = writer.view();
            // Who only reads does not see what could not be published: it is as good as gone, and the bucket's is not.
            let given_up = view.failed && file.writer.is_none();
            if body.object.is_none() || (view.dirty && !given_up) {
                return Ok(Source::Writer(writer.clone()));
            }
        }
        let mut reader = file.reader.lock();
        if let Some(reader) = &*reader {
            return Ok(Source::Reader(reader.clone()));
        }
        let object = body.object.as_ref().ok_or(Error::of(Errno::ESTALE))?;
        let made = self.workshop.reader(object);
        *reader = Some(made.clone());
        Ok(Source::Reader(made))
    }
}
