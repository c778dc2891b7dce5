//! Listeners and connections. Ownership is a tree: the emulator owns one task a listener, which owns one task a
//! connection; dropping the emulator aborts them all.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::Admin;
use crate::config::Config;
use crate::patient::Patient;
use crate::service;
use crate::state::State;

/// How long requests that are being answered may go on after a shutdown was asked for.
const GRACE: Duration = Duration::from_millis(250);

/// How long a kept-alive connection may be idle, and how long a peer may take nothing of an answer.
const KEEP_ALIVE: Duration = Duration::from_secs(600);

/// A running emulator. Dropping it ends everything at once; [`Emulator::shutdown`] also waits for the end.
#[derive(Debug)]
pub struct Emulator {
    admin: Admin,
    addrs: Vec<SocketAddr>,
    stop: CancellationToken,
    listeners: JoinSet<()>,
}

impl Emulator {
    /// Binds the addresses of `config` and serves on them, on the current Tokio runtime.
    ///
    /// # Errors
    /// An address cannot be bound, or a bucket or service account has a name that is refused or occurs twice
    /// ([`io::ErrorKind::InvalidInput`]). The data directory is in use ([`io::ErrorKind::ResourceBusy`]), damaged
    /// ([`io::ErrorKind::InvalidData`]), or cannot be read or written.
    pub async fn start(config: Config) -> io::Result<Self> {
        let admin = Admin::new(Arc::new(State::new(&config)?));
        let kept = admin.state().store.buckets();
        let is_kept = |name: &String| kept.iter().any(|info| info.name.as_str() == name);
        for bucket in config.buckets.iter().filter(|name| !is_kept(name)) {
            let created = admin.create_bucket(bucket);
            created.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        }
        for account in &config.service_accounts {
            let created = admin.set_up(account);
            created.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        }
        Self::resume(&config.listen, admin).await
    }

    /// Serves what an earlier emulator served: buckets, objects, tokens, keys and counters are those of `admin`.
    /// Together with [`Self::shutdown`] it plays a service that is gone for a while.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub async fn resume(listen: &[SocketAddr], admin: Admin) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for addr in listen {
            sockets.push(TcpListener::bind(addr).await?);
        }
        let addrs = sockets
            .iter()
            .map(TcpListener::local_addr)
            .collect::<io::Result<Vec<_>>>()?;
        if addrs.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no address to listen on",
            ));
        }
        let stop = CancellationToken::new();
        let slots = Arc::new(Semaphore::new(admin.state().limits.max_connections));
        let mut listeners = JoinSet::new();
        for socket in sockets {
            let listener = Listener {
                state: Arc::clone(admin.state()),
                slots: Arc::clone(&slots),
                stop: stop.clone(),
            };
            listeners.spawn(listener.run(socket));
        }
        Ok(Self {
            admin,
            addrs,
            stop,
            listeners,
        })
    }

    /// `http://ADDRESS:PORT` of the first listener.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addrs[0])
    }

    /// The addresses listened on, in the order of the configuration.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The same powers as `/_emulator/`.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }

    /// Stops listening, gives requests in progress a quarter of a second, drops what is left and waits until every
    /// task has ended. The ports are free afterwards.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        while self.listeners.join_next().await.is_some() {}
    }
}

/// The task of one listening socket.
struct Listener {
    state: Arc<State>,
    slots: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Listener {
    async fn run(self, socket: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                (stream, slot) = self.accept(&socket) => {
                    self.state.tally.connected();
                    connections.spawn(serve(Arc::clone(&self.state), self.stop.clone(), stream, slot));
                }
            }
        }
        drop(socket);
        let ends = async { while connections.join_next().await.is_some() {} };
        if timeout(GRACE, ends).await.is_err() {
            connections.shutdown().await;
        }
    }

    /// The next connection, once there is a slot for it.
    async fn accept(&self, socket: &TcpListener) -> (TcpStream, Option<OwnedSemaphorePermit>) {
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        loop {
            match socket.accept().await {
                Ok((stream, _)) => return (stream, slot),
                // Out of descriptors, or a peer that went before it was accepted: neither ends the service.
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

async fn serve(
    state: Arc<State>,
    stop: CancellationToken,
    stream: TcpStream,
    _slot: Option<OwnedSemaphorePermit>,
) {
    // Without it an answer's last segment waits for the peer's delayed acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Ok(local) = stream.local_addr() else {
        return;
    };
    let service = service_fn(|request| service::answer(Arc::clone(&state), local, request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(KEEP_ALIVE)
        .serve_connection(TokioIo::new(Patient::new(stream, KEEP_ALIVE)), service);
    tokio::pin!(connection);
    // A connection's error is its peer's or a fault rule's doing; there is nobody here to tell.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
