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
use hyper_util::rt::TokioTimer;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::time::Instant;

use super::connections::{Busy, Connections};
use super::place::Place;
use super::reply::{self, Reply, Told};
use super::stream::Stream;
use super::{Routes, SocketConfig};
use crate::broker::Broker;
use crate::error::Error;

/// Connections at a time of those who may not ask. They are told so, apart from the others.
const REFUSED_AT_ONCE: usize = 8;

/// After a failure to accept (descriptors ran out), this long passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who would have to wait beyond the share of an identity is told so after this time: an exchange
/// that is about to end is worth it.
const CROWDED: Duration = Duration::from_millis(250);

/// At the end, this long is waited for the request of who has connected and not asked.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// A connection that is to end waits this long for the rest of a request, or for its client to read.
const HALF_A_REQUEST: Duration = Duration::from_secs(1);

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
    place: Arc<Place>,
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
        place: Arc<Place>,
        listener: UnixListener,
        stopped: watch::Receiver<bool>,
        counters: Arc<Counters>,
    ) -> Self {
        let shared = Arc::new(Shared { config, counters });
        Self {
            place,
            listener,
            shared,
            stopped,
        }
    }

    pub(super) async fn run(mut self) {
        let mut stopped = self.stopped.clone();
        let mut served = Connections::new(self.shared.config.connections);
        let mut refused = Connections::new(REFUSED_AT_ONCE);
        let mut complaints = Complaints::default();
        // One that was accepted and has no place yet. It is what makes others leave.
        let mut next = None;
        let mut renewed = Box::pin(Arc::clone(&self.place).renewed());
        loop {
            if let Some(stream) = next.take_if(|_| served.make_room()) {
                self.shared.serve_among(&mut served, stream, &self.stopped);
            }
            let counters = &self.shared.counters;
            counters.connections.store(served.len(), Ordering::Relaxed);
            tokio::select! {
                () = told(&mut stopped) => break,
                () = served.changed() => {}
                () = refused.changed() => {}
                listener = renewed.as_mut() => {
                    let path = self.place.path().display();
                    tracing::warn!("the token socket {path} was removed, and is made again");
                    self.listener = listener;
                    renewed.set(Arc::clone(&self.place).renewed());
                }
                accepted = self.listener.accept(), if next.is_none() => match accepted {
                    Ok((stream, _)) => next = self.admit(stream, &mut refused),
                    Err(error) => {
                        complaints.note(&error);
                        served.relieve();
                        tokio::select! {
                            () = served.changed() => {}
                            () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                        }
                    }
                },
            }
        }
        let Self {
            listener,
            shared,
            stopped,
            ..
        } = self;
        let late = backlog(listener, shared.config.connections);
        for stream in next.into_iter().chain(late) {
            if shared.may_ask(peer(&stream)) {
                shared.serve_among(&mut served, stream, &stopped);
            }
        }
        drop(refused);
        served.finish(shared.config.grace).await;
        shared.counters.connections.store(0, Ordering::Relaxed);
    }

    /// The connection of one who may ask; another is told so.
    fn admit(&self, stream: UnixStream, refused: &mut Connections) -> Option<UnixStream> {
        let uid = peer(&stream);
        let shared = &self.shared;
        if shared.may_ask(uid) {
            return Some(stream);
        }
        shared.counters.refused.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            "{} asks the token socket at {} and is not among those who may",
            reply::who(uid),
            shared.config.path.display()
        );
        if refused.has_room() {
            let (shared, stopped) = (Arc::clone(shared), self.stopped.clone());
            refused.add(|busy| shared.refuse(stream, uid, busy, stopped));
        }
        None
    }
}

/// What is said about descriptors that ran out: little, since it may go on for long.
#[derive(Default)]
struct Complaints(Option<Instant>);

impl Complaints {
    const EVERY: Duration = Duration::from_secs(60);

    fn note(&mut self, error: &std::io::Error) {
        if self.0.is_none_or(|last| last.elapsed() >= Self::EVERY) {
            self.0 = Some(Instant::now());
            tracing::warn!(
                "the token socket cannot accept, and closes idle connections: {error}; is the limit \
                 of open files too low?"
            );
        }
    }
}

fn peer(stream: &UnixStream) -> Option<u32> {
    stream.peer_cred().ok().map(|peer| peer.uid())
}

/// Who connected before the end and was not accepted yet, so many at most. The kernel is asked
/// itself: tokio's listener may not know of all of them.
fn backlog(listener: UnixListener, most: usize) -> Vec<UnixStream> {
    let Ok(listener) = listener.into_std() else {
        return Vec::new();
    };
    std::iter::from_fn(|| listener.accept().ok())
        .take(most)
        .filter_map(|(stream, _)| {
            stream.set_nonblocking(true).ok()?;
            UnixStream::from_std(stream).ok()
        })
        .collect()
}

impl Shared {
    fn may_ask(&self, uid: Option<u32>) -> bool {
        uid.is_some_and(|uid| self.config.uids.contains(&uid))
    }

    fn serve_among(
        self: &Arc<Self>,
        served: &mut Connections,
        stream: UnixStream,
        stopped: &watch::Receiver<bool>,
    ) {
        let (shared, stopped) = (Arc::clone(self), stopped.clone());
        served.add(|busy| shared.serve(stream, busy, stopped));
    }

    async fn serve(
        self: Arc<Self>,
        stream: UnixStream,
        busy: Busy,
        stopped: watch::Receiver<bool>,
    ) {
        let service = service_fn(|request: Request<Incoming>| {
            let running = busy.begin();
            let (shared, busy) = (&self, &busy);
            async move {
                let mut reply = shared.answer(&request).await;
                drop(running);
                if busy.is_last() {
                    reply::close(&mut reply);
                }
                Ok::<_, Infallible>(reply)
            }
        });
        self.converse(stream, service, &busy, stopped).await;
    }

    async fn refuse(
        self: Arc<Self>,
        stream: UnixStream,
        uid: Option<u32>,
        busy: Busy,
        stopped: watch::Receiver<bool>,
    ) {
        let service = service_fn(|_| async move { Ok::<_, Infallible>(reply::not_allowed(uid)) });
        self.converse(stream, service, &busy, stopped).await;
    }

    /// One connection to its end: the client's, that of its lifetime, that of the socket, or
    /// because another needs its place.
    async fn converse<S>(
        &self,
        stream: UnixStream,
        service: S,
        busy: &Busy,
        mut stopped: watch::Receiver<bool>,
    ) where
        S: hyper::service::HttpService<Incoming, ResBody = http_body_util::Full<bytes::Bytes>>,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let config = &self.config;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(config.idle)
            // Who has asked and says no more still wants the answer.
            .half_close(true)
            .serve_connection(Stream::new(stream, busy.clone()), service);
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = busy.asked_to_leave() => {}
            () = tokio::time::sleep(config.lifetime) => {}
            () = told(&mut stopped) => {
                busy.make_last();
                // Who has just connected is about to ask.
                if !busy.had_request()
                    && tokio::time::timeout(FIRST_REQUEST, connection.as_mut()).await.is_ok()
                {
                    return;
                }
            }
        }
        busy.make_last();
        busy.make_over();
        // What a client does with its end is no matter of ours.
        let ended = tokio::time::timeout(HALF_A_REQUEST, connection.as_mut()).await;
        if ended.is_err() && busy.runs() {
            let _ = tokio::time::timeout(config.grace, connection).await;
        }
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
        let outcome = match self.is_crowded(broker) {
            false => Some(tell(broker).await),
            true => tokio::time::timeout(CROWDED, tell(broker)).await.ok(),
        };
        let counters = &self.counters;
        match outcome {
            Some(Ok(reply)) => {
                counters.answered.fetch_add(1, Ordering::Relaxed);
                reply
            }
            Some(Err(error)) => {
                counters.failed.fetch_add(1, Ordering::Relaxed);
                reply::failure(&error, broker.next_exchange_in())
            }
            None => {
                counters.failed.fetch_add(1, Ordering::Relaxed);
                reply::crowded(broker.waiters())
            }
        }
    }
}

impl Shared {
    /// Whether so many wait for a token of this identity that the others need their places. Those
    /// with a token never wait, and see none of this.
    fn is_crowded(&self, broker: &Broker) -> bool {
        let waiters = broker.waiters();
        waiters > 0
            && self
                .config
                .routes
                .share(self.config.connections)
                .is_some_and(|share| waiters >= share)
    }
}

impl Routes {
    /// How many places out of so many may wait for a token of one identity; one that is alone may
    /// have all. A quarter is left to those who need not wait.
    fn share(&self, places: usize) -> Option<usize> {
        match self {
            Self::ByPath(brokers) if brokers.len() > 1 => {
                Some((places / 4 * 3 / brokers.len()).max(1))
            }
            Self::Any(_) | Self::ByPath(_) => None,
        }
    }

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
