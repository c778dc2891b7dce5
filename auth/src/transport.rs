//! Carries one HTTP request to a server and its answer back, over a connection of its own, straight or
//! through a proxy: a deadline for the connection and one for the whole, a bound on the size of the
//! answer. One attempt; a redirect is not followed, since the token in the request would go with it.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioExecutor;
use rustls::{CertificateError, ClientConfig, InvalidMessage};
use zeroize::Zeroizing;

use crate::error::{Error, Kind, Reach};

mod connect;
mod lookup;
mod proxy;
pub(crate) mod sun_path;
pub(crate) mod target;
#[cfg(test)]
mod through;
mod tls;
pub(crate) mod unix;

use connect::{Connector, ProxyFailed, ProxyFault};
use lookup::Failed;
use proxy::Route;

/// Larger than any answer: STS documents tokens of up to 12 KB.
const LARGEST_ANSWER: usize = 1 << 20;

/// One answer, read to its end.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Zeroizing<Vec<u8>>,
}

/// Who is asked, for the sentences about what went wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer<'a> {
    /// The beginning of the sentence, such as `the token service at sts.example`.
    pub(crate) name: &'a str,
    /// What an operator would look at, such as `--sts-endpoint`.
    pub(crate) setting: &'a str,
}

/// A client of one server. It keeps no connection: exchanges are minutes apart, one that idled that
/// long may be dead without either end knowing, and it would weigh more than all else of an identity.
#[derive(Clone, Debug)]
pub(crate) struct Transport {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    route: Arc<Route>,
    total: Duration,
}

impl Transport {
    /// A client of the server at `uri`, by the way that the environment says now. Nothing is
    /// connected yet.
    pub(crate) fn new(uri: &Uri, connect: Duration, total: Duration) -> Result<Self, Error> {
        let route = Route::of(&Matcher::from_env(), uri)?;
        let tls = tls::config(route.is_secure(uri))?;
        Ok(Self::along(route, tls, connect, total))
    }

    /// The same for one that is never behind a proxy, whatever its address is and the environment
    /// says.
    pub(crate) fn direct(uri: &Uri, connect: Duration, total: Duration) -> Result<Self, Error> {
        let tls = tls::config(Route::Direct.is_secure(uri))?;
        Ok(Self::along(Route::Direct, tls, connect, total))
    }

    fn along(route: Route, tls: Arc<ClientConfig>, connect: Duration, total: Duration) -> Self {
        let route = Arc::new(route);
        let connector = Connector::new(Arc::clone(&route), Arc::clone(&tls), connect);
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .retry_canceled_requests(false)
            .build(HttpsConnector::from((connector, tls)));
        Self {
            client,
            route,
            total,
        }
    }

    /// Sends a request and reads the answer to its end.
    pub(crate) async fn call(
        &self,
        request: Request<Full<Bytes>>,
        peer: Peer<'_>,
    ) -> Result<Answer, Error> {
        within(self.total, peer, self.converse(request, peer)).await
    }

    async fn converse(
        &self,
        mut request: Request<Full<Bytes>>,
        peer: Peer<'_>,
    ) -> Result<Answer, Error> {
        let forward = self.route.forward();
        if let Some((_, Some(authorization))) = forward {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| unreachable(&error, peer))?;
        let (head, body) = response.into_parts();
        if let Some((proxy, _)) = forward
            && head.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED
        {
            let failed = ProxyFailed::new(proxy, ProxyFault::Credentials);
            return Err(unreachable(&failed, peer));
        }
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: collect(body, peer).await?,
        })
    }
}

/// A request with what all of ours have in common.
pub(crate) fn request(method: Method, uri: Uri, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("gcsmount/", env!("CARGO_PKG_VERSION"))),
    );
    request
}

/// A form to be posted.
pub(crate) fn form(uri: Uri, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = request(Method::POST, uri, body);
    request.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );
    request
}

/// The outcome of a conversation, or that it had none in time.
pub(crate) async fn within(
    total: Duration,
    peer: Peer<'_>,
    conversation: impl Future<Output = Result<Answer, Error>>,
) -> Result<Answer, Error> {
    tokio::time::timeout(total, conversation)
        .await
        .unwrap_or_else(|_| {
            let message = format!(
                "{} gave no answer within {} s: is it up, and does {} name it?",
                peer.name,
                total.as_secs_f32(),
                peer.setting
            );
            Err(Error::new(Kind::Timeout, message))
        })
}

/// The body in one piece of memory that is ours to zero. The pieces are gathered first and copied
/// once: a buffer that grows leaves copies behind.
pub(crate) async fn collect(body: Incoming, peer: Peer<'_>) -> Result<Zeroizing<Vec<u8>>, Error> {
    let mut body = Limited::new(body, LARGEST_ANSWER);
    let mut pieces: Vec<Bytes> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            let message = format!(
                "the answer of {} broke off or has no end: is {} right, or a proxy between?",
                peer.name, peer.setting
            );
            Error::new(Kind::BadAnswer, message)
        })?;
        pieces.extend(frame.into_data());
    }
    Ok(Zeroizing::new(pieces.concat()))
}

/// The error that a request without an answer means.
pub(crate) fn unreachable(error: &(dyn StdError + 'static), peer: Peer<'_>) -> Error {
    let (kind, why) = diagnose(error, peer.setting);
    Error::new(kind, format!("{} {why}", peer.name))
}

/// Why a request got no answer: the first cause that says so, from the outside in.
fn diagnose(error: &(dyn StdError + 'static), setting: &str) -> (Kind, String) {
    causes(error)
        .find_map(|cause| known(cause, setting))
        .unwrap_or_else(|| {
            let why = "cannot be reached: the connection broke; is the service up?";
            (Kind::Unreachable(Reach::Network), why.to_owned())
        })
}

fn known(cause: &(dyn StdError + 'static), setting: &str) -> Option<(Kind, String)> {
    if let Some(failed) = cause.downcast_ref::<ProxyFailed>() {
        let (kind, why) = blocked(&failed.fault);
        let why = format!("cannot be reached: the proxy {} {why}", failed.proxy);
        return Some((kind, why));
    }
    if let Some(failed) = cause.downcast_ref::<Failed>() {
        return Some(match failed {
            Failed::NoSuchName => (
                Kind::Unreachable(Reach::UnknownHost),
                format!("cannot be reached: {failed}; check {setting}"),
            ),
            Failed::NoAnswer => (
                Kind::Unreachable(Reach::NameService),
                format!("cannot be reached: {failed}; is the network up?"),
            ),
        });
    }
    if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
        return Some((Kind::Unreachable(Reach::Tls), untrusted(tls, setting)));
    }
    if cause
        .downcast_ref::<hyper::Error>()
        .is_some_and(hyper::Error::is_parse)
    {
        let why =
            format!("does not speak HTTP: is https:// or another port meant? check {setting}");
        return Some((Kind::BadAnswer, why));
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
            format!("cannot be reached: {io}; check {setting} and that the service is up"),
        )),
    }
}

/// Why there is no TLS.
fn untrusted(tls: &rustls::Error, setting: &str) -> String {
    match tls {
        // The first byte that came begins no record of TLS: a server of something else.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            format!("does not speak TLS there: is http:// or another port meant? check {setting}")
        }
        // Its own words are names of the library's.
        rustls::Error::InvalidCertificate(CertificateError::Other(_)) => format!(
            "cannot be trusted: its certificate is not one for a server, as a self-signed one may \
             be; check {setting}, or give it one that an authority in SSL_CERT_FILE has signed"
        ),
        _ => format!(
            "cannot be trusted: {tls}; check {setting}, or name its authority in SSL_CERT_FILE"
        ),
    }
}

/// What a proxy did instead of leading to a server.
fn blocked(fault: &ProxyFault) -> (Kind, String) {
    match fault {
        ProxyFault::Unreachable(cause) => diagnose(&**cause, proxy::VARIABLES),
        ProxyFault::Credentials => {
            let why = "wants a user name and a password, or others than it was given";
            let fix = format!("{why}: put them into its URL in {}", proxy::VARIABLES);
            (Kind::Config, fix)
        }
        ProxyFault::Unwilling(cause) => (
            Kind::Unreachable(Reach::Network),
            format!("does not lead there ({cause}): does it allow it? else except it in NO_PROXY"),
        ),
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

#[cfg(test)]
mod tests {
    use rustls::OtherError;

    use super::*;

    #[test]
    fn a_certificate_of_no_server_is_told_in_words() {
        let other = io::Error::other("CaUsedAsEndEntity");
        let other = CertificateError::Other(OtherError(Arc::new(other)));
        let tls = rustls::Error::InvalidCertificate(other);
        let (kind, why) = diagnose(&tls, "--url");
        assert_eq!(kind, Kind::Unreachable(Reach::Tls));
        assert!(
            why.contains("self-signed") && why.contains("--url"),
            "{why}"
        );
        assert!(!why.contains("Other") && !why.contains("CaUsed"), "{why}");
    }

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
            assert_eq!(diagnose(&error, "--url").0, kind, "{error:?}");
        }
    }
}
