//! The emulator over the wire: what its clients may rely on.

mod access;
mod batch;
mod client;
mod faults;
mod lifecycle;
mod mutations;
mod preconditions;
mod reads;
mod resumable;
mod sts;
mod uploads;
