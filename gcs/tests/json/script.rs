//! A server that answers by a script, in memory and so on the test's paused clock.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, future, stream};
use gcsmount_gcs::client::json::{Config, Http, JsonStore, Pool, Retry, Timeouts};
use gcsmount_gcs::store::{Preconditions, ReadRequest, WriteRequest};
use gcsmount_gcs::{BucketName, Error, ObjectName, Result};
use google_cloud_auth::credentials::Credentials;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

type Body = BoxBody<Bytes, io::Error>;

/// What happens to one request.
pub enum Step {
    /// An answer.
    Answer(Response<Body>),
    /// The connection breaks before any answer, after the request was taken in.
    Lost,
    /// An error that repeats what the request should keep to itself.
    Echo(u16),
    /// Silence.
    Stall,
    /// Silence for so long, and then the step behind it.
    Late(Duration, Box<Step>),
}

/// A request as it arrived.
#[derive(Debug)]
pub struct Seen {
    pub method: Method,
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }
}

/// The far end.
#[derive(Clone, Default)]
pub struct Server {
    state: Arc<State>,
}

type Brain = dyn FnMut(&Seen) -> Step + Send;

#[derive(Default)]
struct State {
    /// Decides what the script does not.
    brain: Mutex<Option<Box<Brain>>>,
    steps: Mutex<VecDeque<Step>>,
    seen: Mutex<Vec<Seen>>,
    refusals: Mutex<u32>,
    /// Bytes of a body that are taken a second.
    rate: Mutex<Option<u32>>,
}

impl Server {
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let server = Self::default();
        server.then(steps);
        server
    }

    /// A server that decides by what it sees. It remembers no requests.
    pub fn thinking(brain: impl FnMut(&Seen) -> Step + Send + 'static) -> Self {
        let server = Self::default();
        *server.state.brain.lock() = Some(Box::new(brain));
        server
    }

    pub fn then(&self, steps: impl IntoIterator<Item = Step>) {
        self.state.steps.lock().extend(steps);
    }

    /// Refuses the next connections.
    pub fn refuse(&self, times: u32) {
        *self.state.refusals.lock() = times;
    }

    /// Takes this many bytes of a body a second.
    pub fn slow(&self, rate: u32) {
        *self.state.rate.lock() = Some(rate);
    }

    async fn take(&self, mut body: Incoming) -> io::Result<Bytes> {
        let rate = *self.state.rate.lock();
        let mut taken = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(io::Error::other)?.into_data() else {
                continue;
            };
            if let (Some(rate), Ok(length)) = (rate, u32::try_from(bytes.len())) {
                tokio::time::sleep(Duration::from_secs(1) * length / rate).await;
            }
            taken.extend_from_slice(&bytes);
        }
        Ok(taken.freeze())
    }

    /// The requests so far; the script must be over.
    pub fn seen(&self) -> Vec<Seen> {
        assert_eq!(
            self.state.steps.lock().len(),
            0,
            "steps that nobody asked for"
        );
        std::mem::take(&mut self.state.seen.lock())
    }

    /// Steps that no request has reached.
    pub fn left(&self) -> usize {
        self.state.steps.lock().len()
    }

    pub fn store(&self) -> JsonStore {
        self.store_with(config(None))
    }

    pub fn store_with(&self, config: Config) -> JsonStore {
        self.pooled(&Pool::default(), config)
    }

    pub fn pooled(&self, pool: &Pool, config: Config) -> JsonStore {
        JsonStore::new(&self.http(pool), BucketName::parse("bkt").unwrap(), config).unwrap()
    }

    /// Connections that all lead here.
    pub fn http(&self, pool: &Pool) -> Http {
        let server = self.clone();
        Http::in_memory(pool, move || server.dial())
    }

    fn dial(&self) -> io::Result<tokio::io::DuplexStream> {
        let mut refusals = self.state.refusals.lock();
        if *refusals > 0 {
            *refusals -= 1;
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = tokio::io::duplex(64 << 10);
        let server = self.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(far), service);
        tokio::spawn(async move {
            // Breaking connections is the point of some scripts.
            let _ = connection.await;
        });
        Ok(near)
    }

    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let seen = Seen {
            method: parts.method,
            target: parts.uri.to_string(),
            headers: parts.headers,
            body: self.take(body).await?,
        };
        let secrets = format!("{} {}", seen.header("authorization"), seen.target);
        let thought = self.state.brain.lock().as_mut().map(|brain| brain(&seen));
        let step = match thought {
            Some(step) => Some(step),
            None => {
                self.state.seen.lock().push(seen);
                self.state.steps.lock().pop_front()
            }
        };
        let step = match step {
            Some(Step::Late(pause, step)) => {
                tokio::time::sleep(pause).await;
                Some(*step)
            }
            step => step,
        };
        match step {
            Some(Step::Answer(answer)) => Ok(answer),
            Some(Step::Echo(status)) => {
                let body = format!(r#"{{"error":{{"message":"not {secrets}"}}}}"#);
                Ok(head(status, &[])
                    .body(whole(body))
                    .map_err(io::Error::other)?)
            }
            Some(Step::Lost) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(Step::Stall) => future::pending().await,
            Some(Step::Late(..)) => panic!("late once is late enough"),
            None => panic!("the script is over"),
        }
    }
}

/// Short pauses and a fixed seed; paused time makes the length irrelevant.
pub fn config(credentials: Option<Credentials>) -> Config {
    Config {
        endpoint: "http://store.test".parse().unwrap(),
        credentials,
        timeouts: Timeouts::default(),
        retry: Retry {
            attempts: 4,
            resumes: 2,
            seed: Some(1),
            ..Retry::default()
        },
        upload_chunk: 256 << 10,
        ..Config::default()
    }
}

fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never: Infallible| match never {})
        .boxed()
}

/// An answer with headers and a body that is as long as it says.
pub fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Step {
    Step::Answer(head(status, headers).body(whole(body)).unwrap())
}

fn head(status: u16, headers: &[(&str, &str)]) -> http::response::Builder {
    headers.iter().fold(
        Response::builder().status(status),
        |answer, (name, value)| answer.header(*name, *value),
    )
}

pub fn json(body: impl Into<Bytes>) -> Step {
    answer(200, &[("content-type", "application/json")], body)
}

/// An error as the store words it.
pub fn refusal(status: u16, reason: &str) -> Step {
    refusal_with(status, reason, &[])
}

pub fn refusal_with(status: u16, reason: &str, headers: &[(&str, &str)]) -> Step {
    let body = format!(
        r#"{{"error":{{"code":{status},"message":"said {reason}","errors":[{{"reason":"{reason}"}}]}}}}"#
    );
    answer(status, headers, body)
}

/// The object `o` as JSON.
pub fn object(generation: i64, content: &[u8]) -> String {
    object_named("o", generation, content)
}

pub fn object_named(name: &str, generation: i64, content: &[u8]) -> String {
    use base64::Engine;
    let crc32c = crc32c::crc32c(content).to_be_bytes();
    let crc32c = base64::engine::general_purpose::STANDARD.encode(crc32c);
    format!(
        r#"{{"name":"{name}","generation":"{generation}","metageneration":"1","size":"{}","crc32c":"{crc32c}"}}"#,
        content.len()
    )
}

/// How a body of [`media`] ends.
#[derive(Clone, Copy)]
pub enum End {
    Well,
    Broken,
    Stalled,
}

/// An answer to a media request: bytes `first..` of `content` in generation 7, of which `sent` arrive.
pub fn media(content: &[u8], first: usize, sent: usize, end: End) -> Step {
    media_with(content, first, sent, end, crc32c::crc32c(content))
}

pub fn media_with(content: &[u8], first: usize, sent: usize, end: End, crc32c: u32) -> Step {
    media_of(7, content, first, sent, end, crc32c)
}

pub fn media_of(
    generation: i64,
    content: &[u8],
    first: usize,
    sent: usize,
    end: End,
    crc32c: u32,
) -> Step {
    use base64::Engine;
    let hash = base64::engine::general_purpose::STANDARD.encode(crc32c.to_be_bytes());
    let size = content.len();
    let mut answer = head(if first == 0 { 200 } else { 206 }, &[])
        .header("x-goog-generation", generation)
        .header("x-goog-metageneration", "1")
        .header("x-goog-stored-content-length", size)
        .header("x-goog-hash", format!("crc32c={hash}"))
        .header("content-length", size - first);
    if first > 0 {
        answer = answer.header(
            "content-range",
            format!("bytes {first}-{}/{size}", size - 1),
        );
    }
    let pieces: Vec<_> = content[first..first + sent]
        .chunks(sent.div_ceil(16).max(1000))
        .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
        .collect();
    let pieces = stream::iter(pieces);
    let body = match end {
        End::Well => BodyExt::boxed(StreamBody::new(pieces)),
        End::Broken => {
            // On the paused clock: as soon as everything before it has been sent.
            let broken = stream::once(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                Err(io::ErrorKind::BrokenPipe.into())
            });
            BodyExt::boxed(StreamBody::new(pieces.chain(broken)))
        }
        End::Stalled => BodyExt::boxed(StreamBody::new(pieces.chain(stream::pending()))),
    };
    Step::Answer(answer.body(body).unwrap())
}

pub fn name(object: &str) -> ObjectName {
    ObjectName::parse(object).unwrap()
}

pub fn read(object: &str) -> ReadRequest {
    ReadRequest {
        name: name(object),
        generation: None,
        range: None,
        preconditions: Preconditions::default(),
    }
}

pub fn write(object: &str, preconditions: Preconditions) -> WriteRequest {
    WriteRequest {
        name: name(object),
        attributes: gcsmount_gcs::object::Attributes::default(),
        preconditions,
    }
}

/// Every byte of a body, or those before its error and the error.
pub async fn drain(
    read: Result<gcsmount_gcs::store::Read>,
) -> std::result::Result<Vec<u8>, (Vec<u8>, Error)> {
    let mut body = read.map_err(|error| (Vec::new(), error))?.body;
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(error) => return Err((bytes, error)),
        }
    }
    Ok(bytes)
}
