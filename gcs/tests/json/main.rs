//! The JSON client against a scripted server, and against the emulator.

#![expect(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "all of this is tests, which share freely and fail by panicking"
)]

mod bucket;
mod calls;
mod emulator;
mod faults;
mod folders;
mod hedges;
mod http2;
mod identity;
mod independent;
mod limits;
mod lost;
mod network;
mod observer;
mod proxies;
mod reads;
mod script;
mod silence;
mod simulation;
mod uploads;
