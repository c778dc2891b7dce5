//! The contract, held against bytes that were written from its description, over real sockets and directories.

mod handoff;
mod layout;
mod options;
