//! The one error of the broker. Its kind says who is at fault and thereby what to do; its message
//! is one sentence for the operator, which names file, audience and likely cause, and never holds a
//! secret. Cheap to clone: all who wait for an exchange share it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::schedule::Cause;

mod code;

/// Why there is no token.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    retry_after: Option<Duration>,
}

/// Who is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The subject token could not be had or cannot be used: look at the file, the volume or the
    /// pod.
    Source(SourceFault),
    /// The token service understood and refused (4xx): look at pool, provider, audience and
    /// bindings.
    Refused(Refusal),
    /// No connection to the token service.
    Unreachable(Reach),
    /// Something did not answer within its deadline.
    Timeout,
    /// The token service asks for fewer requests (429).
    Throttled,
    /// The token service has trouble of its own (5xx).
    Unavailable,
    /// An answer that is not one of the token service: a proxy, a captive portal, a wrong URL.
    BadAnswer,
    /// A setting that cannot work, whatever is tried.
    Config,
    /// The broker is gone: its runtime was shut down.
    Stopped,
    /// A defect of this program; the broker goes on.
    Internal,
}

/// The kinds without their particulars: few enough to be counted apart, each under a name that does
/// not change, as metrics need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// [`Kind::Source`].
    Source,
    /// [`Kind::Refused`].
    Refused,
    /// [`Kind::Unreachable`].
    Unreachable,
    /// [`Kind::Timeout`].
    Timeout,
    /// [`Kind::Throttled`].
    Throttled,
    /// [`Kind::Unavailable`].
    Unavailable,
    /// [`Kind::BadAnswer`].
    BadAnswer,
    /// [`Kind::Config`].
    Config,
    /// [`Kind::Stopped`].
    Stopped,
    /// [`Kind::Internal`].
    Internal,
}

impl Family {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 10] = [
        Self::Source,
        Self::Refused,
        Self::Unreachable,
        Self::Timeout,
        Self::Throttled,
        Self::Unavailable,
        Self::BadAnswer,
        Self::Config,
        Self::Stopped,
        Self::Internal,
    ];

    /// The name, in the form of a label of a metric.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Throttled => "throttled",
            Self::Unavailable => "unavailable",
            Self::BadAnswer => "bad_answer",
            Self::Config => "config",
            Self::Stopped => "stopped",
            Self::Internal => "internal",
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl Kind {
    /// The kind without its particulars.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::Source(_) => Family::Source,
            Self::Refused(_) => Family::Refused,
            Self::Unreachable(_) => Family::Unreachable,
            Self::Timeout => Family::Timeout,
            Self::Throttled => Family::Throttled,
            Self::Unavailable => Family::Unavailable,
            Self::BadAnswer => Family::BadAnswer,
            Self::Config => Family::Config,
            Self::Stopped => Family::Stopped,
            Self::Internal => Family::Internal,
        }
    }
}

/// What is wrong with the subject token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceFault {
    /// There is no such file.
    Missing,
    /// It is there and cannot be read.
    Unreadable,
    /// It is there and holds nothing, as in the middle of a careless rotation.
    Empty,
    /// It holds something that is not a JWT.
    Malformed,
    /// It is too long to be a token.
    TooLarge,
    /// It has expired: by its own claims, and the token service refused it; or by the expiry that
    /// it was handed in with.
    Expired,
}

/// What the token service refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The audience names no pool and provider that exist and are enabled.
    Audience,
    /// The subject token is not accepted for this audience.
    Grant,
    /// The identity may not do this.
    Denied,
    /// The request as a whole, for another reason.
    Request,
}

/// Why a connection could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The host name does not exist.
    UnknownHost,
    /// The name could not be looked up at the moment.
    NameService,
    /// TLS could not be agreed on, or the certificate is not trusted.
    Tls,
    /// Refused, reset, no route.
    Network,
}

impl Error {
    /// An error of that kind. `message` is one sentence in lower case and must hold no secret.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            retry_after: None,
        }))
    }

    /// The same with the delay that the server asked for.
    #[must_use]
    pub fn with_retry_after(self, retry_after: Option<Duration>) -> Self {
        Self(Arc::new(Inner {
            kind: self.kind(),
            message: self.message().to_owned(),
            retry_after,
        }))
    }

    /// The same sentence about a fault of another kind.
    pub(crate) fn of_kind(&self, kind: Kind) -> Self {
        Self::new(kind, self.message()).with_retry_after(self.retry_after())
    }

    /// Who is at fault.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The sentence that [`Display`](fmt::Display) prints.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// How long the server asked to be left alone (`Retry-After`), if it did.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether a command that is about to mount should end now: the fault is one that a person has
    /// to mend. A broker that runs goes on trying all the same, since persons do.
    #[must_use]
    pub fn is_permanent_for_mount(&self) -> bool {
        match self.kind() {
            Kind::Source(fault) => match fault {
                SourceFault::Missing
                | SourceFault::Unreadable
                | SourceFault::Malformed
                | SourceFault::TooLarge
                | SourceFault::Expired => true,
                SourceFault::Empty => false,
            },
            Kind::Unreachable(reach) => match reach {
                Reach::UnknownHost | Reach::Tls => true,
                Reach::NameService | Reach::Network => false,
            },
            Kind::Refused(_) | Kind::Config => true,
            Kind::Timeout
            | Kind::Throttled
            | Kind::Unavailable
            | Kind::BadAnswer
            | Kind::Stopped
            | Kind::Internal => false,
        }
    }

    /// Whether the same request may well succeed when it is repeated soon, with nobody doing
    /// anything. What a client library's retry loop wants to know.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self.kind() {
            Kind::Source(SourceFault::Empty)
            | Kind::Unreachable(_)
            | Kind::Timeout
            | Kind::Throttled
            | Kind::Unavailable
            | Kind::BadAnswer
            | Kind::Internal => true,
            Kind::Source(_) | Kind::Refused(_) | Kind::Config | Kind::Stopped => false,
        }
    }

    /// How the schedule treats it.
    pub(crate) fn cause(&self) -> Cause {
        match self.kind() {
            // The service found that it has expired, or its holder knows: in either case another
            // token has to come first.
            Kind::Source(SourceFault::Expired) | Kind::Refused(_) => Cause::Refused,
            Kind::Source(_) | Kind::Config | Kind::Stopped => Cause::Local,
            Kind::Unreachable(_)
            | Kind::Timeout
            | Kind::Unavailable
            | Kind::BadAnswer
            | Kind::Internal => Cause::Unavailable,
            Kind::Throttled => Cause::Throttled,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("retry_after", &self.0.retry_after)
            .finish()
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_place_and_a_name_of_its_own() {
        for (place, family) in Family::ALL.into_iter().enumerate() {
            assert_eq!(family.index(), place);
        }
        let names: std::collections::HashSet<_> = Family::ALL.map(Family::name).into();
        assert_eq!(names.len(), Family::ALL.len());
    }
}
