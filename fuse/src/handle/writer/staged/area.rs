//! How much is staged, and where.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::errno::Errno;
use parking_lot::Mutex;

use super::home::{Home, Slot};
use crate::errno::{Error, Result};

/// The directory for staged files, and how much may be in it.
#[derive(Debug)]
pub(in crate::handle::writer) struct StagingArea {
    dir: PathBuf,
    limit: u64,
    used: AtomicU64,
    /// The name of the home; `None`: staged files have no names, and are gone when the process is.
    name: Option<String>,
    /// Taken with the first file. Held meanwhile, by threads that may block.
    home: Mutex<Option<Arc<Home>>>,
    /// Whether it was said that staged files do not outlive a crash.
    warned: AtomicBool,
}

impl StagingArea {
    pub(in crate::handle::writer) fn new(
        dir: PathBuf,
        limit: u64,
        name: Option<String>,
    ) -> Arc<Self> {
        Arc::new(Self {
            dir,
            limit,
            used: AtomicU64::new(0),
            name,
            home: Mutex::default(),
            warned: AtomicBool::new(false),
        })
    }

    pub(in crate::handle::writer) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, bytes: u64) -> Result<()> {
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

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Runs `act` on a staged file where it may block.
    pub(in crate::handle::writer) async fn run<T: Send + 'static>(
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

    /// A new file: in the home if there is one, else without a name.
    pub(super) fn create(&self) -> io::Result<(Option<Slot>, File)> {
        if let Some(created) = self.create_in_home() {
            let (slot, file) = created?;
            return Ok((Some(slot), file));
        }
        Ok((None, tempfile::tempfile_in(&self.dir)?))
    }

    fn create_in_home(&self) -> Option<io::Result<(Slot, File)>> {
        match self.home()?.create() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Somebody has removed it.
                *self.home.lock() = None;
                Some(self.home()?.create())
            }
            created => Some(created),
        }
    }

    /// What other processes have left behind in homes of this name, with a record each.
    pub(in crate::handle::writer) fn left_behind(&self) -> io::Result<Vec<Slot>> {
        let Some(name) = &self.name else {
            return Ok(Vec::new());
        };
        let own = self.home.lock().clone();
        let mut left = own.map_or_else(Vec::new, |home| home.take_left());
        for home in Home::abandoned(&self.dir, name)? {
            left.extend(home.take_left());
        }
        Ok(left)
    }

    /// The home, taken if need be. Where there is none to have, files are staged without.
    fn home(&self) -> Option<Arc<Home>> {
        let name = self.name.as_ref()?;
        let mut home = self.home.lock();
        if home.is_none() {
            match Home::take(&self.dir, name) {
                Ok(taken) => *home = Some(taken),
                Err(error) => self.warn_once(&error),
            }
        }
        home.clone()
    }

    /// Says why staged files do not outlive a crash, the first time.
    pub(super) fn warn_once(&self, error: &dyn fmt::Display) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            let dir = self.dir.display();
            tracing::warn!(%dir, %error, "staged files will not outlive a crash");
        }
    }
}
