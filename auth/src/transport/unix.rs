//! One request to a server on a unix socket, over a connection of its own: these are minutes apart.

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{HOST, HeaderValue};
use http_body_util::Full;
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::{JoinSet, spawn_blocking};

use super::sun_path::{Address, split};
use super::{Answer, Peer, collect, unreachable, within};
use crate::error::{Error, Kind, Reach, SourceFault};

/// Sends `request` to the socket at `path` and reads the answer to its end, all within `total`.
pub(crate) async fn call(
    path: &Path,
    request: Request<Full<Bytes>>,
    total: Duration,
    peer: Peer<'_>,
) -> Result<Answer, Error> {
    within(total, peer, converse(path, request, peer)).await
}

async fn converse(
    path: &Path,
    mut request: Request<Full<Bytes>>,
    peer: Peer<'_>,
) -> Result<Answer, Error> {
    let stream = connect(path).await.map_err(|error| no_way(&error, peer))?;
    let (mut sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error, peer))?;
    // Ends with this future, however that ends.
    let mut background = JoinSet::new();
    background.spawn(connection);
    request
        .headers_mut()
        .insert(HOST, HeaderValue::from_static("unix"));
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| unreachable(&error, peer))?;
    let (head, body) = response.into_parts();
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body: collect(body, peer).await?,
    })
}

async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (directory, name) = split(path).ok_or(io::ErrorKind::InvalidInput)?;
    let (directory, name) = (directory.to_owned(), name.to_owned());
    let address = spawn_blocking(move || Address::of(&directory, &name))
        .await
        .map_err(io::Error::other)??;
    UnixStream::connect(address.path()).await
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
        io::ErrorKind::InvalidInput => (Kind::Config, format!("{error}")),
        _ => (
            Kind::Unreachable(Reach::Network),
            format!("{error}; is its server up?"),
        ),
    };
    Error::new(kind, format!("{} cannot be reached: {why}", peer.name))
}
