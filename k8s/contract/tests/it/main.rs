//! The contract, held against bytes that were written from its description, over real sockets and directories.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod driver;
mod gcsfuse;
mod handoff;
mod layout;
mod options;
