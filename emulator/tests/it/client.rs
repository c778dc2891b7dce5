//! A bare HTTP client over hyper: one connection a request, nothing hidden.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use gcsmount_emulator::{Admin, Auth, Config, Emulator, MintRequest};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Nothing here takes long; what does is stuck.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) const BUCKET: &str = "bucket";

/// A request in the making.
pub(crate) struct Ask {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

pub(crate) fn ask(method: &str, path: impl Into<String>) -> Ask {
    Ask {
        method: method.parse().unwrap(),
        path: path.into(),
        headers: Vec::new(),
        body: Bytes::new(),
    }
}

impl Ask {
    pub(crate) fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    pub(crate) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(body.to_string())
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn code(&self) -> u16 {
        self.status.as_u16()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn reason(&self) -> String {
        self.json()["error"]["errors"][0]["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The answer, if it has the status that is expected.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        self
    }
}

/// A running emulator and what its tests need of it.
pub(crate) struct Bench {
    pub(crate) emulator: Emulator,
}

impl Bench {
    /// No token needed, no mutation limit.
    pub(crate) async fn open() -> Self {
        Self::with(Config {
            auth: Auth::Off,
            mutation_limit: None,
            ..Config::default()
        })
        .await
    }

    /// With [`BUCKET`] in it.
    pub(crate) async fn with(config: Config) -> Self {
        let config = Config {
            buckets: vec![BUCKET.to_owned()],
            ..config
        };
        Self {
            emulator: Emulator::start(config).await.unwrap(),
        }
    }

    pub(crate) fn admin(&self) -> &Admin {
        self.emulator.admin()
    }

    /// The answer, or the error of a connection that gave none.
    pub(crate) async fn send(&self, ask: Ask) -> Result<Answer, hyper::Error> {
        self.send_to(self.emulator.local_addrs()[0], ask).await
    }

    /// As [`Self::send`], to one of the addresses.
    pub(crate) async fn send_to(&self, addr: SocketAddr, ask: Ask) -> Result<Answer, hyper::Error> {
        timeout(DEADLINE, Self::exchange(addr, ask))
            .await
            .expect("the answer is due")
    }

    async fn exchange(addr: SocketAddr, ask: Ask) -> Result<Answer, hyper::Error> {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(ask.method)
            .uri(ask.path)
            .header("host", addr.to_string());
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(ask.body)).unwrap();
        let answer = sender.send_request(request).await?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        connection.abort();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            body,
        })
    }

    /// Sends a request to `method` that a fault rule lets hang, and gives it up once it has met the rule.
    pub(crate) async fn hang(&self, ask: Ask, method: &str) {
        let seen = || self.admin().counters().of(method);
        let before = seen();
        let met = async {
            while seen() == before {
                tokio::task::yield_now().await;
            }
            // An answer would come now.
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        tokio::select! {
            answer = self.send(ask) => panic!("{answer:?}"),
            () = met => {}
        }
    }

    pub(crate) async fn answer(&self, ask: Ask) -> Answer {
        self.send(ask).await.expect("an answer")
    }

    /// Uploads an object in one request and returns its resource.
    pub(crate) async fn put(&self, name: &str, data: impl Into<Bytes>) -> Value {
        let ask = ask("POST", upload_path(name, "uploadType=media")).body(data);
        self.answer(ask).await.expect(200).json()
    }

    pub(crate) async fn stat(&self, name: &str) -> Answer {
        self.answer(ask("GET", object_path(name, ""))).await
    }

    pub(crate) async fn read(&self, name: &str) -> Answer {
        self.answer(ask("GET", object_path(name, "alt=media")))
            .await
    }

    /// An access token for a service account of the built-in cluster.
    pub(crate) async fn access_token(&self, namespace: &str, service_account: &str) -> String {
        let subject_token = self.admin().mint_token(&MintRequest {
            namespace: namespace.to_owned(),
            service_account: service_account.to_owned(),
            ..MintRequest::default()
        });
        let audience = self.admin().sts_audience();
        let answer = self
            .answer(exchange(&audience, &subject_token))
            .await
            .expect(200);
        answer.json()["access_token"].as_str().unwrap().to_owned()
    }
}

/// The path of an object with a query.
pub(crate) fn object_path(name: &str, query: &str) -> String {
    format!("/storage/v1/b/{BUCKET}/o/{}?{query}", encode(name))
}

pub(crate) fn upload_path(name: &str, query: &str) -> String {
    format!(
        "/upload/storage/v1/b/{BUCKET}/o?name={}&{query}",
        encode(name)
    )
}

pub(crate) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// The form of an exchange as RFC 8693 has it.
pub(crate) fn exchange_form<'a>(
    audience: &'a str,
    subject_token: &'a str,
) -> HashMap<&'a str, &'a str> {
    HashMap::from([
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        (
            "requested_token_type",
            "urn:ietf:params:oauth:token-type:access_token",
        ),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("scope", "https://www.googleapis.com/auth/cloud-platform"),
        ("audience", audience),
        ("subject_token", subject_token),
    ])
}

pub(crate) fn exchange(audience: &str, subject_token: &str) -> Ask {
    form(&exchange_form(audience, subject_token))
}

pub(crate) fn form(fields: &HashMap<&str, &str>) -> Ask {
    let body = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    ask("POST", "/v1/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body)
}

pub(crate) fn generation(resource: &Value) -> u64 {
    resource["generation"].as_str().unwrap().parse().unwrap()
}

pub(crate) fn names(list: &Value, key: &str) -> Vec<String> {
    let items = list[key].as_array().cloned().unwrap_or_default();
    let name = |item: &Value| item.as_str().or(item["name"].as_str()).unwrap().to_owned();
    items.iter().map(name).collect()
}
