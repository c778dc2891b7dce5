//! Results as replies.

use std::ffi::OsStr;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use fuser::{
    FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
};
use tracing::Level;

use super::repeats::Repeats;
use crate::errno::{Error, Result};
use crate::fs::{Attr, Entry, EntrySink, Fh, Kind, Opened};
use crate::inode::Ino;

/// A reply to a request whose result is a `T`.
pub(super) trait Answer<T>: Send + 'static {
    fn ok(self, value: T);
    fn fail(self, errno: fuser::Errno);
}

/// Answers, and logs a failure in its one line.
pub(super) fn answer<T, R: Answer<T>>(op: &'static str, reply: R, result: Result<T>) {
    match result {
        Ok(value) => reply.ok(value),
        Err(error) => {
            log(op, &error);
            reply.fail(fuser::Errno::from_i32(error.errno() as i32));
        }
    }
}

/// Failures that were logged of late, by request, errno and kind.
static LOGGED: LazyLock<Repeats<(&'static str, i32, Option<gcsmount_gcs::Kind>)>> =
    LazyLock::new(Repeats::default);

/// A store that is down fails every request: of those that differ in their subject only, one in a while gets its line,
/// with the count of those that got none.
fn log(op: &'static str, error: &Error) {
    let errno = error.errno();
    let level = error.level();
    if level > Level::WARN {
        tracing::debug!(op, ?errno, %error, "operation failed");
        return;
    }
    let Some(more) = LOGGED.admit((op, errno as i32, error.kind())) else {
        return;
    };
    let and_more = (more > 0).then_some(more);
    if level == Level::ERROR {
        tracing::error!(op, ?errno, %error, and_more, "operation failed");
    } else {
        tracing::warn!(op, ?errno, %error, and_more, "operation failed");
    }
}

macro_rules! answers {
    ($($reply:ty, $value:ty => |$to:ident, $got:ident| $ok:expr;)*) => {$(
        impl Answer<$value> for $reply {
            fn ok(self, $got: $value) {
                let $to = self;
                $ok;
            }

            fn fail(self, errno: fuser::Errno) {
                self.error(errno);
            }
        }
    )*};
}

answers! {
    ReplyEmpty, () => |to, _done| to.ok();
    ReplyData, Bytes => |to, bytes| to.data(&bytes);
    ReplyWrite, u32 => |to, written| to.written(written);
    ReplyEntry, Entry => |to, entry| {
        to.entry(&entry.ttl, &file_attr(&entry.attr), Generation(entry.generation));
    };
    ReplyAttr, (Attr, Duration) => |to, attr| to.attr(&attr.1, &file_attr(&attr.0));
    ReplyOpen, Opened => |to, opened| to.opened(FileHandle(opened.fh.0), flags(&opened));
    ReplyOpen, Fh => |to, fh| to.opened(FileHandle(fh.0), FopenFlags::empty());
    ReplyCreate, (Entry, Opened) => |to, made| {
        let (entry, opened) = made;
        to.created(
            &entry.ttl,
            &file_attr(&entry.attr),
            Generation(entry.generation),
            FileHandle(opened.fh.0),
            flags(&opened),
        );
    };
}

fn flags(opened: &Opened) -> FopenFlags {
    let mut flags = FopenFlags::empty();
    flags.set(FopenFlags::FOPEN_DIRECT_IO, opened.direct_io);
    flags.set(FopenFlags::FOPEN_KEEP_CACHE, opened.keep_cache);
    flags
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino.0),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: attr.mtime,
        mtime: attr.mtime,
        ctime: attr.mtime,
        crtime: attr.mtime,
        kind: file_type(attr.kind),
        perm: attr.perm,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        // What programs take as the best size of a request: the largest that passes in one.
        blksize: super::MAX_REQUEST,
        flags: 0,
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::Dir => FileType::Directory,
        Kind::File => FileType::RegularFile,
        Kind::Symlink => FileType::Symlink,
    }
}

/// A reply of entries without attributes.
pub(super) struct Plain(pub(super) ReplyDirectory);

impl EntrySink for Plain {
    fn wants_attributes(&self) -> bool {
        false
    }

    fn add(&mut self, next: u64, ino: Ino, kind: Kind, name: &OsStr) -> bool {
        !self.0.add(INodeNo(ino.0), next, file_type(kind), name)
    }

    fn add_with_attributes(&mut self, next: u64, entry: &Entry, name: &OsStr) -> bool {
        self.add(next, entry.attr.ino, entry.attr.kind, name)
    }
}

impl Answer<()> for Plain {
    fn ok(self, (): ()) {
        self.0.ok();
    }

    fn fail(self, errno: fuser::Errno) {
        self.0.error(errno);
    }
}

/// A reply of entries with attributes.
pub(super) struct Plus(pub(super) ReplyDirectoryPlus);

impl EntrySink for Plus {
    fn wants_attributes(&self) -> bool {
        true
    }

    /// For `.` and `..`, of which the kernel takes the name and the number only.
    fn add(&mut self, next: u64, ino: Ino, kind: Kind, name: &OsStr) -> bool {
        let attr = FileAttr {
            kind: file_type(kind),
            ino: INodeNo(ino.0),
            ..NO_ATTRIBUTES
        };
        let now = Duration::ZERO;
        !self.0.add(attr.ino, next, name, &now, &attr, Generation(0))
    }

    fn add_with_attributes(&mut self, next: u64, entry: &Entry, name: &OsStr) -> bool {
        let attr = file_attr(&entry.attr);
        let generation = Generation(entry.generation);
        !self
            .0
            .add(attr.ino, next, name, &entry.ttl, &attr, generation)
    }
}

const NO_ATTRIBUTES: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: std::time::UNIX_EPOCH,
    mtime: std::time::UNIX_EPOCH,
    ctime: std::time::UNIX_EPOCH,
    crtime: std::time::UNIX_EPOCH,
    kind: FileType::Directory,
    perm: 0,
    nlink: 1,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

impl Answer<()> for Plus {
    fn ok(self, (): ()) {
        self.0.ok();
    }

    fn fail(self, errno: fuser::Errno) {
        self.0.error(errno);
    }
}
