//! Requests and answers, as the operations word them.

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use serde::Serialize;

use super::operation::Operation;
use super::payload::Payload;
use super::resource::{self, Malformed};
use super::retry::Safety;
use super::transport::Flow;
use super::url::Url;
use crate::store::Preconditions;
use crate::{Error, Kind, Result};

/// A request that can be sent again.
pub(super) struct Call<'a> {
    pub(super) operation: Operation,
    pub(super) subject: &'a str,
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// Each name once.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) payload: Payload,
    /// Whether a precondition goes along, which decides what a 412 means.
    pub(super) conditional: bool,
    target: Preconditions,
    source: Preconditions,
    /// The longest body of a success, or `None` to let it flow.
    pub(super) collect: Option<usize>,
    /// Part of the URL that no message may repeat.
    pub(super) secret: Option<&'a str>,
    /// Where in the payload content is.
    pub(super) content: Range<u64>,
    /// Requests for the same so far, those of calls before this one included.
    pub(super) requests: AtomicU32,
}

/// The longest answer about one object, far above what its metadata may hold.
const ONE_OBJECT: usize = 1 << 20;

impl<'a> Call<'a> {
    /// A request without a body that answers about one object.
    pub(super) fn new(
        operation: Operation,
        subject: &'a str,
        method: Method,
        url: Url,
    ) -> Result<Self> {
        let uri = url.build().ok_or_else(|| {
            Error::new(
                Kind::Invalid,
                operation.name(),
                subject,
                "the request is too long to be sent",
            )
        })?;
        Ok(Self::at(operation, subject, method, uri))
    }

    pub(super) fn at(operation: Operation, subject: &'a str, method: Method, uri: Uri) -> Self {
        Self {
            operation,
            subject,
            method,
            uri,
            headers: Vec::new(),
            payload: Payload::default(),
            conditional: false,
            target: Preconditions::default(),
            source: Preconditions::default(),
            collect: Some(ONE_OBJECT),
            secret: None,
            content: 0..0,
            requests: AtomicU32::new(0),
        }
    }

    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        self.payload = Bytes::from(resource::json(body)).into();
        self.header(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Says that these preconditions on the target are in the URL.
    pub(super) fn under(mut self, target: &Preconditions) -> Self {
        self.conditional |= !target.is_empty();
        self.target = *target;
        self
    }

    /// Says that these preconditions on the source are in the URL.
    pub(super) fn from(mut self, source: &Preconditions) -> Self {
        self.conditional |= !source.is_empty();
        self.source = *source;
        self
    }

    /// What repeating it can do.
    pub(super) fn safety(&self) -> Safety {
        self.operation.safety(&self.target, &self.source)
    }

    /// What a success that cannot be understood is.
    pub(super) fn malformed(&self, Malformed(part): Malformed) -> Error {
        let message = format!("the answer has no proper {part}");
        self.error(Kind::Corrupt, message)
    }

    pub(super) fn error(&self, kind: Kind, message: impl Into<String>) -> Error {
        Error::new(kind, self.operation.name(), self.subject, message)
    }
}

/// A success: 2xx, or the 308 by which an upload session asks for more.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Content,
}

pub(super) enum Content {
    Whole(Bytes),
    Flow(Flow),
}

impl Answer {
    /// The body of a call that asked to collect it.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.body {
            Content::Whole(bytes) => bytes,
            Content::Flow(_) => &[],
        }
    }
}

/// A call that failed for good.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether the store may have acted, in this attempt or in one before: its answer may be to an echo of our own.
    pub(super) may_have_acted: bool,
    /// How long bodies moved meanwhile, which counts against nobody's deadline.
    pub(super) moving: Duration,
    /// It had only the time that a silent store gets, and heard nothing: looking would be in vain as well.
    pub(super) in_vain: bool,
}

impl Failed {
    /// A failure that is no answer lost.
    pub(super) fn certain(error: Error) -> Self {
        Self {
            error,
            may_have_acted: false,
            moving: Duration::ZERO,
            in_vain: false,
        }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}
