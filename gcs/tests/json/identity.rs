//! Tokens: asked for, rejected, replaced, and never shown.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gcsmount_gcs::store::Preconditions;
use gcsmount_gcs::{Cause, Kind, Store};
use google_cloud_auth::credentials::{
    CacheableResource, Credentials, CredentialsProvider, EntityTag,
};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;

use crate::script::{Server, Step, answer, config, json, name, object, read, refusal, write};

/// A provider whose tokens can be taken away, and which counts who asks.
#[derive(Debug, Clone)]
pub struct Broker(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    tag: EntityTag,
    number: u32,
    reported: Vec<EntityTag>,
    /// How many things each question came with.
    extras: Vec<usize>,
    /// Whether a rejected token is replaced.
    replaces: bool,
    failure: Option<CredentialsError>,
}

impl Broker {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            tag: EntityTag::new(),
            number: 1,
            reported: Vec::new(),
            extras: Vec::new(),
            replaces: true,
            failure: None,
        })))
    }

    pub fn credentials(&self) -> Option<Credentials> {
        Some(Credentials::from(self.clone()))
    }

    fn rotate(&self) {
        let mut state = self.0.lock();
        state.number += 1;
        state.tag = EntityTag::new();
    }
}

impl CredentialsProvider for Broker {
    async fn headers(
        &self,
        extensions: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        let rejected = extensions.get::<StatusCode>() == Some(&StatusCode::UNAUTHORIZED);
        let known = extensions.get::<EntityTag>().cloned();
        if rejected {
            let replaces = self.0.lock().replaces;
            if replaces {
                self.rotate();
            }
            self.0.lock().reported.extend(known.clone());
        }
        let mut state = self.0.lock();
        state.extras.push(extensions.len());
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        if known == Some(state.tag.clone()) {
            return Ok(CacheableResource::NotModified);
        }
        let token = HeaderValue::try_from(format!("Bearer t0ken-{}", state.number)).unwrap();
        Ok(CacheableResource::New {
            entity_tag: state.tag.clone(),
            data: HeaderMap::from_iter([(http::header::AUTHORIZATION, token)]),
        })
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}

fn ok() -> Step {
    json(object(7, b"x"))
}

#[tokio::test(start_paused = true)]
async fn every_request_asks_for_todays_headers() {
    let (broker, server) = (Broker::new(), Server::new([ok(), ok(), ok()]));
    let store = server.store_with(config(broker.credentials()));
    store.stat(&name("o")).await.unwrap();
    store.stat(&name("o")).await.unwrap();
    broker.rotate();
    store.stat(&name("o")).await.unwrap();
    let seen = server.seen();
    let tokens: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("authorization"))
        .collect();
    assert_eq!(
        tokens,
        ["Bearer t0ken-1", "Bearer t0ken-1", "Bearer t0ken-2"]
    );
    // Bare: what asks with a tag must keep the headers of that tag.
    assert_eq!(broker.0.lock().extras, [0, 0, 0]);
    assert_eq!(broker.0.lock().reported, []);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_reported_once_and_replaced() {
    let broker = Broker::new();
    let first = broker.0.lock().tag.clone();
    let server = Server::new([refusal(401, "authError"), ok(), ok()]);
    let store = server.store_with(config(broker.credentials()));
    store.stat(&name("o")).await.unwrap();
    store.stat(&name("o")).await.unwrap();
    let seen = server.seen();
    let tokens: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("authorization"))
        .collect();
    assert_eq!(
        tokens,
        ["Bearer t0ken-1", "Bearer t0ken-2", "Bearer t0ken-2"]
    );
    assert_eq!(broker.0.lock().extras, [0, 2, 0]);
    assert_eq!(broker.0.lock().reported, [first]);
}

/// A provider that heeds neither tags nor reports, and has but one token.
#[derive(Debug)]
struct Deaf(EntityTag);

impl CredentialsProvider for Deaf {
    async fn headers(
        &self,
        _: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        Ok(CacheableResource::New {
            entity_tag: self.0.clone(),
            data: HeaderMap::new(),
        })
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_answers_with_the_rejected_token_is_not_believed() {
    let server = Server::new([refusal(401, "authError")]);
    let deaf = Credentials::from(Deaf(EntityTag::new()));
    let error = server.store_with(config(Some(deaf))).stat(&name("o")).await;
    assert_eq!(error.unwrap_err().kind, Kind::Unauthenticated);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_bytes_are_asked_for_again() {
    let server = Server::new([refusal(401, "authError"), refusal(404, "notFound")]);
    let store = server.store_with(config(Broker::new().credentials()));
    let mut request = read("o");
    request.range = Some(5..10);
    assert_eq!(store.read(&request).await.unwrap_err().kind, Kind::NotFound);
    let seen = server.seen();
    assert_eq!(
        [seen[0].header("range"), seen[1].header("range")],
        ["bytes=5-9"; 2]
    );
}

#[tokio::test(start_paused = true)]
async fn two_rejections_in_a_row_end_the_call() {
    let broker = Broker::new();
    let server = Server::new([refusal(401, "authError"), refusal(401, "authError")]);
    let store = server.store_with(config(broker.credentials()));
    let error = store.stat(&name("o")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.status),
        (Kind::Unauthenticated, Some(401))
    );
    assert_eq!(broker.0.lock().reported.len(), 1);
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_another_token_a_rejection_stands() {
    let broker = Broker::new();
    broker.0.lock().replaces = false;
    let server = Server::new([refusal(401, "authError"), refusal(401, "required")]);
    let store = server.store_with(config(broker.credentials()));
    assert_eq!(
        store.stat(&name("o")).await.unwrap_err().kind,
        Kind::Unauthenticated
    );
    let anonymous = server.store();
    assert_eq!(
        anonymous.stat(&name("o")).await.unwrap_err().kind,
        Kind::Unauthenticated
    );
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_late_is_waited_for() {
    let broker = Broker::new();
    let server = Server::new([ok()]);
    let store = server.store_with(config(broker.credentials()));
    broker.0.lock().failure = Some(CredentialsError::from_msg(true, "sts is away"));
    store.stat(&name("o")).await.unwrap();
    broker.0.lock().failure = Some(CredentialsError::from_msg(false, "the audience is wrong"));
    let error = store.stat(&name("o")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (Kind::Unauthenticated, Some(Cause::Credentials))
    );
    assert!(error.message.contains("the audience is wrong"), "{error}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_session_elsewhere_does_not_see_the_token() {
    let content = vec![1; 300 << 10];
    let server = Server::new([
        answer(200, &[("location", "http://other.test/x")], ""),
        answer(308, &[("range", "bytes=0-262143")], ""),
        json(object(8, &content)),
    ]);
    let store = server.store_with(config(Broker::new().credentials()));
    let mut upload = store
        .upload(&write("o", Preconditions::default()))
        .await
        .unwrap();
    upload.write(content.into()).await.unwrap();
    upload.finish().await.unwrap();
    let seen = server.seen();
    let tokens: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("authorization"))
        .collect();
    assert_eq!(tokens, ["Bearer t0ken-1", "", ""]);
}

/// Collects what `tracing` would write.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn no_secret_is_ever_written() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // For the whole process: a subscriber of one thread misses callsites that other threads met first.
    tracing::subscriber::set_global_default(subscriber).unwrap();

    // A server that repeats the secrets in its errors.
    let server = Server::new([
        Step::Lost,
        Step::Echo(503),
        Step::Echo(401),
        answer(
            200,
            &[("location", "http://store.test/x?upload_id=s3cret")],
            "",
        ),
        Step::Echo(503),
        answer(308, &[], ""),
        Step::Lost,
        Step::Echo(410),
        answer(
            200,
            &[("location", "http://store.test/x?upload_id=s3cret")],
            "",
        ),
        Step::Echo(403),
    ]);
    let mut config = config(Broker::new().credentials());
    config.timeouts.operation = Duration::from_secs(60);
    let store = server.store_with(config);
    let mut upload = store
        .upload(&write("o", Preconditions::default()))
        .await
        .unwrap();
    upload.write(vec![0; 256 << 10].into()).await.unwrap();
    let error = upload.finish().await.unwrap_err();
    assert_eq!(error.kind, Kind::Denied);
    upload.cancel().await;
    server.seen();

    let mut text = String::from_utf8(log.0.lock().clone()).unwrap();
    assert!(text.contains("repeating"), "the log is on: {text}");
    assert!(error.message.contains("[redacted]"), "{error}");
    text.push_str(&format!("{error} {error:?} {upload:?} {store:?}"));
    for secret in ["t0ken", "s3cret"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
