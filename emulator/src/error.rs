//! Refusals, and how each API words them.
//!
//! The JSON API of Cloud Storage answers a JSON body with a `reason`; a media read (`alt=media`) answers the bare
//! message, as GCS does; the XML API answers `<Error>` with a code. IAM Credentials answers a JSON body with a
//! `status`, token endpoints the errors of RFC 6749.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::body::ReplyBody;
use crate::name::{BucketName, NameError, ObjectName};

/// What is wrong; each kind has one status, one JSON reason and one XML code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Invalid,
    MissingParameter,
    Unparsable,
    UserProjectMissing,
    Anonymous,
    BadCredentials,
    Forbidden,
    /// The token lacks a scope that the method takes.
    ScopeInsufficient,
    ObjectUnderActiveHold,
    RetentionPolicyNotMet,
    BucketNotFound,
    ObjectNotFound,
    /// A path or an upload session that leads nowhere.
    NothingHere,
    MethodNotAllowed,
    /// A call that the API has and the emulator has not.
    NotImplemented,
    RequestTimeout,
    Conflict,
    Gone,
    ConditionNotMet,
    NotModified,
    BodyTooLarge,
    RangeNotSatisfiable,
    RateLimited,
    Canceled,
    Unavailable,
    /// What a fault rule says.
    Scripted {
        status: StatusCode,
        reason: String,
    },
}

impl Kind {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid
            | Self::MissingParameter
            | Self::Unparsable
            | Self::UserProjectMissing => StatusCode::BAD_REQUEST,
            Self::Anonymous | Self::BadCredentials => StatusCode::UNAUTHORIZED,
            Self::Forbidden
            | Self::ScopeInsufficient
            | Self::ObjectUnderActiveHold
            | Self::RetentionPolicyNotMet => StatusCode::FORBIDDEN,
            Self::BucketNotFound | Self::ObjectNotFound | Self::NothingHere => {
                StatusCode::NOT_FOUND
            }
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict => StatusCode::CONFLICT,
            Self::Gone => StatusCode::GONE,
            Self::ConditionNotMet => StatusCode::PRECONDITION_FAILED,
            Self::NotModified => StatusCode::NOT_MODIFIED,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Self::Canceled => *CLIENT_CLOSED_REQUEST,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Scripted { status, .. } => *status,
        }
    }

    fn reason(&self) -> &str {
        match self {
            Self::Invalid => "invalid",
            Self::MissingParameter | Self::UserProjectMissing | Self::Anonymous => "required",
            Self::Unparsable => "parseError",
            Self::BadCredentials => "authError",
            Self::Forbidden | Self::ScopeInsufficient => "forbidden",
            Self::ObjectUnderActiveHold => "objectUnderActiveHold",
            Self::RetentionPolicyNotMet => "retentionPolicyNotMet",
            Self::BucketNotFound | Self::ObjectNotFound | Self::NothingHere => "notFound",
            Self::MethodNotAllowed => "httpMethodNotAllowed",
            Self::NotImplemented => "notImplemented",
            Self::RequestTimeout => "requestTimeout",
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::ConditionNotMet | Self::NotModified => "conditionNotMet",
            Self::BodyTooLarge => "uploadTooLarge",
            Self::RangeNotSatisfiable => "requestedRangeNotSatisfiable",
            Self::RateLimited => "rateLimitExceeded",
            Self::Canceled => "canceled",
            Self::Unavailable => "backendError",
            Self::Scripted { reason, .. } => reason,
        }
    }

    fn domain(&self) -> &'static str {
        match self {
            Self::RateLimited => "usageLimits",
            _ => "global",
        }
    }

    fn location(&self) -> Option<&'static str> {
        match self {
            Self::Anonymous | Self::BadCredentials => Some("Authorization"),
            Self::ConditionNotMet => Some("If-Match"),
            _ => None,
        }
    }

    /// The name of a canonical code (`google.rpc.Code`).
    fn canonical(&self) -> &str {
        if let Self::Scripted { reason, .. } = self {
            return reason;
        }
        canonical(self.status().as_u16())
    }

    /// An error code of RFC 6749 section 5.2.
    fn oauth(&self) -> &str {
        match self {
            Self::Scripted { reason, .. } => reason,
            _ => "invalid_request",
        }
    }

    fn xml_code(&self) -> &str {
        match self {
            Self::Invalid | Self::MissingParameter | Self::Unparsable => "InvalidArgument",
            Self::UserProjectMissing => "UserProjectMissing",
            Self::Anonymous | Self::BadCredentials => "AuthenticationRequired",
            Self::Forbidden | Self::ScopeInsufficient => "AccessDenied",
            Self::ObjectUnderActiveHold => "ObjectUnderActiveHold",
            Self::RetentionPolicyNotMet => "RetentionPolicyNotMet",
            Self::BucketNotFound => "NoSuchBucket",
            Self::ObjectNotFound | Self::NothingHere => "NoSuchKey",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotImplemented => "NotImplemented",
            Self::RequestTimeout => "RequestTimeout",
            Self::Conflict => "BucketAlreadyOwnedByYou",
            Self::Gone | Self::Canceled => "NoSuchUpload",
            Self::ConditionNotMet | Self::NotModified => "PreconditionFailed",
            Self::BodyTooLarge => "EntityTooLarge",
            Self::RangeNotSatisfiable => "InvalidRange",
            Self::RateLimited => "SlowDown",
            Self::Unavailable => "ServiceUnavailable",
            Self::Scripted { reason, .. } => reason,
        }
    }
}

/// The canonical code that an HTTP status stands for, as Google's API design guide maps them.
pub(crate) fn canonical(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ALREADY_EXISTS",
        429 => "RESOURCE_EXHAUSTED",
        499 => "CANCELLED",
        500 => "INTERNAL",
        501 => "UNIMPLEMENTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        400..=499 => "INVALID_ARGUMENT",
        _ => "UNKNOWN",
    }
}

/// What the storage API says with a status when nothing more is known.
pub(crate) fn usual_reason(code: u16) -> &'static str {
    match code {
        400 => "invalid",
        401 => "authError",
        403 => "forbidden",
        404 => "notFound",
        408 => "requestTimeout",
        409 => "conflict",
        410 => "gone",
        412 => "conditionNotMet",
        416 => "requestedRangeNotSatisfiable",
        429 => "rateLimitExceeded",
        500 => "internalError",
        _ => "backendError",
    }
}

/// 499, which GCS answers when an upload session is cancelled; it has no name in the HTTP registry.
static CLIENT_CLOSED_REQUEST: std::sync::LazyLock<StatusCode> = std::sync::LazyLock::new(|| {
    StatusCode::from_u16(499).expect("499 lies in the range of status codes")
});

/// Which API the caller speaks, and so how it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Json,
    /// A media read through the JSON API: GCS answers the message alone.
    Text,
    Xml,
    /// IAM Credentials: `error.status` is a canonical code.
    Iam,
    /// A token endpoint: `error` is a code of RFC 6749.
    OAuth,
}

const JSON: &str = "application/json; charset=UTF-8";

/// A refusal.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) kind: Kind,
    message: Cow<'static, str>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl ApiError {
    pub(crate) fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            headers: Vec::new(),
        }
    }

    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    pub(crate) fn bucket_not_found() -> Self {
        Self::new(Kind::BucketNotFound, "The specified bucket does not exist.")
    }

    pub(crate) fn object_not_found(bucket: &BucketName, name: &ObjectName) -> Self {
        Self::new(
            Kind::ObjectNotFound,
            format!("No such object: {bucket}/{name}"),
        )
    }

    pub(crate) fn condition_not_met() -> Self {
        Self::new(
            Kind::ConditionNotMet,
            "At least one of the pre-conditions you specified did not hold.",
        )
    }

    /// What a fault rule says of a request to the storage API, with the reason that GCS usually gives.
    pub(crate) fn scripted(code: u16) -> Self {
        let reason = usual_reason(code).to_owned();
        Self::scripted_with(code, reason)
    }

    /// As [`Self::scripted`], with a reason.
    pub(crate) fn scripted_with(code: u16, reason: String) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let kind = Kind::Scripted { status, reason };
        Self::new(kind, "A fault rule answered this request.")
    }

    pub(crate) fn bad_credentials() -> Self {
        Self::new(Kind::BadCredentials, "Invalid Credentials")
    }

    pub(crate) fn rate_limited(bucket: &BucketName, name: &ObjectName) -> Self {
        Self::new(
            Kind::RateLimited,
            format!(
                "The object {bucket}/{name} exceeded the rate limit for object mutation operations (create, \
                 update, and delete). Please reduce your request rate. See \
                 https://cloud.google.com/storage/docs/gcs429."
            ),
        )
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn reply(&self, dialect: Dialect) -> Response<ReplyBody> {
        let status = self.kind.status();
        let (content_type, body) = if status == StatusCode::NOT_MODIFIED {
            ("", Bytes::new())
        } else {
            match dialect {
                Dialect::Json => (JSON, self.json().into()),
                Dialect::Iam => (JSON, self.iam().into()),
                Dialect::OAuth => (JSON, self.oauth().into()),
                Dialect::Text => ("text/html; charset=UTF-8", self.message.to_string().into()),
                Dialect::Xml => ("application/xml; charset=UTF-8", self.xml().into()),
            }
        };
        let mut reply = Response::new(ReplyBody::full(body));
        *reply.status_mut() = status;
        reply.headers_mut().extend(self.headers.clone());
        if !content_type.is_empty() {
            let value = HeaderValue::from_static(content_type);
            reply.headers_mut().insert(header::CONTENT_TYPE, value);
        }
        if status == StatusCode::UNAUTHORIZED {
            let value = HeaderValue::from_static("Bearer realm=\"https://accounts.google.com/\"");
            reply.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
        reply
    }

    fn json(&self) -> String {
        let mut detail = json!({
            "message": self.message,
            "domain": self.kind.domain(),
            "reason": self.kind.reason(),
        });
        if let Some(location) = self.kind.location() {
            detail["locationType"] = "header".into();
            detail["location"] = location.into();
        }
        let code = self.kind.status().as_u16();
        json!({"error": {"code": code, "message": self.message, "errors": [detail]}}).to_string()
    }

    fn iam(&self) -> String {
        let (code, status) = (self.kind.status().as_u16(), self.kind.canonical());
        let mut error = json!({"code": code, "message": self.message, "status": status});
        if self.kind == Kind::ScopeInsufficient {
            error["details"] = json!([{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
                "domain": "googleapis.com",
                "metadata": {"service": "iamcredentials.googleapis.com"},
            }]);
        }
        json!({"error": error}).to_string()
    }

    fn oauth(&self) -> String {
        json!({"error": self.kind.oauth(), "error_description": self.message}).to_string()
    }

    fn xml(&self) -> String {
        let message = self
            .message
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let code = self.kind.xml_code();
        format!(
            "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        )
    }
}

impl From<NameError> for ApiError {
    fn from(error: NameError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Why a request gets no ordinary answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// It is refused, and the caller is told.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// Nobody is there to be told: the peer closed the connection in the middle, or a fault rule did.
    #[error("the connection ended inside the request")]
    Broken,
}
