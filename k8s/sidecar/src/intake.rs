//! Takes a volume's descriptor from the driver. Nothing here blocks a thread for longer than a local file system does, so
//! that drivers that say nothing keep no other volume from being served.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use gcsmount_k8s_contract::handoff::{self, MountMessage, Receiving};
use gcsmount_k8s_contract::layout::Volume;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::directory::Opened;

/// How long dialing may take; and how long the driver may take to say what it wants, once it has been dialed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before dialing again a driver that has no room for one more to wait.
const PAUSE: Duration = Duration::from_millis(50);

/// Dials the volume's socket, takes message and descriptor, and removes the socket, which has served.
pub(crate) async fn receive(volume: &Volume) -> Result<(MountMessage, OwnedFd), String> {
    let path = volume.socket();
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        format!("the driver's socket {} {what}: {error}", path.display())
    };
    let stream = timeout(PATIENCE, dial(volume))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        .map_err(|error| failed("cannot be dialed", &error))?;
    let received = take(&stream)
        .await
        .map_err(|error| failed("gave no volume", &error))?;
    // What stays would be dialed again, and there is nobody behind it.
    if let Err(error) = tokio::fs::remove_file(&path).await {
        tracing::warn!(path = %path.display(), %error, "a socket that has served cannot be removed");
    }
    Ok(received)
}

async fn dial(volume: &Volume) -> io::Result<UnixStream> {
    let opened = volume.clone();
    let directory = spawn_blocking(move || Opened::of(&opened)).await??;
    let path = directory.reach(&volume.socket())?;
    loop {
        match UnixStream::connect(&path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(PAUSE).await,
            other => return other,
        }
    }
}

async fn take(stream: &UnixStream) -> Result<(MountMessage, OwnedFd), String> {
    let mut receiving = Receiving::default();
    let whole = async {
        loop {
            stream.readable().await.map_err(|error| error.to_string())?;
            let mut failed = None;
            let taken = stream.try_io(tokio::io::Interest::READABLE, || {
                match receiving.take(stream.as_fd()) {
                    Ok(Some(whole)) => Ok(whole),
                    Ok(None) => Err(io::ErrorKind::WouldBlock.into()),
                    Err(error) => {
                        failed = Some(error.to_string());
                        Err(io::ErrorKind::InvalidData.into())
                    }
                }
            });
            match (taken, failed) {
                (Ok(whole), _) => return Ok(whole),
                (_, Some(sentence)) => return Err(sentence),
                // Only that there is nothing more to take yet.
                (Err(_), None) => {}
            }
        }
    };
    let taken = timeout(PATIENCE, whole).await;
    taken.unwrap_or_else(|_| Err(handoff::late(receiving.got()).to_string()))
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
