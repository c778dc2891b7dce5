//! Takes a volume's descriptor from the driver.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gcsmount_k8s_contract::handoff::{self, MountMessage};
use gcsmount_k8s_contract::layout::Volume;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::directory::Opened;

/// How long the driver may take to say what it wants, once it has been dialed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Dials the volume's socket, takes message and descriptor, and removes the socket, which has served. Blocks.
pub(crate) fn receive(volume: &Volume) -> Result<(MountMessage, OwnedFd), String> {
    let path = volume.socket();
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("the driver's socket {} {what}: {error}", path.display())
    };
    let stream = dial(volume).map_err(|error| failed("cannot be dialed", &error))?;
    let received = handoff::receive(stream.as_fd(), Instant::now() + PATIENCE)
        .map_err(|error| failed("gave no volume", &error))?;
    // What stays would be dialed again, and there is nobody behind it.
    if let Err(error) = std::fs::remove_file(&path) {
        tracing::warn!(path = %path.display(), %error, "a socket that has served cannot be removed");
    }
    Ok(received)
}

fn dial(volume: &Volume) -> io::Result<UnixStream> {
    let directory = Opened::of(volume)?;
    UnixStream::connect(directory.reach(&volume.socket())?)
}

/// Whether the mount behind the descriptor is gone: unmounted by the driver, or aborted.
pub(crate) fn is_gone(fuse: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(fuse.as_fd(), PollFlags::POLLIN)];
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL;
    poll(&mut polled, PollTimeout::ZERO).is_ok()
        && polled[0]
            .revents()
            .is_some_and(|events| events.intersects(gone))
}
