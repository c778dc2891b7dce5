//! Addresses of unix sockets. The kernel takes 108 bytes for one, the zero at its end included
//! (`unix(7)`), and paths are often longer, below kubelet's directories above all. A longer one is
//! reached through its opened directory.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// What a path may have, without the zero.
const LONGEST: usize = 107;

/// A path that fits into an address, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Address {
    path: PathBuf,
    /// The directory that `path` goes through, if it does.
    _directory: Option<File>,
}

impl Address {
    /// The address of the socket `name` in `directory`.
    pub(crate) fn of(directory: &Path, name: &OsStr) -> io::Result<Self> {
        let whole = directory.join(name);
        if whole.as_os_str().as_bytes().len() <= LONGEST {
            return Ok(Self {
                path: whole,
                _directory: None,
            });
        }
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC).bits())
            .open(directory)?;
        let path = Path::new("/proc/self/fd")
            .join(directory.as_raw_fd().to_string())
            .join(name);
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
            _directory: Some(directory),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
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
