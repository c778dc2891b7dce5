//! What waits to be written.
//!
//! Its bytes are copies: the memory of a block goes back to its reader at once, however slow the disk is.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::index::Header;
use super::key::Key;

/// The most blocks that wait, however small.
const MAX_FILLS: usize = 4096;

/// A block to write.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) key: Key,
    pub(super) header: Arc<Header>,
    pub(super) index: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) crc32c: u32,
}

/// What the writer does next.
#[derive(Debug)]
pub(super) enum Work {
    /// Write a block.
    Fill(Fill),
    /// Remove the files of what is doomed.
    Tidy,
}

/// Blocks on their way to the writer.
#[derive(Debug)]
pub(super) struct Queue {
    max_bytes: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    fills: VecDeque<Fill>,
    /// Bytes that are waiting, or being written, or being copied.
    bytes: usize,
    tidy: bool,
    busy: bool,
    closed: bool,
}

impl Queue {
    /// An empty queue of at most `max_bytes`.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Copies `bytes` in, if there is room for them.
    pub(super) fn push(
        &self,
        key: Key,
        header: &Arc<Header>,
        index: u64,
        bytes: &[u8],
        crc32c: u32,
    ) -> bool {
        if !self.admit(bytes.len()) {
            return false;
        }
        let fill = Fill {
            key,
            header: header.clone(),
            index,
            bytes: bytes.to_vec(),
            crc32c,
        };
        self.state.lock().fills.push_back(fill);
        self.changed.notify_all();
        true
    }

    fn admit(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        let room = self.max_bytes.saturating_sub(state.bytes);
        let fits = !state.closed && bytes <= room && state.fills.len() < MAX_FILLS;
        if fits {
            state.bytes += bytes;
        }
        fits
    }

    /// Takes out the blocks of some contents.
    pub(super) fn purge(&self, of: impl Fn(&Key) -> bool) {
        let mut state = self.state.lock();
        let (out, left) = std::mem::take(&mut state.fills)
            .into_iter()
            .partition::<VecDeque<_>, _>(|fill| of(&fill.key));
        state.fills = left;
        state.bytes -= out.iter().map(|fill| fill.bytes.len()).sum::<usize>();
        drop(state);
        drop(out);
    }

    /// Asks for the doomed to be buried.
    pub(super) fn tidy(&self) {
        self.state.lock().tidy = true;
        self.changed.notify_all();
    }

    /// Lets nothing more in. The writer ends when it is done with what is there.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for work; `None` when there will be none. To be followed by [`Queue::done`].
    pub(super) fn next(&self) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if std::mem::take(&mut state.tidy) {
                state.busy = true;
                return Some(Work::Tidy);
            }
            if let Some(fill) = state.fills.pop_front() {
                state.busy = true;
                return Some(Work::Fill(fill));
            }
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// The work is done.
    pub(super) fn done(&self, work: Work) {
        let bytes = match &work {
            Work::Fill(fill) => fill.bytes.len(),
            Work::Tidy => 0,
        };
        drop(work);
        let mut state = self.state.lock();
        state.bytes -= bytes;
        state.busy = false;
        self.changed.notify_all();
    }

    /// How much is waiting or under way.
    pub(super) fn len(&self) -> usize {
        let state = self.state.lock();
        state.fills.len() + usize::from(state.busy) + usize::from(state.tidy)
    }

    /// Waits until nothing is waiting or under way.
    #[cfg(test)]
    pub(super) fn settle(&self) {
        let mut state = self.state.lock();
        while state.busy || state.tidy || !state.fills.is_empty() {
            let wait = std::time::Duration::from_secs(60);
            let waited = self.changed.wait_for(&mut state, wait);
            assert!(!waited.timed_out(), "the writer is stuck or gone");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Arc<Header> {
        Arc::new(Header {
            bucket: String::new(),
            realm: String::new(),
            name: String::new(),
            generation: 0,
            size: 100,
            crc32c: None,
            block_size: 10,
        })
    }

    fn key(object: u128) -> Key {
        Key {
            object,
            generation: 0,
        }
    }

    #[test]
    fn bytes_are_bounded_until_they_are_written() {
        let queue = Queue::new(25);
        let push = |index| queue.push(key(1), &header(), index, &[0; 10], 0);
        assert!(push(0) && push(1) && !push(2));
        let work = queue.next().unwrap();
        assert!(!push(3), "what is being written counts");
        queue.done(work);
        assert!(push(4));
        assert_eq!(queue.len(), 2);
    }

    #[test]
    fn blocks_are_bounded_in_number() {
        let queue = Queue::new(usize::MAX);
        let pushed = (0..).take_while(|i| queue.push(key(1), &header(), *i, &[], 0));
        assert_eq!(pushed.count(), MAX_FILLS);
    }

    #[test]
    fn purging_takes_out_one_content_and_gives_its_room_back() {
        let queue = Queue::new(30);
        for (object, index) in [(1, 0), (2, 0), (1, 1)] {
            assert!(queue.push(key(object), &header(), index, &[0; 10], 0));
        }
        queue.purge(|other| *other == key(1));
        assert_eq!(queue.len(), 1);
        assert!(queue.push(key(3), &header(), 0, &[0; 20], 0));
    }

    #[test]
    fn a_closed_queue_gives_what_it_has_and_takes_nothing() {
        let queue = Queue::new(30);
        assert!(queue.push(key(1), &header(), 0, &[0; 10], 0));
        queue.close();
        assert!(!queue.push(key(1), &header(), 1, &[0; 10], 0));
        let work = queue.next().unwrap();
        assert!(matches!(&work, Work::Fill(fill) if fill.index == 0));
        queue.done(work);
        assert!(queue.next().is_none());
    }
}
