//! Google's Security Token Service: a subject token goes in, an access token comes out (RFC 8693;
//! see "Method: token" in the STS reference). Building the request and reading the answer
//! are pure; the client only carries bytes. Each call is one attempt: when to try again is the
//! schedule's to say.

pub(crate) mod answer;
pub(crate) mod client;
mod endpoint;
pub(crate) mod refusal;
pub(crate) mod request;

pub use endpoint::Endpoint;
