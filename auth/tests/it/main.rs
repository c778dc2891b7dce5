//! The broker through its public interface: on paused time with a scripted exchange, and against a
//! token service on a loopback port.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod broker;
mod credential_file;
mod doubles;
mod federation;
mod identities;
mod matrix;
mod metadata;
mod provider;
mod proxies;
mod reports;
mod serve;
mod steps;
mod sts;
mod token_url;
mod web;
