//! A subject token that the embedding program hands in, such as a CSI driver that gets one with
//! each volume, or asks the TokenRequest API for one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;

use super::Source;
use crate::clock::{BootClock, Clock, Moment};
use crate::error::{Error, Kind, SourceFault};
use crate::secret::SubjectToken;

/// The latest token that was pushed. Clones share it: a program that serves many volumes of one
/// service account keeps one of these for all of them, and pushes whichever token it gets.
///
/// As a CSI driver would: `NodePublishVolume` brings a token of the pod's service account and its
/// expiry, again before it ends where `requiresRepublish` is set, and what mounts the volume asks at a
/// socket for access tokens.
///
/// ```no_run
/// # async fn example() -> Result<(), gcsmount_auth::Error> {
/// use std::sync::Arc;
/// use std::time::{Duration, SystemTime};
///
/// use gcsmount_auth::secret::SubjectToken;
/// use gcsmount_auth::{Broker, BrokerConfig, Pushed, Routes, SocketConfig, TokenSocket};
///
/// # let (token, expires_at) = ("a.b.c".to_owned(), SystemTime::now() + Duration::from_secs(3600));
/// let pushed = Pushed::new("namespace/service-account"); // keep a clone to push to
/// if let Some(token) = SubjectToken::new(token) {
///     pushed.push(token, expires_at);
/// }
/// let broker = Broker::spawn(BrokerConfig::new(Arc::new(pushed.clone())))?;
///
/// let path = "/var/lib/driver/volume-1/token.sock";
/// let socket = TokenSocket::bind(SocketConfig {
///     uids: vec![1000, 0], // who mounts, and root
///     mode: 0o666,         // who else connects is refused by its uid
///     ..SocketConfig::new(path, Routes::Any(broker))
/// })
/// .await?;
/// // NodeUnpublishVolume:
/// socket.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pushed(Arc<Slot>);

struct Slot {
    name: String,
    /// Two slots are two identities, whatever their names are.
    number: u64,
    clock: Arc<dyn Clock>,
    held: ArcSwapOption<Held>,
}

struct Held {
    token: SubjectToken,
    ends_at: Moment,
}

impl Pushed {
    /// A source that holds nothing yet. `name` stands for it in messages.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_clock(name, Arc::new(BootClock))
    }

    /// The same with a clock of the caller's.
    #[must_use]
    pub fn with_clock(name: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Slot {
            name: name.into(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            clock,
            held: ArcSwapOption::empty(),
        }))
    }

    /// Takes `token` from now on, until `expires_at` in wall-clock time. Measured once, here: a
    /// wall clock that jumps afterwards changes nothing.
    ///
    /// The latest push wins, whatever its expiry says of the one before: an expiry that is far too
    /// late by mistake keeps out none of those that follow, and where two volumes of one service
    /// account report in any order, either token is good for as long as it lives. Only one that has
    /// expired already takes the place of none.
    pub fn push(&self, token: SubjectToken, expires_at: SystemTime) {
        let left = expires_at
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        let ends_at = self.0.clock.now() + left;
        let pushed = Arc::new(Held { token, ends_at });
        self.0.held.rcu(|held| match held {
            Some(held) if left.is_zero() => Arc::clone(held),
            Some(_) | None => Arc::clone(&pushed),
        });
    }
}

#[async_trait]
impl Source for Pushed {
    async fn subject_token(&self) -> Result<SubjectToken, Error> {
        let Slot {
            name, clock, held, ..
        } = &*self.0;
        let fault = |fault, what: &str| {
            Error::new(
                Kind::Source(fault),
                format!("the subject token for {name} {what}"),
            )
        };
        match &*held.load() {
            None => Err(fault(SourceFault::Empty, "was not handed in yet")),
            Some(held) if held.ends_at <= clock.now() => Err(fault(
                SourceFault::Expired,
                "expired, and no other one was handed in",
            )),
            Some(held) => Ok(held.token.copy()),
        }
    }

    fn describe(&self) -> String {
        self.0.name.clone()
    }

    fn key(&self) -> String {
        format!("pushed:{}:{}", self.0.number, self.0.name)
    }
}

impl fmt::Debug for Pushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pushed")
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::*;

    #[derive(Debug, Default)]
    struct Set(Mutex<Duration>);

    impl Clock for Set {
        fn now(&self) -> Moment {
            Moment::after_origin(*self.0.lock().unwrap())
        }
    }

    fn token(text: &str) -> SubjectToken {
        SubjectToken::new(text.to_owned()).unwrap()
    }

    async fn fault(source: &Pushed) -> Kind {
        let error = source.subject_token().await.unwrap_err();
        assert!(error.message().contains("ns/ksa"), "{error}");
        error.kind()
    }

    #[tokio::test]
    async fn what_was_pushed_last_is_delivered_until_it_expires() {
        let clock = Arc::new(Set::default());
        let source = Pushed::with_clock("ns/ksa", Arc::clone(&clock) as _);
        assert_eq!(fault(&source).await, Kind::Source(SourceFault::Empty));
        let in_seconds = |seconds| SystemTime::now() + Duration::from_secs(seconds);
        source.clone().push(token("first"), in_seconds(100));
        source.push(token("second"), in_seconds(600));
        assert_eq!(source.subject_token().await.unwrap().expose(), "second");
        assert_eq!(source.subject_token().await.unwrap().expose(), "second");
        *clock.0.lock().unwrap() = Duration::from_secs(601);
        assert_eq!(fault(&source).await, Kind::Source(SourceFault::Expired));
        source.push(token("third"), in_seconds(1));
        assert_eq!(source.subject_token().await.unwrap().expose(), "third");
        source.push(token("dead"), SystemTime::UNIX_EPOCH);
        assert_eq!(source.subject_token().await.unwrap().expose(), "third");
    }

    #[tokio::test]
    async fn an_expiry_that_is_far_too_late_keeps_no_later_push_out() {
        let clock = Arc::new(Set::default());
        let source = Pushed::with_clock("ns/ksa", Arc::clone(&clock) as _);
        source.push(token("dead"), SystemTime::UNIX_EPOCH);
        assert_eq!(fault(&source).await, Kind::Source(SourceFault::Expired));
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(i64::MAX.unsigned_abs());
        source.push(token("absurd"), late);
        assert_eq!(source.subject_token().await.unwrap().expose(), "absurd");
        source.push(token("next"), SystemTime::now() + Duration::from_secs(600));
        assert_eq!(source.subject_token().await.unwrap().expose(), "next");
        *clock.0.lock().unwrap() = Duration::from_secs(601);
        source.push(token("dead"), SystemTime::UNIX_EPOCH);
        assert_eq!(fault(&source).await, Kind::Source(SourceFault::Expired));
    }

    #[test]
    fn two_slots_are_two_identities_and_show_nothing() {
        let (one, two) = (Pushed::new("a"), Pushed::new("a"));
        assert_eq!(one.key(), one.clone().key());
        assert_ne!(one.key(), two.key());
        one.push(token("hidden"), SystemTime::now() + Duration::from_secs(60));
        assert!(!format!("{one:?} {}", one.describe()).contains("hidden"));
    }
}
