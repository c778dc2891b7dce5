//! Opens connections: straight, or through a proxy, whose failures are told from those of the server
//! behind it. TLS with that server is not begun here.

use std::error::Error as StdError;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use http::Uri;
use http::uri::{Authority, Scheme};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

use super::lookup::Lookup;
use super::proxy::{Means, Proxy, Route};

type BoxError = Box<dyn StdError + Send + Sync>;

/// A connection to the first host on the way.
type First = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections along one route.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector<Lookup>,
    tls: Arc<ClientConfig>,
    route: Arc<Route>,
    limit: Duration,
}

impl Connector {
    /// A connection may take `limit`; `tls` is for proxies.
    pub(super) fn new(route: Arc<Route>, tls: Arc<ClientConfig>, limit: Duration) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(Lookup);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(limit));
        tcp.set_nodelay(true);
        Self {
            tcp,
            tls,
            route,
            limit,
        }
    }

    async fn open(mut self, target: Uri) -> Result<Link, BoxError> {
        let route = Arc::clone(&self.route);
        match &*route {
            Route::Direct => Ok(Link {
                io: MaybeHttpsStream::Http(self.tcp.call(target).await?),
                proxied: false,
            }),
            Route::Through(proxy) => {
                let opened = timeout(self.limit, self.through(proxy, target)).await;
                let opened = opened.unwrap_or_else(|_| Err(ProxyFault::slow()));
                opened.map_err(|fault| ProxyFailed::new(proxy, fault).into())
            }
        }
    }

    async fn through(&self, proxy: &Proxy, target: Uri) -> Result<Link, ProxyFault> {
        let first = self.first(proxy).await.map_err(ProxyFault::Unreachable)?;
        let at = proxy.uri.clone();
        let io = match &proxy.means {
            Means::Forward(_) => first,
            Means::Tunnel(authorization) => {
                let mut tunnel = Tunnel::new(at, Opened(Some(first)));
                if let Some(authorization) = authorization {
                    tunnel = tunnel.with_auth(authorization.clone());
                }
                tunnel.call(target).await.map_err(ProxyFault::of_tunnel)?
            }
            Means::Socks(user) => {
                let mut socks = SocksV5::new(at, Opened(Some(first)));
                if let Some((name, password)) = user.clone() {
                    socks = socks.with_auth(name, password);
                }
                let opening = socks.call(with_port(target));
                opening
                    .await
                    .map_err(|error| ProxyFault::Unwilling(error.into()))?
            }
        };
        let proxied = matches!(proxy.means, Means::Forward(_));
        Ok(Link { io, proxied })
    }

    /// A connection to the proxy itself.
    async fn first(&self, proxy: &Proxy) -> Result<First, BoxError> {
        let (mut tcp, at) = (self.tcp.clone(), proxy.uri.clone());
        match proxy.is_secure() {
            true => {
                HttpsConnector::from((tcp, Arc::clone(&self.tls)))
                    .call(at)
                    .await
            }
            false => Ok(MaybeHttpsStream::Http(tcp.call(at).await?)),
        }
    }
}

/// The target with the port that its scheme means, which SOCKS takes for 443 whatever the scheme is.
fn with_port(target: Uri) -> Uri {
    if target.port().is_some() || target.scheme() != Some(&Scheme::HTTP) {
        return target;
    }
    let host = target.host().unwrap_or_default();
    let Ok(authority) = Authority::try_from(format!("{host}:80")) else {
        return target;
    };
    let mut parts = target.clone().into_parts();
    parts.authority = Some(authority);
    Uri::from_parts(parts).unwrap_or(target)
}

impl Service<Uri> for Connector {
    type Response = Link;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Link, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        Box::pin(self.clone().open(target))
    }
}

/// Hands out the one connection that is open, for a handshake with the proxy at its end.
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

/// No connection, and it is the proxy's doing.
#[derive(Debug)]
pub(super) struct ProxyFailed {
    /// Host and port.
    pub(super) proxy: String,
    pub(super) fault: ProxyFault,
}

/// What the proxy did.
#[derive(Debug)]
pub(super) enum ProxyFault {
    /// It gave no connection, or none in time.
    Unreachable(BoxError),
    /// It wants credentials, or others.
    Credentials,
    /// It does not lead to the server.
    Unwilling(BoxError),
}

/// Without a name of its own where it is declared.
type TunnelError = <Tunnel<Opened> as Service<Uri>>::Error;

impl ProxyFault {
    fn slow() -> Self {
        Self::Unreachable(io::Error::from(io::ErrorKind::TimedOut).into())
    }

    fn of_tunnel(error: TunnelError) -> Self {
        match error {
            TunnelError::ProxyAuthRequired => Self::Credentials,
            other => Self::Unwilling(other.into()),
        }
    }
}

impl ProxyFailed {
    pub(super) fn new(proxy: &Proxy, fault: ProxyFault) -> Self {
        let proxy = proxy.to_string();
        Self { proxy, fault }
    }
}

impl fmt::Display for ProxyFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no way through the proxy {}", self.proxy)
    }
}

impl StdError for ProxyFailed {}

/// A connection, on which TLS with the server may follow.
pub(super) struct Link {
    io: First,
    /// Whether it ends at a proxy, which wants to hear whole URLs.
    proxied: bool,
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
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }
}
