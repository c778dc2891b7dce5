//! Addresses of unix sockets. The kernel takes 108 bytes for one, the zero at its end included
//! (`unix(7)`), and paths are often longer, below kubelet's directories above all. A longer one is
//! reached through what is opened: the directory of a socket to be made, or the socket that is there.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use nix::fcntl::OFlag;

/// What a path may have, without the zero.
const LONGEST: usize = 107;

/// A path that fits into an address, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Address {
    path: PathBuf,
    /// The file that `path` goes through, if it does.
    _opened: Option<File>,
}

impl Address {
    /// The address of a socket to be made: `name` in `directory`.
    pub(crate) fn of(directory: &Path, name: &OsStr) -> io::Result<Self> {
        let whole = directory.join(name);
        if whole.as_os_str().as_bytes().len() <= LONGEST {
            return Ok(Self {
                path: whole,
                _opened: None,
            });
        }
        let directory = open(directory, OFlag::O_DIRECTORY)?;
        let path = through(&directory).join(name);
        let length = path.as_os_str().as_bytes().len();
        if length > LONGEST {
            let reason = format!(
                "the name of the socket is {} bytes long, of which an address holds {}",
                name.len(),
                LONGEST - (length - name.len())
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Ok(Self {
            path,
            _opened: Some(directory),
        })
    }

    /// The address of the socket that is at `path`. It is text, whatever the path is.
    pub(crate) fn of_present(path: &Path) -> io::Result<Self> {
        let socket = open(path, OFlag::empty())?;
        if !socket.metadata()?.file_type().is_socket() {
            return Err(io::Error::other(NotASocket));
        }
        let fits = path.as_os_str().len() <= LONGEST && path.to_str().is_some();
        Ok(match fits {
            true => Self {
                path: path.to_owned(),
                _opened: None,
            },
            false => Self {
                path: through(&socket),
                _opened: Some(socket),
            },
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// What is at a path is something else.
#[derive(Debug)]
pub(crate) struct NotASocket;

impl fmt::Display for NotASocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what is there is not a socket")
    }
}

impl std::error::Error for NotASocket {}

/// Opens a place in the file system, not what is there: needs no right to it, and waits for nothing.
fn open(path: &Path, flags: OFlag) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags((flags | OFlag::O_PATH | OFlag::O_CLOEXEC).bits())
        .open(path)
}

fn through(opened: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(opened.as_raw_fd().to_string())
}

/// Directory and name of a path that ends in a name.
pub(crate) fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let name = path.file_name()?;
    let directory = path.parent()?;
    let here = Path::new(".");
    Some((
        if directory.as_os_str().is_empty() {
            here
        } else {
            directory
        },
        name,
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use tempfile::tempdir;

    use super::*;

    #[test]
    fn a_short_path_is_its_own_address() {
        let address = Address::of(Path::new("/run"), OsStr::new("s")).unwrap();
        assert_eq!(address.path(), Path::new("/run/s"));
    }

    #[test]
    fn a_long_path_is_reached_through_its_directory() {
        let dir = tempdir().unwrap();
        let deep = dir.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let address = Address::of(&deep, OsStr::new("token.sock")).unwrap();
        let _listener = UnixListener::bind(address.path()).unwrap();
        UnixStream::connect(address.path()).unwrap();
        assert!(deep.join("token.sock").exists());
    }

    #[test]
    fn a_socket_that_is_there_is_reached_by_any_path_to_it() {
        let dir = tempdir().unwrap();
        let short = dir.path().join("s");
        let _listener = UnixListener::bind(&short).unwrap();
        assert_eq!(Address::of_present(&short).unwrap().path(), short);
        for name in [&[b'n'; 200][..], b"no-text-\xff"] {
            let path = dir.path().join(OsStr::from_bytes(name));
            std::os::unix::fs::symlink(&short, &path).unwrap();
            let address = Address::of_present(&path).unwrap();
            assert!(address.path().starts_with("/proc/self/fd"), "{address:?}");
            UnixStream::connect(address.path()).unwrap();
        }
    }

    #[test]
    fn what_is_no_socket_is_told_from_what_is_not_there() {
        let dir = tempdir().unwrap();
        let path = dir.path().join("s");
        let error = Address::of_present(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [&*path, dir.path()] {
            let error = Address::of_present(path).unwrap_err();
            assert_eq!(error.to_string(), NotASocket.to_string());
        }
    }

    #[test]
    fn a_long_name_is_refused_with_its_length() {
        let dir = tempdir().unwrap();
        let error = Address::of(dir.path(), OsStr::new(&"n".repeat(120))).unwrap_err();
        assert!(error.to_string().contains("120 bytes"), "{error}");
        let missing = Address::of(&dir.path().join("x".repeat(120)), OsStr::new("n"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_path_without_a_name_is_none() {
        assert_eq!(split(Path::new("/")), None);
        assert_eq!(split(Path::new("a/..")), None);
        assert_eq!(
            split(Path::new("s")),
            Some((Path::new("."), OsStr::new("s")))
        );
    }
}
