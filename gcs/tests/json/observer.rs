//! What an observer is told: each request, each repetition and its reason, and every byte of content once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gcsmount_gcs::client::json::{Attempt, Config, Hedge, Observer, Outcome, Reason, Repetition};
use gcsmount_gcs::store::{ListRequest, Preconditions};
use gcsmount_gcs::{Cause, Kind, Store};
use parking_lot::Mutex;

use crate::identity::Broker;
use crate::script::{
    End, Server, Step, answer, config, drain, json, media, name, object, read, refusal, write,
};

const CHUNK: usize = 256 << 10;

/// Remembers what it is told.
#[derive(Debug, Default)]
struct Ledger(Mutex<Entries>);

#[derive(Debug, Default, Clone)]
struct Entries {
    attempts: Vec<Attempt>,
    repetitions: Vec<Repetition>,
    sent: u64,
    received: u64,
}

impl Observer for Ledger {
    fn attempted(&self, attempt: &Attempt) {
        self.0.lock().attempts.push(*attempt);
    }

    fn repeating(&self, repetition: &Repetition) {
        self.0.lock().repetitions.push(*repetition);
    }

    fn sent(&self, bytes: u64) {
        self.0.lock().sent += bytes;
    }

    fn received(&self, bytes: u64) {
        self.0.lock().received += bytes;
    }
}

impl Ledger {
    /// How each request ended, and its number.
    fn outcomes(&self) -> Vec<(Outcome, u32)> {
        let entries = self.0.lock();
        let outcome = |attempt: &Attempt| (attempt.outcome, attempt.number);
        entries.attempts.iter().map(outcome).collect()
    }

    fn reasons(&self) -> Vec<Reason> {
        let entries = self.0.lock();
        entries.repetitions.iter().map(|told| told.reason).collect()
    }

    /// Bytes sent and received.
    fn bytes(&self) -> (u64, u64) {
        let entries = self.0.lock();
        (entries.sent, entries.received)
    }
}

fn observed(config: Config) -> (Arc<Ledger>, Config) {
    let ledger = Arc::new(Ledger::default());
    let observer: Arc<dyn Observer> = Arc::clone(&ledger) as _;
    let config = Config {
        observer: Some(observer),
        ..config
    };
    (ledger, config)
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i % 251) as u8).collect()
}

const UNAVAILABLE: Reason = Reason::Failed(Kind::Unavailable, None);

fn lost(cause: Cause) -> Reason {
    Reason::Failed(Kind::Unavailable, Some(cause))
}

#[tokio::test(start_paused = true)]
async fn a_read_with_faults_is_told_request_by_request_and_byte_by_byte() {
    use Outcome::{Answered, Lost};
    let content = content(40_000);
    let (ledger, config) = observed(config(None));
    let server = Server::new([
        Step::Late(
            Duration::from_secs(2),
            Box::new(refusal(503, "backendError")),
        ),
        Step::Lost,
        media(&content, 0, 5_000, End::Broken),
        media(&content, 5_000, 7_000, End::Stalled),
        media(&content, 12_000, 28_000, End::Well),
    ]);
    let bytes = drain(server.store_with(config).read(&read("o")).await).await;
    assert_eq!(bytes.unwrap(), content);
    assert_eq!(
        ledger.outcomes(),
        [
            (Answered(503), 1),
            (Lost(Cause::Broken), 2),
            (Answered(200), 3),
            (Answered(206), 4),
            (Answered(206), 5),
        ]
    );
    let [broken, silent] = [Cause::Broken, Cause::TimedOut].map(lost);
    assert_eq!(ledger.reasons(), [UNAVAILABLE, broken, broken, silent]);
    assert_eq!(ledger.bytes(), (0, 40_000));
    let entries = ledger.0.lock().clone();
    let first = entries.attempts[0];
    assert_eq!(first.operation, "storage.objects.get.media");
    assert_eq!(first.took.as_secs(), 2);
    assert!(!first.is_repetition() && entries.attempts[1].is_repetition());
}

#[tokio::test(start_paused = true)]
async fn bytes_that_nobody_wants_have_arrived_all_the_same() {
    let content = content(40_000);
    let (ledger, config) = observed(config(None));
    let server = Server::new([
        media(&content, 0, 40_000, End::Well),
        // What is no content is not counted: a refusal, an object's metadata.
        refusal(404, "notFound"),
        json(object(7, b"x")),
    ]);
    let store = server.store_with(config);
    let mut body = store.read(&read("o")).await.unwrap().body;
    let piece = body.next().await.unwrap().unwrap();
    drop(body);
    assert_eq!(ledger.bytes(), (0, piece.len() as u64));
    store.read(&read("o")).await.unwrap_err();
    store.stat(&name("o")).await.unwrap();
    assert_eq!(ledger.bytes(), (0, piece.len() as u64));
    assert_eq!(ledger.reasons(), []);
}

#[tokio::test(start_paused = true)]
async fn an_upload_counts_its_content_and_what_is_sent_again() {
    use Outcome::Answered;
    let content = content(CHUNK + 1000);
    let (ledger, config) = observed(config(None));
    let location = [("location", "http://store.test/upload/x?upload_id=s3cret")];
    let stored = |last: usize| answer(308, &[("range", &format!("bytes=0-{last}"))], "");
    let server = Server::new([
        answer(200, &location, ""),
        refusal(503, "backendError"),
        // Half of it is there.
        stored(CHUNK / 2 - 1),
        stored(CHUNK - 1),
        json(object(8, &content)),
    ]);
    let request = write("o", Preconditions::default());
    let store = server.store_with(config);
    let mut upload = store.upload(&request).await.unwrap();
    upload
        .write(Bytes::copy_from_slice(&content))
        .await
        .unwrap();
    upload.finish().await.unwrap();
    let outcomes = [
        (Answered(200), 1),
        (Answered(503), 1),
        // The question is no repetition of the chunk.
        (Answered(308), 1),
        (Answered(308), 2),
        (Answered(200), 1),
    ];
    assert_eq!(ledger.outcomes(), outcomes);
    assert_eq!(ledger.reasons(), [UNAVAILABLE]);
    assert_eq!(ledger.bytes(), ((content.len() + CHUNK / 2) as u64, 0));
    assert!(!format!("{:?}", ledger.0.lock()).contains("s3cret"));
}

#[tokio::test(start_paused = true)]
async fn an_object_in_one_request_counts_without_what_frames_it() {
    let (ledger, config) = observed(config(None));
    let object = || json(object(8, b"hello"));
    let server = Server::new([refusal(503, "backendError"), object(), object()]);
    let store = server.store_with(config);
    let body = Bytes::from_static(b"hello");
    let request = write("o", Preconditions::absent());
    store.write(&request, body.clone()).await.unwrap();
    assert_eq!(ledger.bytes(), (10, 0), "it was sent twice");
    let request = write("o", Preconditions::default());
    store.write(&request, body).await.unwrap();
    assert_eq!(ledger.bytes(), (15, 0));
    assert_eq!(ledger.reasons(), [UNAVAILABLE]);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_one_request_without_content() {
    let (ledger, config) = observed(config(None));
    let server = Server::new([json("{}")]);
    let store = server.store_with(config);
    store.list(&ListRequest::default()).await.unwrap();
    assert_eq!(ledger.outcomes(), [(Outcome::Answered(200), 1)]);
    let attempts = ledger.0.lock().attempts.clone();
    assert_eq!(attempts[0].operation, "storage.objects.list");
    assert_eq!(ledger.bytes(), (0, 0));
    assert_eq!(ledger.reasons(), []);
}

#[tokio::test(start_paused = true)]
async fn reasons_beside_failure_are_told_too() {
    use Outcome::Answered;
    let content = content(10);
    let good = || media(&content, 0, 10, End::Well);

    // A token that is rejected and replaced.
    let (ledger, replaced) = observed(config(Broker::new().credentials()));
    let server = Server::new([refusal(401, "authError"), json(object(7, b"x"))]);
    let store = server.store_with(replaced);
    store.stat(&name("o")).await.unwrap();
    assert_eq!(ledger.outcomes(), [(Answered(401), 1), (Answered(200), 2)]);
    assert_eq!(ledger.reasons(), [Reason::Token]);

    // A first request that is slow, and given up.
    let (ledger, hedging) = observed(Config {
        hedge: Some(Hedge::default()),
        ..config(None)
    });
    let server = Server::new([Step::Stall, good()]);
    let read_all = drain(server.store_with(hedging).read(&read("o")).await).await;
    assert_eq!(read_all.unwrap(), content);
    assert_eq!(ledger.outcomes(), [(Answered(200), 2)]);
    assert_eq!(ledger.reasons(), [Reason::Slow]);

    // An answer with more headers than usual.
    let (ledger, config) = observed(config(None));
    let keys: Vec<_> = (0..200).map(|i| format!("x-goog-meta-{i}")).collect();
    let mut headers: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    headers.push(("x-goog-generation", "7"));
    let many = || answer(200, &headers, "x");
    let server = Server::new([many(), many()]);
    let read_all = drain(server.store_with(config).read(&read("o")).await).await;
    assert_eq!(read_all.unwrap(), b"x");
    let outcomes = [(Outcome::Lost(Cause::Broken), 1), (Answered(200), 2)];
    assert_eq!(ledger.outcomes(), outcomes);
    assert_eq!(ledger.reasons(), [Reason::Headers]);
    assert_eq!(ledger.bytes(), (0, 1));
}
