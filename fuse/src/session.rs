//! A mount and the threads that serve it.
//!
//! [`mount`] gets a FUSE descriptor (by mount(2) as root, through `fusermount3` else, or as one that was passed in),
//! answers the kernel's first request and leaves the serving to a few threads. It unmounts only the mount that it made,
//! known by its id in `/proc/self/mountinfo`, and never the one that somebody else has put in the same place since.
//! A descriptor that was passed in is mounted and unmounted by whoever passed it.

mod device;
mod mountinfo;
mod options;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::adapter::Adapter;
use crate::fs::Fs;
use crate::inode::Outdated;

/// Type and subtype that `mount` and `/proc/self/mountinfo` show.
const FS_TYPE: &str = "fuse.gcsmount";
const SUBTYPE: &str = "gcsmount";

/// How long dropping a [`Mounted`] waits for its threads. They end when the last user of the mount does, which may be never.
const JOIN_ON_DROP: Duration = Duration::from_secs(2);

/// Where the kernel's requests come from.
#[derive(Debug)]
pub enum MountPoint {
    /// A directory of this mount namespace to mount on.
    Dir(PathBuf),
    /// A descriptor of `/dev/fuse` that is mounted already; its mount belongs to whoever made it.
    Fd(OwnedFd),
}

impl MountPoint {
    /// Reads a mount point as a person or a CSI node driver writes it: a directory, or `/dev/fd/N`.
    ///
    /// `/dev/fd/N` is taken over here, and by nobody else: passed on as a path it would lead to `/dev/fuse` itself.
    ///
    /// # Errors
    /// [`Error::Descriptor`] where N is not an open FUSE device.
    pub fn parse(path: &Path) -> Result<Self, Error> {
        match device::passed_number(path) {
            Some(number) => device::take_passed(number).map(Self::Fd),
            None => Ok(Self::Dir(path.to_owned())),
        }
    }

    /// Finds out early what would keep [`mount`] from using it: the directory, or the right to `/dev/fuse`.
    ///
    /// # Errors
    /// As [`mount`].
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Self::Dir(dir) => check_dir(dir).and_then(|_| check_device()),
            Self::Fd(_) => Ok(()),
        }
    }
}

/// How to mount. The options concern [`MountPoint::Dir`] only, but for `threads`: a passed descriptor is mounted already.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Let users besides the mounting one in. The kernel enforces it, and `fusermount3` demands `user_allow_other`.
    pub allow_other: bool,
    /// Mount read-only.
    pub read_only: bool,
    /// First column of `mount`: the bucket's name. Commas, backslashes and control characters are refused.
    pub fs_name: String,
    /// Further mount options, one each, such as `noexec` or `max_read=131072`.
    pub extra: Vec<String>,
    /// Threads that take requests from the kernel: 2 to 4 are of use. Their number does not bound the requests under way.
    pub threads: usize,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            allow_other: false,
            read_only: false,
            fs_name: SUBTYPE.to_owned(),
            extra: Vec::new(),
            threads: 2,
        }
    }
}

/// Why a mount did not come about, or did not end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The mount point does not exist.
    #[error("mount point {} does not exist: create the directory first", .0.display())]
    Missing(PathBuf),
    /// The mount point is a file.
    #[error("mount point {} is not a directory: name one", .0.display())]
    NotADirectory(PathBuf),
    /// A gcsmount is there already.
    #[error("mount point {} already has {source_name} mounted by gcsmount: unmount it first", path.display())]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
        /// What is mounted.
        source_name: String,
    },
    /// The process that served the mount at this place is dead.
    #[error("mount point {} has a mount whose server is gone: run `umount -l` on it", .0.display())]
    Stale(PathBuf),
    /// There is no FUSE on this machine.
    #[error(
        "/dev/fuse does not exist: load the fuse module, or pass the device into the container"
    )]
    NoDevice,
    /// The device is there and not ours to open.
    #[error(
        "/dev/fuse cannot be opened: its mode is {mode:04o}, and mounting needs read and write; run as root, or let this user do both"
    )]
    DeviceDenied {
        /// Permission bits of the device.
        mode: u32,
    },
    /// Not root and no helper.
    #[error("mounting without root needs fusermount3, which is not installed (package fuse3)")]
    NoHelper,
    /// The helper refused.
    #[error("fusermount3: {said}")]
    Helper {
        /// Its own words.
        said: String,
    },
    /// A mount option that cannot be passed on.
    #[error("mount option {option:?}: {why}")]
    Option {
        /// The option.
        option: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// `/dev/fd/N` is nothing that can be served.
    #[error("/dev/fd/{number}: {why}")]
    Descriptor {
        /// N.
        number: i32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// mount(2) refused.
    #[error("mounting on {}: {source}", path.display())]
    Mount {
        /// The mount point.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Another mount covers ours, which therefore cannot be unmounted.
    #[error("another mount covers {}: unmount that one first", .0.display())]
    Covered(PathBuf),
    /// The kernel and we did not come to terms, or a thread could not be started.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it did not work.
        source: io::Error,
    },
}

/// Mounts `fs` and serves it until it is unmounted, by whomever.
///
/// # Errors
/// Every [`Error`]; nothing stays mounted then.
pub fn mount(fs: Arc<Fs>, at: MountPoint, options: &MountOptions) -> Result<Mounted, Error> {
    let (descriptor, unmounter) = match at {
        MountPoint::Fd(descriptor) => (descriptor, Unmounter::default()),
        MountPoint::Dir(dir) => {
            let prepared = options::prepare(options)?;
            let dir = check_dir(&dir)?;
            let descriptor = device::mount(&dir, &prepared)?;
            (descriptor, Unmounter::of_mount_at(&dir))
        }
    };
    serve(fs, descriptor, options.threads, unmounter.clone()).inspect_err(|_| {
        // The descriptor is closed by now; what is left is a dead mount.
        if let Err(error) = unmounter.unmount() {
            tracing::error!(%error, "a failed mount stays in place");
        }
    })
}

/// Finds out whether this process may open `/dev/fuse`.
///
/// # Errors
/// [`Error::NoDevice`], [`Error::DeviceDenied`].
pub fn check_device() -> Result<(), Error> {
    device::check()
}

/// Finds out what is wrong with a mount point, without touching a mount that may not answer.
fn check_dir(dir: &Path) -> Result<PathBuf, Error> {
    let io = |what| move |source| Error::Io { what, source };
    let named = mountinfo::lexical(dir).map_err(io("resolving the mount point"))?;
    refuse_mounted(&named)?;
    let metadata = std::fs::metadata(&named).map_err(|source| {
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => Error::Missing(named.clone()),
            Some(Errno::ENOTCONN) => Error::Stale(named.clone()),
            _ => Error::Io {
                what: "looking at the mount point",
                source,
            },
        }
    })?;
    if !metadata.is_dir() {
        return Err(Error::NotADirectory(named));
    }
    let real = named
        .canonicalize()
        .map_err(io("resolving the mount point"))?;
    refuse_mounted(&real)?;
    Ok(real)
}

fn refuse_mounted(path: &Path) -> Result<(), Error> {
    let mounts = mountinfo::read().map_err(|source| Error::Io {
        what: "reading the list of mounts",
        source,
    })?;
    let Some(mount) = mountinfo::topmost(&mounts, path) else {
        return Ok(());
    };
    if mount.kind != FS_TYPE {
        return Ok(());
    }
    // Only statfs reaches a dead connection's error without going through its cache; a live one answers at once.
    let dead = matches!(nix::sys::statvfs::statvfs(path), Err(Errno::ENOTCONN));
    Err(if dead {
        Error::Stale(path.to_owned())
    } else {
        Error::AlreadyMounted {
            path: path.to_owned(),
            source_name: mount.source.clone(),
        }
    })
}

fn serve(
    fs: Arc<Fs>,
    descriptor: OwnedFd,
    threads: usize,
    unmounter: Unmounter,
) -> Result<Mounted, Error> {
    let io = |what| move |source| Error::Io { what, source };
    let mut config = fuser::Config::default();
    config.n_threads = Some(threads.max(1));
    // Cloning would open /dev/fuse by path, which a sidecar may not; the kernel, not this process, checks who may enter.
    config.clone_fd = false;
    let acl = fuser::SessionACL::All;
    let announcements = fs.announcements();
    let session = fuser::Session::from_fd(Adapter::new(fs), descriptor, acl, config)
        .map_err(io("answering the kernel's first request"))?;
    let notifier = Arc::new(Mutex::new(Some(session.notifier())));
    if let Some(announcements) = announcements {
        std::thread::Builder::new()
            .name("gcsmount-notify".into())
            .spawn({
                let notifier = notifier.clone();
                move || notify(&announcements, &notifier)
            })
            .map_err(io("starting the notifier"))?;
    }
    let (ended, _) = watch::channel(false);
    let (ending, gone) = (ended.clone(), unmounter.clone());
    let thread = std::thread::Builder::new()
        .name("gcsmount-session".into())
        .spawn(move || {
            let result = session.run();
            match &result {
                Ok(()) => gone.note_gone(),
                // The mount is there still, and has to be taken away.
                Err(error) => tracing::error!(%error, "the FUSE session broke off"),
            }
            // The last descriptor goes, so that whoever is still inside gets ENOTCONN instead of waiting.
            *notifier.lock() = None;
            ending.send_replace(true);
            result
        })
        .map_err(io("starting the session"))?;
    Ok(Mounted {
        unmounter,
        ended,
        thread: Mutex::new(Some(thread)),
    })
}

/// A negative offset tells the kernel to forget the attributes and to keep the pages (`FUSE_NOTIFY_INVAL_INODE`).
const ATTRIBUTES_ONLY: i64 = -1;

/// Passes on what the kernel should forget, until the file system or the mount is gone.
fn notify(announcements: &Receiver<Outdated>, notifier: &Mutex<Option<fuser::Notifier>>) {
    while let Ok(Outdated { ino, pages }) = announcements.recv() {
        let notifier = notifier.lock();
        let Some(notifier) = &*notifier else { return };
        let from = if pages { 0 } else { ATTRIBUTES_ONLY };
        if let Err(error) = notifier.inval_inode(fuser::INodeNo(ino.0), from, 0) {
            tracing::debug!(%error, "the kernel takes no more notifications");
            return;
        }
    }
}

/// A mount that is being served. Dropping it unmounts; one that was passed in goes on until its owner unmounts it.
#[derive(Debug)]
pub struct Mounted {
    unmounter: Unmounter,
    ended: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Mounted {
    /// A handle that can unmount from elsewhere, such as a signal handler's task.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Unmounts; see [`Unmounter::unmount`].
    ///
    /// # Errors
    /// As [`Unmounter::unmount`].
    pub fn unmount(&self) -> Result<(), Error> {
        self.unmounter.unmount()
    }

    /// Returns when the session has ended: the mount is gone, and so is every copy of it in other mount namespaces.
    /// Cancel safe.
    pub async fn wait(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as `self`, so the channel cannot close under the wait.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Whether the session has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Blocks until the session has ended and its threads are gone.
    ///
    /// # Errors
    /// What broke the session off, if it was not an unmount.
    pub fn join(&self) -> io::Result<()> {
        let Some(thread) = self.thread.lock().take() else {
            return Ok(());
        };
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the session's thread panicked")))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::error!(%error, "a mount stays in place");
        }
        // A mount that was passed in goes when its owner unmounts it, which may be long after this process.
        if self.unmounter.0.is_none() {
            return;
        }
        let Some(thread) = self.thread.lock().take() else {
            return;
        };
        // A joiner thread turns the wait for the session into one with a limit.
        let (done, joined) = std::sync::mpsc::channel();
        let joiner = std::thread::Builder::new()
            .name("gcsmount-join".into())
            .spawn(move || {
                let _ = thread.join();
                let _ = done.send(());
            });
        if joiner.is_ok() && joined.recv_timeout(JOIN_ON_DROP).is_err() {
            tracing::warn!(
                "the mount is still in use somewhere; its session is left to end by itself, or with the process"
            );
        }
    }
}

/// Unmounts one mount, once.
#[derive(Debug, Clone, Default)]
pub struct Unmounter(Option<Arc<Ours>>);

#[derive(Debug)]
struct Ours {
    mount: mountinfo::Mount,
    /// Set once it is known to be gone. Its id and its device number may be another mount's from then on.
    gone: AtomicBool,
}

impl Unmounter {
    fn of_mount_at(dir: &Path) -> Self {
        let mounts = mountinfo::read().unwrap_or_default();
        let ours = mountinfo::topmost(&mounts, dir).filter(|mount| mount.kind == FS_TYPE);
        if ours.is_none() {
            tracing::warn!(dir = %dir.display(), "the new mount is not in the list of mounts; it cannot be unmounted from here");
        }
        Self(ours.cloned().map(|mount| {
            Arc::new(Ours {
                mount,
                gone: AtomicBool::new(false),
            })
        }))
    }

    fn note_gone(&self) {
        if let Some(ours) = &self.0 {
            ours.gone.store(true, Ordering::Release);
        }
    }

    /// Takes the mount away: at once for everyone who looks for it, and for those who are inside as soon as they leave.
    /// Does nothing where it is gone already, or where it was passed in. Does not wait for anybody; call it from a
    /// thread that serves no request.
    ///
    /// # Errors
    /// [`Error::Covered`]; the kernel's or the helper's refusal.
    pub fn unmount(&self) -> Result<(), Error> {
        let Some(ours) = self.0.as_ref().filter(|o| !o.gone.load(Ordering::Acquire)) else {
            return Ok(());
        };
        let mounts = mountinfo::read().map_err(|source| Error::Io {
            what: "reading the list of mounts",
            source,
        })?;
        // The kernel reuses ids and device numbers; the place tells a stranger with the same ones apart.
        let Some(now) = mounts.iter().find(|mount| **mount == ours.mount) else {
            self.note_gone();
            return Ok(());
        };
        if mountinfo::topmost(&mounts, &now.point).map(|m| m.id) != Some(now.id) {
            return Err(Error::Covered(now.point.clone()));
        }
        match umount2(&now.point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            // EINVAL: gone between the look and the call.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(Errno::EPERM) => device::unmount_with_helper(&now.point)?,
            Err(errno) => {
                return Err(Error::Io {
                    what: "unmounting",
                    source: errno.into(),
                });
            }
        }
        self.note_gone();
        Ok(())
    }
}
