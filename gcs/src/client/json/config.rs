//! What a caller may choose.

use std::sync::Arc;
use std::time::Duration;

use google_cloud_auth::credentials::Credentials;

use super::{Endpoint, Observer, Rate};

/// How one bucket is talked to.
///
/// # A rejected token
/// Where the store answers 401, the client asks [`Credentials::headers`] once more with extensions that hold the
/// [`EntityTag`](google_cloud_auth::credentials::EntityTag) of the rejected headers and
/// [`http::StatusCode::UNAUTHORIZED`]. A provider that understands this fetches another token and answers `New`; the
/// same request is then sent once again. `NotModified`, or a second 401, ends the call as
/// [`Kind::Unauthenticated`](crate::Kind::Unauthenticated).
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the store is.
    pub endpoint: Endpoint,
    /// Who we are; `None` sends no identity, as public buckets and open emulators need none.
    pub credentials: Option<Credentials>,
    /// `User-Agent`.
    pub user_agent: String,
    /// The project to bill (`x-goog-user-project`), which buckets with requester pays ask for.
    pub billing_project: Option<String>,
    /// How long to wait.
    pub timeouts: Timeouts,
    /// When to repeat.
    pub retry: Retry,
    /// When to ask twice; `None`: never.
    pub hedge: Option<Hedge>,
    /// Bytes of an upload that are sent as one request and kept until they are stored; rounded up to a multiple of
    /// 256 KiB. An upload holds at most two of them in memory, one under way and one being filled, which
    /// [`Store::upload_memory`](crate::Store::upload_memory) tells.
    pub upload_chunk: u64,
    /// Who counts requests and bytes; `None`: nobody.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            endpoint: Endpoint::default(),
            credentials: None,
            user_agent: concat!("gcsmount/", env!("CARGO_PKG_VERSION")).to_owned(),
            billing_project: None,
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            hedge: None,
            upload_chunk: 8 << 20,
            observer: None,
        }
    }
}

/// Deadlines; one of them runs at every wait. The one of connecting belongs to [`Pool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From one attempt's last sent byte to the head of its answer, and in addition what the last 4 MiB of a body need
    /// at 64 KiB a second: sent bytes may wait in buffers of the system, where nobody sees them move.
    pub first_byte: Duration,
    /// Between any two pieces of a body that moves, in either direction; of one that is sent, in addition what 2 MiB
    /// need at 64 KiB a second, since a buffer of the system that was full takes more only when a good part is gone.
    pub idle: Duration,
    /// One operation with all its attempts and pauses; of a read, up to the head of its answer; of an upload, each
    /// chunk. The time in which a request's body moves does not count, so that a slow link can send a large one: it is
    /// `idle` that ends a body, and [`Retry::attempts`] that bounds how often it is sent again without progress.
    /// Looking what became of a lost answer has this time once more.
    pub operation: Duration,
    /// The same while the store is silent: after an operation has waited in vain, and until anything arrives from the
    /// same host over the same [`Http`](super::Http), every operation has this time, and the outcome of one that may
    /// have acted is not looked for. So a queue of calls fails soon behind its first. One operation in 10 minutes still
    /// has its full time.
    pub silent: Duration,
    /// How long an operation asks for a token that does not come. It is `silent` after that, as for a silent store.
    pub token: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(30),
            idle: Duration::from_secs(15),
            operation: Duration::from_secs(120),
            silent: Duration::from_secs(5),
            token: Duration::from_secs(20),
        }
    }
}

/// When and how often to repeat what failed but may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Attempts of one operation while the store is unavailable, the first one included.
    pub attempts: u32,
    /// The first pause is up to this long, each further one up to twice its predecessor.
    pub base: Duration,
    /// The same for throttled calls: an object takes about one change a second, so a shorter pause is wasted.
    pub throttled_base: Duration,
    /// No pause is longer, unless the store asks for it.
    pub cap: Duration,
    /// A longer `Retry-After` is taken for this.
    pub retry_after_cap: Duration,
    /// How often a body is taken up again without a byte of progress.
    pub resumes: u32,
    /// How many repetitions all operations may make together.
    pub budget: Budget,
    /// Where the jitter begins; `None`: anywhere.
    pub seed: Option<u64>,
}

/// The repetitions that all operations on one host, over one [`Http`](super::Http), may make together, so that an
/// outage does not multiply the load on who tries to recover from it. A repetition beyond it waits for its turn, and is
/// given up where its operation has not the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Each new operation allows for this part of a further repetition, in hundredths.
    pub percent: u32,
    /// In addition, repetitions a second, so that few operations can be repeated as well.
    pub per_second: u32,
    /// Repetitions that can be saved up.
    pub burst: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            percent: 20,
            per_second: 10,
            burst: 100,
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 8,
            base: Duration::from_millis(250),
            throttled_base: Duration::from_secs(1),
            cap: Duration::from_secs(30),
            retry_after_cap: Duration::from_secs(60),
            resumes: 5,
            budget: Budget::default(),
            seed: None,
        }
    }
}

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: a connection for every request under way, which no other request waits behind.
    #[default]
    Http1,
    /// HTTP/2 with a server that offers it in the TLS handshake: all requests to one host share a connection. HTTP/1.1
    /// with any other, and without TLS.
    Http2,
}

/// A second request for what is slow to begin, so that one slow server among many does not decide how long a read takes.
///
/// Applies to the head of an answer about an object and its bytes. Whichever answer comes first is taken and the other
/// request given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hedge {
    /// How long to wait for the first request; should be what all but one in a hundred stay below.
    pub after: Duration,
    /// The most second requests, in hundredths of all reads of the host.
    pub percent: u32,
    /// Second requests that can be saved up.
    pub burst: u32,
}

impl Default for Hedge {
    fn default() -> Self {
        Self {
            after: Duration::from_secs(1),
            percent: 2,
            burst: 10,
        }
    }
}

/// The size of the connections that all stores of one transport share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// What is spoken on a connection.
    pub protocol: Protocol,
    /// Requests under way at one time, bodies that are still read included.
    pub in_flight: usize,
    /// Idle connections kept to one host.
    pub idle: usize,
    /// How long an idle connection is kept. Google's front ends keep theirs for longer.
    pub idle_timeout: Duration,
    /// Resolve, connect and TLS handshake together.
    pub connect_timeout: Duration,
    /// The most that is read from a connection at once, and so the most that it buffers. Larger pieces save system
    /// calls; beyond 512 KiB that no longer shows.
    pub read_buffer: usize,
    /// Bytes of bodies that all stores of the pool together move, in both directions; `None`: as fast as it goes. What a
    /// second of rest has saved may go at once. The time that this takes counts against no deadline.
    pub byte_rate: Option<Rate>,
    /// Requests that all stores of the pool together send, repetitions included; `None`: as many as there are. The same
    /// goes for it.
    pub request_rate: Option<Rate>,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            protocol: Protocol::default(),
            in_flight: 256,
            idle: 64,
            idle_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            read_buffer: 512 << 10,
            byte_rate: None,
            request_rate: None,
        }
    }
}
