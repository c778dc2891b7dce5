//! What an open file or directory is to the daemon.

pub mod reader;
