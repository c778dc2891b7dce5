//! The sidecar of a pod whose volumes are buckets.
//!
//! The CSI node driver mounts, and hands each volume's `/dev/fuse` descriptor over a socket below a directory that it
//! shares with the sidecar. This crate finds the sockets as they appear, takes the descriptors, tends every volume in a
//! task of its own, reports what is wrong with one in the file that the driver reads, tells it what to tune and, if asked,
//! the volume's metrics, and ends when the pod does. What a mount is, it leaves to the [`Mounter`] that it is given; what the words and files mean is in `gcsmount-k8s-contract`.
//!
//! ```text
//! socket -> receive -> Mounter::prepare (again and again) -> Prepared::serve -> Session until it ends or the pod does
//!                                  | what is wrong
//!                                  v
//!                              error file
//! ```

mod directory;
mod ending;
mod intake;
mod metrics;
mod mounter;
mod once;
mod report;
mod retry;
mod sidecar;
mod spent;
mod tending;
mod tuning;

pub use mounter::{Fault, Mounter, Order, Prepared, Session};
pub use retry::Backoff;
pub use sidecar::{Config, Outcome, run};
