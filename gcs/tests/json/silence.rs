//! A store that does not answer, and the queue of calls behind the first that finds out.

use std::time::Duration;

use gcsmount_gcs::client::json::{JsonStore, Pool};
use gcsmount_gcs::store::Preconditions;
use gcsmount_gcs::{BucketName, Cause, Generation, Kind, Store};
use google_cloud_auth::credentials::{CacheableResource, Credentials, CredentialsProvider};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap};
use tokio::time::{Instant, timeout};

use crate::script::{
    End, Server, Step, config, drain, json, media, name, object, read, refusal, write,
};

/// Seconds that a look for the object takes to fail.
async fn seconds(store: &JsonStore) -> u64 {
    let start = Instant::now();
    let error = store.stat(&name("o")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (Kind::Unavailable, Some(Cause::TimedOut))
    );
    start.elapsed().as_secs()
}

fn silent() -> Server {
    Server::thinking(|_| Step::Stall)
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_calls_waits_for_the_deadline_once() {
    let store = silent().store();
    let mut waits = Vec::new();
    for _ in 0..5 {
        waits.push(seconds(&store).await);
    }
    assert_eq!(waits, [120, 5, 5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_changes_waits_for_the_deadline_once() {
    let store = silent().store();
    let request = write("o", Preconditions::absent());
    let mut waits = Vec::new();
    for _ in 0..4 {
        let start = Instant::now();
        let error = store.write(&request, "x".into()).await.unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable);
        assert!(error.message.contains("outcome is unknown"), "{error}");
        waits.push(start.elapsed().as_secs());
    }
    // The first looks what became of it; the others know that there is nobody to ask.
    assert_eq!(waits, [125, 5, 5, 5]);
}

#[tokio::test(start_paused = true)]
async fn any_answer_ends_the_silence() {
    let stalls = |count| (0..count).map(|_| Step::Stall);
    for (answer, good) in [
        (json(object(7, b"x")), true),
        (refusal(404, "notFound"), false),
        (refusal(403, "forbidden"), false),
    ] {
        let server = Server::new(stalls(4 + 1));
        let store = server.store();
        assert_eq!([seconds(&store).await, seconds(&store).await], [120, 5]);
        server.then([answer]);
        assert_eq!(store.stat(&name("o")).await.is_ok(), good);
        server.then(stalls(4));
        assert_eq!(seconds(&store).await, 120);
        server.seen();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_or_refuses_is_not_silent() {
    let server = Server::new((0..4).map(|_| refusal(503, "backendError")));
    let store = server.store();
    server.refuse(4);
    let causes = [Some(Cause::Refused), None];
    for cause in causes {
        let error = store.stat(&name("o")).await.unwrap_err();
        assert_eq!((error.kind, error.cause), (Kind::Unavailable, cause));
    }
    server.then((0..4).map(|_| Step::Stall));
    assert_eq!(seconds(&store).await, 120);
    server.seen();
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_has_found_out_too() {
    let store = silent().store();
    let wait = |limit| timeout(Duration::from_secs(limit), seconds(&store));
    assert!(wait(59).await.is_err());
    assert!(wait(61).await.is_err());
    assert_eq!(seconds(&store).await, 5);
}

#[tokio::test(start_paused = true)]
async fn buckets_of_one_host_share_what_was_heard() {
    let http = silent().http(&Pool::default());
    let store = |bucket: &str, endpoint: &str| {
        let mut config = config(None);
        config.endpoint = endpoint.parse().unwrap();
        JsonStore::new(&http, BucketName::parse(bucket).unwrap(), config).unwrap()
    };
    assert_eq!(seconds(&store("one", "http://store.test")).await, 120);
    assert_eq!(seconds(&store("two", "http://store.test")).await, 5);
    assert_eq!(seconds(&store("one", "http://other.test")).await, 120);
}

#[tokio::test(start_paused = true)]
async fn bodies_and_uploads_wait_no_longer_either() {
    let content = [7; 5000];
    let server = Server::new([media(&content, 0, 2000, End::Stalled)]);
    server.then((0..4).map(|_| Step::Stall));
    let store = server.store();
    let start = Instant::now();
    let (_, error) = drain(store.read(&read("o")).await).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    // The idle limit of the body, and the operation that asks for the rest.
    assert_eq!(start.elapsed().as_secs(), 15 + 120);
    server.seen();

    server.then([Step::Stall, Step::Stall]);
    let start = Instant::now();
    let (_, error) = drain(store.read(&read("o")).await).await.unwrap_err();
    assert_eq!(error.cause, Some(Cause::TimedOut));
    let request = write("o", Preconditions::generation(Generation(7)));
    let mut upload = store.upload(&request).await.unwrap();
    upload.write(vec![1; 256 << 10].into()).await.unwrap();
    let error = upload.finish().await.unwrap_err();
    assert_eq!(error.cause, Some(Cause::TimedOut));
    assert_eq!(start.elapsed().as_secs(), 5 + 5);
    server.seen();
}

/// A provider that waits as a broker does for a token that does not come.
#[derive(Debug)]
struct Waiting;

impl CredentialsProvider for Waiting {
    async fn headers(
        &self,
        _extensions: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        tokio::time::sleep(Duration::from_secs(15)).await;
        Err(CredentialsError::from_msg(true, "no token came"))
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_calls_waits_for_a_token_once() {
    let server = Server::new([]);
    let store = server.store_with(config(Some(Credentials::from(Waiting))));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let start = Instant::now();
        let error = store.stat(&name("o")).await.unwrap_err();
        assert_eq!(error.cause, Some(Cause::Credentials), "{error}");
        waits.push(start.elapsed().as_secs());
    }
    assert!((20..=36).contains(&waits[0]), "{waits:?}");
    assert!(waits[1..].iter().all(|&wait| wait <= 5), "{waits:?}");
}
