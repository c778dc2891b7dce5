//! Sockets that were dialed already. Pure.
//!
//! A socket serves once. One that is still there after that, because no volume came of it, may work later: it is dialed
//! again, ever more seldom. What was said of it first is the best explanation, so that nothing is said of it any more. The
//! driver orders a volume anew by a new socket, which is dialed at once.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use tokio::time::Instant;

/// What tells one socket from the next of the same name. The time is there because numbers of files are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl Identity {
    pub(crate) fn of(found: &Metadata) -> Self {
        Self {
            device: found.dev(),
            inode: found.ino(),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }
}

/// By the names of volumes.
#[derive(Debug, Default)]
pub(crate) struct Spent(HashMap<String, Socket>);

#[derive(Debug)]
struct Socket {
    identity: Identity,
    failures: u32,
    again: Instant,
}

impl Spent {
    /// Whether the socket is to be dialed at this time.
    pub(crate) fn may_dial(&self, name: &str, identity: Identity, now: Instant) -> bool {
        self.0
            .get(name)
            .is_none_or(|socket| socket.identity != identity || socket.again <= now)
    }

    /// Notes that the socket was dialed. `pause` tells how long to leave it alone after so many times before. Whether it was
    /// the first time.
    pub(crate) fn dialed(
        &mut self,
        name: &str,
        identity: Identity,
        now: Instant,
        pause: impl FnOnce(u32) -> Duration,
    ) -> bool {
        let before = match self.0.get(name) {
            Some(socket) if socket.identity == identity => socket.failures,
            _ => 0,
        };
        let socket = Socket {
            identity,
            failures: before.saturating_add(1),
            again: now + pause(before),
        };
        self.0.insert(name.to_owned(), socket);
        before == 0
    }

    /// Forgets the volumes for which `there` does not hold: their sockets are gone.
    pub(crate) fn keep(&mut self, mut there: impl FnMut(&str) -> bool) {
        self.0.retain(|name, _| there(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: Identity = Identity {
        device: 1,
        inode: 2,
        changed: (3, 4),
    };

    #[test]
    fn a_socket_is_dialed_ever_more_seldom_and_the_first_time_counts() {
        let mut spent = Spent::default();
        let mut now = Instant::now();
        for failures in 0..5 {
            assert!(spent.may_dial("v", SOCKET, now), "{failures}");
            let pause = Duration::from_secs(1 << failures);
            let first = spent.dialed("v", SOCKET, now, |before| {
                assert_eq!(before, failures);
                pause
            });
            assert_eq!(first, failures == 0);
            assert!(!spent.may_dial("v", SOCKET, now + pause - Duration::from_millis(1)));
            now += pause;
        }
    }

    #[test]
    fn another_socket_of_the_name_is_dialed_at_once() {
        let hour = |_| Duration::from_secs(3600);
        let now = Instant::now();
        for (device, inode, changed) in [(9, 2, (3, 4)), (1, 9, (3, 4)), (1, 2, (3, 9))] {
            let mut spent = Spent::default();
            assert!(spent.dialed("v", SOCKET, now, hour));
            let other = Identity {
                device,
                inode,
                changed,
            };
            assert!(spent.may_dial("v", other, now));
            assert!(spent.may_dial("w", SOCKET, now));
            assert!(spent.dialed("v", other, now, hour));
            spent.keep(|name| name != "v");
            assert!(spent.0.is_empty());
        }
    }
}
