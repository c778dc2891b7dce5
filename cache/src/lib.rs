//! Blocks of object generations in a bounded memory.
//!
//! [`Budget`] says how much memory the process may hold and who goes first when it is short. [`BlockCache`] keeps
//! blocks of one bucket under it, lets concurrent readers of a block share one fetch, and gives way when somebody
//! waits. What to fetch, and when, is the caller's decision.

pub mod block;
pub mod budget;
mod flight;
pub mod memory;

pub use block::{Block, BlockBuffer, BlockKey};
pub use budget::{Budget, Lease, Priority};
pub use flight::{Filler, Follower};
pub use memory::{BlockCache, CacheConfig, Claim, Presence};
