//! A bucket as a Linux file system, and the FUSE session that serves it.
//!
//! [`Fs`] is the file system: verbs over inodes and handles, told in our own words and usable without a kernel.
//! `adapter` is the only module that knows `fuser`: it decodes requests and encodes replies. [`session`] mounts, serves
//! and unmounts. `names` turns listings into directory entries, `inode` keeps what the kernel remembers of them, and
//! `handle` what is open.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("gcsmount runs on 64-bit Linux");

mod adapter;
pub mod errno;
pub mod fs;
pub mod handle;
pub mod inode;
pub mod metadata;
pub mod names;
pub mod observer;
pub mod session;
#[cfg(test)]
mod slow_store;
mod version;

pub use errno::{Error, Result};
pub use fs::{Fs, FsConfig, Unsaved};
pub use handle::writer::{Outcome, PartsConfig, Recovered};
pub use observer::{Answered, Figures, Observer, Operation};
pub use session::{MountOptions, MountPoint, Mounted, Unmounter};
