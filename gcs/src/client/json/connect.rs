//! Connections: resolve, connect, a proxy where one is set, and TLS handshake, under one deadline, with errors that say
//! which of them failed.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, MapErr, TryFutureExt};
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiFuture, GaiResolver, Name};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
#[cfg(any(test, feature = "testing"))]
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
#[cfg(any(test, feature = "testing"))]
use tokio::io::DuplexStream;
use tokio::time::timeout;
use tower_service::Service;

use super::proxy::{Proxies, Route};
use crate::Cause;

type BoxError = Box<dyn StdError + Send + Sync>;

/// Makes the far end of a new connection inside the process, or refuses it.
#[cfg(any(test, feature = "testing"))]
pub(super) type Dial = Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>;

/// Opens connections.
#[derive(Clone)]
pub(super) enum Connector {
    Network(Network),
    /// Tests run client and server on one paused clock, which a socket would not wait for.
    #[cfg(any(test, feature = "testing"))]
    Memory(Dial),
}

/// TCP, TLS and proxies.
#[derive(Clone)]
pub(super) struct Network {
    tcp: HttpConnector<Resolver>,
    tls: Arc<ClientConfig>,
    proxies: Proxies,
    limit: Duration,
}

impl Network {
    pub(super) fn new(limit: Duration, proxies: Proxies) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A peer that vanished while a connection was idle is noticed here rather than by the next request.
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        Self {
            tcp,
            tls: Arc::new(tls()),
            proxies,
            limit,
        }
    }

    /// A connection on the way that leads to `target`.
    fn open(&self, target: Uri) -> BoxFuture<'static, Result<Link, BoxError>> {
        let mut straight = self.secured(self.tcp.clone());
        match self.proxies.route(&target) {
            Route::Direct => link(straight.call(target)),
            Route::Forward(proxy, _) => {
                let connecting = Through::new(&proxy, straight).call(proxy);
                let proxied = connecting.map_ok(|io| Link {
                    proxied: true,
                    ..Link::new(io)
                });
                proxied.map_err(Into::into).boxed()
            }
            Route::Tunnel(proxy, authorization) => {
                let mut tunnel = Tunnel::new(proxy.clone(), straight);
                if let Some(authorization) = authorization {
                    tunnel = tunnel.with_auth(authorization);
                }
                link(self.secured(Through::new(&proxy, tunnel)).call(target))
            }
            Route::Socks(proxy, user) => {
                let mut socks = SocksV5::new(proxy.clone(), self.tcp.clone());
                if let Some((name, password)) = user {
                    socks = socks.with_auth(name, password);
                }
                link(self.secured(Through::new(&proxy, socks)).call(target))
            }
            Route::Unknown(proxy) => {
                let error = ProxyFailed {
                    proxy: shown(&proxy),
                    source: "it is none of http, https and socks5".into(),
                };
                futures_util::future::err(error.into()).boxed()
            }
        }
    }

    /// TLS over `inner` where the target's URL asks for it.
    fn secured<C>(&self, inner: C) -> HttpsConnector<C> {
        HttpsConnector::from((inner, Arc::clone(&self.tls)))
    }
}

/// What comes of `connecting`.
fn link<I, E>(
    connecting: impl Future<Output = Result<I, E>> + Send + 'static,
) -> BoxFuture<'static, Result<Link, BoxError>>
where
    I: Io + 'static,
    E: Into<BoxError> + 'static,
{
    connecting.map_ok(Link::new).map_err(Into::into).boxed()
}

/// TLS as the system trusts it, or as `SSL_CERT_FILE` and `SSL_CERT_DIR` say. A machine without certificates can still
/// reach plain endpoints, so their absence is an error of the first handshake, which then trusts nobody.
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

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        match self {
            Self::Network(network) => {
                let (opening, limit) = (network.open(target), network.limit);
                Box::pin(async move {
                    let opened = timeout(limit, opening).await;
                    opened.unwrap_or_else(|_| Err(TooSlow(limit).into()))
                })
            }
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(dial) => {
                let link = dial().map(|io| Link::new(TokioIo::new(io)));
                Box::pin(async move { Ok(link?) })
            }
        }
    }
}

/// No connection within the deadline.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {} s", .0.as_secs_f32())]
struct TooSlow(Duration);

/// A connection to a proxy, or through it, with errors that say so.
#[derive(Clone)]
struct Through<C> {
    inner: C,
    proxy: String,
}

/// No connection, and it is the proxy's doing.
#[derive(Debug, thiserror::Error)]
#[error("through the proxy {proxy}")]
struct ProxyFailed {
    /// Host and port.
    proxy: String,
    source: BoxError,
}

impl<C> Through<C> {
    fn new(proxy: &Uri, inner: C) -> Self {
        let proxy = shown(proxy);
        Self { inner, proxy }
    }
}

fn shown(proxy: &Uri) -> String {
    proxy
        .authority()
        .map_or_else(String::new, ToString::to_string)
}

impl<C> Service<Uri> for Through<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Response: 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = ProxyFailed;
    type Future = BoxFuture<'static, Result<C::Response, ProxyFailed>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProxyFailed>> {
        let proxy = &self.proxy;
        self.inner.poll_ready(cx).map_err(|error| ProxyFailed {
            proxy: proxy.clone(),
            source: error.into(),
        })
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let proxy = self.proxy.clone();
        let connecting = self.inner.call(target);
        connecting
            .map_err(|error| ProxyFailed {
                proxy,
                source: error.into(),
            })
            .boxed()
    }
}

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
        if let Some(error) = link.downcast_ref::<ProxyFailed>() {
            return (Cause::Unreachable, format!("{error}: {}", root(error)));
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

/// What is at the bottom of an error.
fn root<'a>(error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root
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

/// What a connection reads from and writes to.
pub(super) trait Io: Read + Write + Send + Unpin {}

impl<T: Read + Write + Send + Unpin> Io for T {}

/// A connection.
pub(super) struct Link {
    // TCP, TLS, either of them through a tunnel, or memory: what a call through a table costs is nothing beside a read.
    io: Box<dyn Io>,
    /// Whether it ends at a proxy, which wants to hear whole URLs.
    proxied: bool,
}

impl Link {
    fn new(io: impl Io + 'static) -> Self {
        Self {
            io: Box::new(io),
            proxied: false,
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.proxied)
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_read(cx, buffer)
    }
}

impl Write for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write_vectored(cx, slices)
    }
}
