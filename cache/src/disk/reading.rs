//! From the disk to a reader.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::content::{Found, Whole};
use super::entry::{Entry, Got, Unopened, Verdict};
use super::home::Home;
use super::index::Header;
use super::jobs::Outcome;
use super::key::{ASIDE, Key};
use super::shelf::Place;
use super::{Inner, count};
use crate::{Block, Lease};

impl Inner {
    pub(super) fn knows(&self, key: &Key) -> bool {
        self.state.lock().shelf.contains(key)
    }

    /// [`Inner::get`] for somebody who awaits it.
    pub(super) async fn read(
        self: &Arc<Self>,
        key: Key,
        header: Arc<Header>,
        index: u64,
        lease: Lease,
    ) -> Found {
        if !self.knows(&key) || !self.reads.allows(Instant::now()) {
            count(&self.counts.misses);
            return Found::Nothing(lease);
        }
        let inner = self.clone();
        let job = move |lease| inner.get(key, &header, index, lease);
        let outcome = self.read_jobs.run(lease, job).await;
        match outcome {
            Outcome::Done(Ok(block)) => {
                self.reads.succeed();
                Found::Block(block)
            }
            Outcome::Done(Err(lease)) => Found::Nothing(lease),
            Outcome::NotBegun(lease) => {
                self.late();
                Found::Nothing(lease)
            }
            Outcome::Late => {
                self.late();
                Found::Late
            }
        }
    }

    fn late(&self) {
        count(&self.counts.failed);
        self.reads.fail(Instant::now(), &"the disk does not answer");
    }

    /// The block, or the lease back.
    pub(super) fn get(
        &self,
        key: Key,
        header: &Header,
        index: u64,
        lease: Lease,
    ) -> Result<Block, Lease> {
        let wanted = header.length(index) == Some(lease.bytes() as u64);
        let entry = self.opened(&key);
        let entry = entry.filter(|entry| wanted && entry.header().is_of(header));
        let Some(entry) = entry else {
            count(&self.counts.misses);
            return Err(lease);
        };
        let block = Block::read(lease, |bytes| match entry.read(index, bytes) {
            Got::Block(crc32c) => Some(crc32c),
            Got::Nothing => None,
            Got::Corrupt => {
                self.corrupt("a block", &header.name);
                None
            }
            Got::Failed(error) => {
                self.failed_to_read(&error);
                None
            }
        });
        count(match &block {
            Ok(_) => &self.counts.hits,
            Err(_) => &self.counts.misses,
        });
        block
    }

    /// [`Inner::whole`] for somebody who awaits it.
    pub(super) async fn check(self: &Arc<Self>, key: Key, header: Arc<Header>) -> Option<Whole> {
        if !self.knows(&key) || !self.reads.allows(Instant::now()) {
            return None;
        }
        let inner = self.clone();
        let job = move |()| inner.whole(key, &header);
        match self.check_jobs.run((), job).await {
            Outcome::Done(whole) => whole,
            Outcome::NotBegun(()) | Outcome::Late => None,
        }
    }

    pub(super) fn whole(&self, key: Key, header: &Header) -> Option<Whole> {
        let entry = self.opened(&key)?;
        if !entry.header().is_of(header) {
            return None;
        }
        match entry.whole(header.crc32c) {
            Verdict::Yes => {}
            Verdict::No => return None,
            Verdict::Corrupt => {
                self.corrupt("a block", &header.name);
                return None;
            }
            Verdict::WrongSum => {
                self.corrupt("an object", &header.name);
                self.distrust(key);
                return None;
            }
            Verdict::Failed(error) => {
                self.failed_to_read(&error);
                return None;
            }
        }
        let home = self.state.lock().home.clone()?;
        match entry.reopen(&home) {
            Ok(file) => Some(Whole {
                file,
                _entry: entry,
            }),
            Err(error) => {
                tracing::debug!(%error, "a whole object of the disk cache cannot be passed on");
                None
            }
        }
    }

    /// The files of a content, which counts as used. What cannot be opened is not there any more.
    pub(super) fn opened(&self, key: &Key) -> Option<Arc<Entry>> {
        let home = {
            let mut state = self.state.lock();
            match state.shelf.find(key)? {
                Place::Open(entry) => return Some(entry),
                Place::OnDisk => state.home.clone()?,
            }
        };
        match Entry::open(&home, *key) {
            Ok(entry) => {
                let (entry, closed) = self.state.lock().shelf.install(Arc::new(entry));
                drop(closed);
                entry
            }
            Err(why) => {
                self.unopened(&home, key, &why);
                None
            }
        }
    }

    fn unopened(&self, home: &Home, key: &Key, why: &Unopened) {
        match why {
            Unopened::Version(version) => self.set_aside(home, key, *version),
            Unopened::Damaged => {
                // Whoever has evicted it meanwhile has taken it off the shelf before.
                if self.knows(key) {
                    self.corrupt("a file", &key.index());
                    self.discard(key);
                }
            }
            Unopened::Failed(error) => self.failed_to_read(error),
        }
    }

    fn set_aside(&self, home: &Home, key: &Key, version: u32) {
        if !self.said_version.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                version,
                "files of another version are in the cache directory; they are not read, and go when room is needed"
            );
        }
        if let Err(error) = home.set_aside(*key) {
            self.failed_to_read(&error);
            return;
        }
        let names = [key.index(), key.data()].map(|name| format!("{name}{ASIDE}"));
        let closed = self.state.lock().shelf.set_aside(key, names.into());
        drop(closed);
    }

    fn failed_to_read(&self, error: &std::io::Error) {
        count(&self.counts.failed);
        self.fills.fail(Instant::now(), error);
    }
}
