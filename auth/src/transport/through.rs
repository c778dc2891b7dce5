//! Requests through proxies on loopback, which lead every name to one server.

use std::sync::Mutex;
use std::time::Duration;

use http::Method;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, RootCertStore, ServerConfig, crypto::ring};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::*;

const SECURE: &str = "https://sts.test/token";
const PLAIN: &str = "http://sts.test/token";

/// `u:s3cret`, as a proxy is told.
const BASIC: &str = "Basic dTpzM2NyZXQ=";

const PEER: Peer<'static> = Peer {
    name: "the token service at sts.test",
    setting: "--sts-endpoint",
};

/// Serves one connection after the other with `serve`, and is gone with the test.
struct Server {
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                serve(stream).await;
            }
        });
        Self { port, task }
    }
}

/// What was seen, in order.
type Seen<T> = Arc<Mutex<Vec<T>>>;

/// The head of a request.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// The first line of a head, and what it tells the proxy.
fn told(head: &str) -> String {
    let line = head.lines().next().unwrap();
    let secret = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        let found = name.eq_ignore_ascii_case("proxy-authorization");
        found.then(|| format!(" | {value}"))
    });
    format!("{line}{}", secret.unwrap_or_default())
}

/// Answers one request; the client closes.
async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    head(stream).await;
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    stream.write_all(answer).await.unwrap();
    assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "kept open");
}

/// A proxy that leads to `port` on this machine, and what it was asked.
async fn proxy(port: u16) -> (Server, Seen<String>) {
    let seen = Seen::<String>::default();
    let asked = Arc::clone(&seen);
    let proxy = Server::start(move |mut client| {
        let asked = Arc::clone(&asked);
        async move {
            let head = head(&mut client).await;
            asked.lock().unwrap().push(told(&head));
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            match head.starts_with("CONNECT ") {
                true => client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap(),
                false => server.write_all(head.as_bytes()).await.unwrap(),
            }
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    })
    .await;
    (proxy, seen)
}

/// A proxy that gives one answer to whatever it is asked.
async fn refusing(answer: &'static str) -> Server {
    Server::start(move |mut client| async move {
        head(&mut client).await;
        client.write_all(answer.as_bytes()).await.unwrap();
    })
    .await
}

/// A client of `url` through the proxy with this URL, which trusts `roots`.
fn client(url: &str, proxy: &str, roots: RootCertStore) -> Transport {
    let route = Route::of(
        &Matcher::builder().all(proxy).build(),
        &url.parse().unwrap(),
    );
    let limit = Duration::from_secs(30);
    Transport::along(route.unwrap(), tls_with(roots), limit, 2 * limit)
}

fn tls_with(roots: RootCertStore) -> Arc<ClientConfig> {
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(tls)
}

async fn get(client: &Transport, url: &str) -> Result<String, Error> {
    let request = request(Method::GET, url.parse().unwrap(), Bytes::new());
    let answer = client.call(request, PEER).await?;
    Ok(String::from_utf8(answer.body.to_vec()).unwrap())
}

/// Why `url` cannot be had through the proxy at `port`, whose password is in no word of it.
async fn refused(url: &str, port: u16) -> Error {
    let proxy = format!("http://u:s3cret@127.0.0.1:{port}");
    let client = client(url, &proxy, RootCertStore::empty());
    let error = get(&client, url).await.unwrap_err();
    let text = error.to_string();
    let named = format!(
        "{} cannot be reached: the proxy 127.0.0.1:{port} ",
        PEER.name
    );
    assert!(text.starts_with(&named), "{text}");
    let shown = format!("{text} {error:?} {client:?}");
    assert!(
        !shown.contains("s3cret") && !shown.contains(BASIC),
        "{shown}"
    );
    error
}

#[tokio::test]
async fn a_plain_request_goes_to_the_proxy_whole() {
    let server = Server::start(|mut stream| async move { answer(&mut stream).await }).await;
    let (proxy, asked) = proxy(server.port).await;
    for (user, told) in [("", ""), ("u:s3cret@", " | Basic dTpzM2NyZXQ=")] {
        let url = format!("http://{user}127.0.0.1:{}", proxy.port);
        let client = client(PLAIN, &url, RootCertStore::empty());
        assert_eq!(get(&client, PLAIN).await.unwrap(), "hello");
        let line = asked.lock().unwrap().pop().unwrap();
        assert_eq!(line, format!("GET {PLAIN} HTTP/1.1{told}"));
    }
}

/// A server by this name, the root that vouches for it, and how its handshakes went.
async fn secure(name: &str) -> (Server, RootCertStore, Seen<HandshakeKind>) {
    let names = [name.to_owned()];
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    let root = CertificateDer::clone(cert.der());
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![root.clone()], key)
        .unwrap();
    let tls = TlsAcceptor::from(Arc::new(config));
    let seen = Seen::default();
    let handshakes = Arc::clone(&seen);
    let server = Server::start(move |stream| {
        let (tls, handshakes) = (tls.clone(), Arc::clone(&handshakes));
        async move {
            // One who does not trust the server ends the handshake.
            let Ok(mut stream) = tls.accept(stream).await else {
                return;
            };
            let kind = stream.get_ref().1.handshake_kind().unwrap();
            handshakes.lock().unwrap().push(kind);
            answer(&mut stream).await;
        }
    })
    .await;
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    (server, roots, seen)
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_and_its_session_is_resumed_without_the_connection() {
    let (server, roots, handshakes) = secure("sts.test").await;
    let (proxy, asked) = proxy(server.port).await;
    let url = format!("http://u:s3cret@127.0.0.1:{}", proxy.port);
    let trusting = client(SECURE, &url, roots);
    for _ in 0..2 {
        assert_eq!(get(&trusting, SECURE).await.unwrap(), "hello");
    }
    let tunnel = format!("CONNECT sts.test:443 HTTP/1.1 | {BASIC}");
    assert_eq!(*asked.lock().unwrap(), [&*tunnel, &*tunnel]);
    assert_eq!(
        *handshakes.lock().unwrap(),
        [HandshakeKind::Full, HandshakeKind::Resumed]
    );
    // It is the server that is not trusted, not the proxy.
    let doubting = client(SECURE, &url, RootCertStore::empty());
    let error = get(&doubting, SECURE).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable(Reach::Tls));
    assert!(!error.message().contains("proxy"), "{error}");
}

#[tokio::test]
async fn a_proxy_may_be_spoken_to_over_tls() {
    let (proxy, roots, _) = secure("127.0.0.1").await;
    let url = format!("https://127.0.0.1:{}", proxy.port);
    let trusting = client(PLAIN, &url, roots);
    assert_eq!(get(&trusting, PLAIN).await.unwrap(), "hello");
    let doubting = client(PLAIN, &url, RootCertStore::empty());
    let error = get(&doubting, PLAIN).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable(Reach::Tls));
    let named = format!("the proxy 127.0.0.1:{} cannot be trusted", proxy.port);
    assert!(error.message().contains(&named), "{error}");
}

/// A server that gives one answer to whatever comes first.
async fn blurting(answer: &'static [u8]) -> Server {
    Server::start(move |mut client| async move {
        let mut first = [0; 4 << 10];
        assert!(client.read(&mut first).await.unwrap() > 0);
        client.write_all(answer).await.unwrap();
    })
    .await
}

#[tokio::test]
async fn a_port_of_the_other_kind_is_told_as_such() {
    let plain = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    let alert = b"\x15\x03\x03\x00\x02\x02\x46";
    let limit = Duration::from_secs(30);
    for (scheme, answer, kind, part) in [
        (
            "https",
            &plain[..],
            Kind::Unreachable(Reach::Tls),
            "does not speak TLS there: is http:// or another port meant? check --sts-endpoint",
        ),
        (
            "http",
            &alert[..],
            Kind::BadAnswer,
            "does not speak HTTP: is https:// or another port meant? check --sts-endpoint",
        ),
    ] {
        let server = blurting(answer).await;
        let url = format!("{scheme}://127.0.0.1:{}/token", server.port);
        let tls = tls_with(RootCertStore::empty());
        let client = Transport::along(Route::Direct, tls, limit, limit);
        let error = get(&client, &url).await.unwrap_err();
        assert_eq!(error.kind(), kind);
        assert_eq!(error.message(), format!("{} {part}", PEER.name));
    }
    let proxy = blurting(plain).await;
    let at = format!("https://127.0.0.1:{}", proxy.port);
    let error = get(&client(PLAIN, &at, RootCertStore::empty()), PLAIN).await;
    let error = error.unwrap_err();
    let named = format!("the proxy 127.0.0.1:{} does not speak TLS", proxy.port);
    assert!(error.message().contains(&named), "{error}");
    assert!(error.message().contains("check HTTPS_PROXY"), "{error}");
}

#[tokio::test]
async fn a_proxy_that_wants_a_password_is_a_setting_to_mend() {
    let wants = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
    for url in [PLAIN, SECURE] {
        let proxy = refusing(wants).await;
        let error = refused(url, proxy.port).await;
        assert_eq!(error.kind(), Kind::Config, "{url}");
        assert!(error.message().contains("HTTPS_PROXY"), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_that_leads_nowhere_or_is_down_is_named() {
    let network = Kind::Unreachable(Reach::Network);
    let proxy = refusing("HTTP/1.1 403 Forbidden\r\n\r\n").await;
    let error = refused(SECURE, proxy.port).await;
    assert_eq!(error.kind(), network);
    assert!(error.message().contains("NO_PROXY"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let free = listener.local_addr().unwrap().port();
    drop(listener);
    for url in [PLAIN, SECURE] {
        let error = refused(url, free).await;
        assert_eq!(error.kind(), network, "{url}");
        assert!(error.message().contains("HTTPS_PROXY"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_mute_proxy_is_waited_for_as_long_as_for_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = refused(SECURE, listener.local_addr().unwrap().port()).await;
    assert_eq!(error.kind(), Kind::Timeout);
}

#[tokio::test]
async fn a_socks_proxy_is_told_name_and_port() {
    let server = Server::start(|mut stream| async move { answer(&mut stream).await }).await;
    let port = server.port;
    let seen = Seen::<Vec<u8>>::default();
    let asked = Arc::clone(&seen);
    let proxy = Server::start(move |mut client| {
        let asked = Arc::clone(&asked);
        async move {
            let mut hello = [0; 2];
            client.read_exact(&mut hello).await.unwrap();
            let mut methods = vec![0; hello[1].into()];
            client.read_exact(&mut methods).await.unwrap();
            client.write_all(&[5, 0]).await.unwrap();
            let mut place = vec![0; 4 + 1 + "sts.test".len() + 2];
            client.read_exact(&mut place).await.unwrap();
            asked.lock().unwrap().push(place);
            let done = [5, 0, 0, 1, 127, 0, 0, 1, 0, 0];
            client.write_all(&done).await.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let _ = copy_bidirectional(&mut client, &mut server).await;
        }
    })
    .await;
    let url = format!("socks5://127.0.0.1:{}", proxy.port);
    let client = client(PLAIN, &url, RootCertStore::empty());
    assert_eq!(get(&client, PLAIN).await.unwrap(), "hello");
    // RFC 1928: version 5, connect, a name of 8 bytes, port 80.
    assert_eq!(
        *seen.lock().unwrap(),
        [b"\x05\x01\x00\x03\x08sts.test\x00\x50"]
    );
}
