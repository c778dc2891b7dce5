//! Content in a local file, for writes in any order.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use nix::errno::Errno;

use crate::errno::{Error, Result};

/// The directory for staged files, and how much may be in it.
#[derive(Debug)]
pub(super) struct StagingArea {
    dir: PathBuf,
    limit: u64,
    used: AtomicU64,
}

impl StagingArea {
    pub(super) fn new(dir: PathBuf, limit: u64) -> Arc<Self> {
        Arc::new(Self {
            dir,
            limit,
            used: AtomicU64::new(0),
        })
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<()> {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.limit)
            })
            .map(|_| ())
            .map_err(|_| {
                let (dir, limit) = (self.dir.display(), self.limit);
                let why = format_args!("staged files in {dir} may have {limit} bytes in all");
                Error::because(Errno::ENOSPC, why)
            })
    }

    /// Runs `act` on a staged file where it may block.
    async fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        match tokio::task::spawn_blocking(act).await {
            Ok(result) => result.map_err(|error| {
                Error::local(format_args!("staging in {}", self.dir.display()), &error)
            }),
            // The runtime is going away.
            Err(_) => Err(Error::of(Errno::EIO)),
        }
    }
}

/// A staged file. It has no name, so it is gone when the process is.
#[derive(Debug)]
pub(super) struct Staged {
    area: Arc<StagingArea>,
    file: Arc<File>,
    /// Length of the file in bytes.
    pub(super) length: u64,
    /// Bytes taken from the area: the greatest length so far.
    taken: u64,
    /// Whether the bucket does not have this.
    pub(super) dirty: bool,
}

impl Staged {
    /// An empty file.
    pub(super) async fn create(area: &Arc<StagingArea>) -> Result<Self> {
        let dir = area.dir.clone();
        let file = area.run(move || tempfile::tempfile_in(dir)).await?;
        Ok(Self {
            area: area.clone(),
            file: Arc::new(file),
            length: 0,
            taken: 0,
            dirty: true,
        })
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

impl Drop for Staged {
    fn drop(&mut self) {
        self.area.used.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_staged_file_reads_back_with_zeros_in_its_holes() {
        let area = StagingArea::new(std::env::temp_dir(), 100);
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
        let area = StagingArea::new(std::env::temp_dir(), 10);
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
        let area = StagingArea::new("/nowhere/at/all".into(), 10);
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
