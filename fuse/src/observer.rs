//! What a file system tells whoever counts its work.
//!
//! An [`Observer`] hears of each request of the kernel as it is answered, and of what publications replace. [`Figures`]
//! are what is there now, counted when somebody asks. Neither knows how it is shown.

#[cfg(test)]
pub(crate) mod recording;

use std::fmt::{self, Debug};
use std::time::Duration;

use nix::errno::Errno;

macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident,)*) => {
        /// What the kernel asks for. The names are gcsfuse's values of `fs_op`, so that what reads those can read these;
        /// `Access`, `CopyFileRange`, `Seek` and `SyncDir`, which it does not tell apart, are ours.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation {
            $($(#[$doc])* $operation,)*
        }

        impl Operation {
            /// Each of them.
            pub const ALL: [Self; [$(Self::$operation),*].len()] = [$(Self::$operation),*];

            /// What it is called in metrics and logs.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$operation => stringify!($operation),)*
                }
            }
        }
    };
}

operations! {
    /// access(2).
    Access,
    /// copy_file_range(2).
    CopyFileRange,
    /// open(2) of a file that was not there.
    CreateFile,
    /// link(2).
    CreateLink,
    /// symlink(2).
    CreateSymlink,
    /// fallocate(2).
    Fallocate,
    /// close(2), of each descriptor.
    FlushFile,
    /// stat(2).
    GetInodeAttributes,
    /// getxattr(2).
    GetXattr,
    /// listxattr(2).
    ListXattr,
    /// A component of a path.
    LookUpInode,
    /// mkdir(2).
    MkDir,
    /// mknod(2).
    MkNode,
    /// opendir(3).
    OpenDir,
    /// open(2).
    OpenFile,
    /// readdir(3), names alone.
    ReadDir,
    /// readdir(3), names and attributes.
    ReadDirPlus,
    /// read(2), or pages of a mapping.
    ReadFile,
    /// readlink(2).
    ReadSymlink,
    /// The last close of a directory.
    ReleaseDirHandle,
    /// The last close of a descriptor and its duplicates.
    ReleaseFileHandle,
    /// removexattr(2).
    RemoveXattr,
    /// rename(2).
    Rename,
    /// rmdir(2).
    RmDir,
    /// lseek(2) for data and holes.
    Seek,
    /// chmod(2), chown(2), truncate(2), utimensat(2).
    SetInodeAttributes,
    /// setxattr(2).
    SetXattr,
    /// statvfs(3).
    StatFS,
    /// fsync(2) of a directory.
    SyncDir,
    /// fsync(2).
    SyncFile,
    /// unlink(2).
    Unlink,
    /// write(2), or pages of a mapping.
    WriteFile,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A request of the kernel that is being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// What was asked for.
    pub operation: Operation,
    /// Why it failed, as the caller sees it; `None`: it did not.
    pub errno: Option<Errno>,
    /// From its arrival to its answer.
    pub took: Duration,
    /// Bytes handed to a reader by [`Operation::ReadFile`], or taken from a writer by [`Operation::WriteFile`]; 0 for
    /// everything else, and for what failed.
    pub bytes: u64,
}

/// Whoever counts what a file system does.
///
/// It is called on the way to each answer, from any thread: it counts, and neither waits nor asks the file system.
pub trait Observer: Debug + Send + Sync {
    /// A request is being answered: just before, so that what a program has seen done is counted. What the kernel wants no
    /// answer to, such as that it has forgotten an inode, is none.
    fn answered(&self, request: &Answered);

    /// A publication has replaced a generation of `bytes` bytes, which the bucket may go on to keep and bill (soft delete,
    /// versions).
    fn superseded(&self, bytes: u64);
}

/// What a file system holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Open files. The kernel closes them some time after the last close(2) has returned.
    pub file_handles: usize,
    /// Open directories.
    pub directory_handles: usize,
    /// Inodes, which the kernel holds or which are open, the root among them.
    pub inodes: usize,
    /// Names remembered beyond those.
    pub known_names: usize,
    /// Open files that have what the bucket does not have.
    pub dirty_files: usize,
    /// Bytes staged on the local disk.
    pub staged_bytes: u64,
    /// Files that stream to the store while they are written.
    pub streams: usize,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_operation_has_a_name_of_its_own() {
        let names: HashSet<_> = Operation::ALL.iter().map(|op| op.name()).collect();
        assert_eq!(names.len(), Operation::ALL.len());
        assert_eq!(Operation::LookUpInode.to_string(), "LookUpInode");
    }
}
