//! The one error of the crate: a kind that says what to do, and a sentence for the operator.

use std::fmt;
use std::io;

/// Why something of the contract could not be read, sent or received.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<io::Error>,
}

/// What went wrong, as far as the caller acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The other side did not say all of it in time; another attempt may help.
    Late,
    /// The other side hung up before it had said all of it.
    Truncated,
    /// More bytes than the form can carry.
    TooLong,
    /// Not exactly one descriptor came with the message.
    Descriptors,
    /// The bytes do not say what they should.
    Malformed,
    /// The operating system refused; the source says why.
    Io,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn io(doing: impl fmt::Display, source: impl Into<io::Error>) -> Self {
        Self {
            kind: Kind::Io,
            message: format!("cannot {doing}"),
            source: Some(source.into()),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }
}
