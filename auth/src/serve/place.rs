//! The socket file: made under another name, made ready, then put in place in one step; taken away
//! in the end, if it is still ours.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tokio::net::UnixListener;
use tokio::task::spawn_blocking;

use crate::error::{Error, Kind};
use crate::transport::sun_path::{Address, split};

/// A socket file that is ours. Removed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Device and inode of the file that we put there; `None` once it is removed.
    ours: Option<(u64, u64)>,
}

/// Binds a socket that listens before `path` appears.
pub(super) async fn bind(path: PathBuf, mode: u32) -> Result<(Place, UnixListener), Error> {
    let shown = path.display().to_string();
    let refused = move |why: String| {
        let message = format!("the token socket {shown} cannot be made: {why}");
        Error::new(Kind::Config, message)
    };
    let (place, listener) = spawn_blocking(move || put(path, mode))
        .await
        .map_err(|_| refused("stopped".to_owned()))?
        .map_err(|unplaced| refused(unplaced.explain()))?;
    let listener = UnixListener::from_std(listener).map_err(|error| refused(error.to_string()))?;
    Ok((place, listener))
}

enum Unplaced {
    NoName,
    Taken,
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
    make_way(directory, &path, name)?;
    let unready = OsString::from(format!(".{:016x}", rand::random::<u64>()));
    let address = Address::of(directory, &unready)?;
    let listener = StdListener::bind(address.path())?;
    // From here on the file under its first name is to be removed, should a step fail.
    let mut place = Place {
        path: directory.join(&unready),
        ours: Some(identity(&directory.join(&unready))?),
    };
    listener.set_nonblocking(true)?;
    fs::set_permissions(&place.path, Permissions::from_mode(mode))?;
    fs::rename(&place.path, &path)?;
    place.path = path;
    Ok((place, listener))
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
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the file away, unless another process has put its own there meanwhile.
    pub(super) fn remove(&mut self) {
        if let Some(ours) = self.ours.take()
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
