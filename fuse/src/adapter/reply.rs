//! Results as replies.

use std::ffi::OsStr;
use std::time::Duration;

use bytes::Bytes;
use fuser::{
    FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr,
};
use nix::errno::Errno;

use crate::fs::{Attr, Entry, EntrySink, Fh, Kind, Opened, Statfs};
use crate::inode::Ino;

/// A reply that can tell of a failure.
pub(super) trait Refuse: Send + 'static {
    fn fail(self, errno: Errno);
}

/// A reply to a request whose result is a `T`.
pub(super) trait Answer<T>: Refuse {
    fn ok(self, value: T);

    /// Bytes of the file's content that go along, or went in.
    fn content(_value: &T) -> u64 {
        0
    }
}

macro_rules! refuses {
    ($($reply:ty => |$to:ident| $from:expr;)*) => {$(
        impl Refuse for $reply {
            fn fail(self, errno: Errno) {
                let $to = self;
                $from.error(fuser::Errno::from_i32(errno as i32));
            }
        }
    )*};
}

refuses! {
    ReplyEmpty => |to| to;
    ReplyData => |to| to;
    ReplyWrite => |to| to;
    ReplyEntry => |to| to;
    ReplyAttr => |to| to;
    ReplyOpen => |to| to;
    ReplyCreate => |to| to;
    ReplyStatfs => |to| to;
    ReplyXattr => |to| to;
    Room => |to| to.0;
    ReplyLseek => |to| to;
    Plain => |to| to.0;
    Plus => |to| to.0;
}

impl Answer<Bytes> for ReplyData {
    fn ok(self, bytes: Bytes) {
        self.data(&bytes);
    }

    fn content(bytes: &Bytes) -> u64 {
        bytes.len() as u64
    }
}

/// A reply with an extended attribute or their names, and the bytes that the caller has room for; 0: it only wants to
/// know how many there are.
pub(super) struct Room(pub(super) ReplyXattr, pub(super) u32);

impl Answer<Vec<u8>> for Room {
    fn ok(self, value: Vec<u8>) {
        let Self(reply, room) = self;
        match u32::try_from(value.len()) {
            Ok(len) if room == 0 => reply.size(len),
            Ok(len) if len <= room => reply.data(&value),
            Ok(_) | Err(_) => reply.error(fuser::Errno::from_i32(Errno::ERANGE as i32)),
        }
    }
}

impl Answer<u32> for ReplyWrite {
    fn ok(self, written: u32) {
        self.written(written);
    }

    fn content(written: &u32) -> u64 {
        u64::from(*written)
    }
}

macro_rules! answers {
    ($($reply:ty, $value:ty => |$to:ident, $got:ident| $ok:expr;)*) => {$(
        impl Answer<$value> for $reply {
            fn ok(self, $got: $value) {
                let $to = self;
                $ok;
            }
        }
    )*};
}

answers! {
    ReplyEmpty, () => |to, _done| to.ok();
    Plain, () => |to, _done| to.0.ok();
    Plus, () => |to, _done| to.0.ok();
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
    ReplyStatfs, Statfs => |to, statfs| {
        let Statfs { block_size, blocks, files, name_max } = statfs;
        to.statfs(blocks, blocks, blocks, files, files, block_size, name_max, block_size);
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
        atime: attr.atime,
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
