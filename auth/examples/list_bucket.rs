//! The broker alone: lists a bucket with the identity of a projected token, and with no file system,
//! no storage client, no library of Google's and no metadata server in it.
//!
//! To run it against the emulator of this project, from the root of the workspace:
//!
//! ```sh
//! cargo run -- emulator --bucket demo &        # on http://127.0.0.1:9000; `kill %1` stops it
//! E=http://127.0.0.1:9000
//! curl -s $E/_emulator/tokens -d '{"namespace": "ns", "service_account": "sa"}' |
//!     sed 's/.*"token": *"\([^"]*\)".*/\1/' > /tmp/subject-token
//! cargo run -p gcsmount-auth --example list_bucket -- demo /tmp/subject-token $E $E
//! ```
//!
//! In a pod of GKE the first two arguments are enough.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use bytes::Bytes;
use gcsmount_auth::http::header::AUTHORIZATION;
use gcsmount_auth::http::{Request, StatusCode};
use gcsmount_auth::{AccessToken, Broker, BrokerConfig, Endpoint, FileSource};
use http_body_util::{BodyExt, Empty};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

type Http = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bucket, token_file, rest @ ..] = arguments.as_slice() else {
        return Err("usage: list_bucket BUCKET TOKEN_FILE [STS_URL [STORAGE_URL]]".into());
    };
    let source = Arc::new(FileSource::new(token_file));
    let mut config = BrokerConfig::new(source);
    if let Some(sts) = rest.first() {
        config.sts = Endpoint::parse(sts)?;
    }
    let storage = rest
        .get(1)
        .map_or("https://storage.googleapis.com", String::as_str);

    let broker = Broker::spawn(config)?;
    let url = format!("{storage}/storage/v1/b/{bucket}/o?fields=items(name,size)");
    let listing = get(&http()?, &broker, &url).await?;
    println!("{}", String::from_utf8_lossy(&listing));
    let principal = broker.status().identity.principal;
    eprintln!("listed as {}", principal.unwrap_or_default());
    Ok(())
}

fn http() -> Result<Http, Box<dyn Error>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = rustls::ClientConfig::builder()
        .with_native_roots()?
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Asks once, and once more with another token should the first be rejected.
async fn get(http: &Http, broker: &Broker, url: &str) -> Result<Bytes, Box<dyn Error>> {
    let token = broker.token().await?;
    let (status, body) = send(http, url, &token).await?;
    if status != StatusCode::UNAUTHORIZED {
        return told(status, body);
    }
    let other = broker.replacement(token.tag()).await?;
    let (status, body) = send(http, url, &other).await?;
    told(status, body)
}

async fn send(
    http: &Http,
    url: &str,
    token: &AccessToken,
) -> Result<(StatusCode, Bytes), Box<dyn Error>> {
    let request = Request::get(url).header(AUTHORIZATION, token.header());
    let response = http.request(request.body(Empty::new())?).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

fn told(status: StatusCode, body: Bytes) -> Result<Bytes, Box<dyn Error>> {
    match status.is_success() {
        true => Ok(body),
        false => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
    }
}
