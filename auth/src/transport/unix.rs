//! Requests to a server on a unix socket, each over a connection of its own: they are minutes apart,
//! and one that was kept could have died meanwhile.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use hyperlocal::UnixConnector;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::sun_path::{Address, NotASocket};
use super::{Answer, Peer, causes, collect, request, unreachable, within};
use crate::error::{Error, Kind, Reach, SourceFault};

/// A client of the server on one socket.
#[derive(Clone)]
pub(crate) struct Socket {
    path: PathBuf,
    client: Client<UnixConnector, Full<Bytes>>,
    total: Duration,
    /// Held by the one look at the path that runs. One that hangs (a dead network file system)
    /// outlives the deadline of its caller; those after it wait here instead of filling the thread
    /// pool.
    looking: Arc<Semaphore>,
}

impl Socket {
    /// A client of the socket at `path`, which need not exist yet; a request may take `total`.
    pub(crate) fn new(path: PathBuf, total: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .retry_canceled_requests(false)
            .build(UnixConnector);
        Self {
            path,
            client,
            total,
            looking: Arc::new(Semaphore::new(1)),
        }
    }

    /// Gets `target` and reads the answer to its end.
    pub(crate) async fn get(&self, target: &PathAndQuery, peer: Peer<'_>) -> Result<Answer, Error> {
        within(self.total, peer, self.converse(target, peer)).await
    }

    async fn converse(&self, target: &PathAndQuery, peer: Peer<'_>) -> Result<Answer, Error> {
        // Held until the answer is read: the connection goes through what it has opened.
        let address = self.address().await.map_err(|error| no_way(&error, peer))?;
        let uri = uri(address.path(), target)
            .ok_or_else(|| Error::new(Kind::Internal, "the address of a socket makes no URL"))?;
        let mut request = request(Method::GET, uri, Bytes::new());
        request
            .headers_mut()
            .insert(HOST, HeaderValue::from_static("unix"));
        let response = self.client.request(request).await.map_err(|error| {
            let io = causes(&error).find_map(|cause| cause.downcast_ref::<io::Error>());
            match io.filter(|_| error.is_connect()) {
                Some(io) => no_way(io, peer),
                None => unreachable(&error, peer),
            }
        })?;
        let (head, body) = response.into_parts();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body: collect(body, peer).await?,
        })
    }

    async fn address(&self) -> io::Result<Address> {
        let alone = Arc::clone(&self.looking).acquire_owned().await;
        let path = self.path.clone();
        let looking = spawn_blocking(move || {
            let _alone = alone;
            Address::of_present(&path)
        });
        looking.await.map_err(io::Error::other)?
    }
}

/// The URL of `target` at the socket, as the connector wants it. Put together from its parts: the
/// connector's own way panics where the two are too long for one.
fn uri(socket: &Path, target: &PathAndQuery) -> Option<Uri> {
    let mut parts = Uri::from(hyperlocal::Uri::new(socket, "/")).into_parts();
    parts.path_and_query = Some(target.clone());
    Uri::from_parts(parts).ok()
}

fn is_no_socket(error: &io::Error) -> bool {
    error
        .get_ref()
        .and_then(<dyn StdError + Send + Sync>::downcast_ref::<NotASocket>)
        .is_some()
}

fn no_way(error: &io::Error, peer: Peer<'_>) -> Error {
    let (kind, why) = match error.kind() {
        io::ErrorKind::NotFound => (
            Kind::Unreachable(Reach::Network),
            "there is no socket; is its server up?".to_owned(),
        ),
        io::ErrorKind::PermissionDenied => (
            Kind::Source(SourceFault::Unreadable),
            format!("uid {} may not connect", nix::unistd::geteuid()),
        ),
        io::ErrorKind::ConnectionRefused => (
            Kind::Unreachable(Reach::Network),
            "nobody listens at its socket; is its server up?".to_owned(),
        ),
        _ if is_no_socket(error) => (Kind::Config, format!("{error}; check {}", peer.setting)),
        _ => (
            Kind::Unreachable(Reach::Network),
            format!("{error}; is its server up?"),
        ),
    };
    Error::new(kind, format!("{} cannot be reached: {why}", peer.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_look_at_the_path_that_hangs_holds_back_those_after_it() {
        let socket = Socket::new("/no/such/socket".into(), Duration::from_secs(5));
        let peer = Peer {
            name: "it",
            setting: "--token-url",
        };
        let target = PathAndQuery::from_static("/");
        let hung = Arc::clone(&socket.looking).acquire_owned().await.unwrap();
        let kind = |outcome: Result<Answer, Error>| outcome.err().map(|error| error.kind());
        let second = socket.get(&target, peer).await;
        assert_eq!(kind(second), Some(Kind::Timeout));
        drop(hung);
        let third = socket.get(&target, peer).await;
        assert_eq!(kind(third), Some(Kind::Unreachable(Reach::Network)));
    }

    #[test]
    fn each_cause_has_its_sentence() {
        let network = Kind::Unreachable(Reach::Network);
        let unreadable = Kind::Source(SourceFault::Unreadable);
        let of = |kind: io::ErrorKind| io::Error::from(kind);
        for (error, kind, part) in [
            (of(io::ErrorKind::NotFound), network, "there is no socket"),
            (of(io::ErrorKind::PermissionDenied), unreadable, "uid "),
            (
                of(io::ErrorKind::ConnectionRefused),
                network,
                "nobody listens",
            ),
            (
                io::Error::other(NotASocket),
                Kind::Config,
                "check --token-url",
            ),
            (io::Error::other("else"), network, "else; is its server up?"),
        ] {
            let peer = Peer {
                name: "the token server at unix:///s",
                setting: "--token-url",
            };
            let told = no_way(&error, peer);
            assert_eq!(told.kind(), kind, "{error}");
            let begin = "the token server at unix:///s cannot be reached: ";
            assert!(
                told.message().starts_with(begin) && told.message().contains(part),
                "{told}"
            );
        }
    }
}
