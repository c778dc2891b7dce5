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
        let (kind, why) = diagnose(error);
        Error::new(kind, format!("the token service at {host} {why}"))
    }
}

/// Why a request got no answer: the first cause that says so, from the outside in.
fn diagnose(error: &(dyn StdError + 'static)) -> (Kind, String) {
    causes(error).find_map(known).unwrap_or_else(|| {
        let why = "cannot be reached: the connection broke; is the service up?";
        (Kind::Unreachable(Reach::Network), why.to_owned())
    })
}

fn known(cause: &(dyn StdError + 'static)) -> Option<(Kind, String)> {
    if let Some(failed) = cause.downcast_ref::<Failed>() {
        return Some(match failed {
            Failed::NoSuchName => (
                Kind::Unreachable(Reach::UnknownHost),
                format!("cannot be reached: {failed}; check --sts-endpoint"),
            ),
            Failed::NoAnswer => (
                Kind::Unreachable(Reach::NameService),
                format!("cannot be reached: {failed}; is the network up?"),
            ),
        });
    }
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        let why = format!(
            "cannot be trusted: {tls}; check --sts-endpoint, or name its authority in SSL_CERT_FILE"
        );
        return Some((Kind::Unreachable(Reach::Tls), why));
    }
    if cause
        .downcast_ref::<hyper::Error>()
        .is_some_and(hyper::Error::is_parse)
    {
        let why = "does not speak HTTP: is --sts-endpoint right?";
        return Some((Kind::BadAnswer, why.to_owned()));
    }
    let io = cause.downcast_ref::<io::Error>()?;
    match io.kind() {
        io::ErrorKind::TimedOut => {
            let why = "cannot be reached: no connection in time; is a firewall between?";
            Some((Kind::Timeout, why.to_owned()))
        }
        // A box around another error: the one inside knows more.
        _ if io.get_ref().is_some() => None,
        _ => Some((
            Kind::Unreachable(Reach::Network),
            format!("cannot be reached: {io}; check --sts-endpoint and that the service is up"),
        )),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_found_in_boxes_of_boxes() {
        let boxed =
            |inner: Box<dyn StdError + Send + Sync>| io::Error::other(io::Error::other(inner));
        let network = Kind::Unreachable(Reach::Network);
        for (error, kind) in [
            (
                boxed(Box::new(Failed::NoSuchName)),
                Kind::Unreachable(Reach::UnknownHost),
            ),
            (
                boxed(Box::new(Failed::NoAnswer)),
                Kind::Unreachable(Reach::NameService),
            ),
            (
                boxed(Box::new(rustls::Error::DecryptError)),
                Kind::Unreachable(Reach::Tls),
            ),
            (
                boxed(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused))),
                network,
            ),
            (
                io::Error::new(io::ErrorKind::TimedOut, "elapsed"),
                Kind::Timeout,
            ),
            (io::Error::from(io::ErrorKind::TimedOut), Kind::Timeout),
            (boxed("something new".into()), network),
        ] {
            assert_eq!(diagnose(&error).0, kind, "{error:?}");
        }
    }
}
