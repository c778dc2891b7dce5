//! Checks a file's bytes against the object's CRC32C, whatever the order in which its blocks are handed out.
//!
//! The checksums of neighbouring blocks are combined into runs. The block that would complete the object is admitted
//! only if the combination is the object's checksum: an in-order reader of corrupt bytes gets an error in place of the
//! last block, never a clean end of file.

use std::collections::BTreeMap;
use std::ops::Range;

/// A handle that leaves more gaps than this is not reading the object whole: it is not worth the memory.
const MAX_RUNS: usize = 1024;

#[derive(Debug)]
pub(super) enum Coverage {
    /// There is nothing to check against, or nothing left to check.
    Settled,
    /// Blocks are missing.
    Partial(Partial),
}

#[derive(Debug)]
pub(super) struct Partial {
    size: u64,
    expected: u32,
    /// Bytes handed out, by their start; runs do not touch.
    runs: BTreeMap<u64, Run>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
    crc32c: u32,
}

impl Coverage {
    pub(super) fn new(size: u64, expected: Option<u32>) -> Self {
        expected.map_or(Self::Settled, |expected| {
            Self::Partial(Partial {
                size,
                expected,
                runs: BTreeMap::new(),
            })
        })
    }

    /// Whether the block of these bytes may be handed out. One that may not changes nothing and can be tried again.
    pub(super) fn admit(&mut self, block: &Range<u64>, crc32c: u32) -> bool {
        let Self::Partial(partial) = self else {
            return true;
        };
        if partial.holds(block) {
            return true;
        }
        let run = partial.joined(block, crc32c);
        let complete = run.start == 0 && run.end == partial.size;
        if complete && run.crc32c != partial.expected {
            return false;
        }
        partial.keep(run);
        if complete || partial.runs.len() > MAX_RUNS {
            *self = Self::Settled;
        }
        true
    }
}

impl Partial {
    fn before(&self, offset: u64) -> Option<&Run> {
        self.runs.range(..=offset).next_back().map(|(_, run)| run)
    }

    fn holds(&self, block: &Range<u64>) -> bool {
        self.before(block.start)
            .is_some_and(|run| run.end >= block.end)
    }

    /// The run that the block makes with its neighbours.
    fn joined(&self, block: &Range<u64>, crc32c: u32) -> Run {
        let mut run = Run {
            start: block.start,
            end: block.end,
            crc32c,
        };
        if let Some(left) = self.before(block.start).filter(|r| r.end == block.start) {
            run = left.then(&run);
        }
        if let Some(right) = self.runs.get(&block.end) {
            run = run.then(right);
        }
        run
    }

    fn keep(&mut self, run: Run) {
        self.runs
            .retain(|start, _| *start < run.start || *start >= run.end);
        self.runs.insert(run.start, run);
    }
}

impl Run {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "usize has 64 bits on every platform that is supported"
    )]
    fn then(&self, right: &Self) -> Self {
        let length = (right.end - right.start) as usize;
        Self {
            start: self.start,
            end: right.end,
            crc32c: crc32c::crc32c_combine(self.crc32c, right.crc32c, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: &[u8] = b"the quick brown fox jumps over the lazy dog";
    const BLOCK: usize = 5;

    fn blocks(bytes: &[u8]) -> Vec<(Range<u64>, u32)> {
        let mut start = 0;
        bytes
            .chunks(BLOCK)
            .map(|chunk| {
                let range = start..start + chunk.len() as u64;
                start = range.end;
                (range, crc32c::crc32c(chunk))
            })
            .collect()
    }

    fn coverage() -> Coverage {
        Coverage::new(BYTES.len() as u64, Some(crc32c::crc32c(BYTES)))
    }

    #[test]
    fn true_bytes_are_admitted_in_any_order() {
        let blocks = blocks(BYTES);
        for step in [1, 2, 4, 5, 7, 8] {
            let mut coverage = coverage();
            for i in 0..blocks.len() {
                let (range, crc) = &blocks[(i * step) % blocks.len()];
                assert!(coverage.admit(range, *crc), "step {step}");
                assert!(coverage.admit(range, *crc), "again");
            }
            assert!(matches!(coverage, Coverage::Settled), "step {step}");
        }
    }

    #[test]
    fn whichever_block_completes_wrong_bytes_is_withheld() {
        let mut wrong = BYTES.to_vec();
        wrong[12] ^= 1;
        let blocks = blocks(&wrong);
        for last in 0..blocks.len() {
            let mut coverage = coverage();
            for (i, (range, crc)) in blocks.iter().enumerate() {
                assert!(i == last || coverage.admit(range, *crc));
            }
            let (range, crc) = &blocks[last];
            assert!(!coverage.admit(range, *crc));
            assert!(!coverage.admit(range, *crc), "it stays withheld");
        }
    }

    #[test]
    fn a_block_that_was_fetched_again_can_be_right() {
        let mut coverage = coverage();
        let mut blocks = blocks(BYTES);
        let (last, crc) = blocks.pop().unwrap();
        for (range, crc) in &blocks {
            assert!(coverage.admit(range, *crc));
        }
        assert!(!coverage.admit(&last, crc ^ 1));
        assert!(coverage.admit(&last, crc));
    }

    #[test]
    fn without_a_checksum_everything_is_admitted() {
        let mut coverage = Coverage::new(10, None);
        assert!(coverage.admit(&(0..10), 1));
    }

    #[test]
    fn too_many_gaps_end_the_check() {
        let mut coverage = Coverage::new(u64::MAX, Some(0));
        for i in 0..=MAX_RUNS as u64 {
            assert!(coverage.admit(&(2 * i..2 * i + 1), 0));
        }
        assert!(matches!(coverage, Coverage::Settled));
    }
}
