//! What is open.
//!
//! [`reader`] reads one generation of an object, [`writer`] holds what was written to a file and is not in the bucket
//! yet, [`dir`] streams a listing.

pub mod dir;
pub mod reader;
pub mod writer;
