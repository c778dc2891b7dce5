//! gcsmount: the composition root. It alone knows every crate; [`wire`] reads as the architecture.

pub mod cli;
pub mod exit;
pub mod identity;
pub mod params;
pub mod telemetry;
