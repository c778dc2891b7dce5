//! The contract between a sidecar and the node driver of GCS FUSE: what the two find on disk, send over a socket and
//! read out of each other's files. It is kept so that either side can be a stock one: our sidecar below the stock
//! driver, a stock gcsfuse below our sidecar, later our driver above a stock sidecar.
//!
//! A volume's life in it: the driver writes [`defaulting`] and listens in the volume's directory ([`layout`]); the
//! sidecar dials and is handed a mounted `/dev/fuse` ([`handoff`]) with the mount options of the pod, which
//! [`options`] sorts and judges; it serves the volume itself or starts a stock gcsfuse as [`gcsfuse`] says. What goes
//! wrong is told by a file whose text the driver turns into a gRPC code ([`status`]), and what the node should tune by
//! another ([`kernel_params`]).
//!
//! Everything here is a function of values, but for the hand-off over the socket and the reading of small files. No
//! secret passes through this crate.

pub mod defaulting;
pub mod error;
pub mod gcsfuse;
pub mod handoff;
pub mod kernel_params;
pub mod layout;
pub mod options;
pub mod status;

pub use error::{Error, Kind};
