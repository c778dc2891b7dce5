//! Names and places: the directory that driver and sidecar share, its files, and the well-known names of containers,
//! pod volumes and mount paths.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

/// The sidecar's container name; it stands among the containers or the init containers of the pod.
pub const SIDECAR_CONTAINER: &str = "gke-gcsfuse-sidecar";
/// The container that lists a bucket once so that its metadata is cached.
pub const PREFETCH_CONTAINER: &str = "gke-gcsfuse-metadata-prefetch";
/// The container of a mounter pod, which serves a mount to several pods of a node.
pub const MOUNTER_CONTAINER: &str = "gcsfusecsi-mount";
/// The user and group that the sidecar runs as; the driver gives its sockets to them.
pub const SIDECAR_UID: u32 = 65534;

/// The pod volume that driver and sidecar share.
pub const TMP_VOLUME: &str = "gke-gcsfuse-tmp";
/// Where the sidecar has [`TMP_VOLUME`].
pub const TMP_PATH: &str = "/gcsfuse-tmp";
/// The pod volume for data on its way up.
pub const BUFFER_VOLUME: &str = "gke-gcsfuse-buffer";
/// Where the sidecar has [`BUFFER_VOLUME`].
pub const BUFFER_PATH: &str = "/gcsfuse-buffer";
/// The pod volume for cached data.
pub const CACHE_VOLUME: &str = "gke-gcsfuse-cache";
/// Where the sidecar has [`CACHE_VOLUME`].
pub const CACHE_PATH: &str = "/gcsfuse-cache";
/// Where a cache in memory is, if the driver chose one.
pub const RAM_CACHE_PATH: &str = "/gcsfuse-file-cache-ram-disk";
/// Where a cache on a local disk is, if the driver chose one.
pub const DISK_CACHE_PATH: &str = "/gcsfuse-file-cache-ephemeral-disk";
/// The pod volume with the projected service-account token of a pod with `hostNetwork`.
pub const TOKEN_VOLUME: &str = "gcsfuse-sa-token";
/// The projected token itself.
pub const TOKEN_FILE: &str = "/gcsfuse-sa-token/token";
/// The environment variable that is `TRUE` in a native sidecar, one among the init containers.
pub const NATIVE_SIDECAR_ENV: &str = "NATIVE_SIDECAR";
/// The directory of volumes, as the sidecar sees it.
pub const DEFAULT_BASE: &str = "/gcsfuse-tmp/.volumes";

/// Where the volumes of one kind of data are below a mount path: `/gcsfuse-buffer` to `/gcsfuse-buffer/.volumes`.
const VOLUMES: &str = ".volumes";

/// How many volumes are looked at; far more than a pod can have, since other containers can make directories too.
pub const MAX_VOLUMES: usize = 1024;

/// The directory with one directory for each volume, [`DEFAULT_BASE`] unless told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base(pub PathBuf);

impl Default for Base {
    fn default() -> Self {
        Self(DEFAULT_BASE.into())
    }
}

impl Base {
    /// The file by which the driver tells a regular sidecar that the pod's other containers have ended.
    #[must_use]
    pub fn exit_file(&self) -> PathBuf {
        self.0.join("exit")
    }

    /// The file by which the driver tells what kind of machine this is; see [`crate::defaulting`].
    #[must_use]
    pub fn flags_for_defaulting(&self) -> PathBuf {
        self.0.join("flags-for-defaulting")
    }

    /// The volumes that have a directory by now, by name. Links are not followed, neither here nor at the base, and
    /// names that are not UTF-8 are passed over: no volume of Kubernetes has one.
    ///
    /// # Errors
    /// The base is not a directory, cannot be read, or has more than [`MAX_VOLUMES`] directories. One that is not
    /// there yet is empty.
    pub fn volumes(&self) -> io::Result<Vec<Volume>> {
        match std::fs::symlink_metadata(&self.0) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
        let mut volumes = Vec::new();
        for entry in std::fs::read_dir(&self.0)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if !entry.file_type()?.is_dir() {
                continue;
            }
            if volumes.len() == MAX_VOLUMES {
                return Err(io::Error::other(format!(
                    "{} has more than {MAX_VOLUMES} directories",
                    self.0.display()
                )));
            }
            volumes.push(self.volume(&name));
        }
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(volumes)
    }

    /// The volume called `name`, whether or not it is there.
    #[must_use]
    pub fn volume(&self, name: &str) -> Volume {
        Volume {
            name: name.to_owned(),
            dir: self.0.join(name),
        }
    }
}

/// One volume of the pod and the files of its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The pod volume's name for an ephemeral volume, the persistent volume's name for a claim.
    pub name: String,
    /// The directory that the driver made for it.
    pub dir: PathBuf,
}

impl Volume {
    /// Where the driver listens to hand the descriptor over; its path may be too long for `sun_path`.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// The configuration of a stock gcsfuse.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.dir.join("config.yaml")
    }

    /// The file whose text the driver turns into a gRPC code; see [`crate::status`].
    #[must_use]
    pub fn error(&self) -> PathBuf {
        self.dir.join("error")
    }

    /// Where the driver asks for metrics.
    #[must_use]
    pub fn metrics_socket(&self) -> PathBuf {
        self.dir.join("metrics.sock")
    }

    /// Where a stock gcsfuse asks for access tokens.
    #[must_use]
    pub fn token_socket(&self) -> PathBuf {
        self.dir.join("token.sock")
    }

    /// What the node should tune for this volume; see [`crate::kernel_params`].
    #[must_use]
    pub fn kernel_params(&self) -> PathBuf {
        self.dir.join("kernel-params.json")
    }

    /// The directory for data on its way up: `/gcsfuse-buffer/.volumes/<v>/temp-dir`.
    #[must_use]
    pub fn temp_dir(&self) -> PathBuf {
        self.below(BUFFER_PATH).join("temp-dir")
    }

    /// This volume's directory below the mount path of a cache: `/gcsfuse-cache/.volumes/<v>`.
    #[must_use]
    pub fn below(&self, mount_path: &str) -> PathBuf {
        Path::new(mount_path).join(VOLUMES).join(&self.name)
    }
}

/// Reads a small regular file of the shared directory. Other containers of the pod can write there, so a link is not
/// followed, and a FIFO does not hold the reader up.
pub(crate) fn read_file(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!(
            "{} is not a regular file",
            path.display()
        )));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!(
            "{} has more than {most} bytes",
            path.display()
        )));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_where_sections_2_5_to_3_of_the_hand_off_have_them() {
        let base = Base::default();
        let volume = base.volume("pv-1");
        for (path, expected) in [
            (base.exit_file(), "/gcsfuse-tmp/.volumes/exit"),
            (
                base.flags_for_defaulting(),
                "/gcsfuse-tmp/.volumes/flags-for-defaulting",
            ),
            (volume.socket(), "/gcsfuse-tmp/.volumes/pv-1/socket"),
            (volume.config(), "/gcsfuse-tmp/.volumes/pv-1/config.yaml"),
            (volume.error(), "/gcsfuse-tmp/.volumes/pv-1/error"),
            (
                volume.metrics_socket(),
                "/gcsfuse-tmp/.volumes/pv-1/metrics.sock",
            ),
            (
                volume.token_socket(),
                "/gcsfuse-tmp/.volumes/pv-1/token.sock",
            ),
            (
                volume.kernel_params(),
                "/gcsfuse-tmp/.volumes/pv-1/kernel-params.json",
            ),
            (volume.temp_dir(), "/gcsfuse-buffer/.volumes/pv-1/temp-dir"),
            (volume.below(CACHE_PATH), "/gcsfuse-cache/.volumes/pv-1"),
        ] {
            assert_eq!(path, Path::new(expected));
        }
    }
}
