//! Rates that a pool keeps, on a clock that stands still while anything moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use gcsmount_gcs::client::json::{JsonStore, Pool, Rate};
use gcsmount_gcs::store::Preconditions;
use gcsmount_gcs::{BucketName, Generation, Store};
use tokio::time::{Instant, sleep};

use crate::script::{End, Server, answer, config, json, media, name, object, read, write};

/// Two buckets over one pool.
fn stores(server: &Server, pool: &Pool) -> [JsonStore; 2] {
    let http = server.http(pool);
    ["one", "two"].map(|bucket| {
        JsonStore::new(&http, BucketName::parse(bucket).unwrap(), config(None)).unwrap()
    })
}

fn requests_per_second(rate: f64) -> Pool {
    Pool {
        request_rate: Rate::per_second(rate),
        ..Pool::default()
    }
}

fn bytes_per_second(rate: f64) -> Pool {
    Pool {
        byte_rate: Rate::per_second(rate),
        ..Pool::default()
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_all_stores_keep_one_rate() {
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    let server = Server::thinking(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        json(object(7, b"x"))
    });
    let [one, two] = stores(&server, &requests_per_second(10.0));
    let calls = tokio::spawn(async move {
        let object = name("o");
        let calls = (0..100).map(|i| if i % 2 == 0 { &one } else { &two }.stat(&object));
        join_all(calls).await
    });
    // What a second has saved goes at once, and then ten a second.
    sleep(Duration::from_millis(50)).await;
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(count.load(Ordering::Relaxed));
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(counts, [10, 20, 30, 40]);
    assert!(calls.await.unwrap().iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn a_rate_slower_than_any_deadline_fails_nothing() {
    let server = Server::thinking(|_| json(object(7, b"x")));
    let [one, _] = stores(&server, &requests_per_second(0.005));
    let start = Instant::now();
    for _ in 0..3 {
        one.stat(&name("o")).await.unwrap();
    }
    assert_eq!(start.elapsed().as_secs(), 400);
}

#[tokio::test(start_paused = true)]
async fn bytes_of_a_read_keep_the_rate() {
    const SIZE: usize = 1_000_000;
    let content = vec![7; SIZE];
    let server = Server::new([media(&content, 0, SIZE, End::Well)]);
    let [one, _] = stores(&server, &bytes_per_second(100_000.0));
    let start = Instant::now();
    let mut body = one.read(&read("o")).await.unwrap().body;
    let mut bytes = 0;
    while let Some(piece) = body.next().await {
        bytes += piece.unwrap().len() as u64;
        // A second ahead, and no more.
        let allowed = 100_000 * (start.elapsed().as_millis() as u64 + 1000) / 1000;
        assert!(bytes <= allowed + 1, "{bytes} of {allowed}");
    }
    assert_eq!((bytes, start.elapsed().as_secs()), (SIZE as u64, 9));
    server.seen();
}

#[tokio::test(start_paused = true)]
async fn bytes_of_writes_and_reads_share_the_rate() {
    const SIZE: usize = 500_000;
    let content = vec![7; SIZE];
    let server = Server::new([
        json(object(8, &content)),
        media(&content, 0, SIZE, End::Well),
    ]);
    let [one, two] = stores(&server, &bytes_per_second(100_000.0));
    let start = Instant::now();
    let request = write("o", Preconditions::generation(Generation(7)));
    one.write(&request, content.into()).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 4);
    let mut body = two.read(&read("o")).await.unwrap().body;
    while let Some(piece) = body.next().await {
        piece.unwrap();
    }
    assert_eq!(start.elapsed().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_held_back_is_not_a_body_that_stalls() {
    // 2 kB a second: every frame waits for minutes, beyond each limit for a body that moves.
    const SIZE: usize = 1 << 20;
    let content = vec![7; SIZE];
    let server = Server::new([
        json(object(8, &content)),
        answer(200, &[("location", "http://store.test/x?upload_id=s")], ""),
        answer(308, &[("range", "bytes=0-262143")], ""),
        json(object(9, &content[..300_000])),
        json(object(8, b"x")),
    ]);
    let [one, _] = stores(&server, &bytes_per_second(2000.0));
    let request = write("o", Preconditions::generation(Generation(7)));
    let start = Instant::now();
    one.write(&request, content.clone().into()).await.unwrap();
    assert!((520..530).contains(&start.elapsed().as_secs()));

    let mut upload = one.upload(&request).await.unwrap();
    let content = bytes::Bytes::from(content);
    upload.write(content.slice(..300_000)).await.unwrap();
    upload.finish().await.unwrap();
    one.stat(&name("o")).await.unwrap();
    assert_eq!(server.seen().len(), 5, "nothing was sent again");
}
