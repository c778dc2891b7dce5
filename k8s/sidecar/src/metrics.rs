//! `metrics.sock`: where the node driver asks for a volume's metrics. HTTP/1.1; any path is answered with the text of the
//! volume's session. The driver asks seldom and in turn, so one connection is served at a time, each for one request, and
//! one that is slow has the others wait no longer than its deadlines.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use gcsmount_k8s_contract::layout::Volume;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::directory::{Opened, remove};
use crate::mounter::Session;

/// How long a request may take to come; and how long its answer may take, the text included.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a connection that could not be taken, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_secs(1);
/// The driver is root, which no mode keeps out.
const MODE: u32 = 0o600;
/// The longest head of a request, in bytes; the least that hyper takes.
const LONGEST_HEAD: usize = 8 << 10;
/// The text format of Prometheus, version 0.0.4.
const EXPOSITION: &str = "text/plain; version=0.0.4";

/// A socket that serves until this is dropped.
#[derive(Debug)]
pub(crate) struct MetricsSocket {
    volume: Volume,
    task: JoinHandle<()>,
}

impl MetricsSocket {
    /// Makes the socket and serves on the current runtime. One that a dead process left is replaced in one step.
    pub(crate) fn serve(volume: Volume, session: Arc<dyn Session>) -> io::Result<Self> {
        let listener = bind(&volume)?;
        let task = tokio::spawn(accept(listener, session));
        Ok(Self { volume, task })
    }
}

impl Drop for MetricsSocket {
    fn drop(&mut self) {
        self.task.abort();
        let path = self.volume.metrics_socket();
        if let Err(error) = remove(&path) {
            let path = path.display();
            tracing::warn!(%path, %error, "the metrics' socket stays behind");
        }
    }
}

/// A socket that is ready before it has its name.
fn bind(volume: &Volume) -> io::Result<UnixListener> {
    let directory = Opened::of(volume)?;
    let path = directory.reach(&volume.metrics_socket())?;
    let unready = path.with_extension("new");
    remove(&unready)?;
    let listener = UnixListener::bind(&unready)?;
    std::fs::set_permissions(&unready, Permissions::from_mode(MODE))?;
    std::fs::rename(unready, path)?;
    Ok(listener)
}

async fn accept(listener: UnixListener, session: Arc<dyn Session>) {
    let writer = Writer {
        session,
        free: Arc::new(Semaphore::new(1)),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => writer.attend(stream).await,
            Err(error) => {
                tracing::warn!(%error, "the driver's question for metrics cannot be taken");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers with what the session writes.
#[derive(Clone)]
struct Writer {
    session: Arc<dyn Session>,
    /// Has no permit while the session writes: one that hangs takes one thread, and not one more with each question.
    free: Arc<Semaphore>,
}

impl Writer {
    async fn attend(&self, stream: UnixStream) {
        let service = service_fn(|request: Request<Incoming>| {
            let writer = self.clone();
            async move { Ok::<_, Infallible>(writer.answer(request.method()).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .keep_alive(false)
            .max_buf_size(LONGEST_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        match timeout(PATIENCE * 2, connection).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "whoever asked for metrics did not take them");
            }
            Err(_) => tracing::debug!("whoever asked for metrics did not take them in time"),
        }
    }

    async fn answer(&self, method: &Method) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "metrics are only read");
            let allowed = hyper::header::HeaderValue::from_static("GET, HEAD");
            refusal.headers_mut().insert(ALLOW, allowed);
            return refusal;
        }
        match self.exposition().await {
            Ok(metrics) => text(StatusCode::OK, metrics),
            Err(why) => {
                tracing::warn!("the driver gets no metrics: {why}");
                text(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
        }
    }

    async fn exposition(&self) -> Result<String, &'static str> {
        let free = Arc::clone(&self.free).try_acquire_owned();
        let permit =
            free.map_err(|_| "the metrics are still being written for an earlier question")?;
        let session = Arc::clone(&self.session);
        let written = spawn_blocking(move || {
            let metrics = session.metrics();
            drop(permit);
            metrics
        });
        timeout(PATIENCE, written)
            .await
            .map_err(|_| "the metrics were not written in time")?
            .map_err(|_| "writing the metrics broke off; the log has more")?
            .ok_or("the volume has no metrics any more")
    }
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(EXPOSITION);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests;
