//! What a token costs where it is asked for: on the hit path, with several threads, over the socket.

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gcsmount_auth::secret::AccessSecret;
use gcsmount_auth::{
    Broker, Error, Exchange, Grant, Identity, Routes, SocketConfig, TokenSocket, Tuning,
};
use http::{Extensions, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Gives a token of the size that Google's have.
#[derive(Debug)]
struct Always;

#[async_trait]
impl Exchange for Always {
    async fn exchange(&self) -> Result<Grant, Error> {
        Ok(Grant {
            token: AccessSecret::new("x".repeat(1024)),
            lifetime: Duration::from_secs(3600),
        })
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}

fn ready(runtime: &Runtime) -> Broker {
    runtime.block_on(async {
        let broker = Broker::with_exchange(Arc::new(Always), Tuning::default());
        broker.token().await.expect("the exchange always gives one");
        broker
    })
}

fn runtime() -> Runtime {
    Runtime::new().expect("threads and an event queue")
}

fn hit_path(criterion: &mut Criterion) {
    let runtime = runtime();
    let broker = ready(&runtime);
    let credentials = broker.credentials();
    let mut group = criterion.benchmark_group("hit");
    group.bench_function("current", |bencher| {
        bencher.iter(|| black_box(broker.current()));
    });
    group.bench_function("header", |bencher| {
        bencher.iter(|| black_box(broker.current().map(|token| token.header().clone())));
    });
    let _entered = runtime.enter();
    group.bench_function("headers", |bencher| {
        bencher.iter(|| {
            let headers = credentials.headers(Extensions::new());
            black_box(futures_util::FutureExt::now_or_never(headers))
        });
    });
    group.finish();
}

/// Headers for `each` requests from each of `brokers`, each on a thread of its own, all begun together.
fn by_threads(brokers: &[Broker], each: u64) -> Duration {
    let start = Barrier::new(brokers.len() + 1);
    thread::scope(|scope| {
        let working: Vec<_> = brokers
            .iter()
            .map(|broker| {
                let start = &start;
                scope.spawn(move || {
                    let credentials = broker.credentials();
                    start.wait();
                    for _ in 0..each {
                        let headers = credentials.headers(Extensions::new());
                        black_box(futures_util::FutureExt::now_or_never(headers));
                    }
                })
            })
            .collect();
        start.wait();
        let began = Instant::now();
        for thread in working {
            thread.join().expect("a loop without panics");
        }
        began.elapsed()
    })
}

/// One broker for both threads, beside one for each: what the machine gives where nothing is shared.
fn threads(criterion: &mut Criterion) {
    let runtime = runtime();
    let (broker, other) = (ready(&runtime), ready(&runtime));
    let cases = [
        ("one", vec![broker.clone()]),
        ("two_sharing", vec![broker.clone(), broker.clone()]),
        ("two_apart", vec![broker, other]),
    ];
    let mut group = criterion.benchmark_group("threads");
    for (name, brokers) in cases {
        group.throughput(Throughput::Elements(brokers.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|each| by_threads(&brokers, each));
        });
    }
    group.finish();
}

/// `requests` in all, over eight connections.
async fn ask(socket: &TokenSocket, requests: u64) {
    const CONNECTIONS: u64 = 8;
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let stream = UnixStream::connect(socket.path())
            .await
            .expect("it listens");
        clients.spawn(async move {
            let (mut sender, connection) = handshake(TokioIo::new(stream))
                .await
                .expect("it speaks HTTP");
            let connection = tokio::spawn(connection);
            for _ in 0..requests.div_ceil(CONNECTIONS) {
                let request = Request::get("/")
                    .header("host", "unix")
                    .body(Empty::<Bytes>::new())
                    .expect("a request");
                let answer = sender.send_request(request).await.expect("an answer");
                black_box(answer.into_body().collect().await.expect("a body"));
            }
            drop(sender);
            let _ = connection.await;
        });
    }
    while let Some(done) = clients.join_next().await {
        done.expect("no client panics");
    }
}

fn socket(criterion: &mut Criterion) {
    let runtime = runtime();
    let broker = ready(&runtime);
    let directory = tempfile::tempdir().expect("a directory for the socket");
    let path = directory.path().join("token.sock");
    let socket = runtime
        .block_on(TokenSocket::bind(SocketConfig::new(
            path,
            Routes::Any(broker),
        )))
        .expect("a socket");
    let mut group = criterion.benchmark_group("socket");
    group.throughput(Throughput::Elements(1));
    group.bench_function("requests", |bencher| {
        bencher.iter_custom(|requests| {
            let began = Instant::now();
            runtime.block_on(ask(&socket, requests));
            began.elapsed()
        });
    });
    group.finish();
    runtime.block_on(socket.stop());
}

criterion_group!(broker, hit_path, threads, socket);
criterion_main!(broker);
