//! Doubles of a bucket, and the suite that every implementation of the contract passes.
//!
//! [`FakeStore`] keeps a bucket in memory and is as strict as the contract, [`FaultyStore`] fails on cue around any
//! other store, [`contract`] checks what [`crate::store`] promises. Both doubles count or script calls by [`Method`].

#[expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "cases are tests, which fail by panicking"
)]
pub mod contract;
mod fake;
mod faulty;
mod listing;
mod method;

pub use fake::FakeStore;
pub use faulty::{Fault, FaultyStore};
pub use method::{Calls, Method};
