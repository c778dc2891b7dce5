//! gcsmount-fuse: the file system and its FUSE session.

pub mod handle;
