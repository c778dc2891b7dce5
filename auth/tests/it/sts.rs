//! A token service on a loopback port that answers by script and remembers what it was sent.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use gcsmount_auth::Endpoint;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the service does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// `ya29.granted-token-number-N`, for so many seconds.
    Grant(u64),
    Status(u16, String, Vec<(&'static str, &'static str)>),
    /// A 400 whose description repeats the subject token.
    Echo,
    Hang,
    /// These bytes and a closed connection, without HTTP.
    Raw(&'static [u8]),
}

#[derive(Debug)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    forms: Mutex<Vec<HashMap<String, String>>>,
}

/// The service. With it, its task and all connections end.
#[derive(Debug)]
pub(crate) struct Sts {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Sts {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Sts {
    pub(crate) async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(script.into_iter().collect()),
            forms: Mutex::default(),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            task,
        }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&format!("http://{}", self.address)).unwrap()
    }

    /// The forms that were posted so far.
    pub(crate) fn forms(&self) -> Vec<HashMap<String, String>> {
        self.shared.forms.lock().unwrap().clone()
    }
}

/// A token that is granted, to look for where it must not be.
pub(crate) fn granted(number: usize) -> String {
    format!("ya29.granted-token-number-{number}")
}

/// A JWT with these claims and a signature to look for.
pub(crate) fn jwt(claims: &Value) -> String {
    let encode = |part: &str| URL_SAFE_NO_PAD.encode(part);
    let header = encode(r#"{"alg":"RS256","kid":"0123456789abcdef"}"#);
    format!(
        "{header}.{}.{}",
        encode(&claims.to_string()),
        encode("signature of a subject token")
    )
}

/// What kubelet projects on GKE.
pub(crate) fn gke_claims() -> Value {
    json!({
        "aud": ["demo.svc.id.goog"],
        "iss": "https://container.googleapis.com/v1/projects/demo/locations/l/clusters/c",
        "sub": "system:serviceaccount:ns:ksa",
        "exp": 4_000_000_000_u64,
    })
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(stream, Arc::clone(&shared)));
    }
}

async fn converse(mut stream: TcpStream, shared: Arc<Shared>) {
    let raw = match shared.script.lock().unwrap().front() {
        Some(Reply::Raw(bytes)) => Some(*bytes),
        _ => None,
    };
    if let Some(bytes) = raw {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(bytes).await;
        return;
    }
    let service = service_fn(|request| answer(request, &shared));
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(
        (request.method().as_str(), request.uri().path()),
        ("POST", "/v1/token")
    );
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let form: HashMap<_, _> = form_urlencoded::parse(&body).into_owned().collect();
    let subject = form.get("subject_token").cloned().unwrap_or_default();
    let number = {
        let mut forms = shared.forms.lock().unwrap();
        forms.push(form);
        forms.len()
    };
    let reply = {
        let mut script = shared.script.lock().unwrap();
        if script.len() > 1 {
            script.pop_front().unwrap()
        } else {
            script[0].clone()
        }
    };
    let (status, body, headers) = match reply {
        Reply::Grant(seconds) => {
            let grant = json!({
                "access_token": granted(number),
                "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
                "token_type": "Bearer",
                "expires_in": seconds,
            });
            (200, grant.to_string(), Vec::new())
        }
        Reply::Status(status, body, headers) => (status, body, headers),
        Reply::Echo => {
            let echo =
                json!({"error": "invalid_grant", "error_description": format!("bad {subject}")});
            (400, echo.to_string(), Vec::new())
        }
        Reply::Hang => pending().await,
        Reply::Raw(_) => unreachable!("answered before HTTP"),
    };
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::new(Bytes::from(body))).unwrap())
}
