//! Name lookup for the client, by `getaddrinfo(3)` on the thread pool. Unlike the standard
//! library's it tells a name that does not exist from a name service that cannot answer now, which
//! is the difference between a spelling mistake and a machine whose network is not up yet.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{fmt, vec};

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use hyper_util::client::legacy::connect::dns::Name;
use tokio::task::spawn_blocking;
use tower_service::Service;

/// A resolver for `HttpConnector`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup;

/// The name led to no address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// It does not exist, or has no address.
    NoSuchName,
    /// The name service did not answer, or not properly.
    NoAnswer,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSuchName => "no such host name",
            Self::NoAnswer => "the name service does not answer",
        })
    }
}

impl std::error::Error for Failed {}

impl From<LookupError> for Failed {
    fn from(error: LookupError) -> Self {
        match error.kind() {
            LookupErrorKind::NoName | LookupErrorKind::NoData => Self::NoSuchName,
            _ => Self::NoAnswer,
        }
    }
}

impl Service<Name> for Lookup {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failed>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let looking = spawn_blocking(move || addresses(name.as_str()));
        Box::pin(async move {
            looking
                .await
                .unwrap_or(Err(Failed::NoAnswer))
                .map(Vec::into_iter)
        })
    }
}

fn addresses(host: &str) -> Result<Vec<SocketAddr>, Failed> {
    let hints = AddrInfoHints {
        socktype: SockType::Stream.into(),
        ..AddrInfoHints::default()
    };
    let found: Vec<_> = getaddrinfo(Some(host), None, Some(hints))?
        .flatten()
        .map(|info| info.sockaddr)
        .collect();
    if found.is_empty() {
        Err(Failed::NoSuchName)
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn localhost_is_found() {
        let addresses = Lookup.call("localhost".parse().unwrap()).await.unwrap();
        assert!(
            addresses
                .into_iter()
                .all(|address| address.ip().is_loopback())
        );
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_is_not_found() {
        // A label longer than 63 bytes is refused before any server is asked.
        let name = format!("{}.invalid", "a".repeat(64));
        let outcome = Lookup
            .call(name.parse().unwrap())
            .await
            .map(Iterator::count);
        assert_eq!(outcome, Err(Failed::NoSuchName));
    }
}
