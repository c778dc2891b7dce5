//! The directory of a volume, and files in it that are replaced in one step. Other containers of the pod may write there.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use gcsmount_k8s_contract::layout::Volume;
use nix::fcntl::OFlag;

/// A volume's directory, opened. Volumes have long names and the addresses of sockets are short (`unix(7)`), so its
/// sockets are reached through it.
#[derive(Debug)]
pub(crate) struct Opened(File);

impl Opened {
    /// Opens the directory; a link in its place is not followed.
    pub(crate) fn of(volume: &Volume) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits())
            .open(&volume.dir)
            .map(Self)
    }

    /// A short path of what has the same name as `path` in this directory. It leads there for as long as this lives.
    pub(crate) fn reach(&self, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd())).join(name))
    }
}

/// Writes `content` to `path` by way of a new file beside it, so that a reader finds the old or the new one, whole. A
/// link that somebody left at either name is replaced and not followed.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let new = path.with_extension("new");
    remove(&new)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&new)?;
    file.write_all(content)?;
    std::fs::rename(new, path)
}

/// Takes a file away, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [victim, path] = ["victim", "file.json"].map(|name| dir.path().join(name));
        std::fs::write(&victim, "whole").unwrap();
        symlink(&victim, &path).unwrap();
        symlink(&victim, path.with_extension("new")).unwrap();
        replace(&path, b"said", 0o600).unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"whole");
        assert_eq!(std::fs::read(&path).unwrap(), b"said");
        let mode = std::fs::symlink_metadata(&path)
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert!(!path.with_extension("new").exists());
    }
}
