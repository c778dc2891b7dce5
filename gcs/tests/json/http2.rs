//! HTTP/2 as a setting: what shares a connection, and what does not suffer from that.

use std::convert::Infallible;
use std::future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use gcsmount_gcs::client::json::{Http, JsonStore, Pool, Protocol};
use gcsmount_gcs::store::Preconditions;
use gcsmount_gcs::{BucketName, Store};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify};

use crate::proxies::{PROTOCOL, certified, found, text};
use crate::script::{config, drain, name, object, read, write};

/// Larger than what a body may be ahead of its reader.
const LARGE: usize = 6 << 20;

/// How many requests are under way at one time.
const TOGETHER: usize = 8;

/// The far end of connections inside the process.
struct Server {
    dials: AtomicUsize,
    /// Requests for `together` wait for each other here.
    together: Barrier,
    /// Stops one connection in its tracks, without closing it.
    freeze: Notify,
}

impl Server {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            dials: AtomicUsize::new(0),
            together: Barrier::new(TOGETHER),
            freeze: Notify::new(),
        })
    }

    fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }

    fn store(self: &Arc<Self>, protocol: Protocol) -> JsonStore {
        let server = Arc::clone(self);
        let pool = Pool {
            protocol,
            ..Pool::default()
        };
        let http = Http::in_memory(&pool, move || {
            let (near, far) = tokio::io::duplex(64 << 10);
            server.dials.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(Arc::clone(&server).serve(far, protocol));
            Ok(near)
        });
        JsonStore::new(&http, BucketName::parse("bkt").unwrap(), config(None)).unwrap()
    }

    async fn serve(self: Arc<Self>, io: tokio::io::DuplexStream, protocol: Protocol) {
        let server = Arc::clone(&self);
        let service = service_fn(move |request| Arc::clone(&server).answer(request));
        match protocol {
            Protocol::Http1 => {
                let connection = http1::Builder::new().serve_connection(TokioIo::new(io), service);
                let _ = connection.await;
            }
            Protocol::Http2 => {
                let builder = http2::Builder::new(TokioExecutor::new());
                let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
                tokio::select! {
                    _ = &mut connection => {}
                    () = self.freeze.notified() => future::pending().await,
                }
            }
        }
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let target = request.uri().to_string();
        let sent = request.into_body().collect().await;
        let sent = sent.map(|body| body.to_bytes().len()).unwrap_or_default();
        if target.contains("/together") {
            self.together.wait().await;
        }
        let answer = Response::builder();
        Ok(if target.contains("alt=media") {
            let media = answer
                .header("x-goog-generation", "7")
                .header("x-goog-stored-content-length", LARGE);
            media.body(vec![7; LARGE].into()).unwrap()
        } else if target.contains("uploadType=multipart") {
            assert!(sent > LARGE, "{sent}");
            answer.body(object(8, &vec![7; LARGE]).into()).unwrap()
        } else {
            answer.body(object(7, b"x").into()).unwrap()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn requests_to_a_host_share_a_connection() {
    for (protocol, dials) in [(Protocol::Http1, TOGETHER), (Protocol::Http2, 1)] {
        let server = Server::new();
        let store = server.store(protocol);
        store.stat(&name("first")).await.unwrap();
        let together = name("together");
        let stats = join_all((0..TOGETHER).map(|_| store.stat(&together))).await;
        assert!(stats.iter().all(Result::is_ok), "{stats:?}");
        assert_eq!(server.dials(), dials, "{protocol:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_reads_holds_up_no_other() {
    let server = Server::new();
    let store = server.store(Protocol::Http2);
    let left = store.read(&read("left")).await.unwrap();
    for _ in 0..3 {
        let bytes = drain(store.read(&read("read")).await).await.unwrap();
        assert!(bytes.len() == LARGE && bytes.iter().all(|byte| *byte == 7));
        let request = write("o", Preconditions::absent());
        store.write(&request, vec![7; LARGE].into()).await.unwrap();
    }
    assert_eq!(drain(Ok(left)).await.unwrap().len(), LARGE);
    assert_eq!(server.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_died_is_left() {
    let server = Server::new();
    let store = server.store(Protocol::Http2);
    store.stat(&name("before")).await.unwrap();
    server.freeze.notify_one();
    // One attempt finds out; the next one takes another connection.
    store.stat(&name("after")).await.unwrap();
    assert_eq!(server.dials(), 2);
}

/// Answers one connection as a bucket whose location is what is spoken with it.
async fn say_what_is_spoken(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, h2: bool) {
    let service = service_fn(async |request: Request<Incoming>| {
        let location = format!(r#"{{"location":"{:?}"}}"#, request.version());
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(location)))
    });
    let io = TokioIo::new(io);
    if h2 {
        let builder = http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(io, service).await;
    } else {
        let _ = http1::Builder::new().serve_connection(io, service).await;
    }
}

#[tokio::test]
async fn the_handshake_decides_what_is_spoken() {
    let h2: &[&[u8]] = &[b"h2", b"http/1.1"];
    let h1: &[&[u8]] = &[b"http/1.1"];
    // What the client is set to, what the server offers, and what they speak.
    for (protocol, offered, spoken) in [
        ("http2", h2, "HTTP/2.0"),
        ("http2", h1, "HTTP/1.1"),
        ("http2", &[], "HTTP/1.1"),
        ("http1", h2, "HTTP/1.1"),
    ] {
        let (pem, tls) = certified("127.0.0.1", offered);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), pem).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("https://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = tls.accept(stream).await.unwrap();
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            say_what_is_spoken(stream, h2).await;
        });
        let variables = [(PROTOCOL, protocol), ("SSL_CERT_FILE", text(file.path()))];
        assert_eq!(found(&endpoint, &variables).await, spoken, "{protocol}");
        server.await.unwrap();
    }
}
