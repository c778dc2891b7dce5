//! Connections: resolve, connect and TLS handshake under one deadline, with errors that say which of them failed.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, MapErr, TryFutureExt};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiFuture, GaiResolver, Name};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
#[cfg(any(test, feature = "testing"))]
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::Cause;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Makes the far end of a new connection inside the process, or refuses it.
#[cfg(any(test, feature = "testing"))]
pub(super) type Dial = Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>;

/// Opens connections.
#[derive(Clone)]
pub(super) enum Connector {
    Network {
        inner: HttpsConnector<HttpConnector<Resolver>>,
        limit: Duration,
    },
    /// Tests run client and server on one paused clock, which a socket would not wait for.
    #[cfg(any(test, feature = "testing"))]
    Memory(Dial),
}

impl Connector {
    pub(super) fn network(limit: Duration) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A peer that vanished while a connection was idle is noticed here rather than by the next request.
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let inner = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls())
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        Self::Network { inner, limit }
    }
}

/// TLS as the system trusts it. A machine without certificates can still reach plain endpoints, so their absence is
/// an error of the first handshake, which then trusts nobody.
fn tls() -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = || {
        #[expect(clippy::expect_used, reason = "ring offers both versions")]
        ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS 1.2 and 1.3")
    };
    match builder().with_native_roots() {
        Ok(config) => config.with_no_client_auth(),
        Err(error) => {
            tracing::warn!(%error, "no trusted root certificates: https endpoints cannot be reached");
            builder()
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth()
        }
    }
}

impl Service<Uri> for Connector {
    type Response = Link;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Link, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match self {
            Self::Network { inner, .. } => inner.poll_ready(cx),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(_) => Poll::Ready(Ok(())),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        match self {
            Self::Network { inner, limit } => {
                let (connecting, limit) = (inner.call(uri), *limit);
                Box::pin(async move {
                    match tokio::time::timeout(limit, connecting).await {
                        Ok(connected) => Ok(Link::Network(Box::new(connected?))),
                        Err(_) => Err(TooSlow(limit).into()),
                    }
                })
            }
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(dial) => {
                let link = dial().map(|io| Link::Memory(TokioIo::new(io)));
                Box::pin(async move { Ok(link?) })
            }
        }
    }
}

/// No connection within the deadline.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {} s", .0.as_secs_f32())]
struct TooSlow(Duration);

/// The system's resolver, with an error that can be told apart.
#[derive(Clone)]
pub(super) struct Resolver(GaiResolver);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unresolved(io::Error);

impl Service<Name> for Resolver {
    type Response = GaiAddrs;
    type Error = Unresolved;
    type Future = MapErr<GaiFuture, fn(io::Error) -> Unresolved>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        self.0.poll_ready(cx).map_err(Unresolved)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        self.0.call(name).map_err(Unresolved)
    }
}

/// Why a request got no answer, from the types along the error's chain.
pub(super) fn cause(error: &hyper_util::client::legacy::Error) -> (Cause, String) {
    let mut chain: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(link) = chain {
        if let Some(error) = link.downcast_ref::<Unresolved>() {
            return (Cause::UnknownHost, error.to_string());
        }
        if let Some(error) = link.downcast_ref::<TooSlow>() {
            return (Cause::Unreachable, error.to_string());
        }
        if let Some(error) = link.downcast_ref::<io::Error>()
            && let Some(cause) = io_cause(error)
        {
            return (cause, error.to_string());
        }
        if link.source().is_none() {
            let cause = if error.is_connect() {
                Cause::Unreachable
            } else {
                Cause::Broken
            };
            return (cause, link.to_string());
        }
        chain = link.source();
    }
    (Cause::Broken, error.to_string())
}

/// What an I/O error holds within, which its `source` leaves out: adapters wrap one in another.
fn io_cause(error: &io::Error) -> Option<Cause> {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return Some(Cause::Refused);
    }
    let inner = error.get_ref()?;
    if inner.is::<rustls::Error>() {
        return Some(Cause::Tls);
    }
    io_cause(inner.downcast_ref()?)
}

/// A connection.
pub(super) enum Link {
    // Boxed for its size: TLS state is a kilobyte.
    Network(Box<MaybeHttpsStream<TokioIo<TcpStream>>>),
    #[cfg(any(test, feature = "testing"))]
    Memory(TokioIo<DuplexStream>),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        match self {
            Self::Network(link) => link.connected(),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(_) => Connected::new(),
        }
    }
}

impl Read for Link {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(link) => Pin::new(&mut **link).poll_read(cx, buffer),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(link) => Pin::new(link).poll_read(cx, buffer),
        }
    }
}

impl Write for Link {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Network(link) => Pin::new(&mut **link).poll_write(cx, bytes),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(link) => Pin::new(link).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(link) => Pin::new(&mut **link).poll_flush(cx),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(link) => Pin::new(link).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Network(link) => Pin::new(&mut **link).poll_shutdown(cx),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(link) => Pin::new(link).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Network(link) => link.is_write_vectored(),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(link) => link.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Network(link) => Pin::new(&mut **link).poll_write_vectored(cx, slices),
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(link) => Pin::new(link).poll_write_vectored(cx, slices),
        }
    }
}
