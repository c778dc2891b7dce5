//! Upload sessions: what has been persisted of each, and the bound on their number.
//!
//! A session keeps whole multiples of 256 KiB until its last byte is known, as GCS does. Two requests may send to
//! one session, when a caller gave up on one and came again: the later one takes it over, and what the earlier one
//! still delivers is refused.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Upload;
use crate::clock::Timestamp;
use crate::content::{Content, ContentBuilder};
use crate::error::{ApiError, Kind};

/// Ended sessions that still answer what became of them.
const REMEMBERED: usize = 1024;

/// A session lives for a week.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// What is left of a session that was published, cancelled or refused.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The object's resource as it was answered.
    Published(Bytes),
    Gone,
}

#[derive(Debug)]
enum Phase {
    Open(Progress),
    Ended(End),
}

struct Progress {
    builder: ContentBuilder,
    /// Which request the session belongs to.
    claim: Claim,
    total: Option<u64>,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress")
            .field("persisted", &self.builder.len())
            .finish_non_exhaustive()
    }
}

/// The right of one request to add to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim(u64);

/// One upload session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) upload: Upload,
    created: Timestamp,
    phase: Mutex<Phase>,
}

/// Where a session stands.
#[derive(Clone, Debug)]
pub(crate) enum Standing {
    /// Bytes persisted so far.
    Open(u64),
    Ended(End),
}

impl Session {
    pub(crate) fn standing(&self) -> Standing {
        match &*self.phase.lock() {
            Phase::Open(progress) => Standing::Open(progress.builder.len()),
            Phase::Ended(end) => Standing::Ended(end.clone()),
        }
    }

    /// Takes the session over for one request and says how much of it is persisted. A `total` must not contradict
    /// the one that was declared.
    pub(crate) fn claim(&self, total: Option<u64>) -> Result<(Claim, u64), ApiError> {
        let mut phase = self.phase.lock();
        let progress = phase.open()?;
        progress.agree(total)?;
        progress.claim.0 += 1;
        Ok((progress.claim, progress.builder.len()))
    }

    /// Binds the session to a total.
    pub(crate) fn declare(&self, claim: Claim, total: Option<u64>) -> Result<(), ApiError> {
        self.phase.lock().held(claim)?.declare(total)
    }

    /// Adds bytes for good.
    pub(crate) fn persist(
        &self,
        claim: Claim,
        pieces: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), ApiError> {
        let mut phase = self.phase.lock();
        let progress = phase.held(claim)?;
        pieces
            .into_iter()
            .for_each(|piece| progress.builder.push(piece));
        Ok(())
    }

    /// Adds the last bytes and publishes the whole through `publish`, whose result is the reply to remember. A
    /// refusal for the rate keeps the session with all its bytes; any other ends it.
    pub(crate) fn finish(
        &self,
        claim: Claim,
        rest: impl IntoIterator<Item = Bytes>,
        publish: impl FnOnce(Content) -> Result<Bytes, ApiError>,
    ) -> Result<Bytes, ApiError> {
        let mut phase = self.phase.lock();
        let progress = phase.held(claim)?;
        rest.into_iter()
            .for_each(|piece| progress.builder.push(piece));
        let length = progress.builder.len();
        progress.agree(Some(length))?;
        let published = publish(progress.builder.clone().finish());
        match &published {
            Ok(reply) => *phase = Phase::Ended(End::Published(reply.clone())),
            Err(error) if error.kind == Kind::RateLimited => {}
            Err(_) => *phase = Phase::Ended(End::Gone),
        }
        published
    }

    fn end(&self) -> Result<(), ApiError> {
        let mut phase = self.phase.lock();
        phase.open()?;
        *phase = Phase::Ended(End::Gone);
        Ok(())
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        now > self.created + LIFETIME
    }
}

impl Phase {
    fn open(&mut self) -> Result<&mut Progress, ApiError> {
        match self {
            Self::Open(progress) => Ok(progress),
            Self::Ended(_) => Err(gone()),
        }
    }

    fn held(&mut self, claim: Claim) -> Result<&mut Progress, ApiError> {
        let progress = self.open()?;
        if progress.claim == claim {
            return Ok(progress);
        }
        let message = "A later request has taken this upload session over.";
        Err(ApiError::new(Kind::Unavailable, message))
    }
}

impl Progress {
    fn agree(&self, total: Option<u64>) -> Result<(), ApiError> {
        match (self.total, total) {
            (Some(declared), Some(total)) if declared != total => Err(ApiError::invalid(format!(
                "Invalid request. The upload was declared to have {declared} bytes, not {total}."
            ))),
            _ => Ok(()),
        }
    }

    fn declare(&mut self, total: Option<u64>) -> Result<(), ApiError> {
        self.agree(total)?;
        self.total = self.total.or(total);
        Ok(())
    }
}

fn gone() -> ApiError {
    ApiError::new(Kind::Gone, "The upload session has ended.")
}

/// The sessions of an emulator.
pub(crate) struct Sessions {
    max_open: usize,
    registry: Mutex<Registry>,
}

#[derive(Default)]
struct Registry {
    by_id: HashMap<String, Arc<Session>>,
    /// Ids of ended sessions, oldest first.
    ended: VecDeque<String>,
}

impl Sessions {
    pub(crate) fn new(max_open: usize) -> Self {
        Self {
            max_open,
            registry: Mutex::default(),
        }
    }

    /// Opens a session under `id`.
    pub(crate) fn start(
        &self,
        id: String,
        upload: Upload,
        total: Option<u64>,
        with_md5: bool,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let progress = Progress {
            builder: ContentBuilder::new(with_md5),
            claim: Claim(0),
            total,
        };
        let session = Arc::new(Session {
            upload,
            created: now,
            phase: Mutex::new(Phase::Open(progress)),
        });
        let mut registry = self.registry.lock();
        if registry.open() >= self.max_open {
            registry.expire(now);
        }
        if registry.open() >= self.max_open {
            let message = "Too many upload sessions are open.";
            return Err(ApiError::new(Kind::Unavailable, message));
        }
        registry.by_id.insert(id, session);
        Ok(())
    }

    pub(crate) fn find(&self, id: &str, now: Timestamp) -> Result<Arc<Session>, ApiError> {
        let registry = self.registry.lock();
        let found = registry.by_id.get(id);
        let session =
            found.ok_or_else(|| ApiError::new(Kind::NothingHere, "No such upload session."))?;
        if session.is_expired(now) {
            return Err(gone());
        }
        Ok(Arc::clone(session))
    }

    /// Ends an open session without an object.
    pub(crate) fn cancel(&self, id: &str, now: Timestamp) -> Result<(), ApiError> {
        self.find(id, now)?.end()?;
        self.note_end(id);
        Ok(())
    }

    /// Counts a session that ended no longer as open, and forgets the oldest of the ended ones.
    pub(crate) fn note_end(&self, id: &str) {
        let mut registry = self.registry.lock();
        if !registry.by_id.contains_key(id) || registry.ended.iter().any(|known| known == id) {
            return;
        }
        registry.ended.push_back(id.to_owned());
        if registry.ended.len() > REMEMBERED
            && let Some(oldest) = registry.ended.pop_front()
        {
            registry.by_id.remove(&oldest);
        }
    }
}

impl Registry {
    fn open(&self) -> usize {
        self.by_id.len() - self.ended.len()
    }

    fn expire(&mut self, now: Timestamp) {
        self.by_id.retain(|_, session| !session.is_expired(now));
        let by_id = &self.by_id;
        self.ended.retain(|id| by_id.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::{BucketName, ObjectName};
    use crate::object::Attributes;
    use crate::precondition::Preconditions;
    use crate::store::{Replacing, Terms};
    use crate::upload::Expected;

    fn upload() -> Upload {
        Upload {
            bucket: BucketName::parse("bucket").unwrap(),
            name: ObjectName::parse("name").unwrap(),
            terms: Terms {
                conditions: Preconditions::default(),
                replacing: Replacing(Ok(())),
            },
            attributes: Attributes::default(),
            expected: Expected::default(),
        }
    }

    fn open(sessions: &Sessions, id: &str, now: Duration) -> Result<(), ApiError> {
        sessions.start(id.to_owned(), upload(), None, true, now)
    }

    #[test]
    fn a_later_claim_takes_the_session_over() {
        let sessions = Sessions::new(1);
        open(&sessions, "a", Duration::ZERO).unwrap();
        let session = sessions.find("a", Duration::ZERO).unwrap();
        let (first, _) = session.claim(None).unwrap();
        session
            .persist(first, [Bytes::from_static(b"1234")])
            .unwrap();
        let (second, persisted) = session.claim(Some(6)).unwrap();
        assert_eq!(persisted, 4);
        assert_eq!(
            session
                .persist(first, [Bytes::from_static(b"x")])
                .unwrap_err()
                .kind,
            Kind::Unavailable
        );
        let reply = session.finish(second, [Bytes::from_static(b"56")], |content| {
            assert_eq!(content.rope.len(), 6);
            Ok(Bytes::from_static(b"{}"))
        });
        assert_eq!(reply.unwrap(), "{}");
        assert!(matches!(
            session.standing(),
            Standing::Ended(End::Published(_))
        ));
    }

    #[test]
    fn a_rate_refusal_keeps_the_session_and_others_end_it() {
        let sessions = Sessions::new(1);
        open(&sessions, "a", Duration::ZERO).unwrap();
        let session = sessions.find("a", Duration::ZERO).unwrap();
        let refuse = |kind: Kind, rest: &'static [u8]| {
            let (claim, _) = session.claim(None).unwrap();
            let rest = [Bytes::from_static(rest)];
            let refused = session.finish(claim, rest, |_| Err(ApiError::new(kind, "")));
            refused.unwrap_err();
        };
        refuse(Kind::RateLimited, b"data");
        assert!(matches!(session.standing(), Standing::Open(4)));
        refuse(Kind::ConditionNotMet, b"");
        assert_eq!(session.claim(None).unwrap_err().kind, Kind::Gone);
    }

    #[test]
    fn open_sessions_are_bounded_and_age_out() {
        let sessions = Sessions::new(2);
        let week = LIFETIME + Duration::from_secs(1);
        open(&sessions, "a", Duration::ZERO).unwrap();
        open(&sessions, "b", week).unwrap();
        assert_eq!(sessions.find("a", week).unwrap_err().kind, Kind::Gone);
        open(&sessions, "c", week).unwrap();
        assert_eq!(
            sessions.find("a", week).unwrap_err().kind,
            Kind::NothingHere
        );
        assert_eq!(
            open(&sessions, "d", week).unwrap_err().kind,
            Kind::Unavailable
        );
        sessions.cancel("b", week).unwrap();
        open(&sessions, "d", week).unwrap();
    }

    #[test]
    fn ended_sessions_are_forgotten_oldest_first() {
        let sessions = Sessions::new(1);
        for index in 0..=REMEMBERED {
            open(&sessions, &index.to_string(), Duration::ZERO).unwrap();
            sessions.cancel(&index.to_string(), Duration::ZERO).unwrap();
        }
        assert_eq!(
            sessions.find("0", Duration::ZERO).unwrap_err().kind,
            Kind::NothingHere
        );
        assert!(sessions.find("1", Duration::ZERO).is_ok());
    }
}
