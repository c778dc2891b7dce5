//! Connections: resolve, connect, a proxy where one is set, and TLS handshake, under one deadline, with errors that say
//! which of them failed.

use std::error::Error as StdError;
use std::fmt;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, MapErr, TryFutureExt};
use http::Uri;
use http::uri::Authority;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiFuture, GaiResolver, Name};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
#[cfg(any(test, feature = "testing"))]
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::config::Protocol;
use super::proxy::{Proxies, Route};
use crate::Cause;

type BoxError = Box<dyn StdError + Send + Sync>;

/// A connection to the first host on the way.
type First = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Makes the far end of a new connection inside the process, or refuses it.
#[cfg(any(test, feature = "testing"))]
pub(super) type Dial = Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>;

/// Opens connections.
#[derive(Clone)]
pub(super) enum Connector {
    Network(Arc<Network>),
    /// Tests run client and server on one paused clock, which a socket would not wait for.
    #[cfg(any(test, feature = "testing"))]
    Memory(Dial, Protocol),
}

/// TCP, TLS and proxies.
pub(super) struct Network {
    tcp: HttpConnector<Resolver>,
    tls: Arc<ClientConfig>,
    proxies: Proxies,
    limit: Duration,
}

impl Network {
    pub(super) fn new(limit: Duration, proxies: Proxies, protocol: Protocol) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A peer that vanished while a connection was idle is noticed here rather than by the next request.
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        Self {
            tcp,
            tls: Arc::new(tls(protocol)),
            proxies,
            limit,
        }
    }

    /// A connection on the way that leads to `target`.
    async fn open(self: Arc<Self>, target: Uri) -> Result<Link, BoxError> {
        match self.proxies.route(&target) {
            Route::Direct => Ok(Link::new(
                self.secured(self.tcp.clone()).call(target).await?,
            )),
            Route::Forward(proxy, _) => {
                let link = Link::new(self.reach(&proxy).await?);
                Ok(Link {
                    proxied: true,
                    ..link
                })
            }
            Route::Tunnel(proxy, authorization) => {
                let mut tunnel =
                    Tunnel::new(proxy.clone(), Opened(Some(self.reach(&proxy).await?)));
                if let Some(authorization) = authorization {
                    tunnel = tunnel.with_auth(authorization);
                }
                let opened = tunnel.call(target.clone()).await;
                self.along(
                    target,
                    opened.map_err(|error| ProxyFailed::new(&proxy, error))?,
                )
                .await
            }
            Route::Socks(proxy, user) => {
                let mut socks =
                    SocksV5::new(proxy.clone(), Opened(Some(self.reach(&proxy).await?)));
                if let Some((name, password)) = user {
                    socks = socks.with_auth(name, password);
                }
                let opened = socks.call(with_port_of_scheme(&target)).await;
                self.along(
                    target,
                    opened.map_err(|error| ProxyFailed::new(&proxy, error))?,
                )
                .await
            }
            Route::Unknown(proxy) => {
                Err(ProxyFailed::new(&proxy, "it is none of http, https and socks5").into())
            }
        }
    }

    /// A connection to the proxy itself. The handshake with it comes after, since hyper's forget why there is none.
    async fn reach(&self, proxy: &Uri) -> Result<First, ProxyFailed> {
        let mut tcp = self.tcp.clone();
        let connected = match proxy.scheme_str() {
            Some("https") => self.secured(tcp).call(proxy.clone()).await,
            Some("http") => tcp
                .call(proxy.clone())
                .map_ok(First::Http)
                .await
                .map_err(Into::into),
            _ => {
                let proxy = with_port(proxy, SOCKS_PORT);
                tcp.call(proxy)
                    .map_ok(First::Http)
                    .await
                    .map_err(Into::into)
            }
        };
        connected.map_err(|error| ProxyFailed::new(proxy, error))
    }

    /// A connection to `target` over the one that a proxy has `opened`.
    async fn along(&self, target: Uri, opened: First) -> Result<Link, BoxError> {
        let secured = self.secured(Opened(Some(opened))).call(target);
        Ok(Link::new(secured.await?))
    }

    /// TLS over `inner` where the URL asks for it.
    fn secured<C>(&self, inner: C) -> HttpsConnector<C> {
        HttpsConnector::from((inner, Arc::clone(&self.tls)))
    }
}

/// RFC 1928.
const SOCKS_PORT: u16 = 1080;

/// What SOCKS is asked for: it knows no schemes, and hyper takes a port that is not named for 443 in any of them.
fn with_port_of_scheme(target: &Uri) -> Uri {
    match target.scheme_str() {
        Some("http") => with_port(target, 80),
        _ => target.clone(),
    }
}

/// `uri`, with this port where it names none.
fn with_port(uri: &Uri, port: u16) -> Uri {
    let (None, Some(host)) = (uri.port(), uri.host()) else {
        return uri.clone();
    };
    let authority = Authority::try_from(format!("{host}:{port}"));
    let mut parts = uri.clone().into_parts();
    parts.authority = authority.ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// TLS as the system trusts it, or as `SSL_CERT_FILE` and `SSL_CERT_DIR` say. A machine without certificates can still
/// reach plain endpoints, so their absence is an error of the first handshake, which then trusts nobody.
fn tls(protocol: Protocol) -> ClientConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = || {
        #[expect(clippy::expect_used, reason = "ring offers both versions")]
        ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("ring speaks TLS 1.2 and 1.3")
    };
    let mut config = match builder().with_native_roots() {
        Ok(config) => config.with_no_client_auth(),
        Err(error) => {
            tracing::warn!(%error, "no trusted root certificates: https endpoints cannot be reached");
            builder()
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth()
        }
    };
    if protocol == Protocol::Http2 {
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    }
    config
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
                let (opening, limit) = (Arc::clone(network).open(target), network.limit);
                Box::pin(async move {
                    let opened = timeout(limit, opening).await;
                    opened.unwrap_or_else(|_| Err(TooSlow(limit).into()))
                })
            }
            #[cfg(any(test, feature = "testing"))]
            Self::Memory(dial, protocol) => {
                let multiplexed = *protocol == Protocol::Http2;
                let link = dial().map(|io| Link {
                    io: Box::new(TokioIo::new(io)),
                    proxied: false,
                    multiplexed,
                });
                Box::pin(async move { Ok(link?) })
            }
        }
    }
}

/// No connection within the deadline.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {} s", .0.as_secs_f32())]
struct TooSlow(Duration);

/// No connection, and it is the proxy's doing.
#[derive(Debug, thiserror::Error)]
#[error("through the proxy {proxy}")]
struct ProxyFailed {
    /// Host and port.
    proxy: String,
    source: BoxError,
}

impl ProxyFailed {
    fn new(proxy: &Uri, source: impl Into<BoxError>) -> Self {
        Self {
            proxy: place(proxy).to_owned(),
            source: source.into(),
        }
    }
}

/// Host and port, whatever else found its way into the authority.
fn place(proxy: &Uri) -> &str {
    let authority = proxy.authority().map_or("", Authority::as_str);
    authority.rsplit('@').next().unwrap_or_default()
}

/// Hands out the one connection that is open, for a handshake with what is at its end.
struct Opened(Option<First>);

impl Service<Uri> for Opened {
    type Response = First;
    type Error = io::Error;
    type Future = Ready<io::Result<First>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let first = self.0.take();
        ready(first.ok_or_else(|| io::Error::other("one connection has one handshake")))
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

/// Whether the head of an answer did not fit into what was set aside for it.
pub(super) fn is_too_large(error: &hyper_util::client::legacy::Error) -> bool {
    let hyper = StdError::source(error).and_then(|source| source.downcast_ref::<hyper::Error>());
    hyper.is_some_and(hyper::Error::is_parse_too_large)
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
    /// Whether HTTP/2 is spoken on it.
    multiplexed: bool,
}

impl Link {
    fn new(io: impl Io + Connection + 'static) -> Self {
        Self {
            multiplexed: io.connected().is_negotiated_h2(),
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
        let connected = Connected::new().proxy(self.proxied);
        if self.multiplexed {
            connected.negotiated_h2()
        } else {
            connected
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_shown_without_what_stands_before_its_host() {
        for (proxy, shown) in [
            ("http://p:1", "p:1"),
            ("http://u:pw@p:1/", "p:1"),
            ("socks5://u:p%40w@[::1]:1", "[::1]:1"),
            ("/nowhere", ""),
        ] {
            let proxy = proxy.parse().unwrap();
            assert_eq!(place(&proxy), shown, "{proxy}");
            let failed = ProxyFailed::new(&proxy, "it sleeps");
            assert_eq!(failed.to_string(), format!("through the proxy {shown}"));
        }
    }

    #[test]
    fn a_port_that_is_not_named_is_the_schemes() {
        for (target, told) in [
            ("http://store.test/x", "http://store.test:80/x"),
            ("http://[::1]", "http://[::1]:80/"),
            ("http://store.test:81/x", "http://store.test:81/x"),
            ("https://store.test/x", "https://store.test/x"),
        ] {
            assert_eq!(with_port_of_scheme(&target.parse().unwrap()), told);
        }
        let proxy = "socks5://p".parse().unwrap();
        assert_eq!(with_port(&proxy, SOCKS_PORT), "socks5://p:1080");
    }
}
