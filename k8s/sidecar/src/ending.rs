//! When the sidecar ends.
//!
//! A native sidecar is an init container that restarts always: kubelet sends it SIGTERM after the pod's other containers
//! have ended, and it ends at once if nothing is unsaved. A regular sidecar gets SIGTERM together with the containers that
//! it serves, and has to outlive them: it ends when its volumes are unmounted, or when the driver says so by a file.

use std::io;
use std::path::Path;

use crate::once::Once;

/// What tells a sidecar to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// SIGTERM, for the time of this number.
    Signal(u32),
    /// The driver's exit file has appeared.
    ExitFile,
    /// Every volume that was served is unmounted.
    AllUnmounted,
}

/// Whether the sidecar ends. A second signal ends it whatever it is.
pub(crate) fn ends(native: bool, event: Event) -> bool {
    match event {
        Event::Signal(times) => native || times > 1,
        Event::ExitFile | Event::AllUnmounted => !native,
    }
}

/// Takes the exit file away, if it is there. Whether it was; one that cannot be taken away is told of once.
pub(crate) fn take_exit_file(path: &Path, said: &mut Once) -> bool {
    match std::fs::remove_file(path) {
        Ok(()) => {
            said.over();
            true
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            said.over();
            false
        }
        Err(error) => {
            let new = said.is_new(&error.to_string());
            if new {
                tracing::warn!(path = %path.display(), %error, "the exit file cannot be removed");
            }
            new && std::fs::symlink_metadata(path).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_sidecars_end_by_signal_and_regular_ones_by_their_volumes() {
        for (native, event, want) in [
            (true, Event::Signal(1), true),
            (true, Event::AllUnmounted, false),
            (true, Event::ExitFile, false),
            (false, Event::Signal(1), false),
            (false, Event::Signal(2), true),
            (false, Event::AllUnmounted, true),
            (false, Event::ExitFile, true),
        ] {
            assert_eq!(ends(native, event), want, "{native} {event:?}");
        }
    }

    #[test]
    fn the_exit_file_is_seen_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exit");
        let mut said = Once::default();
        assert!(!take_exit_file(&path, &mut said));
        std::fs::write(&path, "").unwrap();
        assert!(take_exit_file(&path, &mut said));
        assert!(!take_exit_file(&path, &mut said));
        std::fs::create_dir(&path).unwrap();
        assert!(take_exit_file(&path, &mut said), "it is there");
        assert!(!take_exit_file(&path, &mut said), "and was seen");
    }
}
