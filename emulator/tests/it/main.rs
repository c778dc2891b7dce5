//! The emulator over the wire: what its clients may rely on.

#![expect(
    clippy::unwrap_used,
    reason = "a test that lacks what it needs fails, in its helpers too"
)]

mod access;
mod batch;
mod client;
mod clock;
mod downscoping;
mod faults;
mod folders;
mod holds;
mod impersonation;
mod journal;
mod lifecycle;
mod metadata;
mod mutations;
mod oauth;
mod permissions;
mod preconditions;
mod reads;
mod referee;
mod resumable;
mod retry_test;
mod roles;
mod scopes;
mod settings;
mod sts;
mod unserved;
mod uploads;
mod versions;
