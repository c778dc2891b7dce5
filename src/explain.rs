//! From the errors of the crates to an exit code and one sentence: what is wrong, where, and how to fix it.

mod bucket;

use gcsmount_auth::error as auth;
use gcsmount_fuse::session;

use crate::exit::{Exit, Failure};

pub use bucket::{Case, bucket, grant, number_of, numbered};

/// A failure in parts, for a report that has lines for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The code.
    pub exit: Exit,
    /// What is wrong, and where.
    pub what: String,
    /// What to do about it.
    pub fix: String,
    /// The command that does it, to be copied whole.
    pub command: Option<String>,
}

impl Explanation {
    /// As one sentence.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let Self {
            exit,
            what,
            fix,
            command,
        } = self;
        // The command comes last, so that nothing is copied with it.
        let sentence = match command {
            Some(command) => format!("{what}: {fix}: {command}"),
            None => format!("{what}: {fix}"),
        };
        Failure::new(*exit, sentence)
    }
}

/// Why there is no access token.
#[must_use]
pub fn identity(error: &auth::Error) -> Failure {
    let exit = match error.kind() {
        auth::Kind::Source(_) | auth::Kind::Config => Exit::NoToken,
        auth::Kind::Refused(_) => Exit::Refused,
        auth::Kind::Unreachable(_)
        | auth::Kind::Timeout
        | auth::Kind::Throttled
        | auth::Kind::Unavailable
        | auth::Kind::BadAnswer => Exit::Unreachable,
        auth::Kind::Stopped | auth::Kind::Internal => Exit::Other,
    };
    Failure::new(exit, error.message())
}

/// Why there is no mount.
#[must_use]
pub fn mount(error: &session::Error) -> Failure {
    let exit = match error {
        session::Error::Missing(_)
        | session::Error::NotADirectory(_)
        | session::Error::AlreadyMounted { .. }
        | session::Error::Stale(_)
        | session::Error::Descriptor { .. }
        | session::Error::Covered(_) => Exit::MountPoint,
        session::Error::NoDevice
        | session::Error::DeviceDenied { .. }
        | session::Error::NoHelper => Exit::NoFuse,
        session::Error::Option { .. } => Exit::Usage,
        _ => Exit::Other,
    };
    Failure::new(exit, error.to_string())
}
