//! Content in a local file, for writes in any order.
//!
//! With a home, a staged file outlives a crash. It has a record there from before its first byte that the bucket does not
//! have, until the bucket has it all. A publication *seals* it first: its content and its record are then on the disk, and
//! whoever finds them may finish what was begun. Without a home, it is gone when the process is.

mod area;
mod home;
mod record;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use gcsmount_gcs::object::Digest;
use gcsmount_gcs::store::WriteRequest;

use super::PIECE;
use crate::errno::Result;

pub(super) use area::StagingArea;
pub(super) use home::Slot;
pub(super) use record::{Record, Unreadable};

/// A staged file.
#[derive(Debug)]
pub(super) struct Staged {
    area: Arc<StagingArea>,
    /// `None`: it has no name.
    slot: Option<Slot>,
    file: Arc<File>,
    noted: Noted,
    /// Length of the file in bytes.
    pub(super) length: u64,
    /// Bytes taken from the area: the greatest length so far.
    taken: u64,
    /// Whether the bucket does not have this.
    pub(super) dirty: bool,
}

/// What the home says of a staged file.
#[derive(Debug, PartialEq, Eq)]
enum Noted {
    /// Nothing: nobody would miss it.
    Nothing,
    /// That it is being written.
    Open,
    /// That it is to be published as this.
    Sealed(Box<Record>),
    /// It is not there any more.
    SetAside,
}

impl Staged {
    /// An empty file.
    pub(super) async fn create(area: &Arc<StagingArea>) -> Result<Self> {
        let from = area.clone();
        let (slot, file) = area.run(move || from.create()).await?;
        Ok(Self {
            area: area.clone(),
            slot,
            file: Arc::new(file),
            noted: Noted::Nothing,
            length: 0,
            taken: 0,
            dirty: true,
        })
    }

    /// What another process has sealed, if its content is the one that was.
    pub(super) async fn reopen(
        area: &Arc<StagingArea>,
        slot: &Slot,
        record: &Record,
        sealed: Digest,
    ) -> Result<Option<Self>> {
        let left = slot.clone();
        let opened = area.run(move || {
            let file = left.open()?;
            let same = file.metadata()?.len() == sealed.size && digest(&file)? == sealed;
            Ok(same.then_some(file))
        });
        Ok(opened.await?.map(|file| Self {
            area: area.clone(),
            slot: Some(slot.clone()),
            file: Arc::new(file),
            noted: Noted::Sealed(Box::new(record.clone())),
            length: sealed.size,
            taken: 0,
            dirty: true,
        }))
    }

    /// Notes that it is going to have what the bucket does not have, and that `request` is to publish. To be called before
    /// each change; `None` for a file without a name, which nobody will miss.
    pub(super) async fn note(
        &mut self,
        request: impl FnOnce() -> Option<WriteRequest>,
    ) -> Result<()> {
        if self.noted == Noted::Open {
            return Ok(());
        }
        let Some(slot) = self.slot.clone() else {
            return Ok(());
        };
        let Some(request) = request() else {
            return Ok(());
        };
        let record = Record::open(&request);
        let noted = self.area.run(move || slot.write_record(&record, false));
        noted.await?;
        self.noted = Noted::Open;
        Ok(())
    }

    /// Seals the content for `request`. Where only the record cannot be written, there is no harm but after a crash.
    pub(super) async fn seal(&mut self, request: &WriteRequest) -> Result<()> {
        let Some(slot) = self.slot.clone() else {
            return Ok(());
        };
        let mut record = Record::open(request);
        if let Noted::Sealed(sealed) = &self.noted {
            record.sealed = sealed.sealed;
            if record == **sealed {
                return Ok(());
            }
        }
        let file = self.file.clone();
        let content = self.area.run(move || {
            file.sync_data()?;
            digest(&file)
        });
        record.sealed = Some(content.await?);
        let written = record.clone();
        let written = self.area.run(move || slot.write_record(&written, true));
        match written.await {
            Ok(()) => self.noted = Noted::Sealed(Box::new(record)),
            Err(error) => self.area.warn_once(&error),
        }
        Ok(())
    }

    /// Notes that nobody would miss it: the bucket has it, or nobody wants it any more.
    pub(super) async fn forget(&mut self) {
        let (Some(slot), Noted::Open | Noted::Sealed(_)) = (self.slot.clone(), &self.noted) else {
            return;
        };
        if let Err(error) = self.area.run(move || slot.remove_record()).await {
            tracing::warn!(%error, "a staged file will be looked at again after a crash");
        }
        self.noted = Noted::Nothing;
    }

    /// Keeps what could not be published out of everybody's way, and tells where. `None`: it is not kept.
    pub(super) async fn set_aside(&mut self) -> Option<PathBuf> {
        let (Some(slot), Noted::Open | Noted::Sealed(_)) = (self.slot.clone(), &self.noted) else {
            return None;
        };
        match self.area.run(move || slot.set_aside()).await {
            Ok(path) => {
                self.noted = Noted::SetAside;
                Some(path)
            }
            Err(error) => {
                // It stays where it is, and is looked at at the next start.
                tracing::warn!(%error, "a staged file could not be set aside");
                None
            }
        }
    }

    /// Puts `data` at `offset`. A gap reads as zeros.
    pub(super) async fn put(&mut self, offset: u64, data: Bytes) -> Result<()> {
        let end = offset + data.len() as u64;
        self.grow(end)?;
        let file = self.file.clone();
        let write = self.area.run(move || file.write_all_at(&data, offset));
        write.await?;
        self.length = self.length.max(end);
        self.dirty = true;
        Ok(())
    }

    /// Ends the file at `size`.
    pub(super) async fn resize(&mut self, size: u64) -> Result<()> {
        self.grow(size)?;
        let file = self.file.clone();
        self.area.run(move || file.set_len(size)).await?;
        self.length = size;
        self.dirty = true;
        Ok(())
    }

    /// At most `len` bytes at `offset`, fewer only at the end.
    pub(super) async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let left = self.length.saturating_sub(offset);
        let len = usize::try_from(left).map_or(len, |left| left.min(len));
        let file = self.file.clone();
        let bytes = self.area.run(move || {
            let mut bytes = BytesMut::zeroed(len);
            file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes.freeze())
        });
        bytes.await
    }

    fn grow(&mut self, length: u64) -> Result<()> {
        if length > self.taken {
            self.area.take(length - self.taken)?;
            self.taken = length;
        }
        Ok(())
    }
}

/// What is missed stays where it is: whoever comes next finds it.
impl Drop for Staged {
    fn drop(&mut self) {
        if let (Some(slot), Noted::Nothing) = (&self.slot, &self.noted)
            && let Err(error) = slot.remove_data()
        {
            tracing::debug!(%error, "a staged file was gone already");
        }
        self.area.give_back(self.taken);
    }
}

fn digest(file: &File) -> io::Result<Digest> {
    let mut digest = Digest::EMPTY;
    let mut piece = vec![0; PIECE];
    loop {
        let read = file.read_at(&mut piece, digest.size)?;
        if read == 0 {
            return Ok(digest);
        }
        digest.crc32c = crc32c::crc32c_append(digest.crc32c, &piece[..read]);
        digest.size += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[tokio::test]
    async fn a_staged_file_reads_back_with_zeros_in_its_holes() {
        let area = StagingArea::new(std::env::temp_dir(), 100, None);
        let mut staged = Staged::create(&area).await.unwrap();
        staged.put(4, Bytes::from_static(b"ab")).await.unwrap();
        assert_eq!(staged.read(0, 100).await.unwrap(), "\0\0\0\0ab");
        staged.resize(5).await.unwrap();
        staged.resize(7).await.unwrap();
        assert_eq!(staged.read(3, 100).await.unwrap(), "\0a\0\0");
        assert_eq!(staged.read(7, 1).await.unwrap(), "");
    }

    #[tokio::test]
    async fn the_area_has_a_limit_and_gets_its_bytes_back() {
        let area = StagingArea::new(std::env::temp_dir(), 10, None);
        let mut one = Staged::create(&area).await.unwrap();
        let mut two = Staged::create(&area).await.unwrap();
        one.put(0, Bytes::from_static(b"12345678")).await.unwrap();
        let full = two.put(0, Bytes::from_static(b"123")).await;
        assert_eq!(full.unwrap_err().errno(), Errno::ENOSPC);
        assert_eq!(two.length, 0);
        drop(one);
        two.put(0, Bytes::from_static(b"123")).await.unwrap();
        drop(two);
        assert_eq!(area.used(), 0);
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_is_an_error() {
        let area = StagingArea::new("/nowhere/at/all".into(), 10, None);
        let error = Staged::create(&area).await.unwrap_err();
        assert_eq!(error.errno(), Errno::EIO);
        // Which one, and why.
        let why = error.to_string();
        assert!(
            why.contains("/nowhere/at/all") && why.contains("os error 2"),
            "{why}"
        );
    }
}
