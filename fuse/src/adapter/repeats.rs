//! How often a failure that repeats itself is logged.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The least time between two lines of one kind.
const PAUSE: Duration = Duration::from_secs(10);

/// What was logged of late, by kind. There must be few kinds: each is remembered for good.
#[derive(Debug)]
pub(super) struct Repeats<K>(Mutex<HashMap<K, Line>>);

/// The last line of a kind.
#[derive(Debug)]
struct Line {
    at: Instant,
    /// How many were left out since.
    left_out: u64,
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Repeats<K> {
    /// Takes in a failure of this kind. If it is to be logged, how many were left out before it.
    pub(super) fn admit(&self, kind: K) -> Option<u64> {
        let now = Instant::now();
        let mut lines = self.0.lock();
        let Some(last) = lines.get_mut(&kind) else {
            lines.insert(
                kind,
                Line {
                    at: now,
                    left_out: 0,
                },
            );
            return Some(0);
        };
        if now.duration_since(last.at) < PAUSE {
            last.left_out += 1;
            return None;
        }
        last.at = now;
        Some(std::mem::take(&mut last.left_out))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failure_that_repeats_itself_is_one_line_and_a_count() {
        let repeats = Repeats::default();
        assert_eq!(repeats.admit("a"), Some(0));
        for _ in 0..3 {
            advance(PAUSE / 4).await;
            assert_eq!(repeats.admit("a"), None);
        }
        assert_eq!(repeats.admit("b"), Some(0));
        advance(PAUSE / 4).await;
        assert_eq!(repeats.admit("a"), Some(3));
        assert_eq!(repeats.admit("a"), None);
        advance(PAUSE).await;
        assert_eq!(repeats.admit("a"), Some(1));
        advance(PAUSE).await;
        assert_eq!(repeats.admit("a"), Some(0));
    }
}
