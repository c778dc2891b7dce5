//! What the token endpoints of Google share: the parameters of a request, and refusals in the words of RFC 6749.
//! [`login`] is the endpoint that credential files name as their `token_uri`.

pub(crate) mod login;
pub(crate) mod parameters;

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::body::ReplyBody;

/// The widest scope there is, which logins and the metadata server's tokens have.
pub(crate) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// An error of RFC 6749 section 5.2 or RFC 8693 section 2.2.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: &'static str,
    description: String,
}

impl Refusal {
    pub(crate) fn new(error: &'static str, description: impl Into<String>) -> Self {
        // RFC 6749 section 5.2: 401 is for a client that is not who it says.
        let status = match error {
            "invalid_client" => StatusCode::UNAUTHORIZED,
            _ => StatusCode::BAD_REQUEST,
        };
        Self {
            status,
            error,
            description: description.into(),
        }
    }

    pub(crate) fn request(description: impl Into<String>) -> Self {
        Self::new("invalid_request", description)
    }

    pub(crate) fn grant(description: impl Into<String>) -> Self {
        Self::new("invalid_grant", description)
    }

    pub(crate) fn reply(&self) -> Response<ReplyBody> {
        let body = json!({"error": self.error, "error_description": self.description});
        reply(self.status, &body)
    }
}

/// An answer that no cache may keep.
pub(crate) fn reply(status: StatusCode, body: &Value) -> Response<ReplyBody> {
    let mut reply = Response::new(ReplyBody::full(body.to_string()));
    *reply.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json; charset=UTF-8");
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}
