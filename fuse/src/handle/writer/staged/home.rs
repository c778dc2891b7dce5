//! The directory in which staged files outlive the process that wrote them.
//!
//! A home belongs to one file system at a time, for as long as that lives: it holds a lock on the directory itself, which
//! also keeps cleaners of temporary files away. Whoever finds it locked takes another one with the same name and a
//! number. In it, a file is `ID.data`. While that has what the bucket does not have, there is an `ID.record` beside it;
//! without one, nobody misses it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use parking_lot::Mutex;

use super::record::{Record, Unreadable};

/// Homes of one name: how many file systems may have it at one time.
const HOMES: usize = 64;
/// Where files are moved that are not to be finished.
const ASIDE: &str = "lost+found";
const DATA: &str = "data";
const RECORD: &str = "record";
/// A record that is not in effect yet.
const NEW_RECORD: &str = "record-new";

/// A directory that is ours alone.
#[derive(Debug)]
pub(super) struct Home {
    dir: PathBuf,
    /// Holds the lock. It is let go of when the descriptor is closed, so also by a crash.
    lock: File,
    /// What was there when it was taken.
    left: Mutex<Vec<u128>>,
}

impl Home {
    /// Takes the first home of this name that is free, made where there is none.
    pub(super) fn take(base: &Path, name: &str) -> io::Result<Arc<Self>> {
        for dir in dirs(base, name)? {
            let made = match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => true,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
                Err(error) => return Err(error),
            };
            if made {
                // Its name has to last, too; who may not read what is above it does without.
                let _ = File::open(base).and_then(|base| base.sync_all());
            }
            match Self::lock(dir) {
                Ok(Some(home)) => return Ok(home),
                Ok(None) => {}
                // Whoever had it has just ended.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let why = format!("{HOMES} mounts stage under the name {name} already");
        Err(io::Error::other(why))
    }

    /// The homes of this name that nobody has, and in which something is left.
    pub(super) fn abandoned(base: &Path, name: &str) -> io::Result<Vec<Arc<Self>>> {
        let mut homes = Vec::new();
        for dir in dirs(base, name)? {
            match Self::lock(dir) {
                Ok(Some(home)) if !home.left.lock().is_empty() => homes.push(home),
                Ok(Some(_) | None) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(homes)
    }

    /// Takes a directory, if it is ours and nobody has it. What others may write into is not ours.
    fn lock(dir: PathBuf) -> io::Result<Option<Arc<Self>>> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(&dir);
        let lock = match opened {
            Ok(lock) => lock,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            // A link, a file, or another user's.
            Err(_) => return Ok(None),
        };
        let metadata = lock.metadata()?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Ok(None);
        }
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        if lock.metadata()?.nlink() == 0 {
            // Whoever had it has removed it meanwhile.
            return Ok(None);
        }
        let left = Mutex::new(settle(&dir)?);
        Ok(Some(Arc::new(Self { dir, lock, left })))
    }

    /// What was left behind, once.
    pub(super) fn take_left(self: &Arc<Self>) -> Vec<Slot> {
        let left = std::mem::take(&mut *self.left.lock());
        let slot = |id| Slot {
            home: self.clone(),
            id,
        };
        left.into_iter().map(slot).collect()
    }

    /// A new file, empty and without a record.
    pub(super) fn create(self: &Arc<Self>) -> io::Result<(Slot, File)> {
        let slot = Slot {
            home: self.clone(),
            id: rand::random(),
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(slot.data())?;
        Ok((slot, file))
    }

    fn path(&self, id: u128, what: &str) -> PathBuf {
        self.dir.join(format!("{id:032x}.{what}"))
    }

    fn path_aside(&self, id: u128, what: &str) -> PathBuf {
        self.dir.join(ASIDE).join(format!("{id:032x}.{what}"))
    }
}

impl Drop for Home {
    /// An empty one goes. While it does it is still locked, so that nobody takes it meanwhile.
    fn drop(&mut self) {
        let _ = fs::remove_dir(self.dir.join(ASIDE));
        match fs::remove_dir(&self.dir) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound
                ) => {}
            Err(error) => {
                let dir = self.dir.display();
                tracing::debug!(%dir, %error, "the directory for staged files stays");
            }
        }
    }
}

/// Where the homes of a name are.
fn dirs(base: &Path, name: &str) -> io::Result<impl Iterator<Item = PathBuf>> {
    let plain = Path::new(name).file_name() == Some(OsStr::new(name));
    if !plain {
        let why = format!("{name:?} is not the name of a directory");
        return Err(io::Error::new(ErrorKind::InvalidInput, why));
    }
    let first = base.join(name);
    let others = (1..HOMES).map({
        let (base, name) = (base.to_owned(), name.to_owned());
        move |number| base.join(format!("{name}.{number}"))
    });
    Ok(std::iter::once(first).chain(others))
}

/// What a directory holds of a file.
#[derive(Debug, Default)]
struct Parts {
    data: bool,
    record: bool,
}

/// Clears away what a crash has left half done and nobody misses, and tells what has a record.
fn settle(dir: &Path) -> io::Result<Vec<u128>> {
    let mut found = BTreeMap::<u128, Parts>::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?.file_name();
        let Some((id, what)) = entry.to_str().and_then(|name| name.split_once('.')) else {
            continue;
        };
        let Ok(id) = u128::from_str_radix(id, 16) else {
            continue;
        };
        match what {
            DATA => found.entry(id).or_default().data = true,
            RECORD => found.entry(id).or_default().record = true,
            NEW_RECORD => fs::remove_file(dir.join(&entry))?,
            _ => {}
        }
    }
    let path = |id: u128, what| dir.join(format!("{id:032x}.{what}"));
    let mut left = Vec::new();
    for (id, parts) in found {
        match parts {
            Parts {
                data: true,
                record: true,
            } => left.push(id),
            Parts { data: true, .. } => fs::remove_file(path(id, DATA))?,
            // The data went aside, and the record did not get to.
            Parts { .. } if dir.join(ASIDE).join(format!("{id:032x}.{DATA}")).exists() => {
                let aside = dir.join(ASIDE).join(format!("{id:032x}.{RECORD}"));
                fs::rename(path(id, RECORD), aside)?;
            }
            Parts { .. } => fs::remove_file(path(id, RECORD))?,
        }
    }
    Ok(left)
}

/// The place of one staged file, and its home for as long.
#[derive(Debug, Clone)]
pub(in crate::handle::writer) struct Slot {
    home: Arc<Home>,
    id: u128,
}

impl Slot {
    fn data(&self) -> PathBuf {
        self.home.path(self.id, DATA)
    }

    /// The content, to read.
    pub(super) fn open(&self) -> io::Result<File> {
        File::open(self.data())
    }

    pub(in crate::handle::writer) fn read_record(&self) -> io::Result<Result<Record, Unreadable>> {
        let bytes = fs::read(self.home.path(self.id, RECORD))?;
        Ok(Record::decode(&bytes))
    }

    /// Replaces the record in one step. A `durable` one is on the disk when this returns, and so is the name of the data.
    pub(super) fn write_record(&self, record: &Record, durable: bool) -> io::Result<()> {
        let new = self.home.path(self.id, NEW_RECORD);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(record.encode().as_bytes())?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&new, self.home.path(self.id, RECORD))?;
        if durable {
            self.home.lock.sync_all()?;
        }
        Ok(())
    }

    /// Says that the data has nothing that anybody misses.
    pub(super) fn remove_record(&self) -> io::Result<()> {
        fs::remove_file(self.home.path(self.id, RECORD))
    }

    pub(super) fn remove_data(&self) -> io::Result<()> {
        fs::remove_file(self.data())
    }

    /// Moves data and record to where nothing is finished and nothing deleted, and tells where the data is now. The data
    /// goes first: without its record it would be taken for what nobody misses.
    pub(in crate::handle::writer) fn set_aside(&self) -> io::Result<PathBuf> {
        let aside = self.home.dir.join(ASIDE);
        match DirBuilder::new().mode(0o700).create(&aside) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let [data, record] = [DATA, RECORD].map(|what| self.home.path_aside(self.id, what));
        fs::rename(self.data(), &data)?;
        fs::rename(self.home.path(self.id, RECORD), record)?;
        Ok(data)
    }
}
