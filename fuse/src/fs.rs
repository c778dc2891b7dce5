//! The file system: one verb family a file, over the parts that this one holds.
//!
//! Verbs come in two forms. `try_` ones answer at once, from memory, or not at all, and may be called from any thread:
//! a hop to the runtime costs more than most answers. The others run on the runtime. Those that change something must
//! not be dropped half-way: run them in a task of their own. Every call of the store in them has a deadline.
//!
//! How many of them run at a time is for the kernel to bound: it has at most `max_background` requests of its own
//! under way, and one of each thread that waits.

mod attr;
mod config;
mod create;
mod dir;
mod figures;
mod lookup;
mod open;
mod read;
mod rename;
mod setattr;
mod statfs;
mod unlink;
mod write;
mod xattr;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gcsmount_cache::BlockCache;
use gcsmount_gcs::{Object, ObjectName, Store};
use nix::errno::Errno;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::errno::{Error, Result};
use crate::handle::writer::{Recovered, Workshop, WorkshopConfig, Writer};
use crate::inode::{Ino, Outdated, Table};
use crate::names;
use crate::version;

pub use attr::{Attr, Entry, Kind};
pub use config::FsConfig;
pub use dir::EntrySink;
pub use open::{Access, OpenFlags, Opened};
pub use rename::RenameMode;
pub use setattr::SetAttr;
pub use statfs::Statfs;
pub use xattr::SetXattr;

/// Number of an open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fh(pub u64);

/// A bucket as a file system, with no kernel in it.
///
/// Lock order: a writer's state, then `table`, then `files` or `dirs`, then a handle's own; none of the last four is
/// held across a call.
#[derive(Debug)]
pub struct Fs {
    config: FsConfig,
    store: Arc<dyn Store>,
    workshop: Arc<Workshop>,
    runtime: Handle,
    /// What every object name of this mount begins with: empty, or ending with a slash.
    root_prefix: String,
    /// What stands for the times of things that have none.
    born: SystemTime,
    table: Mutex<Table>,
    files: Mutex<HashMap<Fh, Arc<open::OpenFile>>>,
    dirs: Mutex<HashMap<Fh, Arc<dir::OpenDir>>>,
    next_fh: AtomicU64,
}

/// A file whose last writes are not in the bucket.
#[derive(Debug, Clone)]
pub struct Unsaved {
    /// Where it is in the mount.
    pub path: String,
    /// Why it could not be stored.
    pub error: Error,
}

/// A name in a directory, and the object that it stands for.
#[derive(Debug, Clone)]
struct Place {
    /// The entry's name.
    name: Arc<str>,
    /// The object's full name.
    object: String,
}

impl Fs {
    /// A file system over `store`, with blocks in `cache` and network work on `runtime`.
    #[must_use]
    pub fn new(
        config: FsConfig,
        store: Arc<dyn Store>,
        cache: Arc<BlockCache>,
        runtime: Handle,
    ) -> Arc<Self> {
        let root_prefix = match config.only_dir.as_deref().map(|dir| dir.trim_matches('/')) {
            None | Some("") => String::new(),
            Some(dir) => format!("{dir}/"),
        };
        // Unique among the mounts of a bucket, so that two never use one name for different tails or parts.
        let mount = rand::random::<u64>();
        let workshop = WorkshopConfig {
            buffer_limit: config.buffer_limit,
            max_streams: config.max_streams,
            temp_dir: config.temp_dir.clone(),
            staging_limit: config.staging_limit,
            staging_name: config.staging_name.clone(),
            hidden: format!("{root_prefix}{}/{mount:016x}/", names::HIDDEN_DIR),
            parts: config.parts,
            deadline: config.deadline,
            observer: config.observer.clone(),
        };
        Arc::new(Self {
            table: Mutex::new(Table::new(config.ttl, config.known_names)),
            workshop: Workshop::new(store.clone(), cache, runtime.clone(), workshop),
            config,
            store,
            runtime,
            root_prefix,
            born: SystemTime::now(),
            files: Mutex::default(),
            dirs: Mutex::default(),
            next_fh: AtomicU64::new(1),
        })
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &FsConfig {
        &self.config
    }

    /// Where the verbs run.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Where inodes are announced whose attributes and pages the kernel should drop: what it was told of them is not so
    /// any more. To be served by a thread that answers no request, since the kernel waits for pages in that. There is one
    /// to take; it ends when the file system is gone.
    #[must_use]
    pub fn announcements(&self) -> Option<Receiver<Outdated>> {
        self.table.lock().announcements()
    }

    /// Open files and directories. The kernel closes them some time after the last close(2) has returned.
    #[must_use]
    pub fn open_handles(&self) -> usize {
        self.files.lock().len() + self.dirs.lock().len()
    }

    /// Finishes what another process has left behind under [`FsConfig::staging_name`], one file after the other, and tells
    /// what became of each; the log has it too. To be called once, when the store has answered. Files may be opened
    /// meanwhile; of those that it finishes, names and attributes that are known already are believed until their time is
    /// over.
    ///
    /// What was sealed by a flush or fsync is published if the generation that it was to replace still is the live one. All
    /// else is set aside in a directory `lost+found`: it is neither published nor deleted.
    pub async fn recover(&self) -> Vec<Recovered> {
        self.workshop.recover().await
    }

    /// Publishes every file that has unpublished writes, and returns those that could not be, `deadline` from now at
    /// the latest. What is written while it runs is not waited for.
    pub async fn drain(self: &Arc<Self>, deadline: Duration) -> Vec<Unsaved> {
        let end = tokio::time::Instant::now() + deadline;
        let mut running: FuturesUnordered<_> = self
            .dirty()
            .into_iter()
            .map(|(ino, path, writer)| {
                let fs = self.clone();
                let task = self
                    .runtime
                    .spawn(async move { fs.publish(ino, &writer).await });
                async move {
                    // A publication that is late goes on; its outcome does not count any more.
                    let result = match tokio::time::timeout_at(end, task).await {
                        Ok(Ok(result)) => result,
                        Ok(Err(_)) => Err(Error::of(Errno::EIO)),
                        Err(_) => Err(Error::of(Errno::ETIMEDOUT)),
                    };
                    result.err().map(|error| Unsaved { path, error })
                }
            })
            .collect();
        let mut unsaved = Vec::new();
        while let Some(outcome) = running.next().await {
            unsaved.extend(outcome);
        }
        // What is not cleared away by then stays.
        let _ = tokio::time::timeout_at(end, self.workshop.remove_leftovers()).await;
        unsaved
    }

    /// Files that have a name and unpublished writes.
    fn dirty(&self) -> Vec<(Ino, String, Arc<Writer>)> {
        let table = self.table.lock();
        table
            .iter()
            .filter_map(|inode| {
                let writer = inode.file()?.writer.clone()?;
                let view = writer.view();
                // The writer keeps its name where others have deleted the file.
                view.name.as_ref()?;
                let path = table.path(inode.ino)?.join("/");
                (view.dirty || view.failed).then_some((inode.ino, path, writer))
            })
            .collect()
    }

    /// Publishes what a writer has, and takes in the result.
    async fn publish(&self, ino: Ino, writer: &Writer) -> Result<()> {
        let result = writer.publish().await;
        self.adopt(ino, writer);
        if result.is_err() {
            // Whoever opens the file next has to find what there is.
            self.table.lock().outdate(ino);
        }
        result.map(drop)
    }

    /// Takes in the generation that a writer has made, if it has made one. The base of a publication that has failed is
    /// what somebody else has replaced.
    fn adopt(&self, ino: Ino, writer: &Writer) {
        let view = writer.view();
        match view.base {
            Some(base) if !view.failed => self.set_object(ino, base),
            // A new file could not be put where it was thought that there is none: there may be one.
            None if view.failed => {
                let mut table = self.table.lock();
                let parent = table.get(ino).map(|inode| inode.parent);
                parent.inspect(|parent| table.doubt_absence(*parent));
            }
            Some(_) | None => {}
        }
    }

    /// Takes in what this mount has made of a file's object, unless something newer is known. Open readers go on with it.
    fn set_object(&self, ino: Ino, object: Arc<Object>) {
        let mut table = self.table.lock();
        let Some(inode) = table.get_mut(ino) else {
            return;
        };
        let Some(file) = inode.file_mut() else {
            return;
        };
        let have = file.object.as_deref();
        if have.is_some_and(|have| have == &*object || version::is_older(&object, have)) {
            return;
        }
        let same = have.is_some_and(|h| h.generation == object.generation && h.name == object.name);
        file.object = Some(object);
        inode.checked = Some(tokio::time::Instant::now());
        if !same {
            self.repoint(ino);
        }
    }

    /// Lets the open readers of a file find its new object.
    fn repoint(&self, ino: Ino) {
        let files = self.files.lock();
        for file in files.values().filter(|file| file.ino == ino) {
            *file.reader.lock() = None;
        }
    }

    fn next_fh(&self) -> Fh {
        Fh(self.next_fh.fetch_add(1, Ordering::Relaxed))
    }

    /// The prefix of the names in a directory.
    fn prefix(&self, table: &Table, dir: Ino) -> Result<String> {
        let inode = table.get(dir).ok_or(Error::of(Errno::ESTALE))?;
        inode.dir().ok_or(Error::of(Errno::ENOTDIR))?;
        let parts = table.path(dir).ok_or(Error::of(Errno::ESTALE))?;
        let mut prefix = self.root_prefix.clone();
        for part in parts {
            prefix.push_str(&part);
            prefix.push('/');
        }
        Ok(prefix)
    }

    /// The full name of the object that an entry stands for.
    fn object_path(&self, table: &Table, parent: Ino, name: &str) -> Result<String> {
        let mut path = self.prefix(table, parent)?;
        path.push_str(names::object_part(name).0);
        Ok(path)
    }

    /// A name that the kernel asks about.
    fn place(&self, table: &Table, parent: Ino, name: &OsStr) -> Result<Place> {
        if name.len() > names::NAME_MAX {
            return Err(Error::of(Errno::ENAMETOOLONG));
        }
        let name = names::asked(name).ok_or(Error::of(Errno::ENOENT))?;
        if parent == Ino::ROOT && name == names::HIDDEN_DIR {
            return Err(Error::of(Errno::ENOENT));
        }
        Ok(Place {
            name: name.into(),
            object: self.object_path(table, parent, name)?,
        })
    }

    /// A name that is to be made: the entry, and the object name with `tail` behind it.
    fn new_place(
        &self,
        table: &Table,
        parent: Ino,
        name: &OsStr,
        tail: &str,
    ) -> Result<(Arc<str>, ObjectName)> {
        let prefix = self.prefix(table, parent)?;
        if table.get(parent).is_none_or(|dir| !dir.linked) {
            return Err(Error::of(Errno::ENOENT));
        }
        let root = parent == Ino::ROOT;
        let name = names::creatable(&prefix, root, name, !tail.is_empty()).map_err(Error::of)?;
        let object = ObjectName::parse(format!("{prefix}{name}{tail}"))
            .map_err(|_| Error::of(Errno::EINVAL))?;
        Ok((name.into(), object))
    }
}

#[cfg(test)]
mod tests;
