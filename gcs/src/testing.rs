//! Doubles of a bucket, and the suite that every implementation of the contract passes.
//!
//! [`FakeStore`] keeps a bucket in memory and is as strict as the contract, [`FaultyStore`] fails on cue around any
//! other store, [`contract`] checks what [`crate::store`] promises. Both doubles count or script calls by [`Method`].

mod fake;
mod listing;
mod method;

pub use fake::FakeStore;

pub use method::{Calls, Method};
