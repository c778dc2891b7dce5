//! A small file, read whole, asynchronously, into memory that is zeroed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

/// Longer than any token or credential file: kubelet's tokens are one or two KiB.
pub(crate) const LARGEST: usize = 64 << 10;

/// How often a path that vanished is looked at again at once. Between the two halves of a lookup
/// through `..data`, kubelet may have removed the old directory; the next lookup finds the new one.
const LOOKS: usize = 3;

/// A file that is read afresh each time; no descriptor is kept.
#[derive(Debug)]
pub(crate) struct TextFile {
    path: PathBuf,
    /// Held by the one read that runs. A read that hangs (a dead network file system) outlives the
    /// deadline of its caller; the reads after it wait here instead of filling the thread pool.
    pub(super) reading: Arc<Semaphore>,
}

/// Why there is no text.
#[derive(Debug)]
pub(crate) enum Unread {
    Missing,
    NotAFile,
    TooLarge,
    NotText,
    Stopped,
    Io(io::Error),
}

impl TextFile {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            reading: Arc::new(Semaphore::new(1)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) async fn read(&self) -> Result<Zeroizing<String>, Unread> {
        let alone = Arc::clone(&self.reading).acquire_owned().await;
        let path = self.path.clone();
        let reading = spawn_blocking(move || {
            let _alone = alone;
            read(&path)
        });
        reading.await.unwrap_or(Err(Unread::Stopped))
    }
}

fn read(path: &Path) -> Result<Zeroizing<String>, Unread> {
    let mut file = open(path)?;
    if !file.metadata().map_err(Unread::Io)?.is_file() {
        return Err(Unread::NotAFile);
    }
    // Allocated once: a buffer that grows leaves copies behind that nobody zeroes.
    let mut buffer = Zeroizing::new(vec![0; LARGEST + 1]);
    let mut length = 0;
    loop {
        match file.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Unread::Io(error)),
        }
    }
    if length > LARGEST {
        return Err(Unread::TooLarge);
    }
    let text = std::str::from_utf8(&buffer[..length]).map_err(|_| Unread::NotText)?;
    // Editors put a mark before the text, which neither JSON nor a token begins with.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    Ok(Zeroizing::new(text.to_owned()))
}

fn open(path: &Path) -> Result<File, Unread> {
    for _ in 0..LOOKS {
        // Without O_NONBLOCK, opening a FIFO waits for a writer, perhaps for ever.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(path);
        match opened {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Unread::Io(error)),
        }
    }
    Err(Unread::Missing)
}
