//! Hosts that are not there, over real sockets.

use std::time::Duration;

use gcsmount_gcs::client::json::{Config, Http, InvalidConfig, JsonStore, Pool, Retry};
use gcsmount_gcs::{BucketName, Cause, Error, Kind, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn store(endpoint: &str, pool: &Pool) -> JsonStore {
    let config = Config {
        endpoint: endpoint.parse().unwrap(),
        retry: Retry {
            attempts: 1,
            ..Retry::default()
        },
        ..Config::default()
    };
    JsonStore::new(&Http::new(pool), BucketName::parse("bkt").unwrap(), config).unwrap()
}

async fn error(endpoint: &str) -> Error {
    let pool = Pool {
        connect_timeout: Duration::from_millis(500),
        ..Pool::default()
    };
    let error = store(endpoint, &pool).bucket().await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable, "{error}");
    error
}

#[tokio::test]
async fn a_closed_port_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = error(&format!("http://{address}")).await;
    assert_eq!(error.cause, Some(Cause::Refused));
    assert_eq!(
        error.to_string(),
        format!("storage.buckets.get bkt: {address} refused the connection (1 attempt)")
    );
}

#[tokio::test]
async fn a_name_of_nobody_does_not_resolve() {
    // A label of 64 characters is no host name: the resolver says so without asking anybody.
    let host = "x".repeat(64);
    let error = error(&format!("http://{host}:1")).await;
    assert_eq!(error.cause, Some(Cause::UnknownHost), "{error}");
    assert!(error.message.contains(&host), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_fails_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1]).await;
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    });
    let error = error(&format!("https://{address}")).await;
    assert_eq!(error.cause, Some(Cause::Tls), "{error}");
    server.await.unwrap();
}

#[tokio::test]
async fn a_handshake_that_stalls_ends_with_the_connect_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let error = error(&format!("https://{address}")).await;
    assert_eq!(error.cause, Some(Cause::Unreachable), "{error}");
    drop(listener);
}

#[tokio::test]
async fn a_connection_that_closes_is_broken() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let error = error(&format!("http://{address}")).await;
    assert_eq!(error.cause, Some(Cause::Broken), "{error}");
    server.await.unwrap();
}

#[tokio::test]
async fn what_no_header_can_carry_is_refused() {
    let http = Http::new(&Pool::default());
    let bucket = BucketName::parse("bkt").unwrap();
    let agent = Config {
        user_agent: "a\nb".to_owned(),
        ..Config::default()
    };
    let project = Config {
        billing_project: Some("a\nb".to_owned()),
        ..Config::default()
    };
    for (config, why) in [
        (agent, InvalidConfig::UserAgent),
        (project, InvalidConfig::BillingProject),
    ] {
        let refused = JsonStore::new(&http, bucket.clone(), config);
        assert_eq!(refused.unwrap_err(), why);
    }
}
