//! What the kernel is told of an inode.

use std::time::{Duration, SystemTime};

use gcsmount_gcs::Object;

use crate::handle::writer::View;
use crate::inode::{Body, Dir, Ino, Inode};
use crate::metadata::{Edits, Posix};
use crate::{metadata, version};

use super::Fs;

/// Type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
}

/// Attributes in the sense of stat(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Type.
    pub kind: Kind,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last modification, which serves as the time of change too.
    pub mtime: SystemTime,
    /// Time of the last access that somebody set; else that of the last modification.
    pub atime: SystemTime,
    /// Permission bits.
    pub perm: u16,
    /// 1 while it has a name. Directories have 1 too, which tells `find` not to count subdirectories by it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A node as an answer to a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its attributes.
    pub attr: Attr,
    /// Generation of the inode number.
    pub generation: u64,
    /// How long the kernel may believe name and attributes.
    pub ttl: Duration,
}

/// Whether a writer knows better what its file is than `object`, which the store has told of: not where others have
/// replaced what it has published, nor where it could not publish.
pub(super) fn tells_more(view: &View, object: Option<&Object>) -> bool {
    let Some(object) = object else {
        return true;
    };
    let base = view.base.as_deref();
    let replaced = base.is_some_and(|base| version::is_older(base, object));
    !view.failed && (view.dirty || !replaced)
}

impl Fs {
    pub(super) fn attr_of(&self, inode: &Inode) -> Attr {
        let none = Edits::default();
        let said = |object: Option<&Object>, edits: &Edits| self.said_of(object, edits);
        let (kind, size, mtime, posix) = match &inode.body {
            Body::Dir(dir) => {
                let posix = said(dir.placeholder.as_deref(), &dir.edits);
                (Kind::Dir, 0, self.mtime_of(dir), posix)
            }
            Body::File(file) => match (file.writer.as_ref().map(|w| w.view()), &file.object) {
                (Some(view), object) if tells_more(&view, object.as_deref()) => {
                    let posix = said(view.base.as_deref(), &view.edits);
                    (Kind::File, view.size, view.mtime, posix)
                }
                (_, Some(object)) => {
                    let kind = match metadata::is_symlink(object) {
                        true => Kind::Symlink,
                        false => Kind::File,
                    };
                    let posix = said(Some(object), &none);
                    (kind, object.size, metadata::mtime(object), posix)
                }
                (_, None) => (Kind::File, 0, self.born, Posix::default()),
            },
        };
        let perm = match kind {
            Kind::Dir => posix.mode.unwrap_or(self.config.dir_mode),
            Kind::File => posix.mode.unwrap_or(self.config.file_mode),
            Kind::Symlink => 0o777,
        };
        Attr {
            ino: inode.ino,
            kind,
            size,
            mtime,
            atime: posix.atime.unwrap_or(mtime),
            perm,
            links: u32::from(inode.linked),
            uid: posix.uid.unwrap_or(self.config.uid),
            gid: posix.gid.unwrap_or(self.config.gid),
        }
    }

    fn mtime_of(&self, dir: &Dir) -> SystemTime {
        let asked = self.config.posix_attributes && !dir.mtime_known;
        let placeholder = dir.placeholder.as_deref().filter(|_| asked);
        let recorded = placeholder.and_then(metadata::recorded_mtime);
        recorded.unwrap_or(dir.mtime)
    }

    /// What is kept with an object, as it will be with `edits`.
    fn said_of(&self, object: Option<&Object>, edits: &Edits) -> Posix {
        if !self.config.posix_attributes {
            return Posix::default();
        }
        let said = object.map(|object| &object.attributes.metadata);
        Posix::from_keys(|key| match edits.metadata.get(key) {
            Some(edited) => edited.as_deref(),
            None => said?.get(key).map(String::as_str),
        })
    }

    /// How long the kernel may believe what is said of this inode.
    ///
    /// While it has a writer its length can change from other descriptors, whose writes the kernel sees itself; but a
    /// publication that fails, and appends, are known here only.
    pub(super) fn ttl_of(&self, inode: &Inode) -> Duration {
        let Some(checked) = inode.checked.filter(|_| !inode.has_writer()) else {
            return Duration::ZERO;
        };
        match inode.dir() {
            Some(_) => self.config.ttl,
            None => self.config.ttl.saturating_sub(checked.elapsed()),
        }
    }

    pub(super) fn entry_of(&self, inode: &Inode) -> Entry {
        Entry {
            attr: self.attr_of(inode),
            generation: inode.generation,
            ttl: self.ttl_of(inode),
        }
    }
}
