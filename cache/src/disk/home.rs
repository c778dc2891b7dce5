//! The directory of a cache, and who has it.
//!
//! ```text
//! <dir>/gcsmount-blocks/0/lock             held by the process that has this place
//!                      /0/<hash>-<generation>.data, .index
//!                      /1/..               the place of the next process, where the first is taken
//! ```
//!
//! A process takes the first place that is free and has it to itself, so that nobody else counts, evicts or mends what
//! is in it. Whatever is in places that nobody has it moves into its own: what one process leaves is used by the next,
//! in whatever order they come, and nothing is left behind that nobody counts.
//!
//! Everything below `<dir>` is opened relative to its directory and without following links, has one owner and no
//! permission for anybody else.

#[cfg(test)]
mod tests;

use std::ffi::CStr;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use super::key::{ASIDE, Key, Role};

const ROOT: &str = "gcsmount-blocks";
const LOCK: &str = "lock";
/// The most processes in one directory.
const PLACES: u32 = 64;
const DIRECTORY: OFlag = OFlag::O_DIRECTORY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// A place in a directory. Nobody else has it as long as this lives.
#[derive(Debug)]
pub(super) struct Home {
    place: OwnedFd,
    /// Locked.
    lock: File,
}

/// A file in a place.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) role: Role,
    pub(super) name: String,
    /// What it takes on the disk.
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

impl Home {
    /// Takes a place below `dir`, which is made where it is not there, and moves in what is in places without an owner.
    pub(super) fn attach(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let dir = File::open(dir)?;
        let root = directory(dir.as_fd(), ROOT)?;
        for number in 0..PLACES {
            if let Some(home) = Self::take(root.as_fd(), number)? {
                home.adopt(root.as_fd(), number);
                return Ok(home);
            }
        }
        let why = format!("{PLACES} processes have it already");
        Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
    }

    fn take(root: BorrowedFd<'_>, number: u32) -> io::Result<Option<Self>> {
        let place = directory(root, &number.to_string())?;
        let lock = match open(place.as_fd(), LOCK, OFlag::O_RDWR | OFlag::O_CREAT) {
            // There may be something to read all the same.
            Err(error) if read_only(&error) => open(place.as_fd(), LOCK, OFlag::O_RDONLY)?,
            lock => lock?,
        };
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { place, lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Moves in what is in the other places and has no owner. What cannot be moved stays for the next time.
    fn adopt(&self, root: BorrowedFd<'_>, own: u32) {
        for number in (0..PLACES).filter(|number| *number != own) {
            let there = fstatat(
                root,
                number.to_string().as_str(),
                AtFlags::AT_SYMLINK_NOFOLLOW,
            );
            if there.is_err() {
                continue;
            }
            if let Err(error) = self.adopt_from(root, number) {
                tracing::debug!(%error, number, "a place in the cache directory stays as it is");
            }
        }
    }

    fn adopt_from(&self, root: BorrowedFd<'_>, number: u32) -> io::Result<()> {
        let Some(other) = Self::take(root, number)? else {
            return Ok(());
        };
        for found in other.scan()? {
            let name = found.name.as_str();
            // An index never goes without its data: whoever finds it alone takes it for damaged.
            let there = fstatat(&self.place, name, AtFlags::AT_SYMLINK_NOFOLLOW);
            match (found.role, there) {
                (Role::Other, _) => {}
                (Role::Data(_) | Role::Index(_) | Role::Aside, Err(Errno::ENOENT)) => {
                    renameat(&other.place, name, &self.place, name)?;
                }
                // The two halves of different files do not fit together, and are told apart only by their checksums.
                (Role::Data(_) | Role::Index(_) | Role::Aside, _) => other.unlink(name)?,
            }
        }
        Ok(())
    }

    /// Whether somebody has removed the place.
    pub(super) fn is_gone(&self) -> bool {
        let unlinked = |stat: nix::Result<FileStat>| stat.is_ok_and(|stat| stat.st_nlink == 0);
        unlinked(fstat(&self.place)) || unlinked(fstat(&self.lock))
    }

    /// The files, the data of each before its index.
    pub(super) fn scan(&self) -> io::Result<Vec<Found>> {
        let mut dir = Dir::openat(&self.place, ".", OFlag::O_RDONLY | DIRECTORY, Mode::empty())?;
        let mut all = Vec::new();
        for entry in dir.iter() {
            all.extend(self.found(entry?.file_name())?);
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// `None`: it is not a file of ours.
    fn found(&self, name: &CStr) -> io::Result<Option<Found>> {
        let Ok(name) = name.to_str() else {
            return Ok(None);
        };
        let role = Role::of(name);
        if role == Role::Other {
            return Ok(None);
        }
        let stat = match fstatat(&self.place, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Ok(None),
            stat => stat?,
        };
        if kind(&stat) != SFlag::S_IFREG {
            return Ok(None);
        }
        Ok(Some(Found {
            role,
            name: name.to_owned(),
            bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
            modified: modified(&stat),
        }))
    }

    /// A file that is there. One of a read-only file system can be read.
    pub(super) fn open(&self, name: &str) -> io::Result<File> {
        match open(self.place.as_fd(), name, OFlag::O_RDWR) {
            Err(error) if read_only(&error) => self.open_to_read(name),
            file => file,
        }
    }

    /// A file that is there, to be read only.
    pub(super) fn open_to_read(&self, name: &str) -> io::Result<File> {
        open(self.place.as_fd(), name, OFlag::O_RDONLY)
    }

    /// A file that is not there yet.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        open(self.place.as_fd(), name, flags)
    }

    /// Removes a file, if it is there.
    pub(super) fn unlink(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.place, name, UnlinkatFlags::NoRemoveDir) {
            Err(Errno::ENOENT) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Removes a file, if it is there and anything can be removed.
    pub(super) fn clear(&self, name: &str) -> io::Result<()> {
        match self.unlink(name) {
            Err(error) if read_only(&error) => Ok(()),
            done => done,
        }
    }

    /// Calls both files of a content something that nobody opens.
    pub(super) fn set_aside(&self, key: Key) -> io::Result<()> {
        for name in [key.index(), key.data()] {
            let aside = format!("{name}{ASIDE}");
            match renameat(&self.place, name.as_str(), &self.place, aside.as_str()) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Not left to closing it: a child that is being started may have a copy of the descriptor until it runs.
        if let Err(error) = self.lock.unlock() {
            tracing::debug!(%error, "the lock of the cache directory is left to be closed");
        }
    }
}

/// The directory `name` in `parent`, made if it is not there: ours, and nobody else may look into it.
fn directory(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        // It may be there.
        Err(Errno::EROFS | Errno::EACCES | Errno::ENOSPC) => {}
        Err(error) => return Err(error.into()),
    }
    let dir = openat(parent, name, OFlag::O_RDONLY | DIRECTORY, Mode::empty())?;
    let stat = fstat(&dir)?;
    if stat.st_uid != geteuid().as_raw() {
        let why = "the cache directory belongs to somebody else";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    if Mode::from_bits_truncate(stat.st_mode).intersects(Mode::S_IRWXG | Mode::S_IRWXO) {
        fchmod(&dir, Mode::S_IRWXU)?;
    }
    Ok(dir)
}

/// Opens a plain file that is ours and has no second name.
fn open(place: BorrowedFd<'_>, name: &str, flags: OFlag) -> io::Result<File> {
    // Without O_NONBLOCK, a pipe in the place of a file would be waited for.
    let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let file = match openat(place, name, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Err(Errno::ELOOP | Errno::EISDIR) => return Err(replaced()),
        file => File::from(file?),
    };
    let meta = file.metadata()?;
    let ours = meta.is_file() && meta.uid() == geteuid().as_raw() && meta.nlink() == 1;
    if ours { Ok(file) } else { Err(replaced()) }
}

fn replaced() -> io::Error {
    let why = "a file of the cache was replaced by something else";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn read_only(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), ReadOnlyFilesystem | PermissionDenied)
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits())
}

fn modified(stat: &FileStat) -> SystemTime {
    let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
    let nanos = u64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}
