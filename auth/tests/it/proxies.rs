//! Proxies that the environment names. Each case is a child process, since the variables are the
//! process's. The proxy is a web server that answers for any host.

use std::time::Duration;

use gcsmount_auth::{Exchange, FromUrl, Metadata, Timeouts, TokenUrl, Whose};
use http::HeaderValue;
use serde_json::json;

use crate::web::{Web, says};

/// What a child prints before what it found.
const FOUND: &str = "found: ";

const CHOSEN: &str = "GCSMOUNT_TEST_EXCHANGE";

/// A label of 64 characters is no host name: only a proxy can make something of it.
fn nowhere() -> String {
    format!("{}.test", "x".repeat(64))
}

/// The child: gets a token in the way that it is told.
#[tokio::test]
#[ignore = "a part of the others, which set its environment"]
async fn child() {
    let host = nowhere();
    let timeouts = Timeouts::default();
    let exchange: Box<dyn Exchange> = match &*std::env::var(CHOSEN).unwrap() {
        "metadata" => {
            Box::new(Metadata::new(&host, Whose::Node, "s".to_owned(), timeouts).unwrap())
        }
        path => {
            let url = TokenUrl::parse(&format!("http://{host}{path}")).unwrap();
            Box::new(FromUrl::new(url, timeouts).unwrap())
        }
    };
    match exchange.exchange().await {
        Ok(grant) => println!("{FOUND}{}", grant.token.expose()),
        Err(error) => println!("{FOUND}{error}"),
    }
}

/// What a child finds with these variables and none of its parent's.
async fn found(exchange: &str, variables: &[(&str, &str)]) -> String {
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "proxies::child", "--ignored", "--nocapture"])
        .env_clear()
        .env(CHOSEN, exchange)
        .envs(variables.iter().copied())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(60), child).await;
    let output = String::from_utf8(output.unwrap().unwrap().stdout).unwrap();
    let (_, found) = output.split_once(FOUND).expect(&output);
    found.lines().next().unwrap().to_owned()
}

async fn proxy() -> Web {
    Web::start(|_| {
        let mut told = says(200, &json!({"access_token": "t", "expires_in": 77}));
        let flavor = HeaderValue::from_static("Google");
        told.headers_mut().insert("metadata-flavor", flavor);
        told
    })
    .await
}

#[tokio::test]
async fn tokens_come_through_the_proxy_that_the_environment_names() {
    let proxy = proxy().await;
    let (url, host) = (proxy.url(""), nowhere());
    for (number, variable) in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .into_iter()
        .enumerate()
    {
        assert_eq!(found("/token", &[(variable, &url)]).await, "t");
        let seen = proxy.seen();
        assert_eq!(seen.len(), number + 1, "{variable}");
        assert_eq!(seen[number].target, format!("http://{host}/token"));
    }
}

#[tokio::test]
async fn what_is_excepted_is_asked_straight_and_a_metadata_server_always() {
    let proxy = proxy().await;
    let (url, host) = (proxy.url(""), nowhere());
    for (exchange, variables) in [
        ("/token", vec![("HTTPS_PROXY", &*url)]),
        ("/token", vec![("HTTP_PROXY", &*url), ("NO_PROXY", &*host)]),
        ("/token", vec![("ALL_PROXY", &*url), ("no_proxy", ".test")]),
        ("metadata", vec![("HTTP_PROXY", &*url)]),
        ("metadata", vec![("ALL_PROXY", &*url)]),
    ] {
        let error = found(exchange, &variables).await;
        assert!(error.contains("no such host name"), "{error}");
        assert_eq!(proxy.seen().len(), 0, "{variables:?}");
    }
}
