//! What the composition root decides about a file system.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::handle::writer::PartsConfig;
use crate::observer::Observer;

/// Settings of one file system. [`FsConfig::default`] is what a mount without flags has.
#[derive(Debug, Clone)]
pub struct FsConfig {
    /// Owner of everything.
    pub uid: u32,
    /// Group of everything.
    pub gid: u32,
    /// Permission bits of files and symbolic links' targets; 0644 by default.
    pub file_mode: u16,
    /// Permission bits of directories; 0755 by default.
    pub dir_mode: u16,
    /// Whether permission bits, owner, group and time of access are kept with the objects, in the keys of `gsutil` and
    /// `gcloud storage`; what an object does not say is as above. Off by default.
    pub posix_attributes: bool,
    /// Whether there are extended attributes. On by default, where the kernel does not ask for one before each write.
    pub xattrs: bool,
    /// How long what was learned of an object or a directory is believed, here and in the kernel; 60 s by default.
    pub ttl: Duration,
    /// Show only names below this prefix, as `only-dir` does; without a leading or trailing slash. `None`: the whole bucket.
    pub only_dir: Option<String>,
    /// Where files that are written out of order are staged; the system's temporary directory by default.
    pub temp_dir: PathBuf,
    /// The most bytes staged there at one time; 16 GiB by default. A write beyond gets ENOSPC.
    pub staging_limit: u64,
    /// The directory below [`FsConfig::temp_dir`] in which staged files outlive a crash, for [`crate::Fs::recover`] to
    /// finish. A name that says bucket, identity and mount: only the same mount may have it again. It is made if it is not
    /// there, for this user alone; a second file system of the same name takes another directory beside it. `None`, the
    /// default: staged files are gone when the process is.
    pub staging_name: Option<String>,
    /// The largest new content that is kept in memory until it is published, with one request; a larger one is
    /// streamed or staged. 8 MiB by default.
    pub buffer_limit: usize,
    /// The most files that stream to the store at one time; further ones are staged. 16 by default.
    pub max_streams: usize,
    /// How large files go up in parts side by side, where the bucket lets parts be removed and memory allows it; `None`:
    /// every file is one stream. On by default.
    pub parts: Option<PartsConfig>,
    /// The longest that the kernel waits for an answer, and that one call of the store may take inside a longer
    /// operation (publication, rename of a directory): 130 s by default, which lets the store's own 120 s end and be
    /// resolved first. The caller then gets ETIMEDOUT.
    pub deadline: Duration,
    /// Names and attributes to remember beyond those that the kernel holds; 65,536 by default.
    pub known_names: usize,
    /// Objects asked for in one page of a listing; 5,000 by default, the store's largest.
    pub list_page: u32,
    /// Who counts what is done; nobody by default.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for FsConfig {
    fn default() -> Self {
        Self {
            uid: nix::unistd::getuid().as_raw(),
            gid: nix::unistd::getgid().as_raw(),
            file_mode: 0o644,
            dir_mode: 0o755,
            posix_attributes: false,
            xattrs: true,
            ttl: Duration::from_secs(60),
            only_dir: None,
            temp_dir: std::env::temp_dir(),
            staging_limit: 16 << 30,
            staging_name: None,
            buffer_limit: 8 << 20,
            max_streams: 16,
            parts: Some(PartsConfig::default()),
            deadline: Duration::from_secs(130),
            known_names: 65_536,
            list_page: 5_000,
            observer: None,
        }
    }
}
