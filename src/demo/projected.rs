//! A service-account token as kubelet projects it into a pod.
//!
//! Kubelet's atomic writer never rewrites a file that somebody may be reading: each version of the volume is a new
//! hidden directory, `..data` is a link to the current one that is swapped by rename, and the file that the pod names
//! is a link through `..data`. A reader sees the old token or the new one, whole.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A projected volume with one file, `token`.
#[derive(Debug)]
pub(super) struct ProjectedVolume {
    dir: PathBuf,
    version: u64,
}

impl ProjectedVolume {
    /// Makes the directory `dir` and the first version of the volume in it.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn create(dir: PathBuf, token: &str) -> io::Result<Self> {
        fs::create_dir_all(&dir)?;
        let mut volume = Self { dir, version: 0 };
        volume.publish(token)?;
        symlink("..data/token", volume.token_path())?;
        Ok(volume)
    }

    /// The path that a pod names.
    #[must_use]
    pub(super) fn token_path(&self) -> PathBuf {
        self.dir.join("token")
    }

    /// How often the token was replaced since the first.
    #[must_use]
    pub(super) fn rotations(&self) -> u64 {
        self.version - 1
    }

    /// Replaces the token in one step.
    ///
    /// # Errors
    /// What the file system says; the old token is then still there.
    pub(super) fn publish(&mut self, token: &str) -> io::Result<()> {
        let old = self.version_dir(self.version);
        self.version += 1;
        let new = self.version_dir(self.version);
        fs::create_dir(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o755))?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .open(new.join("token"))?
            .write_all(token.as_bytes())?;
        let swap = self.dir.join("..data_tmp");
        symlink(new.file_name().unwrap_or_default(), &swap)?;
        fs::rename(&swap, self.dir.join("..data"))?;
        remove_if_there(&old)
    }

    fn version_dir(&self, version: u64) -> PathBuf {
        self.dir.join(format!("..version_{version:06}"))
    }
}

fn remove_if_there(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_swapped_whole_and_the_old_version_goes() {
        let scratch = tempfile::tempdir().unwrap();
        let mut volume = ProjectedVolume::create(scratch.path().join("sa"), "first").unwrap();
        let read = |v: &ProjectedVolume| fs::read_to_string(v.token_path()).unwrap();
        assert_eq!((read(&volume).as_str(), volume.rotations()), ("first", 0));
        let open = fs::File::open(volume.token_path()).unwrap();
        volume.publish("second").unwrap();
        assert_eq!((read(&volume).as_str(), volume.rotations()), ("second", 1));
        assert_eq!(
            io::read_to_string(open).unwrap(),
            "first",
            "a reader keeps what it opened"
        );
        let names: Vec<_> = fs::read_dir(scratch.path().join("sa"))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(names.len(), 3, "{names:?}: ..data, its version, token");
    }
}
