//! The only module that knows `fuser`: it turns requests into calls of [`Fs`] and results into replies, and decides
//! nothing.
//!
//! What can be answered at once is answered on the session's thread; the rest runs as a task on the runtime and carries
//! its reply along. A task that only asks is given up after the deadline. One that changes something is not: each call
//! of the store in it has a deadline of its own, and goes on for as long as those are met.
//!
//! A panic costs its request an EIO and a log line, and nothing else: a reply that is dropped answers EIO by itself.

mod repeats;
mod reply;
mod request;

use std::ffi::OsStr;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, INodeNo, InitFlags, KernelConfig,
    LockOwner, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use futures_util::FutureExt;
use nix::errno::Errno;

use crate::errno::{Error, Result};
use crate::fs::{EntrySink, Fh, Fs, OpenFlags, RenameMode, SetAttr, Statfs};
use crate::inode::Ino;
use crate::metadata::Posix;
use crate::observer::Operation;
use reply::{Answer, Plain, Plus, Refuse, Room};
use request::Pending;

/// The largest write and read request. With the kernel's default limit of 256 pages it takes no larger ones anyway, and
/// a block of the cache is as large.
const MAX_REQUEST: u32 = 1 << 20;

/// Requests that the kernel has under way for nobody in particular: read-ahead and asynchronous I/O. They bound our
/// tasks, together with one request of each waiting thread.
const MAX_BACKGROUND: u16 = 64;

const CAPABILITIES: [InitFlags; 8] = [
    // A changed length or time drops the pages of the old content.
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    // Without it a truncating open is two requests, and somebody can come between them.
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_ASYNC_DIO,
    // Shared mappings of files that are written past the page cache.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_CACHE_SYMLINKS,
];

/// Remembered by the kernel, which then asks for no extended attribute any more.
const NO_XATTRS: Errno = Errno::ENOSYS;

/// A [`Fs`] as `fuser` wants it.
#[derive(Debug)]
pub(crate) struct Adapter {
    fs: Arc<Fs>,
    /// Whether the kernel gets answers about extended attributes.
    xattrs: bool,
}

impl Adapter {
    pub(crate) fn new(fs: Arc<Fs>) -> Self {
        let xattrs = fs.config().xattrs;
        Self { fs, xattrs }
    }

    /// Runs the synchronous part of a request; its reply is inside.
    fn guard(&self, op: &'static str, act: impl FnOnce(&Arc<Fs>)) {
        if catch_unwind(AssertUnwindSafe(|| act(&self.fs))).is_err() {
            panicked(op);
        }
    }

    /// Takes a request in, and runs its synchronous part.
    fn take(&self, operation: Operation, act: impl FnOnce(&Arc<Fs>, Pending)) {
        let request = Pending::begin(&self.fs, operation);
        self.guard(operation.name(), |fs| act(fs, request));
    }

    /// Answers at once if `now` has an answer, else from a task that runs `later` and may be given up.
    fn ask<T, R, F>(
        &self,
        operation: Operation,
        reply: R,
        now: impl FnOnce(&Fs) -> Option<Result<T>>,
        later: impl FnOnce(Arc<Fs>) -> F,
    ) where
        T: Send + 'static,
        R: Answer<T>,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.take(operation, |fs, request| match now(fs) {
            Some(result) => request.answer(reply, result),
            None => {
                let asked = later(fs.clone());
                let deadline = fs.config().deadline;
                let limited = async move {
                    match tokio::time::timeout(deadline, asked).await {
                        Ok(result) => result,
                        Err(_) => Err(Error::of(Errno::ETIMEDOUT)),
                    }
                };
                spawn(fs, request, reply, limited);
            }
        });
    }

    /// As [`Adapter::ask`] for a task that runs to its end.
    fn act<T, R, F>(
        &self,
        operation: Operation,
        reply: R,
        now: impl FnOnce(&Fs) -> Option<Result<T>>,
        later: impl FnOnce(Arc<Fs>) -> F,
    ) where
        T: Send + 'static,
        R: Answer<T>,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.take(operation, |fs, request| match now(fs) {
            Some(result) => request.answer(reply, result),
            None => spawn(fs, request, reply, later(fs.clone())),
        });
    }

    /// Answers with directory entries.
    fn fill<S: EntrySink + Answer<()>>(
        &self,
        operation: Operation,
        fh: Fh,
        offset: u64,
        mut sink: S,
    ) {
        self.take(operation, |fs, request| {
            let listing = fs.clone();
            fs.runtime().spawn(async move {
                let filled = listing.readdir(fh, offset, &mut sink);
                match AssertUnwindSafe(filled).catch_unwind().await {
                    Ok(result) => request.answer(sink, result),
                    Err(_) => panicked(operation.name()),
                }
            });
        });
    }

    /// Answers without asking the file system.
    fn reply<T, R: Answer<T>>(&self, operation: Operation, reply: R, value: T) {
        Pending::begin(&self.fs, operation).fulfil(reply, value);
    }

    /// Says that there is no such thing here.
    fn refuse(&self, operation: Operation, reply: impl Refuse, errno: Errno) {
        Pending::begin(&self.fs, operation).refuse(reply, errno);
    }
}

fn panicked(op: &'static str) {
    tracing::error!(op, "a request panicked; it was answered with EIO");
}

/// Runs `work` on the runtime and answers with its result. The task is its own owner: it ends, because every step of
/// `work` has a deadline, and nobody can want it to end before.
fn spawn<T, R, F>(fs: &Fs, request: Pending, reply: R, work: F)
where
    T: Send + 'static,
    R: Answer<T>,
    F: Future<Output = Result<T>> + Send + 'static,
{
    fs.runtime().spawn(async move {
        match AssertUnwindSafe(work).catch_unwind().await {
            Ok(result) => request.answer(reply, result),
            Err(_) => panicked(request.operation().name()),
        }
    });
}

fn never<T>(_: &Fs) -> Option<Result<T>> {
    None
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for capability in CAPABILITIES {
            // An older kernel does without.
            if config.add_capabilities(capability).is_err() {
                tracing::debug!(?capability, "the kernel does not offer this");
            }
        }
        // Without it, the kernel asks for `security.capability` before every single write as soon as it gets answers.
        let quiet = InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        self.xattrs = self.xattrs && config.add_capabilities(quiet).is_ok();
        // Each of these has a value in range, and the nearest one does where it is not.
        let _ = config.set_max_write(MAX_REQUEST);
        let _ = config.set_max_background(MAX_BACKGROUND);
        let _ = config.set_congestion_threshold(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let parent = Ino(parent.0);
        self.ask(
            Operation::LookUpInode,
            reply,
            |fs| fs.try_lookup(parent, name),
            |fs| {
                let name = name.to_owned();
                async move { fs.lookup(parent, &name).await }
            },
        );
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.guard("forget", |fs| fs.forget(Ino(ino.0), nlookup));
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let ino = Ino(ino.0);
        self.ask(
            Operation::GetInodeAttributes,
            reply,
            |fs| fs.try_getattr(ino),
            |fs| async move { fs.getattr(ino).await },
        );
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (ino, fh) = (Ino(ino.0), fh.map(|fh| Fh(fh.0)));
        let set = SetAttr {
            size,
            mtime: mtime.map(request::time),
            posix: Posix {
                mode: mode.map(request::bits),
                uid,
                gid,
                atime: atime.map(request::time),
            },
        };
        self.act(
            Operation::SetInodeAttributes,
            reply,
            never,
            |fs| async move { fs.setattr(ino, fh, set).await },
        );
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let ino = Ino(ino.0);
        self.ask(Operation::ReadSymlink, reply, never, |fs| async move {
            fs.readlink(ino).await.map(Bytes::from)
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if nix::sys::stat::SFlag::from_bits_truncate(mode) != nix::sys::stat::SFlag::S_IFREG {
            return self.refuse(Operation::MkNode, reply, Errno::EPERM);
        }
        let born = request::born(req, mode);
        let (parent, name) = (Ino(parent.0), name.to_owned());
        self.act(Operation::MkNode, reply, never, |fs| async move {
            fs.mknod(parent, &name, born).await
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let born = request::born(req, mode);
        let (parent, name) = (Ino(parent.0), name.to_owned());
        self.act(Operation::MkDir, reply, never, |fs| async move {
            fs.mkdir(parent, &name, born).await
        });
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (Ino(parent.0), name.to_owned());
        self.act(Operation::Unlink, reply, never, |fs| async move {
            fs.unlink(parent, &name).await
        });
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (Ino(parent.0), name.to_owned());
        self.act(Operation::RmDir, reply, never, |fs| async move {
            fs.rmdir(parent, &name).await
        });
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let born = request::born(req, 0);
        let (parent, name) = (Ino(parent.0), link_name.to_owned());
        let target = target.as_os_str().to_owned();
        self.act(Operation::CreateSymlink, reply, never, |fs| async move {
            fs.symlink(parent, &name, &target, born).await
        });
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::NoReplace
        } else {
            return self.refuse(Operation::Rename, reply, Errno::EINVAL);
        };
        let (parent, name) = (Ino(parent.0), name.to_owned());
        let (new_parent, new_name) = (Ino(newparent.0), newname.to_owned());
        self.act(Operation::Rename, reply, never, |fs| async move {
            fs.rename(parent, &name, new_parent, &new_name, mode).await
        });
    }

    fn link(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _newparent: INodeNo,
        _newname: &OsStr,
        reply: ReplyEntry,
    ) {
        self.refuse(Operation::CreateLink, reply, Errno::EPERM);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: fuser::OpenFlags, reply: ReplyOpen) {
        let (ino, flags) = (Ino(ino.0), OpenFlags::from_bits(flags.0));
        self.act(
            Operation::OpenFile,
            reply,
            |fs| fs.try_open(ino, flags),
            |fs| async move { fs.open(ino, flags).await },
        );
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let born = request::born(req, mode);
        let (parent, flags) = (Ino(parent.0), OpenFlags::from_bits(flags));
        self.act(
            Operation::CreateFile,
            reply,
            |fs| fs.try_create(parent, name, flags, born),
            |fs| {
                let name = name.to_owned();
                async move { fs.create(parent, &name, flags, born).await }
            },
        );
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (fh, len) = (Fh(fh.0), size as usize);
        self.act(
            Operation::ReadFile,
            reply,
            |fs| fs.try_read(fh, offset, len).map(Ok),
            |fs| async move { fs.read(fh, offset, len).await },
        );
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (ino, fh) = (Ino(ino.0), Fh(fh.0));
        let kills = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let kills = kills && self.fs.has_privileges(ino);
        // Pages of a mapping come with whatever handle is at hand; they belong where they were, even with O_APPEND.
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        // One request is 1 MiB at most, and so is its length.
        let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.act(
            Operation::WriteFile,
            reply,
            |fs| {
                if kills {
                    return None;
                }
                Some(fs.try_write(fh, offset, data, mapped)?.map(|()| len))
            },
            |fs| {
                let data = Bytes::copy_from_slice(data);
                async move {
                    fs.write(fh, offset, data, mapped).await?;
                    if kills {
                        fs.drop_privileges(ino).await?;
                    }
                    Ok(len)
                }
            },
        );
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let fh = Fh(fh.0);
        self.act(
            Operation::FlushFile,
            reply,
            |fs| fs.try_flush(fh),
            |fs| async move { fs.flush(fh).await },
        );
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fh = Fh(fh.0);
        self.act(
            Operation::SyncFile,
            reply,
            |fs| fs.try_flush(fh),
            |fs| async move { fs.fsync(fh).await },
        );
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: fuser::OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let fh = Fh(fh.0);
        self.act(
            Operation::ReleaseFileHandle,
            reply,
            |fs| fs.try_release(fh).then_some(Ok(())),
            |fs| async move {
                fs.release(fh).await;
                Ok(())
            },
        );
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: fuser::OpenFlags, reply: ReplyOpen) {
        self.take(Operation::OpenDir, |fs, request| {
            request.answer(reply, fs.opendir(Ino(ino.0)));
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.fill(Operation::ReadDir, Fh(fh.0), offset, Plain(reply));
    }

    fn readdirplus(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.fill(Operation::ReadDirPlus, Fh(fh.0), offset, Plus(reply));
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: fuser::OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.take(Operation::ReleaseDirHandle, |fs, request| {
            fs.releasedir(Fh(fh.0));
            request.fulfil(reply, ());
        });
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // Names are in the bucket when the calls that make them return.
        self.reply(Operation::SyncDir, reply, ());
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.reply(Operation::StatFS, reply, Statfs::BUCKET);
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if !self.xattrs {
            return self.refuse(Operation::SetXattr, reply, NO_XATTRS);
        }
        let how = request::how(flags);
        let (ino, name, value) = (Ino(ino.0), name.to_owned(), value.to_owned());
        self.act(Operation::SetXattr, reply, never, |fs| async move {
            fs.setxattr(ino, &name, &value, how).await
        });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !self.xattrs {
            return self.refuse(Operation::GetXattr, reply, NO_XATTRS);
        }
        let ino = Ino(ino.0);
        self.ask(
            Operation::GetXattr,
            Room(reply, size),
            |fs| fs.try_getxattr(ino, name),
            |fs| {
                let name = name.to_owned();
                async move { fs.getxattr(ino, &name).await }
            },
        );
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if !self.xattrs {
            return self.refuse(Operation::ListXattr, reply, NO_XATTRS);
        }
        let ino = Ino(ino.0);
        self.ask(
            Operation::ListXattr,
            Room(reply, size),
            |fs| fs.try_listxattr(ino),
            |fs| async move { fs.listxattr(ino).await },
        );
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if !self.xattrs {
            return self.refuse(Operation::RemoveXattr, reply, NO_XATTRS);
        }
        let (ino, name) = (Ino(ino.0), name.to_owned());
        self.act(Operation::RemoveXattr, reply, never, |fs| async move {
            fs.removexattr(ino, &name).await
        });
    }

    // ENOSYS to each of these is remembered by the kernel, which then does without or does it itself.

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        self.refuse(Operation::Access, reply, Errno::ENOSYS);
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        self.refuse(Operation::Seek, reply, Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.refuse(Operation::CopyFileRange, reply, Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        // glibc then writes the zeros itself.
        self.refuse(Operation::Fallocate, reply, Errno::EOPNOTSUPP);
    }
}

#[cfg(test)]
mod tests;
