//! The broker alone: lists a bucket with the identity of a projected token, and with no file system,
//! no storage client and no metadata server in it. Against the emulator of this project:
//!
//! ```sh
//! gcsmount emulator --listen 127.0.0.1:9000 --bucket demo
//! list_bucket demo TOKEN_FILE http://127.0.0.1:9000 http://127.0.0.1:9000
//! ```

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use gcsmount_auth::{Broker, BrokerConfig, Endpoint, FileSource};
use google_cloud_auth::credentials::{CacheableResource, Credentials, EntityTag};
use http::{Extensions, HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

type Http = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
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
    let listing = get(&http()?, &broker.credentials(), &url).await?;
    println!("{}", String::from_utf8_lossy(&listing));
    eprintln!("listed as {:?}", broker.status().identity);
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

/// Asks once, and once more with another token should this one be rejected.
async fn get(http: &Http, credentials: &Credentials, url: &str) -> Result<Bytes, Box<dyn Error>> {
    let (tag, headers) = headers(credentials, Extensions::new()).await?;
    let (status, body) = send(http, url, headers).await?;
    if status != StatusCode::UNAUTHORIZED {
        return told(status, body);
    }
    let mut rejected = Extensions::new();
    rejected.insert(tag);
    rejected.insert(status);
    let (_, headers) = self::headers(credentials, rejected).await?;
    let (status, body) = send(http, url, headers).await?;
    told(status, body)
}

async fn headers(
    credentials: &Credentials,
    extensions: Extensions,
) -> Result<(EntityTag, HeaderMap), Box<dyn Error>> {
    match credentials.headers(extensions).await? {
        CacheableResource::New { entity_tag, data } => Ok((entity_tag, data)),
        CacheableResource::NotModified => Err("no tag was given that could be right".into()),
    }
}

async fn send(
    http: &Http,
    url: &str,
    headers: HeaderMap,
) -> Result<(StatusCode, Bytes), Box<dyn Error>> {
    let mut request = Request::get(url).body(Empty::new())?;
    request.headers_mut().extend(headers);
    let response = http.request(request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}

fn told(status: StatusCode, body: Bytes) -> Result<Bytes, Box<dyn Error>> {
    match status.is_success() {
        true => Ok(body),
        false => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
    }
}
