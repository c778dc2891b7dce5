//! `flags-for-defaulting`: what the driver knows of the machine, as lines `name:value`. It stands in for settings that
//! nobody made.

use std::io;

use crate::layout::Base;

/// What the driver says of the machine. Lines of other names are passed over: other containers of the pod may be able
/// to write the file, and it must not become a way to set anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaulting {
    /// `machine-type`: such as `a3-highgpu-8g`.
    pub machine_type: Option<String>,
    /// `disable-autoconfig`: whether defaults by machine type are off.
    pub disable_autoconfig: Option<bool>,
}

impl Defaulting {
    /// Reads the lines of `text`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let _ = text;
        Self::default()
    }

    /// Reads the file of `base`; one that is not there says nothing.
    ///
    /// # Errors
    /// It cannot be read, or is a link.
    pub fn read(base: &Base) -> io::Result<Self> {
        let _ = base;
        Ok(Self::default())
    }
}
