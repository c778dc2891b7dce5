//! The file system on a real mount, used through the kernel by ordinary calls and programs.
//!
//! Wherever `/dev/fuse` exists these run; where it does not they say loudly that they did not, and fail if
//! `GCSMOUNT_REQUIRE_FUSE=1` says that it has to be there.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod attributes;
mod directories;
mod failures;
mod files;
mod kit;
mod panics;
mod sessions;
mod tools;
