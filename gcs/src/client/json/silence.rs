//! Whether the store is silent, remembered from one operation to the next.
//!
//! Who calls a file system waits in a queue: the kernel lets one change of a directory through at a time. If each of
//! them found out for itself that nobody answers, the last would wait for all of the others' deadlines. So the first
//! operation that waits in vain tells the rest, and they get a short time until anything is heard.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::config::Timeouts;

/// After so long an operation gets its full time again, one at a time, lest a store that answers everything, but
/// nothing within the short time, be taken for silent for ever.
const MEMORY: Duration = Duration::from_secs(600);

/// A longer body may take its time on a slow link, which says nothing of the store.
const SMALL: u64 = 64 << 10;

/// What was heard of one host. Shared by all that talk to it over the same connections.
#[derive(Debug, Default)]
pub(super) struct Silence(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The last answer or piece of one.
    heard: Option<Instant>,
    /// When an operation last began or ended its full time in vain, with nothing heard since.
    silent: Option<Instant>,
}

/// An operation's share of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    Full,
    Short,
}

/// What an operation gets of a store that has been silent for so long.
fn share(silent: Option<Duration>) -> Share {
    match silent {
        Some(lasting) if lasting < MEMORY => Share::Short,
        Some(_) | None => Share::Full,
    }
}

impl Silence {
    /// Something arrived.
    pub(super) fn heard(&self) {
        let mut state = self.0.lock();
        state.heard = Some(Instant::now());
        state.silent = None;
    }

    /// Begins an operation that sends `length` bytes.
    pub(super) fn begin(&self, length: u64, timeouts: &Timeouts) -> Turn<'_> {
        let start = Instant::now();
        let mut state = self.0.lock();
        let share = share(state.silent.map(|since| start - since));
        if share == Share::Full && state.silent.is_some() {
            state.silent = Some(start);
        }
        drop(state);
        Turn {
            silence: self,
            start,
            limit: match share {
                Share::Full => timeouts.operation,
                Share::Short => timeouts.silent.min(timeouts.operation),
            },
            short: share == Share::Short,
            telling: length <= SMALL,
        }
    }

    /// An operation that began at `start` has waited in vain.
    fn waited(&self, start: Instant) {
        let mut state = self.0.lock();
        if state.heard.is_none_or(|heard| heard < start) && state.silent.is_none() {
            tracing::debug!("the store is silent: operations get little time until it answers");
            state.silent = Some(Instant::now());
        }
    }
}

/// One operation. Dropped before its end, as by a caller with a deadline of its own, it has still waited.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    silence: &'a Silence,
    start: Instant,
    limit: Duration,
    short: bool,
    telling: bool,
}

impl Turn<'_> {
    /// How long it may take.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether that is the short time of a silent store.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    /// It is over, and not because nobody answered.
    pub(super) fn end(mut self) {
        self.telling = false;
    }

    /// Its time is over and nobody answered it.
    pub(super) fn end_in_vain(mut self) {
        self.telling = false;
        self.silence.waited(self.start);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.telling && self.start.elapsed() >= self.limit / 2 {
            self.silence.waited(self.start);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn a_silent_store_gets_little_time_for_a_while() {
        let seconds = Duration::from_secs;
        for (silent, expected) in [
            (None, Share::Full),
            (Some(seconds(0)), Share::Short),
            (Some(seconds(599)), Share::Short),
            (Some(seconds(600)), Share::Full),
        ] {
            assert_eq!(share(silent), expected, "{silent:?}");
        }
    }

    /// The seconds that the next operation gets.
    fn next(silence: &Silence) -> u64 {
        let turn = silence.begin(0, &Timeouts::default());
        let limit = turn.limit().as_secs();
        assert_eq!(turn.is_short(), limit == 5);
        turn.end();
        limit
    }

    #[tokio::test(start_paused = true)]
    async fn what_ends_in_vain_is_remembered_until_something_is_heard() {
        let silence = Silence::default();
        let begin = |length| silence.begin(length, &Timeouts::default());
        begin(0).end();
        assert_eq!(next(&silence), 120);

        begin(0).end_in_vain();
        assert_eq!([next(&silence), next(&silence)], [5, 5]);
        begin(0).end_in_vain();
        assert_eq!(next(&silence), 5);
        silence.heard();
        assert_eq!(next(&silence), 120);

        // Others were answered meanwhile.
        let turn = begin(0);
        advance(Duration::from_secs(1)).await;
        silence.heard();
        turn.end_in_vain();
        assert_eq!(next(&silence), 120);
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_finds_out_whether_a_long_silence_lasts() {
        let silence = Silence::default();
        silence.begin(0, &Timeouts::default()).end_in_vain();
        advance(MEMORY).await;
        assert_eq!(
            [next(&silence), next(&silence), next(&silence)],
            [120, 5, 5]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_has_waited_too() {
        for (length, waited, expected) in [
            (0, 59, 120),
            (0, 60, 5),
            (SMALL, 60, 5),
            (SMALL + 1, 60, 120),
        ] {
            let silence = Silence::default();
            let turn = silence.begin(length, &Timeouts::default());
            advance(Duration::from_secs(waited)).await;
            drop(turn);
            assert_eq!(next(&silence), expected, "{length} {waited}");
        }
    }
}
