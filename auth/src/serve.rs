//! The token socket: access tokens for other processes of this machine, such as a stock gcsfuse
//! with `--token-url`. HTTP/1.1 on a unix socket; who may ask is decided by the uid that the kernel
//! reports (`SO_PEERCRED` in `unix(7)`), and the mode of the file is a second lock. Whoever is slow
//! or stuck has a deadline and a bounded share, and what it holds idly goes to those who ask.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::broker::Broker;
use crate::error::Error;

mod connections;
mod place;
mod reply;
mod server;
mod stream;

use place::Place;
pub use server::SocketStatus;
use server::{Counters, Server};

/// Which broker answers which path of a URL.
///
/// ```no_run
/// # async fn example() -> Result<(), gcsmount_auth::Error> {
/// use std::collections::BTreeMap;
/// use std::sync::Arc;
///
/// use gcsmount_auth::{Broker, BrokerConfig, FileSource, Routes, SocketConfig, TokenSocket};
///
/// let mut routes = BTreeMap::new();
/// for volume in ["/volume-1", "/volume-2"] {
///     let source = FileSource::new(format!("/tokens{volume}"));
///     let broker = Broker::spawn(BrokerConfig::new(Arc::new(source)))?;
///     routes.insert(volume.to_owned(), broker);
/// }
/// let config = SocketConfig::new("/run/gcsmount/token.sock", Routes::ByPath(routes));
/// // `curl --unix-socket /run/gcsmount/token.sock http://unix/volume-1`, or
/// // `--token-url unix:///run/gcsmount/token.sock#/volume-1`
/// let socket = TokenSocket::bind(config).await?;
/// # drop(socket);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum Routes {
    /// One identity, whatever the path.
    Any(Broker),
    /// One identity a path, such as `/` or `/volume-1`. Another path is answered 404: a client that
    /// spells it wrong gets no identity rather than another one. Each may have an equal share of three
    /// quarters of the places wait for its token, so that one whose service hangs does not hold up
    /// the others; beyond it, 503 after a moment.
    ByPath(BTreeMap<String, Broker>),
}

/// What a token socket is told at its start.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Where the socket appears. May be longer than an address of a unix socket.
    pub path: PathBuf,
    /// Who answers what.
    pub routes: Routes,
    /// Who may ask, and nobody else.
    pub uids: Vec<u32>,
    /// The mode of the socket file. To connect takes the right to write; a wider mode than 0600 is
    /// for other uids of the list, and the list keeps out the rest.
    pub mode: u32,
    /// Connections at a time. With all of them busy, the kernel's queue holds the others; an idle
    /// one gives way, and while one waits each answer is the last on its connection.
    pub connections: usize,
    /// How long a client may take to send a request, and a connection may be idle.
    pub idle: Duration,
    /// How long a connection lives; after it the client opens another one.
    pub lifetime: Duration,
    /// How long a request that runs may go on when its connection is to end.
    pub grace: Duration,
}

impl SocketConfig {
    /// A socket for this process's own uid and root: mode 0600, 256 connections, 10 s for a request, ten
    /// minutes for a connection.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, routes: Routes) -> Self {
        Self {
            path: path.into(),
            routes,
            // Root reads the memory of any process; to refuse it would guard nothing.
            uids: vec![nix::unistd::geteuid().as_raw(), 0],
            mode: 0o600,
            connections: 256,
            idle: Duration::from_secs(10),
            lifetime: Duration::from_secs(600),
            grace: Duration::from_secs(20),
        }
    }
}

/// A token socket that serves. Dropped, it ends at once; [`stop`](Self::stop) lets requests finish.
#[derive(Debug)]
pub struct TokenSocket {
    /// Removes the file from the path, unless it is another one by now.
    place: Arc<Place>,
    stop: watch::Sender<bool>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl TokenSocket {
    /// Binds the socket and serves on the current tokio runtime. The path appears when the socket
    /// listens, so a client that sees it can connect. A socket that a dead process left is replaced
    /// in one step, and one that somebody removes while it serves is made anew within seconds.
    ///
    /// # Errors
    /// [`Kind::Config`](crate::Kind::Config) if another process serves at the path, something else
    /// than a socket is there, or the directory does not take one.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn bind(config: SocketConfig) -> Result<Self, Error> {
        let (place, listener) = place::bind(config.path.clone(), config.mode).await?;
        let place = Arc::new(place);
        let (stop, stopped) = watch::channel(false);
        let counters = Arc::new(Counters::default());
        let at = Arc::clone(&place);
        let server = Server::new(config, at, listener, stopped, Arc::clone(&counters));
        Ok(Self {
            place,
            stop,
            counters,
            task: tokio::spawn(server.run()),
        })
    }

    /// Where the socket is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// What there is to tell an operator.
    #[must_use]
    pub fn status(&self) -> SocketStatus {
        self.counters.status()
    }

    /// Takes the path away, answers what was asked, and ends: at the latest after the grace time.
    pub async fn stop(mut self) {
        self.place.remove();
        self.stop.send_replace(true);
        // An error is a panic in the task, whose connections ended with it.
        let _ = (&mut self.task).await;
    }
}

impl Drop for TokenSocket {
    fn drop(&mut self) {
        self.place.remove();
        self.task.abort();
    }
}
