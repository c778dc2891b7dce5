//! The broker as credentials: what Google's client libraries and our own clients rely on.

use std::error::Error as _;

use gcsmount_auth::error::SourceFault;
use gcsmount_auth::{Error, Kind};
use google_cloud_auth::credentials::{CacheableResource, Credentials, EntityTag};
use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap, StatusCode};

use crate::doubles::{Scripted, Step, broker, pass};

async fn new(credentials: &Credentials, extensions: Extensions) -> (EntityTag, HeaderMap) {
    match credentials.headers(extensions).await.unwrap() {
        CacheableResource::New { entity_tag, data } => (entity_tag, data),
        CacheableResource::NotModified => panic!("not modified"),
    }
}

fn with_tag(tag: &EntityTag) -> Extensions {
    let mut extensions = Extensions::new();
    extensions.insert(tag.clone());
    extensions
}

fn unauthorized(tag: &EntityTag) -> Extensions {
    let mut extensions = with_tag(tag);
    extensions.insert(StatusCode::UNAUTHORIZED);
    extensions
}

#[tokio::test(start_paused = true)]
async fn headers_without_a_tag_are_new_and_sensitive() {
    let (broker, _clock) = broker(&Scripted::new([Step::Grant(3600)]));
    let credentials = broker.credentials();
    for _ in 0..2 {
        let (_, headers) = new(&credentials, Extensions::new()).await;
        assert_eq!(headers[AUTHORIZATION], "Bearer tok-1");
        assert!(headers[AUTHORIZATION].is_sensitive());
        assert_eq!(headers.len(), 1);
    }
    assert_eq!(credentials.universe_domain().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_tag_that_is_right_is_not_modified_and_one_that_is_not_is_new() {
    let exchange = Scripted::new([Step::Grant(8)]);
    let (broker, _clock) = broker(&exchange);
    let credentials = broker.credentials();
    let (tag, _) = new(&credentials, with_tag(&EntityTag::new())).await;
    let same = credentials.headers(with_tag(&tag)).await.unwrap();
    assert!(matches!(same, CacheableResource::NotModified));
    pass(6).await;
    let (next, headers) = new(&credentials, with_tag(&tag)).await;
    assert_ne!(next, tag);
    assert_eq!(headers[AUTHORIZATION], "Bearer tok-2");
}

#[tokio::test(start_paused = true)]
async fn a_401_is_answered_with_another_token() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, _clock) = broker(&exchange);
    let credentials = broker.credentials();
    let (tag, _) = new(&credentials, Extensions::new()).await;
    pass(5).await;
    let (next, headers) = new(&credentials, unauthorized(&tag)).await;
    assert_ne!(next, tag);
    assert_eq!(headers[AUTHORIZATION], "Bearer tok-2");
    // A late report of the same token costs nothing more.
    let (again, _) = new(&credentials, unauthorized(&tag)).await;
    assert_eq!((again, exchange.count()), (next, 2));
}

#[tokio::test(start_paused = true)]
async fn another_status_or_a_401_without_a_tag_rejects_nothing() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, _clock) = broker(&exchange);
    let credentials = broker.credentials();
    let (tag, _) = new(&credentials, Extensions::new()).await;
    let mut forbidden = with_tag(&tag);
    forbidden.insert(StatusCode::FORBIDDEN);
    assert!(matches!(
        credentials.headers(forbidden).await.unwrap(),
        CacheableResource::NotModified
    ));
    let mut nameless = Extensions::new();
    nameless.insert(StatusCode::UNAUTHORIZED);
    new(&credentials, nameless).await;
    pass(60).await;
    assert_eq!(exchange.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_say_whether_they_pass_and_the_next_call_asks_again() {
    for (kind, transient) in [
        (Kind::Unavailable, true),
        (Kind::Throttled, true),
        (Kind::Source(SourceFault::Missing), false),
        (Kind::Config, false),
    ] {
        let exchange = Scripted::new([Step::Fail(kind)]);
        let (broker, _clock) = broker(&exchange);
        let credentials = broker.credentials();
        let error = credentials.headers(Extensions::new()).await.unwrap_err();
        assert_eq!(error.is_transient(), transient, "{kind:?}");
        let sentence = format!("scripted {kind:?}");
        let begin = format!("no access token ({sentence}) ");
        assert!(error.to_string().starts_with(&begin), "{error}");
        let ours = error.source().unwrap().downcast_ref::<Error>().unwrap();
        assert_eq!((ours.kind(), ours.to_string()), (kind, sentence));
        exchange.now_follow([Step::Grant(60)]);
        pass(31).await;
        new(&credentials, Extensions::new()).await;
    }
}
