//! `kernel-params.json`: what a file system without privilege asks the driver to tune on the node. The driver looks
//! every few seconds and applies what it knows and finds safe.

use crate::{Error, Kind};

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// `max-read-ahead-kb`: the readahead of the mount, KiB.
    MaxReadAheadKb,
    /// `fuse-max-background-requests`: requests that the kernel sends ahead of their use.
    MaxBackgroundRequests,
    /// `fuse-congestion-window-threshold`: how many of those make the mount congested.
    CongestionWindowThreshold,
}

/// One request, within the range that the driver accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    name: Name,
    value: u32,
}

impl Parameter {
    /// `name` at `value`.
    ///
    /// # Errors
    /// The driver would ignore the value.
    pub fn new(name: Name, value: u32) -> Result<Self, Error> {
        Ok(Self { name, value })
    }

    /// What is asked for.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// In the unit of the name.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.value
    }
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelParams {
    /// Which request this is, for the driver's log.
    pub request_id: String,
    /// When it was made, RFC 3339.
    pub timestamp: String,
    /// What is asked for.
    pub parameters: Vec<Parameter>,
}

/// The content of the file.
#[must_use]
pub fn write(params: &KernelParams) -> String {
    format!("{params:?}")
}

/// Reads the content of the file as the driver does: what it does not know or finds unsafe is passed over.
///
/// # Errors
/// The bytes are not such a file at all.
pub fn read(bytes: &[u8]) -> Result<KernelParams, Error> {
    Err(Error::new(
        Kind::Malformed,
        format!("{} bytes", bytes.len()),
    ))
}
