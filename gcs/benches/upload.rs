//! A gibibyte in parts side by side against the same in one resumable stream, where a connection carries 50 MB/s. Once
//! each, by the wall clock: a stream takes 20 s, and what is measured is the limit's doing, not the machine's. Ends
//! with an error where the bound is broken.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod server;

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gcsmount_gcs::client::json::{Config, Http, JsonStore, Pool};
use gcsmount_gcs::layer::parts::{PartsUpload, Plan};
use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::store::{Preconditions, Upload, WriteRequest};
use gcsmount_gcs::{BucketName, ObjectName, Store};
use server::{BUCKET, Server};

const SIZE: usize = 1 << 30;
const PIECE: usize = 1 << 20;

/// Bytes a second of one connection.
const RATE: u64 = 50_000_000;

/// How many times as fast parts must be.
const BOUND: f64 = 3.0;

fn request(name: &str) -> WriteRequest {
    WriteRequest {
        name: ObjectName::parse(name).unwrap(),
        attributes: Attributes::default(),
        preconditions: Preconditions::absent(),
    }
}

/// Megabytes a second.
async fn rate(upload: &mut dyn Upload) -> f64 {
    let piece = Bytes::from(vec![7; PIECE]);
    let start = Instant::now();
    for _ in 0..SIZE / PIECE {
        upload.write(piece.clone()).await.unwrap();
    }
    let object = upload.finish().await.unwrap();
    assert_eq!(object.size, SIZE as u64);
    SIZE as f64 / 1e6 / start.elapsed().as_secs_f64()
}

async fn compare(store: Arc<dyn Store>) -> [f64; 2] {
    let mut stream = store.upload(&request("stream")).await.unwrap();
    let plan = Plan {
        prefix: "parts/".to_owned(),
        part: 32 << 20,
        in_flight: 8,
    };
    let mut parts = PartsUpload::new(Arc::clone(&store), &request("joined"), plan);
    [rate(&mut *stream).await, rate(&mut parts).await]
}

fn main() {
    if server::serves(&[]) {
        return;
    }
    let server = Server::start(Some(RATE));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = Config {
        endpoint: server.endpoint.parse().unwrap(),
        ..Config::default()
    };
    let bucket = BucketName::parse(BUCKET).unwrap();
    let store = JsonStore::new(&Http::new(&Pool::default()), bucket, config).unwrap();
    let [stream, parts] = runtime.block_on(compare(Arc::new(store)));
    let ratio = parts / stream;
    println!(
        "one stream {stream:.0} MB/s, parts {parts:.0} MB/s: {ratio:.1} times, at least {BOUND}"
    );
    drop(server);
    assert!(ratio >= BOUND, "parts are not worth their requests");
}
