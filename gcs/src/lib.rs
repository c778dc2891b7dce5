//! The object store seen as a contract: [`Store`] in our words, its clients and its doubles.
//!
//! [`store`] says what a bucket promises, [`error`] what can go wrong and what to do about it, `client` talks to
//! Google Cloud Storage, [`layer`] builds on any store, `testing` holds the doubles and the contract suite that every implementation passes.
//! This crate knows nothing of files, caches or tokens: credentials arrive as the SDK's `Credentials`.

pub mod client;
pub mod error;
pub mod layer;
pub mod name;
pub mod object;
pub mod store;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use error::{Cause, Error, Kind, Result};
pub use name::{BucketName, FolderName, ObjectName};
pub use object::{Folder, Generation, Layout, Metageneration, Object};
pub use store::Store;
