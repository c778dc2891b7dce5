//! HTTP with a deadline at every wait.
//!
//! [`Http`] is the pool that all buckets of a process share. It knows no retry and no meaning: a request goes out, and
//! the head of an answer comes back, or the [`Cause`] why none does.

mod flow;
mod lost;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version, header};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::config::{Pool, Timeouts};
use super::connect::{Connector, Network};
use super::deadline::{Deadline, moving, patience};
use super::hedge::{Hedged, Hedges};
use super::limit::Limiter;
use super::payload::{Meter, Outgoing, Payload, Sent};
use super::proxy::Proxies;
use super::retry::Retries;
use super::silence::Silence;
use crate::Cause;

pub(super) use flow::Flow;
pub(super) use lost::Lost;

/// hyper takes no smaller buffer.
const SMALLEST_BUFFER: usize = 8 << 10;

/// Every key of an object's custom metadata is a header of its media, and 8 KiB of metadata hold more than hyper's usual
/// hundred. Room for more costs every answer an allocation of 24 KiB, so it is made once it is needed.
const HEADERS: usize = 512;

/// The same for HTTP/2, which counts bytes: names, values and 32 for each header.
const HEADER_BYTES: u32 = 64 << 10;

/// What one HTTP/2 body may be ahead of its reader: 250 MB/s over a round trip of 16 ms.
const STREAM_WINDOW: u32 = 4 << 20;

/// The most that RFC 9113 allows for.
const LARGEST_WINDOW: u32 = (1 << 31) - 1;

/// How long a connection on which requests wait may be silent before it is asked whether it is still there.
const PING_AFTER: Duration = Duration::from_secs(10);

/// How long it may take to answer.
const PING_LIMIT: Duration = Duration::from_secs(10);

/// What all bodies of a connection may be ahead together: so much that one that nobody reads holds up no other.
fn connection_window(pool: &Pool) -> u32 {
    let bodies = u32::try_from(pool.in_flight).unwrap_or(u32::MAX);
    STREAM_WINDOW
        .saturating_mul(bodies.max(1))
        .min(LARGEST_WINDOW)
}

/// The connections that all stores share. Clones are the same pool.
#[derive(Clone)]
pub struct Http {
    client: Client<Connector, Outgoing>,
    /// The same with room for [`HEADERS`], over connections of its own.
    wide: Client<Connector, Outgoing>,
    /// Whether an answer has needed that room.
    widened: Arc<AtomicBool>,
    proxies: Proxies,
    slots: Arc<Semaphore>,
    bytes: Option<Arc<Limiter>>,
    requests: Option<Arc<Limiter>>,
    /// As many as there are endpoints in the configuration.
    hosts: Arc<Mutex<BTreeMap<String, Arc<Host>>>>,
}

/// What all that talk to one authority share.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) silence: Silence,
    pub(super) retries: Retries,
    pub(super) hedges: Hedges,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("free", &self.slots.available_permits())
            .finish_non_exhaustive()
    }
}

impl Http {
    /// A pool of its own, TLS with the system's trust.
    ///
    /// The usual variables are read now: proxies from `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` in either
    /// case (never for this machine itself), trusted roots from `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    #[must_use]
    pub fn new(pool: &Pool) -> Self {
        let proxies = Proxies::from_environment();
        let network = Network::new(pool.connect_timeout, proxies.clone(), pool.protocol);
        Self::over(Connector::Network(Arc::new(network)), proxies, pool)
    }

    /// A pool of connections inside the process: `dial` makes the client's end of each, so that a server on the same
    /// runtime shares its paused clock.
    #[cfg(any(test, feature = "testing"))]
    pub fn in_memory(
        pool: &Pool,
        dial: impl Fn() -> std::io::Result<tokio::io::DuplexStream> + Send + Sync + 'static,
    ) -> Self {
        let connector = Connector::Memory(Arc::new(dial), pool.protocol);
        Self::over(connector, Proxies::none(), pool)
    }

    fn over(connector: Connector, proxies: Proxies, pool: &Pool) -> Self {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(pool.idle_timeout)
            .pool_max_idle_per_host(pool.idle)
            .http1_max_buf_size(pool.read_buffer.max(SMALLEST_BUFFER))
            .http2_max_header_list_size(HEADER_BYTES)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(connection_window(pool))
            // A connection that died would take all requests to its host with it, one deadline after the other.
            .http2_keep_alive_interval(PING_AFTER)
            .http2_keep_alive_timeout(PING_LIMIT);
        let client = builder.build(connector.clone());
        let wide = builder.http1_max_headers(HEADERS).build(connector);
        Self {
            client,
            wide,
            widened: Arc::default(),
            proxies,
            slots: Arc::new(Semaphore::new(pool.in_flight.max(1))),
            bytes: pool.byte_rate.map(Limiter::new).map(Arc::new),
            requests: pool.request_rate.map(Limiter::new).map(Arc::new),
            hosts: Arc::default(),
        }
    }

    /// The second requests that were sent over this pool.
    #[must_use]
    pub fn hedged(&self) -> Hedged {
        let hosts = self.hosts.lock();
        hosts.values().map(|host| host.hedges.counted()).sum()
    }

    /// What all that talk to this host share.
    pub(super) fn host(&self, authority: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        Arc::clone(hosts.entry(authority.to_owned()).or_default())
    }

    /// Whether media may have many headers.
    pub(super) fn is_wide(&self) -> bool {
        self.widened.load(Ordering::Relaxed)
    }

    /// Has media of any object have many headers from now on.
    pub(super) fn widen(&self) {
        self.widened.store(true, Ordering::Relaxed);
    }

    /// Sends one request and waits for the head of its answer, in no case beyond `deadline`, which is put off by the
    /// time in which the request's body moved.
    pub(super) async fn send(
        &self,
        mut outgoing: Sending<'_>,
        timeouts: &Timeouts,
        deadline: &mut Deadline,
    ) -> Result<Arrived, Lost> {
        let slot = self.slot(deadline.end()).await?;
        if let Some(requests) = &self.requests {
            deadline.put_off(requests.pass(1).await);
        }
        if let Some(authorization) = self.proxies.authorization(outgoing.uri) {
            let headers = &mut outgoing.headers;
            headers.insert(header::PROXY_AUTHORIZATION, authorization);
        }
        let client = if outgoing.wide {
            &self.wide
        } else {
            &self.client
        };
        let sent = Sent::default();
        let length = outgoing.payload.len();
        let request = outgoing.request(&sent, self.bytes.clone());
        let answer = client.request(request);
        let answer = wait(answer, length, &sent, timeouts, deadline.end()).await;
        if let Some(transit) = sent.transit() {
            deadline.put_off(moving(transit, length, Instant::now()));
        }
        let (head, body) = answer?.into_parts();
        Ok(Arrived {
            status: head.status,
            headers: head.headers,
            flow: Flow {
                body,
                idle: timeouts.idle,
                limiter: self.bytes.clone(),
                observer: None,
                _slot: slot,
            },
        })
    }

    /// A connection's slot.
    async fn slot(&self, end: Instant) -> Result<OwnedSemaphorePermit, Lost> {
        // Nobody is overtaken: what is given back goes to those who wait.
        if let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() {
            return Ok(slot);
        }
        match timeout_at(end, Arc::clone(&self.slots).acquire_owned()).await {
            Ok(Ok(slot)) => Ok(slot),
            _ => Err(Lost::new(Cause::Busy, "all connections are in use")),
        }
    }
}

/// Waits for the answer's head as long as [`patience`] says, which grows while the body of `length` bytes moves.
async fn wait(
    mut answer: ResponseFuture,
    length: u64,
    sent: &Sent,
    timeouts: &Timeouts,
    end: Instant,
) -> Result<http::Response<Incoming>, Lost> {
    let start = Instant::now();
    let limit = || patience(sent.transit(), length, start, end, timeouts);
    let mut now = start;
    loop {
        // The body may begin to move at any time, and then the limit is another.
        let look = match length {
            0 => limit(),
            _ => limit().min(now + timeouts.idle),
        };
        match timeout_at(look, &mut answer).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => return Err(Lost::from(&error)),
            Err(_) if limit() <= look => {
                return Err(Lost::silent("no answer", look - start));
            }
            Err(_) => now = Instant::now(),
        }
    }
}

/// One attempt of a request.
pub(super) struct Sending<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: HeaderMap,
    pub(super) payload: &'a Payload,
    /// Who counts which part of the payload.
    pub(super) meter: Option<Meter>,
    /// Whether the answer may have many headers.
    pub(super) wide: bool,
}

impl Sending<'_> {
    fn request(self, sent: &Sent, limiter: Option<Arc<Limiter>>) -> Request<Outgoing> {
        let mut request = Request::new(self.payload.outgoing(sent, limiter, self.meter));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.headers;
        if self.payload.is_empty() && !matches!(*self.method, Method::GET | Method::DELETE) {
            // hyper leaves it out of a request without a body, and Google's front ends then answer 411.
            let headers = request.headers_mut();
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        request
    }
}

/// The head of an answer; the body flows behind it.
pub(super) struct Arrived {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) flow: Flow,
}
