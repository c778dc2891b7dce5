//! Uploads over sessions that lose chunks, answers or themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gcsmount_gcs::client::json::{Http, JsonStore, Pool};
use gcsmount_gcs::store::{Preconditions, Upload};
use gcsmount_gcs::{BucketName, Cause, Generation, Kind, Object, Result, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::script::{Seen, Server, Step, answer, config, json, object, refusal, write};

const CHUNK: usize = 256 << 10;

/// Divides a chunk, and is large enough not to be copied.
const PIECE: usize = 64 << 10;

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

fn session() -> Step {
    answer(
        200,
        &[("location", "http://store.test/upload/x?upload_id=s3cret")],
        "",
    )
}

fn stored(count: usize) -> Step {
    match count {
        0 => answer(308, &[], ""),
        _ => answer(308, &[("range", &format!("bytes=0-{}", count - 1))], ""),
    }
}

async fn start(server: &Server) -> Box<dyn Upload> {
    let preconditions = Preconditions::generation(Generation(7));
    server
        .store()
        .upload(&write("o", preconditions))
        .await
        .unwrap()
}

async fn upload(server: &Server, content: &[u8]) -> Result<Object> {
    let mut upload = start(server).await;
    for piece in content.chunks(100_000) {
        upload.write(Bytes::copy_from_slice(piece)).await?;
    }
    upload.finish().await
}

/// Method and content range of each request.
fn ranges(seen: &[Seen]) -> Vec<String> {
    let range = |seen: &Seen| format!("{} {}", seen.method, seen.header("content-range"));
    seen.iter().map(range).collect()
}

#[tokio::test(start_paused = true)]
async fn a_small_upload_is_one_request() {
    let content = bytes(CHUNK - 1);
    let server = Server::new([json(object(8, &content))]);
    assert_eq!(
        upload(&server, &content).await.unwrap().generation,
        Generation(8)
    );
    let seen = server.seen();
    assert!(
        seen[0]
            .target
            .contains("uploadType=multipart&ifGenerationMatch=7")
    );
    assert!(
        seen[0]
            .body
            .windows(content.len())
            .any(|window| window == content)
    );
}

#[tokio::test(start_paused = true)]
async fn chunks_go_one_after_the_other() {
    let content = bytes(2 * CHUNK + 5);
    let server = Server::new([
        session(),
        stored(CHUNK),
        stored(2 * CHUNK),
        json(object(8, &content)),
    ]);
    assert_eq!(
        upload(&server, &content).await.unwrap().size,
        content.len() as u64
    );
    let seen = server.seen();
    assert_eq!(
        seen[0].target,
        "/upload/storage/v1/b/bkt/o?uploadType=resumable&ifGenerationMatch=7"
    );
    assert_eq!(seen[0].body, r#"{"name":"o"}"#);
    assert_eq!(seen[1].target, "/upload/x?upload_id=s3cret");
    assert_eq!(
        ranges(&seen[1..]),
        [
            "PUT bytes 0-262143/*",
            "PUT bytes 262144-524287/*",
            "PUT bytes 524288-524292/524293"
        ]
    );
    let sent: Vec<u8> = seen[1..]
        .iter()
        .flat_map(|seen| seen.body.to_vec())
        .collect();
    assert_eq!(sent, content);
    assert_eq!(seen[2].header("x-goog-hash"), "");
    assert!(seen[3].header("x-goog-hash").starts_with("crc32c="));
}

/// A piece that counts itself while it is held anywhere.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl Counted {
    fn piece(held: &Arc<AtomicUsize>) -> Bytes {
        held.fetch_add(PIECE, Ordering::Relaxed);
        Bytes::from_owner(Self(vec![1; PIECE], Arc::clone(held)))
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_holds_as_much_as_it_says() {
    let server = Server::new([session(), Step::Stall]);
    let store = server.store();
    let request = write("o", Preconditions::generation(Generation(7)));
    let mut upload = store.upload(&request).await.unwrap();
    let held = Arc::new(AtomicUsize::new(0));
    let second = Duration::from_secs(1);
    while let Ok(written) = timeout(second, upload.write(Counted::piece(&held))).await {
        written.unwrap();
        assert!(held.load(Ordering::Relaxed) <= store.upload_memory());
    }
    // All of it was of use, and none of it outlives the upload.
    assert_eq!(held.load(Ordering::Relaxed), store.upload_memory());
    drop(upload);
    drop(store);
    tokio::time::sleep(second).await;
    assert_eq!(held.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn an_upload_of_whole_chunks_ends_with_an_empty_one() {
    let content = bytes(CHUNK);
    let server = Server::new([session(), stored(CHUNK), json(object(8, &content))]);
    upload(&server, &content).await.unwrap();
    assert_eq!(
        ranges(&server.seen()[1..]),
        ["PUT bytes 0-262143/*", "PUT bytes */262144"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_chunk_is_asked_after_and_the_rest_sent_again() {
    let content = bytes(CHUNK + 5);
    let half = CHUNK / 2;
    let server = Server::new([
        session(),
        Step::Lost,
        stored(half),
        stored(CHUNK),
        refusal(503, "backendError"),
        stored(CHUNK),
        json(object(8, &content)),
    ]);
    upload(&server, &content).await.unwrap();
    let seen = server.seen();
    assert_eq!(
        ranges(&seen[1..]),
        [
            "PUT bytes 0-262143/*",
            "PUT bytes */*",
            "PUT bytes 131072-262143/*",
            "PUT bytes 262144-262148/262149",
            "PUT bytes */262149",
            "PUT bytes 262144-262148/262149",
        ]
    );
    assert_eq!(seen[3].body, content[half..CHUNK]);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_is_kept_in_part_is_completed() {
    let content = bytes(CHUNK + 5);
    let server = Server::new([
        session(),
        stored(0),
        stored(1000),
        stored(CHUNK),
        json(object(8, &content)),
    ]);
    upload(&server, &content).await.unwrap();
    assert_eq!(
        ranges(&server.seen()[1..4]),
        [
            "PUT bytes 0-262143/*",
            "PUT bytes 0-262143/*",
            "PUT bytes 1000-262143/*"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_lost_answer_of_the_finish_is_found_by_asking() {
    let content = bytes(CHUNK + 5);
    let server = Server::new([
        session(),
        stored(CHUNK),
        Step::Lost,
        json(object(8, &content)),
    ]);
    assert_eq!(
        upload(&server, &content).await.unwrap().generation,
        Generation(8)
    );
    assert_eq!(ranges(&server.seen()[3..]), ["PUT bytes */262149"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_forgot_its_finish_is_resolved_by_a_look() {
    let content = bytes(CHUNK + 5);
    for (live, good) in [(object(8, &content), true), (object(7, b"old"), false)] {
        let server = Server::new([
            session(),
            stored(CHUNK),
            Step::Lost,
            refusal(410, "gone"),
            json(live),
        ]);
        match upload(&server, &content).await {
            Ok(object) => assert!(good && object.generation == Generation(8)),
            Err(error) => assert!(!good && error.kind == Kind::Gone, "{error}"),
        }
        assert_eq!(server.seen()[4].target, "/storage/v1/b/bkt/o/o");
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_early_begins_again() {
    let content = bytes(CHUNK + 5);
    let server = Server::new([
        session(),
        refusal(410, "gone"),
        session(),
        stored(CHUNK),
        json(object(8, &content)),
    ]);
    upload(&server, &content).await.unwrap();
    let posts = server
        .seen()
        .iter()
        .filter(|seen| seen.method == "POST")
        .count();
    assert_eq!(posts, 2);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_lost_late_is_gone() {
    let content = bytes(CHUNK + 5);
    for status in [404, 410] {
        let server = Server::new([session(), stored(CHUNK), refusal(status, "gone")]);
        let mut upload = start(&server).await;
        upload.write(content.clone().into()).await.unwrap();
        for _ in 0..2 {
            assert_eq!(upload.finish().await.unwrap_err().kind, Kind::Gone);
        }
        assert_eq!(upload.write("x".into()).await.unwrap_err().kind, Kind::Gone);
        assert_eq!(server.seen().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_the_store_lost_are_gone() {
    let content = bytes(2 * CHUNK + 5);
    let server = Server::new([session(), stored(CHUNK), Step::Lost, stored(1000)]);
    assert_eq!(
        upload(&server, &content).await.unwrap_err().kind,
        Kind::Gone
    );
    server.seen();
}

#[tokio::test(start_paused = true)]
async fn more_bytes_than_were_sent_are_corrupt() {
    let content = bytes(CHUNK + 5);
    let server = Server::new([session(), stored(2 * CHUNK)]);
    assert_eq!(
        upload(&server, &content).await.unwrap_err().kind,
        Kind::Corrupt
    );
}

#[tokio::test(start_paused = true)]
async fn an_object_with_other_bytes_is_corrupt() {
    let content = bytes(CHUNK + 5);
    let other = [&content[..CHUNK + 4], b"!"].concat();
    let server = Server::new([session(), stored(CHUNK), json(object(8, &other))]);
    assert_eq!(
        upload(&server, &content).await.unwrap_err().kind,
        Kind::Corrupt
    );
}

#[tokio::test(start_paused = true)]
async fn a_conflict_ends_an_upload_where_it_shows() {
    let content = bytes(CHUNK + 5);
    // When the session begins, which the next call tells.
    let server = Server::new([refusal(412, "conditionNotMet")]);
    assert_eq!(
        upload(&server, &content).await.unwrap_err().kind,
        Kind::Precondition
    );
    // When the object is published.
    let server = Server::new([session(), stored(CHUNK), refusal(412, "conditionNotMet")]);
    assert_eq!(
        upload(&server, &content).await.unwrap_err().kind,
        Kind::Precondition
    );
    assert_eq!(server.seen().len(), 3);
    // When it was published by ourselves, in an attempt whose answer was lost.
    let server = Server::new([
        session(),
        stored(CHUNK),
        Step::Lost,
        stored(CHUNK),
        refusal(412, "conditionNotMet"),
        json(object(8, &content)),
    ]);
    assert_eq!(
        upload(&server, &content).await.unwrap().generation,
        Generation(8)
    );
}

#[tokio::test(start_paused = true)]
async fn a_chunk_that_never_moves_is_given_up() {
    let content = bytes(CHUNK + 5);
    let server = Server::new([session()]);
    server.then((0..4).flat_map(|_| [refusal(503, "backendError"), stored(0)]));
    let error = upload(&server, &content).await.unwrap_err();
    assert_eq!((error.kind, error.status), (Kind::Unavailable, Some(503)));
    assert_eq!(server.seen().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_silent_session_is_given_up_in_time() {
    let content = bytes(CHUNK + 5);
    let server = Server::new([session(), Step::Stall]);
    server.then((0..4).map(|_| Step::Stall));
    let start = tokio::time::Instant::now();
    let error = upload(&server, &content).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (Kind::Unavailable, Some(Cause::TimedOut))
    );
    assert!(start.elapsed() < Duration::from_secs(300));
}

#[tokio::test(start_paused = true)]
async fn a_canceled_upload_ends_its_session() {
    let server = Server::new([session(), stored(CHUNK), refusal(499, "cancelled")]);
    let mut upload = start(&server).await;
    // The second chunk waits for the first, so that the session is known here.
    upload.write(bytes(CHUNK).into()).await.unwrap();
    while server_is_behind(&server) {
        tokio::task::yield_now().await;
    }
    upload.cancel().await;
    upload.cancel().await;
    assert_eq!(upload.finish().await.unwrap_err().kind, Kind::Canceled);
    let seen = server.seen();
    assert_eq!(
        (seen.len(), &seen[2].method, &*seen[2].target),
        (3, &http::Method::DELETE, "/upload/x?upload_id=s3cret")
    );
}

/// Whether the first chunk is still on its way.
fn server_is_behind(server: &Server) -> bool {
    server.left() > 1
}

#[tokio::test(start_paused = true)]
async fn an_upload_whose_write_was_dropped_publishes_nothing() {
    let server = Server::new([session(), Step::Stall]);
    let mut upload = start(&server).await;
    upload.write(bytes(CHUNK).into()).await.unwrap();
    let second = upload.write(bytes(CHUNK).into());
    assert!(timeout(Duration::from_secs(1), second).await.is_err());
    assert_eq!(upload.finish().await.unwrap_err().kind, Kind::Canceled);
    server.seen();
}

#[tokio::test(start_paused = true)]
async fn an_upload_is_finished_once() {
    let server = Server::new([json(object(8, b""))]);
    let mut upload = start(&server).await;
    upload.finish().await.unwrap();
    upload.cancel().await;
    assert_eq!(upload.finish().await.unwrap_err().kind, Kind::Invalid);
    assert_eq!(
        upload.write("x".into()).await.unwrap_err().kind,
        Kind::Invalid
    );
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_where_the_store_says_unless_that_is_less_safe() {
    let content = bytes(CHUNK + 5);
    for location in ["https://store.test/x", "/x", ""] {
        let server = Server::new([answer(200, &[("location", location)], "")]);
        let error = upload(&server, &content).await.unwrap_err();
        assert_eq!(error.kind, Kind::Corrupt, "{location}");
    }
}

/// A store whose far ends go to `far`.
fn raw_store(far: tokio::sync::mpsc::UnboundedSender<tokio::io::DuplexStream>) -> JsonStore {
    let http = Http::in_memory(&Pool::default(), move || {
        let (near, other) = tokio::io::duplex(16 << 10);
        far.send(other).map_err(std::io::Error::other)?;
        Ok(near)
    });
    let mut config = config(None);
    config.retry.attempts = 1;
    JsonStore::new(&http, BucketName::parse("bkt").unwrap(), config).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_body_that_nobody_takes_is_given_up() {
    let (send, _far) = tokio::sync::mpsc::unbounded_channel();
    let start = tokio::time::Instant::now();
    let body = Bytes::from(bytes(4 << 20));
    let request = write("o", Preconditions::absent());
    let error = raw_store(send).write(&request, body).await.unwrap_err();
    assert_eq!(error.cause, Some(Cause::TimedOut));
    // The idle limit of the write with what the bytes that were taken need, then the first byte of the look.
    let waited = start.elapsed().as_secs();
    assert!((45..45 + 32).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_moves_is_waited_for() {
    let (send, mut far) = tokio::sync::mpsc::unbounded_channel();
    let content = bytes(2 << 20);
    let answer = object(8, &content);
    let server = tokio::spawn(async move {
        let mut stream: tokio::io::DuplexStream = far.recv().await.unwrap();
        let mut buffer = vec![0; 400 << 10];
        for _ in 0..5 {
            stream.read_exact(&mut buffer).await.unwrap();
            tokio::time::sleep(Duration::from_secs(12)).await;
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}",
            answer.len()
        );
        // The rest, which is shorter than a buffer.
        let _ = stream.read(&mut buffer).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream
    });
    let request = write("o", Preconditions::absent());
    let object = raw_store(send)
        .write(&request, content.into())
        .await
        .unwrap();
    assert_eq!(object.size, 2 << 20);
    server.await.unwrap();
}

/// Slower than any deadline of a whole call allows for what the tests send.
const SLOW: u32 = 64 << 10;

#[tokio::test(start_paused = true)]
async fn a_slow_link_carries_a_large_write() {
    let content = bytes(12 << 20);
    let server = Server::new([json(object(8, &content))]);
    server.slow(SLOW);
    let start = tokio::time::Instant::now();
    let request = write("o", Preconditions::absent());
    let object = server.store().write(&request, content.into()).await;
    assert_eq!(object.unwrap().size, 12 << 20);
    assert!(start.elapsed() > config(None).timeouts.operation);
    server.seen();
}

#[tokio::test(start_paused = true)]
async fn a_slow_link_carries_chunks_and_carries_them_again() {
    const LARGE: usize = 8 << 20;
    let content = bytes(LARGE + (6 << 20));
    let server = Server::new([
        session(),
        // Taken in full, and lost with the answer.
        Step::Lost,
        stored(0),
        stored(LARGE),
        Step::Lost,
        stored(LARGE),
        json(object(8, &content)),
    ]);
    server.slow(SLOW);
    let mut config = config(None);
    config.upload_chunk = LARGE as u64;
    let store = server.store_with(config);
    let request = write("o", Preconditions::absent());
    let mut upload = store.upload(&request).await.unwrap();
    upload.write(content.clone().into()).await.unwrap();
    assert_eq!(upload.finish().await.unwrap().size, content.len() as u64);
    assert_eq!(ranges(&server.seen()[1..]).len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_moves_and_is_always_lost_is_sent_a_few_times() {
    const LARGE: usize = 8 << 20;
    let attempts = config(None).retry.attempts as usize;
    let lost = || [Step::Lost, stored(0)];
    let steps: Vec<_> = std::iter::once(session())
        .chain((0..attempts).flat_map(|_| lost()))
        .collect();
    let server = Server::new(steps);
    server.slow(SLOW);
    let mut config = config(None);
    config.upload_chunk = LARGE as u64;
    let store = server.store_with(config);
    let request = write("o", Preconditions::absent());
    let mut upload = store.upload(&request).await.unwrap();
    upload.write(bytes(LARGE).into()).await.unwrap();
    let error = upload.finish().await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert_eq!(server.seen().len(), 1 + 2 * attempts);
}
