//! Tokens from a URL: from a broker's socket, from a web server, and what goes wrong there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use gcsmount_auth::error::{Reach, Refusal, SourceFault};
use gcsmount_auth::{
    Broker, Error, EveryTime, Exchange, FromUrl, Grant, Kind, Routes, SocketConfig, Timeouts,
    TokenSocket, TokenUrl, Tuning,
};
use google_cloud_auth::credentials::{CacheableResource, Credentials};
use http::Extensions;
use serde_json::json;
use tempfile::tempdir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::doubles::{Scripted, Step, broker};
use crate::web::{Web, says};

fn from(url: &str) -> FromUrl {
    let timeouts = Timeouts {
        exchange: Duration::from_secs(5),
        ..Timeouts::default()
    };
    FromUrl::new(TokenUrl::parse(url).unwrap(), timeouts).unwrap()
}

async fn ask(url: &str) -> Result<Grant, Error> {
    from(url).exchange().await
}

#[tokio::test]
async fn a_broker_behind_a_broker_s_socket_hands_on_its_tokens_and_their_life() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("token.sock");
    let (one, _) = broker(&Scripted::new([Step::Grant(3600)]));
    let (other, _) = broker(&Scripted::new([Step::Fail(Kind::Refused(Refusal::Denied))]));
    let routes = BTreeMap::from([("/".to_owned(), one), ("/other".to_owned(), other)]);
    let config = SocketConfig::new(&path, Routes::ByPath(routes));
    let _socket = TokenSocket::bind(config).await.unwrap();
    let url = format!("unix://{}", path.display());
    let behind = Broker::with_exchange(Arc::new(from(&url)), Tuning::default());
    assert_eq!(behind.token().await.unwrap().expose(), "tok-1");
    let status = behind.status();
    let left = status.expires_in.unwrap().as_secs();
    assert!((3500..3600).contains(&left), "{left}");
    assert_eq!(status.identity.source, url);
    let denied = ask(&format!("{url}#/other?x=y")).await.unwrap_err();
    assert_eq!(denied.kind(), Kind::Refused(Refusal::Denied));
    assert!(denied.message().contains("scripted"), "{denied}");
    let nowhere = ask(&format!("{url}#/elsewhere")).await.unwrap_err();
    assert_eq!(nowhere.kind(), Kind::Refused(Refusal::Request));
    assert!(nowhere.message().contains("at /, /other"), "{nowhere}");
}

#[tokio::test]
async fn the_fault_of_a_broker_behind_its_socket_is_the_same_fault_in_front() {
    for kind in [
        Kind::Source(SourceFault::Missing),
        Kind::Source(SourceFault::Unreadable),
        Kind::Source(SourceFault::Empty),
        Kind::Source(SourceFault::Malformed),
        Kind::Source(SourceFault::TooLarge),
        Kind::Source(SourceFault::Expired),
        Kind::Refused(Refusal::Audience),
        Kind::Refused(Refusal::Denied),
        Kind::Unreachable(Reach::Network),
        Kind::Throttled,
        Kind::Unavailable,
        Kind::BadAnswer,
        Kind::Timeout,
        Kind::Config,
    ] {
        let dir = tempdir().unwrap();
        let path = dir.path().join("token.sock");
        let (broker, _) = broker(&Scripted::new([Step::Fail(kind)]));
        let config = SocketConfig::new(&path, Routes::Any(broker));
        let _socket = TokenSocket::bind(config).await.unwrap();
        let error = ask(&format!("unix://{}", path.display())).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains("scripted"), "{error}");
    }
}

#[tokio::test]
async fn a_web_server_is_asked_with_its_path_and_query() {
    let web = Web::start(|_| says(200, &json!({"access_token": "t", "expires_in": 77}))).await;
    let grant = ask(&web.url("/token?key=value")).await.unwrap();
    assert_eq!((grant.token.expose(), grant.lifetime.as_secs()), ("t", 77));
    let seen = &web.seen()[0];
    assert_eq!((&*seen.method, &*seen.target), ("GET", "/token?key=value"));
    assert_eq!(
        (&seen.headers["accept"], &*seen.body),
        (&"application/json".parse().unwrap(), "")
    );
}

#[tokio::test]
async fn what_a_token_server_answers_has_its_kind() {
    for (status, body, kind) in [
        (500, "", Kind::Unavailable),
        (500, r#"{"error":"server_error"}"#, Kind::Unavailable),
        (500, r#"{"error":"misconfigured"}"#, Kind::Config),
        (504, r#"{"error":"timeout"}"#, Kind::Timeout),
        // A fault behind the server is not what a refusal is about.
        (
            400,
            r#"{"error":"subject_token_missing"}"#,
            Kind::Refused(Refusal::Request),
        ),
        (429, "", Kind::Throttled),
        (403, "", Kind::Refused(Refusal::Denied)),
        (
            400,
            r#"{"error":"invalid_grant"}"#,
            Kind::Refused(Refusal::Grant),
        ),
        (302, "", Kind::BadAnswer),
        (200, "<html>", Kind::BadAnswer),
        (200, r#"{"access_token":""}"#, Kind::BadAnswer),
        (
            200,
            r#"{"access_token":"t","expires_in":0}"#,
            Kind::BadAnswer,
        ),
    ] {
        let web = Web::start(move |_| says(status, body)).await;
        let error = ask(&web.url("/")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {body}: {error}");
        assert!(error.message().contains(&web.url("/")), "{error}");
    }
}

#[tokio::test]
async fn a_socket_that_is_missing_dead_or_mute_is_waited_for_no_longer_than_asked() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("token.sock");
    let url = format!("unix://{}", path.display());
    let network = Kind::Unreachable(Reach::Network);
    assert_eq!(ask(&url).await.unwrap_err().kind(), network);
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(ask(&url).await.unwrap_err().kind(), network);
    std::fs::remove_file(&path).unwrap();
    let listening = UnixListener::bind(&path).unwrap();
    let timeouts = Timeouts {
        exchange: Duration::from_millis(50),
        ..Timeouts::default()
    };
    let mute = FromUrl::new(TokenUrl::parse(&url).unwrap(), timeouts).unwrap();
    let error = mute.exchange().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.message().contains(&url), "{error}");
    // The deadline left no connection behind.
    let (mut stream, _) = listening.accept().await.unwrap();
    let mut asked = String::new();
    stream.read_to_string(&mut asked).await.unwrap();
    assert!(asked.starts_with("GET / HTTP/1.1\r\n"), "{asked}");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    let error = ask(&url).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("not a socket"), "{error}");
}

#[tokio::test]
async fn a_socket_is_asked_for_its_path_and_query_on_a_connection_for_each_time() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("token.sock");
    let listening = UnixListener::bind(&path).unwrap();
    let query = "q".repeat(65_000);
    let target = format!("/v1/token?x={query}");
    let exchange = from(&format!("unix://{}#{target}", path.display()));
    for token in ["one", "two"] {
        let serve = async {
            let (mut stream, _) = listening.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                assert_ne!(stream.read_buf(&mut asked).await.unwrap(), 0);
            }
            let body = json!({"access_token": token, "expires_in": 77}).to_string();
            let length = body.len();
            // It would be kept if the client wanted that.
            let told = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
            stream.write_all(told.as_bytes()).await.unwrap();
            assert_eq!(stream.read_buf(&mut Vec::new()).await.unwrap(), 0, "kept");
            String::from_utf8(asked).unwrap()
        };
        let (grant, asked) = tokio::join!(exchange.exchange(), serve);
        assert_eq!(grant.unwrap().token.expose(), token);
        assert!(asked.starts_with(&format!("GET {target} HTTP/1.1\r\n")));
        assert!(asked.to_ascii_lowercase().contains("\r\nhost: unix\r\n"));
    }
}

#[tokio::test]
async fn a_long_socket_path_is_reached() {
    let dir = tempdir().unwrap();
    let deep = dir.path().join("d".repeat(150));
    std::fs::create_dir(&deep).unwrap();
    let path = deep.join("token.sock");
    let (broker, _) = broker(&Scripted::new([Step::Grant(60)]));
    let config = SocketConfig::new(&path, Routes::Any(broker));
    let _socket = TokenSocket::bind(config).await.unwrap();
    let grant = ask(&format!("unix://{}", path.display())).await.unwrap();
    assert_eq!(grant.token.expose(), "tok-1");
}

#[tokio::test(start_paused = true)]
async fn credentials_without_reuse_ask_each_time_and_a_bounded_number_at_once() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let every = EveryTime::new(Arc::clone(&exchange) as _, Duration::from_secs(60));
    let credentials = Credentials::from(every);
    let asked = join_all((0..100).map(|_| credentials.headers(Extensions::new()))).await;
    let mut tokens = std::collections::HashSet::new();
    for resource in asked {
        let CacheableResource::New { data, .. } = resource.unwrap() else {
            panic!("not modified");
        };
        tokens.insert(data["authorization"].to_str().unwrap().to_owned());
    }
    assert_eq!((tokens.len(), exchange.count()), (100, 100));
    assert_eq!(exchange.most_at_once(), 16);
    exchange.now_follow([Step::Hang]);
    let hung = credentials.headers(Extensions::new()).await.unwrap_err();
    assert!(
        hung.is_transient() && hung.to_string().contains("60 s"),
        "{hung}"
    );
    exchange.now_follow([Step::Fail(Kind::Refused(Refusal::Denied))]);
    assert!(
        !credentials
            .headers(Extensions::new())
            .await
            .unwrap_err()
            .is_transient()
    );
    assert_eq!(credentials.universe_domain().await, None);
}
