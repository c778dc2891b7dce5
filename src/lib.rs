//! gcsmount: the composition root. It alone knows every crate; [`wire`] reads as the architecture.

pub mod background;
pub mod cli;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod emulate;
pub mod exit;
pub mod explain;
pub mod gcsfuse;
pub mod identity;
pub mod lifecycle;
pub mod limits;
pub mod memory;
pub mod metrics;
pub mod mount;
pub mod params;
pub mod sidecar;
pub mod telemetry;
pub mod token;
pub mod wire;
