//! What can go wrong at the store, sorted by what to do about it.
//!
//! The kind of a failed call is [`Kind::of`]: a function of the status, the reason in the error body and whether a
//! precondition was sent. errno, log level and retry are exhaustive matches over it.
//! Source of the reasons: <https://cloud.google.com/storage/docs/json_api/v1/status-codes>.

use std::fmt;
use std::time::Duration;

use crate::ObjectName;

/// Shorthand for the results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No such bucket, object, generation or folder.
    NotFound,
    /// It exists although it must not.
    Exists,
    /// A folder or bucket that is to go still holds something.
    NotEmpty,
    /// A precondition that we sent did not hold: somebody else changed the object.
    Precondition,
    /// The identity is known and may not do this.
    Denied,
    /// The store does not know the identity: no token, or one that expired or was revoked.
    Unauthenticated,
    /// Too many calls, or too many mutations of one object: wait and repeat.
    Throttled,
    /// The store could not be reached, broke off or failed: repeating may help.
    Unavailable,
    /// The caller gave up, or a deadline passed.
    Canceled,
    /// The answer is not what was asked for: wrong generation, range, length or checksum.
    Corrupt,
    /// The range begins at or behind the end of the object.
    OutOfRange,
    /// An upload session is lost; its bytes must be sent again.
    Gone,
    /// Larger than an object or a request may be.
    TooLarge,
    /// A retention policy or a hold protects the object.
    Held,
    /// The bucket or the service does not offer this call.
    Unsupported,
    /// The request itself is wrong: repeating it cannot help.
    Invalid,
}

impl Kind {
    /// The kind of an answer with HTTP `status` and the body's first `reason`; `conditional` says whether the request
    /// carried a precondition.
    ///
    /// A 412 is [`Kind::Precondition`] only where one was sent: a federated principal also gets 412 from a bucket
    /// without uniform bucket-level access, and a retention policy can answer it too.
    #[must_use]
    pub fn of(status: u16, reason: Option<&str>, conditional: bool) -> Self {
        match (status, reason) {
            (_, Some("retentionPolicyNotMet" | "objectUnderActiveHold")) => Self::Held,
            (
                403 | 429,
                Some(
                    "rateLimitExceeded"
                    | "userRateLimitExceeded"
                    | "quotaExceeded"
                    | "dailyLimitExceeded",
                ),
            )
            | (429, _) => Self::Throttled,
            (400, Some("conditionNotMet")) | (412, _) if conditional && is_condition(reason) => {
                Self::Precondition
            }
            (304, _) if conditional => Self::Precondition,
            (412 | 403, _) => Self::Denied,
            (401, _) => Self::Unauthenticated,
            (404, _) => Self::NotFound,
            (409, Some("notEmpty" | "bucketNotEmpty")) => Self::NotEmpty,
            (409, _) => Self::Exists,
            (410, _) => Self::Gone,
            (413, _) | (400, Some("uploadTooLarge")) => Self::TooLarge,
            (416, _) => Self::OutOfRange,
            (405 | 501, _) => Self::Unsupported,
            (499, _) => Self::Canceled,
            (408 | 500..=599, _) => Self::Unavailable,
            _ => Self::Invalid,
        }
    }

    /// Whether repeating the same call later can succeed. Whether it is *safe* depends on the call.
    #[must_use]
    pub fn is_transient(self) -> bool {
        match self {
            Self::Throttled | Self::Unavailable => true,
            Self::NotFound
            | Self::Exists
            | Self::NotEmpty
            | Self::Precondition
            | Self::Denied
            | Self::Unauthenticated
            | Self::Canceled
            | Self::Corrupt
            | Self::OutOfRange
            | Self::Gone
            | Self::TooLarge
            | Self::Held
            | Self::Unsupported
            | Self::Invalid => false,
        }
    }
}

fn is_condition(reason: Option<&str>) -> bool {
    matches!(reason, None | Some("conditionNotMet"))
}

/// Where a call ended that got no answer from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The host's name does not resolve.
    UnknownHost,
    /// Nobody listens at the host's port.
    Refused,
    /// No connection came about for another reason, or not in time.
    Unreachable,
    /// The TLS handshake failed, for example because the certificate is not trusted.
    Tls,
    /// No token to send.
    Credentials,
    /// No connection of the pool came free in time.
    Busy,
    /// The store was asked and did not answer, or stopped answering, in time.
    TimedOut,
    /// The connection broke after the store was asked.
    Broken,
}

impl Cause {
    /// Whether the request may have reached the store, which may then have acted on it.
    #[must_use]
    pub fn may_have_acted(self) -> bool {
        match self {
            Self::TimedOut | Self::Broken => true,
            Self::UnknownHost
            | Self::Refused
            | Self::Unreachable
            | Self::Tls
            | Self::Credentials
            | Self::Busy => false,
        }
    }
}

/// A call that failed: what it was, on what, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {subject}: {message}")]
pub struct Error {
    /// What a caller can do about it.
    pub kind: Kind,
    /// The call in Google's words, such as `storage.objects.get`; what an operator searches for.
    pub operation: &'static str,
    /// The object or bucket that the call was about.
    pub subject: String,
    /// The cause in one sentence, lower case, without secrets.
    pub message: String,
    /// HTTP status, where an answer came.
    pub status: Option<u16>,
    /// The first `reason` of the error body.
    pub reason: Option<String>,
    /// How long the store asked us to wait.
    pub retry_after: Option<Duration>,
    /// Where the call ended, where no answer came.
    pub cause: Option<Cause>,
}

impl Error {
    /// An error that no answer of the store stands behind.
    #[must_use]
    pub fn new(
        kind: Kind,
        operation: &'static str,
        subject: &(impl fmt::Display + ?Sized),
        message: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            operation,
            subject: subject.to_string(),
            message: message.into(),
            status: None,
            reason: None,
            retry_after: None,
            cause: None,
        }
    }

    /// An object that is not there.
    #[must_use]
    pub fn not_found(operation: &'static str, name: &ObjectName) -> Self {
        Self::new(Kind::NotFound, operation, name, "no such object")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_follows_status_reason_and_precondition() {
        use Kind as K;
        let table = [
            (304, None, true, K::Precondition),
            (400, Some("invalid"), false, K::Invalid),
            (400, Some("conditionNotMet"), true, K::Precondition),
            (400, Some("uploadTooLarge"), false, K::TooLarge),
            (401, Some("authError"), false, K::Unauthenticated),
            (403, Some("forbidden"), false, K::Denied),
            (403, Some("rateLimitExceeded"), false, K::Throttled),
            (403, Some("userRateLimitExceeded"), false, K::Throttled),
            (403, Some("retentionPolicyNotMet"), false, K::Held),
            (403, Some("objectUnderActiveHold"), true, K::Held),
            (404, Some("notFound"), true, K::NotFound),
            (405, Some("methodNotAllowed"), false, K::Unsupported),
            (408, Some("requestTimeout"), false, K::Unavailable),
            (409, Some("conflict"), false, K::Exists),
            (410, Some("uploadSessionGone"), false, K::Gone),
            (412, Some("conditionNotMet"), true, K::Precondition),
            (412, Some("conditionNotMet"), false, K::Denied),
            (412, None, true, K::Precondition),
            (412, Some("orgPolicyConstraintFailed"), true, K::Denied),
            (413, None, false, K::TooLarge),
            (
                416,
                Some("requestedRangeNotSatisfiable"),
                false,
                K::OutOfRange,
            ),
            (429, Some("rateLimitExceeded"), true, K::Throttled),
            (429, None, true, K::Throttled),
            (499, None, false, K::Canceled),
            (500, Some("backendError"), false, K::Unavailable),
            (501, Some("notImplemented"), false, K::Unsupported),
            (503, None, true, K::Unavailable),
        ];
        for (status, reason, conditional, kind) in table {
            assert_eq!(
                Kind::of(status, reason, conditional),
                kind,
                "{status} {reason:?} {conditional}"
            );
        }
    }
}
