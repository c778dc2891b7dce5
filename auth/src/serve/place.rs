//! The socket file: made under another name, made ready, then put in place in one step; made anew
//! when somebody removes it; taken away in the end, if it is still ours.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tokio::net::UnixListener;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::error::{Error, Kind};
use crate::transport::sun_path::{Address, split};

/// How often a directory is tried that another server holds while it starts, and the time between:
/// two seconds in all.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked whether the file is still there.
const LOOK: Duration = Duration::from_secs(5);

/// Device and inode.
type FileId = (u64, u64);

/// A socket file that is ours. Removed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    mode: u32,
    /// The file that we put there; `None` once we gave it up.
    ours: Mutex<Option<FileId>>,
}

/// Binds a socket that listens before `path` appears.
pub(super) async fn bind(path: PathBuf, mode: u32) -> Result<(Place, UnixListener), Error> {
    let shown = path.display().to_string();
    let refused = move |why: String| {
        let message = format!("the token socket {shown} cannot be made: {why}");
        Error::new(Kind::Config, message)
    };
    let mut tries = 0..TRIES;
    let (place, listener) = loop {
        let path = path.clone();
        let placed = spawn_blocking(move || put(path, mode))
            .await
            .map_err(|_| refused("stopped".to_owned()))?;
        match placed {
            Ok(placed) => break placed,
            Err(Unplaced::Held) if tries.next().is_some() => sleep(PAUSE).await,
            Err(unplaced) => return Err(refused(unplaced.explain())),
        }
    };
    let listener = UnixListener::from_std(listener).map_err(|error| refused(error.to_string()))?;
    Ok((place, listener))
}

enum Unplaced {
    NoName,
    Taken,
    Held,
    NotASocket,
    Io(io::Error),
}

impl Unplaced {
    fn explain(&self) -> String {
        match self {
            Self::NoName => "the path ends in no name".to_owned(),
            Self::Taken => {
                "another process serves there; stop it or choose another path".to_owned()
            }
            Self::Held => "another process holds a lock on the directory; is one starting there? \
                           stop it or choose another directory"
                .to_owned(),
            Self::NotASocket => {
                "something else than a socket is there, and is left alone".to_owned()
            }
            Self::Io(error) => {
                format!("{error}; does the directory exist and belong to this user?")
            }
        }
    }
}

impl From<io::Error> for Unplaced {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn put(path: PathBuf, mode: u32) -> Result<(Place, StdListener), Unplaced> {
    let (directory, name) = split(&path).ok_or(Unplaced::NoName)?;
    // Held until the file is in place, so that of two servers that start together the second sees
    // the first.
    let _held = hold(directory)?;
    make_way(directory, &path, name)?;
    let unready = OsString::from(format!(".{:016x}", rand::random::<u64>()));
    let address = Address::of(directory, &unready)?;
    let listener = StdListener::bind(address.path())?;
    // From here on the file under its first name is to be removed, should a step fail.
    let mut place = Place {
        path: directory.join(&unready),
        mode,
        ours: Mutex::new(Some(identity(&directory.join(&unready))?)),
    };
    listener.set_nonblocking(true)?;
    fs::set_permissions(&place.path, Permissions::from_mode(mode))?;
    fs::rename(&place.path, &path)?;
    place.path = path;
    Ok((place, listener))
}

/// Keeps others of our kind from the directory. One that cannot be locked (not readable, or on a file
/// system without locks) is gone on without: the lock guards against an accident only.
fn hold(directory: &Path) -> Result<Option<Flock<File>>, Unplaced> {
    let Ok(file) = File::open(directory) else {
        return Ok(None);
    };
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(held) => Ok(Some(held)),
        Err((_, Errno::EWOULDBLOCK)) => Err(Unplaced::Held),
        Err(_) => Ok(None),
    }
}

/// Looks at what is in the way. A socket at which nobody listens may be replaced.
fn make_way(directory: &Path, path: &Path, name: &std::ffi::OsStr) -> Result<(), Unplaced> {
    let there = match fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if !there.file_type().is_socket() {
        return Err(Unplaced::NotASocket);
    }
    match knock(&Address::of(directory, name)?) {
        Err(Errno::ECONNREFUSED | Errno::ENOENT) => Ok(()),
        // Full queue, no permission: somebody may well be there.
        Ok(()) | Err(_) => Err(Unplaced::Taken),
    }
}

/// Connects, without waiting for room in the queue of a server that does not accept.
fn knock(address: &Address) -> nix::Result<()> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(address.path())?)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|there| (there.dev(), there.ino()))
}

impl Place {
    fn ours(&self) -> MutexGuard<'_, Option<FileId>> {
        // What is inside is swapped whole, so a panic elsewhere leaves it whole.
        self.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until somebody removes the file, and puts another there. One that is not ours is left
    /// alone.
    pub(super) async fn renewed(self: Arc<Self>) -> UnixListener {
        let mut told = false;
        loop {
            sleep(LOOK).await;
            let place = Arc::clone(&self);
            let looked = spawn_blocking(move || place.renew());
            let why = match looked.await {
                Ok(Ok(None)) => continue,
                Ok(Ok(Some(listener))) => match UnixListener::from_std(listener) {
                    Ok(listener) => return listener,
                    Err(error) => error.to_string(),
                },
                Ok(Err(unplaced)) => unplaced.explain(),
                Err(_) => "stopped".to_owned(),
            };
            if !std::mem::replace(&mut told, true) {
                let path = self.path.display();
                tracing::warn!(
                    "the token socket {path} was removed and cannot be made again: {why}"
                );
            }
        }
    }

    fn renew(&self) -> Result<Option<StdListener>, Unplaced> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(_) | Err(_) => return Ok(None),
        }
        if self.ours().is_none() {
            return Ok(None);
        }
        let (place, listener) = put(self.path.clone(), self.mode)?;
        // Given up meanwhile, the new file goes with `place`.
        Ok(self.ours().as_mut().and_then(|ours| {
            *ours = place.ours().take()?;
            Some(listener)
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the file away, unless another process has put its own there meanwhile.
    pub(super) fn remove(&self) {
        let ours = self.ours().take();
        if let Some(ours) = ours
            && identity(&self.path).is_ok_and(|there| there == ours)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), "the token socket stays behind: {error}");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tempfile::tempdir;

    use super::*;

    #[tokio::test]
    async fn of_those_who_start_together_one_has_the_place() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("token.sock");
        for stale in [false, true].repeat(20) {
            if stale {
                drop(StdListener::bind(&path).unwrap());
            }
            let placed = join_all((0..8).map(|_| bind(path.clone(), 0o600))).await;
            assert_eq!(placed.iter().filter(|one| one.is_ok()).count(), 1);
            for other in placed.iter().filter_map(|one| one.as_ref().err()) {
                assert!(
                    other.message().contains("another process serves"),
                    "{other}"
                );
            }
            drop(placed);
            assert!(!path.exists());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_directory_that_stays_locked_is_not_waited_for_without_end() {
        let dir = tempdir().unwrap();
        let held = hold(dir.path());
        assert!(matches!(held, Ok(Some(_))));
        let error = bind(dir.path().join("token.sock"), 0o600)
            .await
            .unwrap_err();
        assert!(error.message().contains("holds a lock"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
