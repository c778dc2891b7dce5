//! What is told of the requests that a client sends.

use std::fmt::Debug;
use std::time::Duration;

use crate::{Cause, Kind};

/// Somebody who counts what a client does. Called in the middle of requests, on whichever thread: it must neither block
/// nor panic. [`Config::observer`](super::Config::observer) names it; without one nothing is measured.
pub trait Observer: Debug + Send + Sync {
    /// A request was answered, or has failed before its answer. A request that is given up before either, as the slower
    /// of two that ask for the same, is not told.
    fn attempted(&self, attempt: &Attempt);

    /// The same is about to be asked for again.
    fn repeating(&self, repetition: &Repetition);

    /// A connection took so many bytes of content to be stored, those that have to be sent again included. Neither
    /// metadata nor what frames it counts.
    fn sent(&self, bytes: u64);

    /// So many bytes of content have arrived, whatever becomes of them: those of a body that breaks, stalls or turns out
    /// to be wrong included. Of a body that is dropped before its end, what the connection holds at that moment, at most
    /// [`Pool::read_buffer`](super::Pool::read_buffer), is not seen.
    fn received(&self, bytes: u64);
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The call in Google's words, such as `storage.objects.get`, which has `.media` behind it where the bytes were asked for.
    pub operation: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// From when it was ready to be sent to the head of its answer, or to its failure. That includes the wait for a
    /// connection, for a rate that was set, and for a token where none came; not the body of the answer.
    pub took: Duration,
    /// Which request for the same it was, from 1. A body that is taken up again, or a chunk that is sent again, goes on
    /// counting.
    pub number: u32,
}

impl Attempt {
    /// Whether the same was asked for before.
    #[must_use]
    pub fn is_repetition(&self) -> bool {
        self.number > 1
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The store answered with this HTTP status.
    Answered(u16),
    /// There was no answer.
    Lost(Cause),
}

/// Why the same is asked for once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It failed in a way that may pass. The cause is there where no answer came, or none that was whole.
    Failed(Kind, Option<Cause>),
    /// The store did not take the token, and there is another.
    Token,
    /// It is slow to be answered, and a second request may be faster.
    Slow,
    /// The answer had more headers than were expected.
    Headers,
}

/// A repetition that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repetition {
    /// The call in Google's words.
    pub operation: &'static str,
    /// What for.
    pub reason: Reason,
    /// How long it waits before.
    pub pause: Duration,
}
