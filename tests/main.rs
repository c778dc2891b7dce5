//! What holds for the whole: the architecture, and the binary on a real mount.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod architecture;
mod attributes;
mod bad_input;
mod credentials;
mod demo;
mod files;
mod identity;
mod kit;
mod lifecycle;
mod node;
mod pod;
mod recovery;
mod reports;
mod token;
mod transport;
mod volumes;
