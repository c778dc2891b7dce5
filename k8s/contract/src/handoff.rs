//! The hand-off: one message with one descriptor over a unix stream socket. The driver sends, the sidecar receives.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::{Error, Kind};

/// The longest message in the stock form, in bytes: what a stock sidecar reads, in one piece.
pub const MAX_STOCK: usize = 5000;
/// The longest message in any form, in bytes.
pub const MAX_MESSAGE: usize = 1 << 20;

/// What is said with the descriptor. Fields that are not known are passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountMessage {
    /// The volume's name, where the directory does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_name: Option<String>,
    /// The bucket, or `_` for every bucket that the identity can see.
    pub bucket_name: String,
    /// The mount options, for [`crate::options`].
    #[serde(default)]
    pub options: Vec<String>,
}

/// How a message is put into bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// JSON in one message, which every sidecar understands, up to [`MAX_STOCK`].
    Stock,
    /// Ours: a header with the length, then JSON up to [`MAX_MESSAGE`].
    Framed,
}

/// Sends `message` with a copy of `fuse`. Blocks as long as the socket's `SO_SNDTIMEO` lets it.
///
/// # Errors
/// The message is too long for the form, or the socket failed.
pub fn send(
    socket: BorrowedFd<'_>,
    message: &MountMessage,
    fuse: BorrowedFd<'_>,
    form: Form,
) -> Result<(), Error> {
    let _ = (socket, message, fuse, form);
    Err(Error::new(Kind::Malformed, "not sent"))
}

/// Receives a message in either form and its descriptor, which closes on exec and blocks. Waits until `deadline`,
/// whether or not the socket blocks.
///
/// # Errors
/// It was late, cut short, too long, not a message, or came with any other number of descriptors than one; those that
/// came are closed.
pub fn receive(
    socket: BorrowedFd<'_>,
    deadline: Instant,
) -> Result<(MountMessage, OwnedFd), Error> {
    let _ = (socket, deadline);
    Err(Error::new(Kind::Late, "nothing received"))
}
