//! Takes a volume's descriptor from the driver. Nothing here blocks a thread for longer than a local file system does, so
//! that drivers that say nothing keep no other volume from being served.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

use gcsmount_k8s_contract::handoff::{self, MountMessage, Receiving};
use gcsmount_k8s_contract::layout::Volume;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::{SFlag, fstat, makedev};
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::directory::Opened;

/// How long dialing may take; and how long the driver may take to say what it wants, once it has been dialed.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before dialing again a driver that has no room for one more to wait.
const PAUSE: Duration = Duration::from_millis(50);

/// The number of the FUSE device, as Linux lists it (`admin-guide/devices.txt`): 10:229.
const USUAL: u64 = makedev(10, 229);

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

/// Whether what the driver gave is a FUSE device: of number `device`, or of the usual one.
pub(crate) fn check_device(fuse: &OwnedFd, device: u64) -> Result<(), String> {
    let found =
        fstat(fuse).map_err(|error| format!("the driver's descriptor is of no use: {error}"))?;
    let character = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFCHR;
    if character && [device, USUAL].contains(&found.st_rdev) {
        return Ok(());
    }
    Err("the driver handed over a descriptor that is not of /dev/fuse; only a node driver that mounts with FUSE is to listen at the volume's socket".into())
}

/// The number of the FUSE device here, whether or not there is one.
pub(crate) fn fuse_device() -> u64 {
    let found = std::fs::metadata("/dev/fuse");
    found
        .ok()
        .filter(|found| found.file_type().is_char_device())
        .map_or(USUAL, |found| found.rdev())
}

async fn dial(volume: &Volume) -> io::Result<UnixStream> {
    let opened = volume.clone();
    let directory = spawn_blocking(move || {
        if !std::fs::symlink_metadata(opened.socket())?
            .file_type()
            .is_socket()
        {
            return Err(io::Error::other("it is not a socket"));
        }
        Opened::of(&opened)
    });
    let directory = directory.await??;
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
