//! Why a request got no answer.

use std::time::Duration;

use hyper_util::client::legacy;

use crate::Cause;
use crate::client::json::connect;

/// Why there is no answer.
#[derive(Debug)]
pub(in crate::client::json) struct Lost {
    pub(in crate::client::json) cause: Cause,
    pub(in crate::client::json) detail: String,
    /// Whether an answer came whose head is larger than was reckoned with.
    pub(in crate::client::json) too_large: bool,
}

impl Lost {
    pub(in crate::client::json) fn new(cause: Cause, detail: &str) -> Self {
        Self {
            cause,
            detail: detail.to_owned(),
            too_large: false,
        }
    }

    pub(super) fn silent(what: &str, limit: Duration) -> Self {
        let detail = format!("{what} within {} s", limit.as_secs_f32());
        Self::new(Cause::TimedOut, &detail)
    }

    /// One sentence about `host`.
    pub(in crate::client::json) fn message(&self, host: &str) -> String {
        let detail = &self.detail;
        match self.cause {
            Cause::UnknownHost => format!("the host {host} does not resolve: {detail}"),
            Cause::Refused => format!("{host} refused the connection"),
            Cause::Unreachable => format!("{host} cannot be reached: {detail}"),
            Cause::Tls => format!("the TLS handshake with {host} failed: {detail}"),
            Cause::Credentials => format!("there is no token to send: {detail}"),
            Cause::Busy => format!("no connection to {host} came free: {detail}"),
            Cause::TimedOut => format!("{host} is silent: {detail}"),
            Cause::Broken => format!("the connection to {host} broke: {detail}"),
        }
    }
}

impl From<&legacy::Error> for Lost {
    fn from(error: &legacy::Error) -> Self {
        let (cause, detail) = connect::cause(error);
        Self {
            cause,
            detail,
            too_large: connect::is_too_large(error),
        }
    }
}
