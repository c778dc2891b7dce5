//! An access token with all that its users need made ready once, so that the many who use it copy
//! little: the request headers, their entity tag, its life.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use google_cloud_auth::credentials::EntityTag;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::clock::Moment;
use crate::error::Error;
use crate::schedule::Life;
use crate::secret::{AccessSecret, SCHEME, bearer};

/// An access token. Its `Debug` does not show it; its memory is zeroed when the last user lets go.
pub struct AccessToken {
    /// All that a request needs: `Bearer` and the token, marked sensitive. Each copy holds the text of
    /// its own, since its clones count their users, and threads that count at one place wait for
    /// each other.
    copies: Box<[Ready]>,
    tag: EntityTag,
    life: Life,
    rejected: AtomicBool,
}

/// What a request needs, and what those need who hand the token on.
struct Ready {
    header: HeaderValue,
    headers: HeaderMap,
}

impl Ready {
    fn new(secret: &AccessSecret) -> Result<Self, Error> {
        let header = bearer(secret)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, header.clone())]);
        Ok(Self { header, headers })
    }
}

impl AccessToken {
    pub(crate) fn new(secret: &AccessSecret, life: Life) -> Result<Self, Error> {
        let number = copies_of(secret.expose().len());
        let copies: Result<_, Error> = (0..number).map(|_| Ready::new(secret)).collect();
        Ok(Self {
            copies: copies?,
            tag: EntityTag::new(),
            life,
            rejected: AtomicBool::new(false),
        })
    }

    /// The token itself, for those who hand it on. It must not be logged.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.header()
            .to_str()
            .map_or("", |value| &value[SCHEME.len()..])
    }

    /// The value of an `authorization` header, marked sensitive. Cloning it copies no text.
    #[must_use]
    pub fn header(&self) -> &HeaderValue {
        &self.copy().header
    }

    /// All headers that a request needs. Equal on every thread, but not the same.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.copy().headers
    }

    fn copy(&self) -> &Ready {
        &self.copies[this_thread() % self.copies.len()]
    }

    /// The name of this token within this process. No two tokens share one.
    #[must_use]
    pub fn tag(&self) -> &EntityTag {
        &self.tag
    }

    /// When the token was asked for, on the clock of its broker.
    #[must_use]
    pub fn asked_at(&self) -> Moment {
        self.life.since()
    }

    /// When the token ends, on the clock of its broker.
    #[must_use]
    pub fn ends_at(&self) -> Moment {
        self.life.ends_at()
    }

    pub(crate) fn is_usable(&self, now: Moment) -> bool {
        self.life.is_usable(now)
    }

    /// Notes that a service answered 401 to it. Whether this is the first such note.
    pub(crate) fn mark_rejected(&self) -> bool {
        !self.rejected.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_rejected(&self) -> bool {
        self.rejected.load(Ordering::Acquire)
    }
}

/// The most copies that are of use, and the most bytes that all but the first may take.
const COPIES: (usize, usize) = (8, 8 << 10);

/// How many copies a token of `length` bytes has: one for each thread that can run at a time, within the bounds.
fn copies_of(length: usize) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    threads.min(COPIES.0).min(1 + COPIES.1 / length.max(1))
}

/// A number for this thread: threads that start one after the other have numbers that do.
fn this_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.get().unwrap_or_else(|| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(Some(number));
        number
    })
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessToken")
            .field("tag", &self.tag)
            .field("ends_at", &self.ends_at())
            .field("rejected", &self.is_rejected())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::Kind;

    fn token(text: &str) -> Result<AccessToken, Error> {
        let life = Life::new(Moment::ORIGIN, Duration::from_secs(10));
        AccessToken::new(&AccessSecret::new(text.to_owned()), life)
    }

    #[test]
    fn the_header_carries_the_token_and_shows_it_to_nobody() {
        let token = token("ya29.c-_~+/=").unwrap();
        assert_eq!(token.headers()[AUTHORIZATION], "Bearer ya29.c-_~+/=");
        assert_eq!(token.expose(), "ya29.c-_~+/=");
        assert!(token.header().is_sensitive() && token.headers()[AUTHORIZATION].is_sensitive());
        let shown = format!("{token:?} {:?} {:?}", token.header(), token.headers());
        assert!(!shown.contains("ya29"), "{shown}");
    }

    #[test]
    fn copies_are_few_where_the_token_is_long() {
        assert_eq!(copies_of(12 << 10), 1);
        for length in [0, 1, 1 << 10, 4 << 10] {
            let copies = copies_of(length);
            assert!((1..=8).contains(&copies) && (copies - 1) * length <= 8 << 10);
        }
    }

    #[test]
    fn threads_have_equal_headers() {
        let token = token("shared").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| assert_eq!(token.headers()[AUTHORIZATION], "Bearer shared"));
            }
        });
    }

    #[test]
    fn what_would_break_a_header_is_no_token() {
        for text in ["a\r\nx: y", "a b", "ü", "\0"] {
            let error = token(text).unwrap_err();
            assert_eq!(error.kind(), Kind::BadAnswer);
        }
    }
}
