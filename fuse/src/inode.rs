//! What the kernel, open handles and recent listings know of the tree.
//!
//! The table has one inode for every number that the kernel may ask about: one that it holds lookups of, one that is
//! open, and every directory above those. An inode knows its parent and its name in it, so the name of an object is
//! found by walking up, and a renamed directory takes its subtree along. Names that are known but have no inode are
//! kept aside, up to a bound; a name is in one of the two places only, so that they cannot disagree.
//!
//! Inode numbers are derived from the parent's and the name, so that a name that was forgotten and is found again has
//! its old number. A number is given to another inode only after the kernel has forgotten the first, under another
//! generation. See "forget" in the kernel's `Documentation/filesystems/fuse`.

mod known;
mod table;

use std::sync::Arc;
use std::time::SystemTime;

use gcsmount_gcs::{Generation, Object};
use tokio::time::Instant;

use crate::handle::writer::Writer;
use crate::metadata::Edits;
use known::Known;

pub use table::{Found, Outdated, Table};

/// Number of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ino(pub u64);

impl Ino {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}

/// One node of the tree.
#[derive(Debug)]
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// Told to the kernel with the number; no two inodes of a table have both in common.
    pub generation: u64,
    /// The directory that it is in, or was in before it was unlinked.
    pub parent: Ino,
    /// Its name there.
    pub name: Arc<str>,
    /// Whether it is in that directory still.
    pub linked: bool,
    /// What it is.
    pub body: Body,
    /// When the store last confirmed what the body says; `None`: it has to be asked.
    pub checked: Option<Instant>,
    /// References that the kernel holds.
    lookups: u64,
    /// Open handles.
    opens: u64,
    /// Linked inodes below it.
    children: u64,
}

/// What an inode is.
#[derive(Debug)]
pub enum Body {
    /// A directory.
    Dir(Dir),
    /// A file or a symbolic link.
    File(File),
}

/// A directory.
#[derive(Debug)]
pub struct Dir {
    /// When a name in it last changed through this mount, or what somebody set; else when it was met.
    pub mtime: SystemTime,
    /// Whether that is more than when it was met.
    pub mtime_known: bool,
    /// The object `name/`, where it was met.
    pub placeholder: Option<Arc<Object>>,
    /// When the store last said that there is none.
    pub bare: Option<Instant>,
    /// What was said of a directory that has no such object: nowhere but here.
    pub edits: Edits,
    /// Counts those changes: what the store said before one of them may be out of date after it.
    pub changes: u64,
    /// When a complete listing was begun, if one was finished and every name of it is still known.
    listed: Option<Instant>,
    /// Under which key its names are kept aside. Never used twice.
    shelf: u64,
}

/// A file or a symbolic link.
#[derive(Debug, Default)]
pub struct File {
    /// The published content; `None` for a file that has never been published.
    pub object: Option<Arc<Object>>,
    /// What was written and may not be published yet, while somebody has it open for writing.
    pub writer: Option<Arc<Writer>>,
    /// Handles that keep the writer.
    pub writers: u64,
    /// What the kernel's page cache holds, if anything: the content that was last opened for reading.
    pub cached: Option<Generation>,
}

impl File {
    /// Whether there is content that the store does not have, and may still get.
    fn has_unpublished(&self) -> bool {
        let view = self.writer.as_ref().map(|writer| writer.view());
        view.is_some_and(|view| view.dirty && !view.failed)
    }
}

impl Inode {
    /// The directory, if it is one.
    #[must_use]
    pub fn dir(&self) -> Option<&Dir> {
        match &self.body {
            Body::Dir(dir) => Some(dir),
            Body::File(_) => None,
        }
    }

    /// The directory, if it is one.
    #[must_use]
    pub fn dir_mut(&mut self) -> Option<&mut Dir> {
        match &mut self.body {
            Body::Dir(dir) => Some(dir),
            Body::File(_) => None,
        }
    }

    /// The file, if it is one.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        match &self.body {
            Body::File(file) => Some(file),
            Body::Dir(_) => None,
        }
    }

    /// The file, if it is one.
    #[must_use]
    pub fn file_mut(&mut self) -> Option<&mut File> {
        match &mut self.body {
            Body::File(file) => Some(file),
            Body::Dir(_) => None,
        }
    }

    /// Whether only this mount knows of it: a file that has not been published yet.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.file().is_some_and(|file| file.object.is_none())
    }

    /// Whether somebody has it open for writing, whose last publication has not failed.
    #[must_use]
    pub fn has_writer(&self) -> bool {
        let writer = self.file().and_then(|file| file.writer.as_ref());
        writer.is_some_and(|writer| !writer.view().failed)
    }

    /// Whether a writer knows better than the store what it is: one that has something unpublished. One whose
    /// publication has failed does not.
    #[must_use]
    pub fn has_unpublished(&self) -> bool {
        self.file().is_some_and(File::has_unpublished)
    }

    fn is_unused(&self) -> bool {
        self.lookups == 0 && self.opens == 0 && self.children == 0 && self.ino != Ino::ROOT
    }
}

#[cfg(test)]
mod tests;
