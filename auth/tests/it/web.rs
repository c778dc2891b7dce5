//! A web server on a loopback port: a function answers, and what was asked is remembered.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    /// A field of the form that was posted.
    pub(crate) fn field(&self, name: &str) -> String {
        form_urlencoded::parse(self.body.as_bytes())
            .find(|(field, _)| field == name)
            .map(|(_, value)| value.into_owned())
            .unwrap_or_default()
    }
}

pub(crate) type Told = Response<Full<Bytes>>;

/// An answer with this status and body.
pub(crate) fn says(status: u16, body: &(impl ToString + ?Sized)) -> Told {
    Response::builder()
        .status(status)
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap()
}

#[derive(Debug)]
pub(crate) struct Web {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Web {
    pub(crate) async fn start(answer: impl Fn(&Seen) -> Told + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let answer = Arc::new(answer);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (record, answer) = (Arc::clone(&record), Arc::clone(&answer));
                connections.spawn(async move {
                    let service = service_fn(|request| look(request, &record, &*answer));
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self {
            address,
            seen,
            task,
        }
    }

    /// `http://…` with this path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn look(
    request: Request<Incoming>,
    record: &Mutex<Vec<Seen>>,
    answer: &(dyn Fn(&Seen) -> Told + Send + Sync),
) -> Result<Told, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let seen = Seen {
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    record.lock().unwrap().push(seen.clone());
    Ok(answer(&seen))
}
