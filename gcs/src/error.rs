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
            (_, Some(reason)) if holds(reason) => Self::Held,
            (429, _) => Self::Throttled,
            (403, Some(reason)) if is_rate(reason) => Self::Throttled,
            (400, Some("conditionNotMet")) | (412, _) if conditional && is_condition(reason) => {
                Self::Precondition
            }
            (304, _) if conditional => Self::Precondition,
            (400, Some(reason)) if wants_permission(reason) => Self::Denied,
            // A proxy that wants to know who asks: no token of ours would help.
            (403 | 407 | 412, _) => Self::Denied,
            (401, _) => Self::Unauthenticated,
            (404, _) => Self::NotFound,
            (409, Some("notEmpty" | "bucketNotEmpty" | "BucketNotEmpty")) => Self::NotEmpty,
            (409, _) => Self::Exists,
            (410, _) => Self::Gone,
            (413, _) | (400, Some("uploadTooLarge" | "EntityTooLarge")) => Self::TooLarge,
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

/// A retention policy or a hold: the same call succeeds when it is over.
fn holds(reason: &str) -> bool {
    matches!(
        reason,
        "retentionPolicyNotMet"
            | "objectUnderActiveHold"
            | "RetentionPolicyNotMet"
            | "ObjectUnderActiveHold"
    )
}

/// A rate or a quota that was used up, which Google answers with 403 as well as with 429.
fn is_rate(reason: &str) -> bool {
    matches!(
        reason,
        "rateLimitExceeded"
            | "userRateLimitExceeded"
            | "quotaExceeded"
            | "dailyLimitExceeded"
            | "RATE_LIMIT_EXCEEDED"
            | "RESOURCE_QUOTA_EXCEEDED"
    )
}

/// The request is well formed, and the bucket or a key's owner has not admitted it: somebody has to name a project that
/// pays, or the object's key, or to grant or enable it.
fn wants_permission(reason: &str) -> bool {
    matches!(
        reason,
        "userProjectMissing"
            | "userProjectInvalid"
            | "userProjectInconsistent"
            | "UserProjectMissing"
            | "cloudKmsDisabledKey"
            | "cloudKmsDecryptionKeyNotFound"
            | "cloudKmsEncryptionKeyNotFound"
            | "customerEncryptionKeyIsIncorrect"
            | "resourceIsEncryptedWithCustomerEncryptionKey"
            | "resourceNotEncryptedWithCustomerEncryptionKey"
    )
}

/// Media and front ends may word the reason as the XML API does, or leave it out.
fn is_condition(reason: Option<&str>) -> bool {
    matches!(
        reason,
        None | Some("conditionNotMet" | "PreconditionFailed" | "FAILED_PRECONDITION")
    )
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
///
/// Shown, it is one line with all that an operator searches for: operation, object, message, and behind them what is
/// known of HTTP status, reason, attempts and Google's id of the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{operation} {subject}: {message}{}", Facts(self))]
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
    pub reason: Option<Box<str>>,
    /// How long the store asked us to wait.
    pub retry_after: Option<Duration>,
    /// Where the call ended, where no answer came.
    pub cause: Option<Cause>,
    /// How often it was tried; 0 where it was refused before the store could be asked.
    pub attempts: u16,
    /// The store's own id of the last request (`x-guploader-uploadid`), which Google's support asks for. That of a
    /// request to an upload session is the session's secret, and is left out.
    pub request_id: Option<Box<str>>,
}

/// What is known of a failure beyond its sentence.
struct Facts<'a>(&'a Error);

impl fmt::Display for Facts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.0;
        let mut separator = " (";
        let mut fact = |f: &mut fmt::Formatter<'_>, fact: fmt::Arguments<'_>| {
            f.write_str(std::mem::replace(&mut separator, ", "))?;
            f.write_fmt(fact)
        };
        if let Some(status) = error.status {
            fact(f, format_args!("status {status}"))?;
        }
        if let Some(reason) = &error.reason {
            fact(f, format_args!("reason {reason}"))?;
        }
        match error.attempts {
            0 => {}
            1 => fact(f, format_args!("1 attempt"))?,
            attempts => fact(f, format_args!("{attempts} attempts"))?,
        }
        if let Some(id) = &error.request_id {
            fact(f, format_args!("request {id}"))?;
        }
        f.write_str(if separator == ", " { ")" } else { "" })
    }
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
            attempts: 0,
            request_id: None,
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

    /// A row: status, reason, whether a precondition was sent, and the kind.
    type Row = (u16, Option<&'static str>, bool, Kind);

    /// What the JSON API's page of status codes lists for objects and buckets, and what was seen beyond it: reasons of
    /// Google's common error details (in capitals) and of the XML API (capitalised).
    const ROWS: &[Row] = {
        use Kind as K;
        const ANY: bool = false;
        const CONDITIONAL: bool = true;
        &[
            // Redirects, which nothing that we send asks for.
            (302, Some("mediaDownloadRedirect"), ANY, K::Invalid),
            (304, None, CONDITIONAL, K::Precondition),
            (304, Some("notModified"), CONDITIONAL, K::Precondition),
            (304, None, ANY, K::Invalid),
            (307, Some("temporaryRedirect"), ANY, K::Invalid),
            // A request that is wrong.
            (400, None, ANY, K::Invalid),
            (400, None, CONDITIONAL, K::Invalid),
            (400, Some("badRequest"), ANY, K::Invalid),
            (400, Some("badRequestException"), ANY, K::Invalid),
            (400, Some("invalid"), CONDITIONAL, K::Invalid),
            (400, Some("invalidAltValue"), ANY, K::Invalid),
            (400, Some("invalidArgument"), ANY, K::Invalid),
            (400, Some("invalidParameter"), ANY, K::Invalid),
            (400, Some("notDownload"), ANY, K::Invalid),
            (400, Some("notUpload"), ANY, K::Invalid),
            (400, Some("parseError"), ANY, K::Invalid),
            (400, Some("required"), ANY, K::Invalid),
            (400, Some("turnedDown"), ANY, K::Invalid),
            (400, Some("wrongUrlForUpload"), ANY, K::Invalid),
            (400, Some("cloudKmsBadKey"), ANY, K::Invalid),
            (400, Some("cloudKmsCannotChangeKeyName"), ANY, K::Invalid),
            (400, Some("cloudKmsKeyLocationNotAllowed"), ANY, K::Invalid),
            (
                400,
                Some("customerEncryptionAlgorithmIsInvalid"),
                ANY,
                K::Invalid,
            ),
            (
                400,
                Some("customerEncryptionKeyFormatIsInvalid"),
                ANY,
                K::Invalid,
            ),
            (
                400,
                Some("customerEncryptionKeySha256IsInvalid"),
                ANY,
                K::Invalid,
            ),
            (400, Some("conditionNotMet"), CONDITIONAL, K::Precondition),
            (400, Some("conditionNotMet"), ANY, K::Invalid),
            // A request that is right, and lacks a payer or a key.
            (400, Some("userProjectMissing"), ANY, K::Denied),
            (400, Some("userProjectMissing"), CONDITIONAL, K::Denied),
            (400, Some("UserProjectMissing"), ANY, K::Denied),
            (400, Some("userProjectInvalid"), ANY, K::Denied),
            (400, Some("userProjectInconsistent"), ANY, K::Denied),
            (400, Some("cloudKmsDisabledKey"), ANY, K::Denied),
            (400, Some("cloudKmsDecryptionKeyNotFound"), ANY, K::Denied),
            (400, Some("cloudKmsEncryptionKeyNotFound"), ANY, K::Denied),
            (
                400,
                Some("customerEncryptionKeyIsIncorrect"),
                ANY,
                K::Denied,
            ),
            (
                400,
                Some("resourceIsEncryptedWithCustomerEncryptionKey"),
                ANY,
                K::Denied,
            ),
            (
                400,
                Some("resourceNotEncryptedWithCustomerEncryptionKey"),
                ANY,
                K::Denied,
            ),
            (401, None, ANY, K::Unauthenticated),
            (401, Some("authError"), ANY, K::Unauthenticated),
            (401, Some("required"), CONDITIONAL, K::Unauthenticated),
            (
                401,
                Some("authenticationRequiredRequesterPays"),
                ANY,
                K::Unauthenticated,
            ),
            (401, Some("lockedDomainExpired"), ANY, K::Unauthenticated),
            (401, Some("ACCESS_TOKEN_EXPIRED"), ANY, K::Unauthenticated),
            // The identity, its project or its bill.
            (403, None, ANY, K::Denied),
            (403, Some("forbidden"), CONDITIONAL, K::Denied),
            (403, Some("accountDisabled"), ANY, K::Denied),
            (403, Some("countryBlocked"), ANY, K::Denied),
            (403, Some("insufficientPermissions"), ANY, K::Denied),
            (403, Some("sslRequired"), ANY, K::Denied),
            (403, Some("accessNotConfigured"), ANY, K::Denied),
            (403, Some("userProjectAccessDenied"), ANY, K::Denied),
            (403, Some("userProjectAccountProblem"), ANY, K::Denied),
            (403, Some("BILLING_DISABLED"), ANY, K::Denied),
            (403, Some("SERVICE_DISABLED"), ANY, K::Denied),
            (403, Some("USER_PROJECT_DENIED"), ANY, K::Denied),
            (403, Some("ACCESS_TOKEN_SCOPE_INSUFFICIENT"), ANY, K::Denied),
            (403, Some("AccessDenied"), ANY, K::Denied),
            // Retention and holds.
            (403, Some("retentionPolicyNotMet"), ANY, K::Held),
            (403, Some("retentionPolicyNotMet"), CONDITIONAL, K::Held),
            (412, Some("retentionPolicyNotMet"), CONDITIONAL, K::Held),
            (403, Some("objectUnderActiveHold"), CONDITIONAL, K::Held),
            (403, Some("ObjectUnderActiveHold"), ANY, K::Held),
            // Rates.
            (403, Some("rateLimitExceeded"), ANY, K::Throttled),
            (403, Some("userRateLimitExceeded"), ANY, K::Throttled),
            (403, Some("quotaExceeded"), ANY, K::Throttled),
            (403, Some("dailyLimitExceeded"), ANY, K::Throttled),
            (403, Some("RATE_LIMIT_EXCEEDED"), ANY, K::Throttled),
            (404, None, ANY, K::NotFound),
            // Of the object, its bucket or its generation: the message says which.
            (404, Some("notFound"), CONDITIONAL, K::NotFound),
            (404, Some("NoSuchKey"), ANY, K::NotFound),
            (404, Some("NoSuchBucket"), ANY, K::NotFound),
            (405, Some("methodNotAllowed"), ANY, K::Unsupported),
            (407, None, ANY, K::Denied),
            (408, None, ANY, K::Unavailable),
            (408, Some("uploadBrokenConnection"), ANY, K::Unavailable),
            (409, Some("conflict"), ANY, K::Exists),
            (409, Some("notEmpty"), ANY, K::NotEmpty),
            (409, Some("BucketNotEmpty"), ANY, K::NotEmpty),
            (410, Some("gone"), ANY, K::Gone),
            (410, Some("uploadSessionGone"), CONDITIONAL, K::Gone),
            (411, Some("lengthRequired"), ANY, K::Invalid),
            // Only a precondition that was sent can be one that does not hold.
            (412, Some("conditionNotMet"), CONDITIONAL, K::Precondition),
            (412, None, CONDITIONAL, K::Precondition),
            (
                412,
                Some("PreconditionFailed"),
                CONDITIONAL,
                K::Precondition,
            ),
            (
                412,
                Some("FAILED_PRECONDITION"),
                CONDITIONAL,
                K::Precondition,
            ),
            // A federated principal, and a bucket without uniform bucket-level access.
            (412, Some("conditionNotMet"), ANY, K::Denied),
            (412, None, ANY, K::Denied),
            (
                412,
                Some("orgPolicyConstraintFailed"),
                CONDITIONAL,
                K::Denied,
            ),
            (412, Some("orgPolicyConstraintFailed"), ANY, K::Denied),
            (413, None, ANY, K::TooLarge),
            (413, Some("uploadTooLarge"), CONDITIONAL, K::TooLarge),
            (400, Some("uploadTooLarge"), ANY, K::TooLarge),
            (400, Some("EntityTooLarge"), ANY, K::TooLarge),
            (414, None, ANY, K::Invalid),
            (
                416,
                Some("requestedRangeNotSatisfiable"),
                ANY,
                K::OutOfRange,
            ),
            (416, Some("InvalidRange"), CONDITIONAL, K::OutOfRange),
            (429, None, CONDITIONAL, K::Throttled),
            (429, Some("rateLimitExceeded"), ANY, K::Throttled),
            (429, Some("userRateLimitExceeded"), ANY, K::Throttled),
            (429, Some("SlowDown"), ANY, K::Throttled),
            (499, Some("clientClosedRequest"), ANY, K::Canceled),
            (500, Some("backendError"), ANY, K::Unavailable),
            (500, Some("internalError"), CONDITIONAL, K::Unavailable),
            (501, Some("notImplemented"), ANY, K::Unsupported),
            (502, None, ANY, K::Unavailable),
            (502, Some("badGateway"), ANY, K::Unavailable),
            (503, None, CONDITIONAL, K::Unavailable),
            (503, Some("backendError"), ANY, K::Unavailable),
            (503, Some("SlowDown"), ANY, K::Unavailable),
            (504, Some("gatewayTimeout"), ANY, K::Unavailable),
            (599, None, ANY, K::Unavailable),
            (418, None, ANY, K::Invalid),
        ]
    };

    #[test]
    fn kind_follows_status_reason_and_precondition() {
        for &(status, reason, conditional, kind) in ROWS {
            assert_eq!(
                Kind::of(status, reason, conditional),
                kind,
                "{status} {reason:?} {conditional}"
            );
        }
    }

    #[test]
    fn an_error_shows_what_an_operator_searches_for() {
        let plain = Error::new(Kind::Invalid, "storage.objects.get", "o", "an empty range");
        assert_eq!(plain.to_string(), "storage.objects.get o: an empty range");
        let lost = Error {
            attempts: 8,
            ..plain.clone()
        };
        assert_eq!(
            lost.to_string(),
            "storage.objects.get o: an empty range (8 attempts)"
        );
        let refused = Error {
            status: Some(403),
            reason: Some("forbidden".into()),
            attempts: 1,
            request_id: Some("ABC-123".into()),
            ..plain
        };
        assert_eq!(
            refused.to_string(),
            "storage.objects.get o: an empty range (status 403, reason forbidden, 1 attempt, request ABC-123)"
        );
    }
}
