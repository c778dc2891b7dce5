use std::net::SocketAddr;

use bytes::Bytes;
use gcsmount_emulator::{Auth, Config, Emulator};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{BUCKET, Bench, DEADLINE, ask};

/// On a loopback address that nothing else here has: what becomes of its port is up to the test.
async fn alone(ip: &str) -> Bench {
    Bench::with(Config {
        listen: vec![format!("{ip}:0").parse().unwrap()],
        auth: Auth::Off,
        mutation_limit: None,
        ..Config::default()
    })
    .await
}

#[tokio::test]
async fn listeners_share_state() {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let bench = Bench::with(Config {
        listen: vec![any, any],
        auth: Auth::Off,
        ..Config::default()
    })
    .await;
    bench.put("a", "x").await;
    assert_eq!(
        bench.emulator.endpoint(),
        format!("http://{}", bench.emulator.local_addrs()[0])
    );
    let stream = TcpStream::connect(bench.emulator.local_addrs()[1])
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get(format!("/{BUCKET}/a"))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "x");
    connection.abort();
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn shutdown_drops_live_bodies_and_frees_the_port_for_a_resume() {
    let bench = alone("127.0.0.11").await;
    bench.put("a", vec![1; 1 << 20]).await;
    bench.admin().set_stream_rate(Some(1024));
    let addr = bench.emulator.local_addrs()[0];
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get(format!("/{BUCKET}/a"))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let admin = bench.admin().clone();
    timeout(DEADLINE, bench.emulator.shutdown())
        .await
        .expect("it ends");
    assert!(answer.into_body().collect().await.is_err());
    connection.abort();
    assert!(TcpStream::connect(addr).await.is_err());
    admin.set_stream_rate(None);
    let emulator = Emulator::resume(&[addr], admin).await.unwrap();
    let bench = Bench { emulator };
    assert_eq!(bench.read("a").await.expect(200).body.len(), 1 << 20);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn dropping_an_emulator_ends_it() {
    let bench = alone("127.0.0.12").await;
    let addr = bench.emulator.local_addrs()[0];
    bench.answer(ask("GET", "/storage/v1/b")).await.expect(200);
    drop(bench);
    tokio::task::yield_now().await;
    assert!(TcpStream::connect(addr).await.is_err());
}

#[tokio::test]
async fn a_bad_configuration_does_not_start() {
    let start = |config| async { Emulator::start(config).await.map(drop).unwrap_err().kind() };
    let invalid = Config {
        buckets: vec!["No".into()],
        ..Config::default()
    };
    assert_eq!(start(invalid).await, std::io::ErrorKind::InvalidInput);
    let silent = Config {
        listen: Vec::new(),
        ..Config::default()
    };
    assert_eq!(start(silent).await, std::io::ErrorKind::InvalidInput);
    let taken = Bench::open().await;
    let config = Config {
        listen: taken.emulator.local_addrs().to_vec(),
        ..Config::default()
    };
    assert_eq!(start(config).await, std::io::ErrorKind::AddrInUse);
    taken.emulator.shutdown().await;
}

#[tokio::test]
async fn readers_never_see_half_a_write() {
    let bench = Bench::open().await;
    bench.put("a", vec![0; 300_000]).await;
    let writes = async {
        for round in 1..=20_u8 {
            bench.put("a", vec![round; 300_000]).await;
        }
    };
    let reads = async {
        for _ in 0..40 {
            let body = bench.read("a").await.expect(200).body;
            assert_eq!(body.len(), 300_000);
            assert!(body.iter().all(|&byte| byte == body[0]));
        }
    };
    tokio::join!(writes, reads);
    bench.emulator.shutdown().await;
}
