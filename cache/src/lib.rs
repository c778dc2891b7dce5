//! Blocks of object generations in a bounded memory and on a bounded disk.
//!
//! [`Budget`] says how much memory the process may hold and who goes first when it is short. [`BlockCache`] keeps
//! blocks of one bucket under it, lets concurrent readers of a block share one fetch, and gives way when somebody
//! waits. [`DiskCache`] keeps blocks where they outlive the process. What to fetch, and when, is the caller's decision.

pub mod block;
pub mod budget;
pub mod disk;
mod flight;
pub mod memory;

pub use block::{Block, BlockBuffer, BlockKey};
pub use budget::{Budget, Lease, Priority};
pub use disk::{DiskCache, DiskConfig};
pub use flight::{Filler, Follower};
pub use memory::{BlockCache, CacheConfig, Claim, Presence};
