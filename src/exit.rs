//! How the process ends: the exit codes, and the one sentence that goes with each failure.

use std::fmt;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// Exit codes. The README lists them; scripts may rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Exit {
    /// Something that none of the others names.
    Other = 1,
    /// A flag, a value or an argument is wrong.
    Usage = 2,
    /// There is no such bucket.
    NoBucket = 3,
    /// The subject token cannot be had: file missing, unreadable, malformed or expired.
    NoToken = 4,
    /// The Security Token Service refused the identity.
    Refused = 5,
    /// A service cannot be reached, or does not answer in time.
    Unreachable = 6,
    /// The bucket refuses the identity.
    Denied = 7,
    /// The mount point is missing, no directory, or in use.
    MountPoint = 8,
    /// `/dev/fuse` is missing, or this user has no right to it.
    NoFuse = 9,
    /// Told to stop, with data left that could not be stored.
    Unsaved = 10,
    /// A check of the demo did not hold.
    Demo = 11,
}

/// Why a command ends without success: a code for scripts, a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// What is wrong, where, and how to fix it.
    pub sentence: String,
}

impl Failure {
    /// A failure that ends with `exit` after saying `sentence`.
    pub fn new(exit: Exit, sentence: impl Into<String>) -> Self {
        Self {
            exit,
            sentence: sentence.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
