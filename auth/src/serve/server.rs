//! The task behind a token socket: accepts, looks who asks, answers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use super::connections::{Busy, Connections};
use super::reply::{self, Reply, Told};
use super::{Routes, SocketConfig};
use crate::broker::Broker;
use crate::error::Error;

/// Connections at a time of those who may not ask. They are told so, apart from the others.
const REFUSED_AT_ONCE: usize = 8;

/// After a failure to accept (descriptors ran out), this long passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a token socket tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketStatus {
    /// Connections that are open now.
    pub connections: usize,
    /// Requests that got a token.
    pub answered: u64,
    /// Requests that got none.
    pub failed: u64,
    /// Connections of peers who may not ask.
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    connections: AtomicUsize,
    answered: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

impl Counters {
    pub(super) fn status(&self) -> SocketStatus {
        SocketStatus {
            connections: self.connections.load(Ordering::Relaxed),
            answered: self.answered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

pub(super) struct Server {
    listener: UnixListener,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
}

/// What all connections need.
struct Shared {
    config: SocketConfig,
    counters: Arc<Counters>,
}

impl Server {
    pub(super) fn new(
        config: SocketConfig,
        listener: UnixListener,
        stopped: watch::Receiver<bool>,
        counters: Arc<Counters>,
    ) -> Self {
        let shared = Arc::new(Shared { config, counters });
        Self {
            listener,
            shared,
            stopped,
        }
    }

    pub(super) async fn run(self) {
        let mut stopped = self.stopped.clone();
        let mut served = Connections::new(self.shared.config.connections);
        let mut refused = Connections::new(REFUSED_AT_ONCE);
        loop {
            let counters = &self.shared.counters;
            counters.connections.store(served.len(), Ordering::Relaxed);
            tokio::select! {
                () = told(&mut stopped) => break,
                () = served.changed() => {}
                () = refused.changed() => {}
                accepted = self.listener.accept(), if served.has_room() => match accepted {
                    Ok((stream, _)) => self.admit(stream, &mut served, &mut refused),
                    Err(error) => {
                        tracing::warn!("the token socket cannot accept: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        drop(refused);
        served.finish(self.shared.config.grace).await;
        self.shared.counters.connections.store(0, Ordering::Relaxed);
    }

    fn admit(&self, stream: UnixStream, served: &mut Connections, refused: &mut Connections) {
        let uid = stream.peer_cred().ok().map(|peer| peer.uid());
        let shared = Arc::clone(&self.shared);
        let stopped = self.stopped.clone();
        if uid.is_some_and(|uid| shared.config.uids.contains(&uid)) {
            served.add(|busy| shared.serve(stream, busy, stopped));
            return;
        }
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            "{} asks the token socket at {} and is not among those who may",
            reply::who(uid),
            shared.config.path.display()
        );
        if refused.has_room() {
            refused.add(|_| shared.refuse(stream, uid, stopped));
        }
    }
}

impl Shared {
    async fn serve(
        self: Arc<Self>,
        stream: UnixStream,
        busy: Busy,
        stopped: watch::Receiver<bool>,
    ) {
        let service = service_fn(|request: Request<Incoming>| {
            let running = busy.begin();
            let shared = &self;
            async move {
                let reply = shared.answer(&request).await;
                drop(running);
                Ok::<_, Infallible>(reply)
            }
        });
        self.converse(stream, service, stopped).await;
    }

    async fn refuse(
        self: Arc<Self>,
        stream: UnixStream,
        uid: Option<u32>,
        stopped: watch::Receiver<bool>,
    ) {
        let service = service_fn(|_| async move { Ok::<_, Infallible>(reply::not_allowed(uid)) });
        self.converse(stream, service, stopped).await;
    }

    /// One connection to its end: the client's, that of its lifetime, or that of the socket.
    async fn converse<S>(&self, stream: UnixStream, service: S, mut stopped: watch::Receiver<bool>)
    where
        S: hyper::service::HttpService<Incoming, ResBody = http_body_util::Full<bytes::Bytes>>,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let config = &self.config;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(config.idle)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = told(&mut stopped) => {}
            () = tokio::time::sleep(config.lifetime) => {}
        }
        connection.as_mut().graceful_shutdown();
        // What a client does with its end is no matter of ours.
        let _ = tokio::time::timeout(config.grace, connection).await;
    }

    async fn answer(&self, request: &Request<Incoming>) -> Reply {
        if !matches!(*request.method(), Method::GET | Method::POST) {
            return reply::no_such_method();
        }
        let routes = &self.config.routes;
        let broker = match routes.broker(request.uri().path()) {
            Ok(broker) => broker,
            Err(paths) => return reply::no_such_path(paths.keys().map(String::as_str)),
        };
        match tell(broker).await {
            Ok(reply) => {
                self.counters.answered.fetch_add(1, Ordering::Relaxed);
                reply
            }
            Err(error) => {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                reply::failure(&error)
            }
        }
    }
}

impl Routes {
    /// The broker of this path, or those of the others.
    fn broker(&self, path: &str) -> Result<&Broker, &BTreeMap<String, Broker>> {
        match self {
            Self::Any(broker) => Ok(broker),
            Self::ByPath(brokers) => brokers.get(path).ok_or(brokers),
        }
    }
}

/// Waits until the socket is to end; a socket that is gone has ended.
async fn told(stopped: &mut watch::Receiver<bool>) {
    drop(stopped.wait_for(|stopped| *stopped).await);
}

/// A token that lives for a second at least, since `expires_in` counts in seconds.
async fn tell(broker: &Broker) -> Result<Reply, Error> {
    const LEAST: Duration = Duration::from_secs(1);
    let mut token = broker.token().await?;
    let mut left = broker.left(&token);
    if left < LEAST {
        token = broker.replacement(token.tag()).await?;
        left = broker.left(&token);
    }
    Ok(Told {
        token: token.expose(),
        left,
        now: SystemTime::now(),
    }
    .reply())
}
