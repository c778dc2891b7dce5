//! An access token with all that its users need made ready once, so that the many who use it copy
//! little: the request headers, their entity tag, its life.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use google_cloud_auth::credentials::EntityTag;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

use crate::clock::Moment;
use crate::error::Error;
use crate::schedule::Life;
use crate::secret::{AccessSecret, SCHEME, bearer};

/// An access token. Its `Debug` does not show it; its memory is zeroed when the last user lets go.
pub struct AccessToken {
    /// `Bearer` and the token, marked sensitive. The one place where the text is kept.
    header: HeaderValue,
    headers: HeaderMap,
    tag: EntityTag,
    life: Life,
    rejected: AtomicBool,
}

impl AccessToken {
    pub(crate) fn new(secret: &AccessSecret, life: Life) -> Result<Self, Error> {
        let header = bearer(secret)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, header.clone())]);
        Ok(Self {
            header,
            headers,
            tag: EntityTag::new(),
            life,
            rejected: AtomicBool::new(false),
        })
    }

    /// The token itself, for those who hand it on. It must not be logged.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.header
            .to_str()
            .map_or("", |value| &value[SCHEME.len()..])
    }

    /// The value of an `authorization` header, marked sensitive. Cloning it copies no text.
    #[must_use]
    pub fn header(&self) -> &HeaderValue {
        &self.header
    }

    /// All headers that a request needs.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The name of this token within this process. No two tokens share one.
    #[must_use]
    pub fn tag(&self) -> &EntityTag {
        &self.tag
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
    fn what_would_break_a_header_is_no_token() {
        for text in ["a\r\nx: y", "a b", "ü", "\0"] {
            let error = token(text).unwrap_err();
            assert_eq!(error.kind(), Kind::BadAnswer);
        }
    }
}
