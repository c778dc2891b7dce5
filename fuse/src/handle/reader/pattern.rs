//! What the reads of one handle say about those to come.
//!
//! Pure: the state and a read make the next state and a [`Plan`]. A handle may hold several sequential streams beside
//! random reads, so a look at the footer does not end the stream that was under way. A read that continues none
//! is fetched exactly; one that continues a lone read starts a stream, and so does the beginning of the object.

use std::ops::Range;

use gcsmount_cache::Presence;

/// The kernel sends a sequential stream as several background requests, and session threads take them in any order.
const REORDER: u64 = 1 << 20;
/// Streams and lone reads that are remembered, of each.
const REMEMBERED: usize = 4;
/// A stream is confirmed by its second read, when more than the kernel's first readahead was asked for.
const FIRST_READAHEAD: u64 = 128 << 10;
/// How far a stream must have come before the holes in it are counted.
const JUDGED_AFTER: u64 = 2 << 20;

/// Sizes in bytes; each of the last two is at least one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Length of the object.
    pub(super) size: u64,
    /// Length of a block.
    pub(super) block: u64,
    /// Length of one request of a prefetch.
    pub(super) part: u64,
    /// The most to be ahead of a stream.
    pub(super) max_window: u64,
}

/// What to do about a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// Fetch what was asked for and no more.
    Exact,
    /// Fetch its blocks, and those of `ahead`, which begins and ends at blocks, before they are asked for.
    Blocks {
        /// Empty when enough is under way.
        ahead: Range<u64>,
    },
}

/// The reads of one handle so far.
#[derive(Debug)]
pub(super) struct Pattern {
    geometry: Geometry,
    /// The one that was read last stands last.
    streams: Vec<Stream>,
    /// Where reads ended that continued nothing; the last one stands last.
    lone: Vec<u64>,
}

#[derive(Debug)]
struct Stream {
    /// End of the furthest read.
    next: u64,
    /// Everything below is here or under way.
    frontier: u64,
    /// How far to be ahead of `next`.
    window: u64,
    /// More than one read has come, and more than the kernel asks for by itself.
    confirmed: bool,
    /// Bytes read since the window last grew.
    since_growth: u64,
    /// How far the stream has come, and how much of that was read.
    distance: u64,
    read: u64,
    reads: u32,
}

impl Geometry {
    /// The start of the block that holds `offset`.
    pub(super) fn floor(&self, offset: u64) -> u64 {
        offset - offset % self.block
    }

    /// The start of the first block at or behind `offset`, or the end of the object.
    pub(super) fn ceil(&self, offset: u64) -> u64 {
        offset
            .checked_next_multiple_of(self.block)
            .map_or(self.size, |end| end.min(self.size))
    }

    /// The indices of the blocks that `range` touches.
    pub(super) fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block..range.end.div_ceil(self.block)
    }

    /// The bytes of a block.
    pub(super) fn bytes(&self, index: u64) -> Range<u64> {
        let start = index * self.block;
        start..self.ceil(start + 1)
    }

    fn is_small(&self) -> bool {
        self.size <= self.block
    }
}

impl Pattern {
    pub(super) fn new(geometry: Geometry) -> Self {
        Self {
            geometry,
            streams: Vec::new(),
            lone: Vec::new(),
        }
    }

    /// Takes note of a non-empty read of which the worst block is `presence`, and decides.
    pub(super) fn observe(&mut self, read: &Range<u64>, presence: Presence) -> Plan {
        if self.geometry.is_small() {
            return Plan::Blocks {
                ahead: read.end..read.end,
            };
        }
        let Some(mut stream) = self.take_stream(read) else {
            remember(&mut self.lone, read.end);
            return Plan::Exact;
        };
        stream.advance(read);
        if stream.is_sparse() {
            remember(&mut self.lone, read.end);
            return Plan::Exact;
        }
        stream.adapt(presence, read, &self.geometry);
        let ahead = stream.ahead(&self.geometry);
        remember(&mut self.streams, stream);
        Plan::Blocks { ahead }
    }

    /// Memory for the blocks from `offset` on was refused to the stream that was read last.
    pub(super) fn retreat(&mut self, offset: u64) {
        if let Some(stream) = self.streams.last_mut() {
            stream.window = (stream.window / 2).max(self.geometry.block);
            stream.since_growth = 0;
            stream.frontier = stream.frontier.min(offset);
        }
    }

    /// What was fetched ahead of each stream and not read.
    pub(super) fn unread(&self) -> impl Iterator<Item = Range<u64>> {
        self.streams.iter().map(|stream| {
            let start = self.geometry.floor(stream.next).min(stream.frontier);
            start..stream.frontier
        })
    }

    /// The stream that the read continues or starts.
    fn take_stream(&mut self, read: &Range<u64>) -> Option<Stream> {
        if let Some(i) = self.streams.iter().rposition(|s| s.is_continued_by(read)) {
            return Some(self.streams.remove(i));
        }
        let length = read.end - read.start;
        let continued = |end: &u64| (*end..=end.saturating_add(length)).contains(&read.start);
        if let Some(i) = self.lone.iter().rposition(continued) {
            let end = self.lone.remove(i);
            return Some(Stream::new(end, &self.geometry));
        }
        (read.start == 0).then(|| Stream::new(0, &self.geometry))
    }
}

fn remember<T>(all: &mut Vec<T>, one: T) {
    if all.len() == REMEMBERED {
        all.remove(0);
    }
    all.push(one);
}

impl Stream {
    fn new(start: u64, geometry: &Geometry) -> Self {
        Self {
            next: start,
            frontier: geometry.floor(start),
            window: geometry.block,
            confirmed: false,
            since_growth: 0,
            distance: 0,
            read: 0,
            reads: 0,
        }
    }

    fn is_continued_by(&self, read: &Range<u64>) -> bool {
        // Before it is confirmed, a stream is no more than two reads that happen to be neighbours.
        let requests = 4 * (read.end - read.start);
        let slack = if self.confirmed {
            requests.max(REORDER)
        } else {
            requests
        };
        self.next.abs_diff(read.start) <= slack
    }

    fn advance(&mut self, read: &Range<u64>) {
        let length = read.end - read.start;
        self.distance += read.end.saturating_sub(self.next);
        self.next = self.next.max(read.end);
        self.read += length;
        self.since_growth += length;
        self.reads = self.reads.saturating_add(1);
        if self.distance > 4 * JUDGED_AFTER {
            self.distance /= 2;
            self.read /= 2;
        }
    }

    /// Mostly holes: reads that are near each other by chance, or strides.
    fn is_sparse(&self) -> bool {
        self.distance > JUDGED_AFTER && self.read < self.distance / 2
    }

    fn adapt(&mut self, presence: Presence, read: &Range<u64>, geometry: &Geometry) {
        if !self.confirmed {
            if self.reads > 1 && self.read > FIRST_READAHEAD {
                self.confirmed = true;
                self.grow(geometry.part, geometry);
            }
        } else if presence == Presence::InFlight && self.since_growth >= geometry.block {
            // The consumer keeps up with the window, so the window is what holds it back.
            self.grow(2 * self.window, geometry);
        }
        let demanded = geometry.ceil(read.end);
        self.frontier = match presence {
            // Blocks were lost to somebody who needed their memory more; those behind may be gone as well.
            Presence::Absent => demanded,
            Presence::Ready | Presence::InFlight => self.frontier.max(demanded),
        };
    }

    fn grow(&mut self, window: u64, geometry: &Geometry) {
        self.window = window.min(geometry.max_window).max(geometry.block);
        self.since_growth = 0;
    }

    /// What is to be asked for now, in pieces that are worth a request.
    fn ahead(&mut self, geometry: &Geometry) -> Range<u64> {
        let start = self.frontier;
        let target = self.next.saturating_add(self.window);
        let target = if target >= geometry.size {
            geometry.size
        } else {
            geometry.floor(target)
        };
        let worth = geometry.part.min(self.window / 2);
        let missing = target.saturating_sub(start);
        if missing == 0 || (missing < worth && target < geometry.size) {
            return start..start;
        }
        self.frontier = target;
        start..target
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Presence::{Absent, InFlight, Ready};

    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;

    fn pattern(size: u64) -> Pattern {
        Pattern::new(Geometry {
            size,
            block: M,
            part: 4 * M,
            max_window: 32 * M,
        })
    }

    fn ahead(range: Range<u64>) -> Plan {
        Plan::Blocks { ahead: range }
    }

    /// Feeds reads of (offset, length, presence) and compares each plan.
    fn check(size: u64, story: &[(u64, u64, Presence, Plan)]) {
        let mut pattern = pattern(size);
        for (step, (offset, length, presence, plan)) in story.iter().enumerate() {
            let made = pattern.observe(&(*offset..offset + length), *presence);
            let empty = |p: &Plan| matches!(p, Plan::Blocks { ahead } if ahead.is_empty());
            assert!(
                made == *plan || (empty(&made) && empty(plan)),
                "step {step}: {made:?} instead of {plan:?}"
            );
        }
    }

    #[test]
    fn a_stream_is_confirmed_by_its_second_read_and_grows_while_the_reader_waits() {
        check(
            100 * M,
            &[
                (0, 128 * K, Absent, ahead(0..0)),
                (128 * K, 128 * K, Ready, ahead(M..4 * M)),
                (256 * K, 768 * K, Ready, ahead(0..0)),
                (M, M, InFlight, ahead(4 * M..10 * M)),
                (2 * M, M, InFlight, ahead(10 * M..19 * M)),
                (3 * M, M, InFlight, ahead(19 * M..36 * M)),
                (4 * M, M, InFlight, ahead(0..0)),
                (5 * M, M, Ready, ahead(0..0)),
                (6 * M, M, Ready, ahead(0..0)),
                (7 * M, M, Ready, ahead(36 * M..40 * M)),
            ],
        );
    }

    #[test]
    fn a_window_stays_while_every_read_is_ready() {
        check(
            100 * M,
            &[
                (0, M, Absent, ahead(M..2 * M)),
                (M, M, Ready, ahead(2 * M..6 * M)),
                (2 * M, M, Ready, ahead(0..0)),
                (3 * M, M, Ready, ahead(6 * M..8 * M)),
            ],
        );
    }

    #[test]
    fn small_objects_are_whole_blocks_wherever_they_are_read() {
        check(M, &[(M - 1, 1, Absent, ahead(0..0))]);
    }

    #[test]
    fn lone_reads_are_exact_and_two_in_a_row_are_a_stream() {
        check(
            1000 * M,
            &[
                (500 * M, 4 * K, Absent, Plan::Exact),
                (900 * M, 4 * K, Absent, Plan::Exact),
                (300 * M, 4 * K, Absent, Plan::Exact),
                (500 * M + 4 * K, 4 * K, Absent, ahead(0..0)),
            ],
        );
    }

    #[test]
    fn strides_and_chance_neighbours_do_not_stay_a_stream() {
        let mut pattern = pattern(1000 * M);
        let mut plans = Vec::new();
        for stride in 0..64 {
            let offset = stride * 256 * K;
            plans.push(pattern.observe(&(offset..offset + 4 * K), Absent));
        }
        let blocks = plans.iter().filter(|p| **p != Plan::Exact).count();
        assert!(blocks <= 10, "{blocks} of 64 were taken for a stream");
        assert!(plans.iter().all(|p| *p == Plan::Exact
            || matches!(p, Plan::Blocks { ahead } if ahead.end - ahead.start <= M)));
    }

    #[test]
    fn requests_out_of_order_continue_a_stream() {
        check(
            100 * M,
            &[
                (0, 128 * K, Absent, ahead(0..0)),
                (256 * K, 128 * K, InFlight, ahead(M..4 * M)),
                (128 * K, 128 * K, InFlight, ahead(0..0)),
                (512 * K, 128 * K, Ready, ahead(0..0)),
                (384 * K, 128 * K, Ready, ahead(0..0)),
            ],
        );
    }

    #[test]
    fn a_look_at_the_footer_keeps_the_window() {
        check(
            100 * M,
            &[
                (0, M, Absent, ahead(M..2 * M)),
                (M, M, InFlight, ahead(2 * M..6 * M)),
                (100 * M - 8, 8, Absent, Plan::Exact),
                (90 * M, 64 * K, Absent, Plan::Exact),
                (2 * M, M, InFlight, ahead(6 * M..11 * M)),
            ],
        );
    }

    #[test]
    fn refused_memory_halves_the_window_and_asks_again_later() {
        let mut pattern = pattern(100 * M);
        pattern.observe(&(0..M), Absent);
        assert_eq!(pattern.observe(&(M..2 * M), InFlight), ahead(2 * M..6 * M));
        pattern.retreat(3 * M);
        assert_eq!(pattern.observe(&(2 * M..3 * M), Ready), ahead(3 * M..5 * M));
        pattern.retreat(3 * M);
        assert_eq!(
            pattern.observe(&(3 * M..4 * M), Absent),
            ahead(4 * M..5 * M)
        );
    }

    #[test]
    fn nothing_is_asked_for_behind_the_end() {
        let size = 5 * M + 17;
        check(
            size,
            &[
                (0, M, Absent, ahead(M..2 * M)),
                (M, M, InFlight, ahead(2 * M..size)),
                (2 * M, M, InFlight, ahead(0..0)),
                (3 * M, 2 * M, InFlight, ahead(0..0)),
                (5 * M, 17, InFlight, ahead(0..0)),
            ],
        );
    }

    #[test]
    fn blocks_of_a_range_end_with_the_object() {
        let geometry = pattern(2 * M + 5).geometry;
        assert_eq!(geometry.blocks(&(0..1)), 0..1);
        assert_eq!(geometry.blocks(&(M - 1..M + 1)), 0..2);
        assert_eq!(geometry.bytes(1), M..2 * M);
        assert_eq!(geometry.bytes(2), 2 * M..2 * M + 5);
    }
}
