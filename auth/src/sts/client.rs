//! Carries one form to a token service and its answer back: one pooled HTTP/1.1 client, a deadline
//! for the connection and one for the whole, a bound on the size of the answer. One attempt; a
//! redirect is not followed, since the subject token would go with it.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::uri::Scheme;
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use zeroize::Zeroizing;

use super::answer::{Answer, retry_after};
use super::lookup::{Failed, Lookup};
use super::{Endpoint, request};
use crate::error::{Error, Kind, Reach};

/// Larger than any answer: STS documents tokens of up to 12 KB.
const LARGEST_ANSWER: usize = 1 << 20;

/// Exchanges are minutes apart, and a connection that has idled that long may be dead without
/// either end knowing. It is kept for the attempts of one bad minute only.
const IDLE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Client {
    pool: Pool<HttpsConnector<HttpConnector<Lookup>>, Full<Bytes>>,
    endpoint: Endpoint,
    total: Duration,
}

impl Client {
    /// A client for one endpoint. Nothing is connected yet.
    pub(crate) fn new(
        endpoint: Endpoint,
        connect: Duration,
        total: Duration,
    ) -> Result<Self, Error> {
        let mut http = HttpConnector::new_with_resolver(Lookup);
        http.enforce_http(false);
        http.set_connect_timeout(Some(connect));
        http.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(&endpoint)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self {
            pool,
            endpoint,
            total,
        })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Posts a form and reads the answer to its end.
    pub(crate) async fn post(&self, form: Bytes) -> Result<Answer, Error> {
        tokio::time::timeout(self.total, self.converse(form))
            .await
            .unwrap_or_else(|_| {
                Err(Error::new(
                    Kind::Timeout,
                    format!(
                        "the token service at {} gave no answer within {} s",
                        self.endpoint.host(),
                        self.total.as_secs_f32()
                    ),
                ))
            })
    }

    async fn converse(&self, form: Bytes) -> Result<Answer, Error> {
        let mut request = Request::new(Full::new(form));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.uri().clone();
        let headers = request.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static(request::CONTENT_TYPE),
        );
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("gcsmount/", env!("CARGO_PKG_VERSION"))),
        );
        let response = self
            .pool
            .request(request)
            .await
            .map_err(|error| self.unreachable(&error))?;
        let (head, body) = response.into_parts();
        Ok(Answer {
            status: head.status,
            retry_after: retry_after(&head.headers, SystemTime::now()),
            body: self.collect(body).await?,
        })
    }

    /// The body in one piece of memory that is ours to zero. The pieces are gathered first and
    /// copied once: a buffer that grows leaves copies behind.
    async fn collect(&self, body: Incoming) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut body = Limited::new(body, LARGEST_ANSWER);
        let mut pieces: Vec<Bytes> = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                let host = self.endpoint.host();
                Error::new(
                    Kind::BadAnswer,
                    format!("the answer of the token service at {host} broke off or has no end"),
                )
            })?;
            pieces.extend(frame.into_data());
        }
        Ok(Zeroizing::new(pieces.concat()))
    }

    fn unreachable(&self, error: &(dyn StdError + 'static)) -> Error {
        let host = self
            .endpoint
            .uri()
            .authority()
            .map_or("", |authority| authority.as_str());
        let told = |kind, why: String| {
            Error::new(
                kind,
                format!("the token service at {host} cannot be reached: {why}"),
            )
        };
        for cause in causes(error) {
            if let Some(failed) = cause.downcast_ref::<Failed>() {
                let reach = match failed {
                    Failed::NoSuchName => Reach::UnknownHost,
                    Failed::NoAnswer => Reach::NameService,
                };
                return told(Kind::Unreachable(reach), failed.to_string());
            }
            if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
                return told(Kind::Unreachable(Reach::Tls), tls.to_string());
            }
            if let Some(io) = cause.downcast_ref::<io::Error>()
                && io.get_ref().is_none()
            {
                return match io.kind() {
                    io::ErrorKind::TimedOut => told(Kind::Timeout, io.to_string()),
                    _ => told(Kind::Unreachable(Reach::Network), io.to_string()),
                };
            }
        }
        if timed_out(error) {
            return told(Kind::Timeout, "the connection took too long".to_owned());
        }
        let spoke = causes(error).any(|cause| {
            cause
                .downcast_ref::<hyper::Error>()
                .is_some_and(hyper::Error::is_parse)
        });
        match spoke {
            true => Error::new(
                Kind::BadAnswer,
                format!("what answers at {host} is no HTTP server: is --sts-endpoint right?"),
            ),
            false => told(
                Kind::Unreachable(Reach::Network),
                "the connection broke".to_owned(),
            ),
        }
    }
}

/// The error and what caused it, through the boxes of [`io::Error`] too, which its own `source`
/// steps over.
fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&cause| {
        match cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner as &(dyn StdError + 'static)),
            None => cause.source(),
        }
    })
}

fn timed_out(error: &(dyn StdError + 'static)) -> bool {
    causes(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|io| io.kind() == io::ErrorKind::TimedOut)
}

/// TLS with the certificates that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` are
/// obeyed). An `http` endpoint needs none, so that an image without certificates can use one.
fn tls(endpoint: &Endpoint) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(Kind::Internal, format!("TLS cannot be set up: {error}")))?;
    let builder = match endpoint.uri().scheme() == Some(&Scheme::HTTPS) {
        true => builder.with_native_roots().map_err(|error| {
            Error::new(
                Kind::Config,
                format!(
                    "no certificate authority is known to this system ({error}): install \
                     ca-certificates or set SSL_CERT_FILE"
                ),
            )
        })?,
        false => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}
