//! Proxies and trusted roots from the environment. Each case is a child process of its own, since the variables are the
//! process's; the proxy and the store are on loopback.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use gcsmount_gcs::client::json::{Config, Http, JsonStore, Pool, Protocol, Retry};
use gcsmount_gcs::{BucketName, Store};
use parking_lot::Mutex;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

const ENDPOINT: &str = "GCSMOUNT_TEST_ENDPOINT";

/// `http2`, or anything else for HTTP/1.1.
pub const PROTOCOL: &str = "GCSMOUNT_TEST_PROTOCOL";

/// What a child prints before what it found.
const FOUND: &str = "found: ";

/// A label of 64 characters is no host name: only a proxy can make something of it.
fn nowhere() -> String {
    format!("{}.test", "x".repeat(64))
}

/// The child: asks the bucket of the endpoint that it is given for its location.
#[tokio::test]
#[ignore = "a part of the others, which set its environment"]
async fn child() {
    let endpoint = std::env::var(ENDPOINT).expect("set by the test that starts this process");
    let config = Config {
        endpoint: endpoint.parse().unwrap(),
        retry: Retry {
            attempts: 1,
            ..Retry::default()
        },
        ..Config::default()
    };
    let http2 = std::env::var(PROTOCOL).is_ok_and(|protocol| protocol == "http2");
    let http = Http::new(&Pool {
        protocol: if http2 {
            Protocol::Http2
        } else {
            Protocol::Http1
        },
        ..Pool::default()
    });
    let store = JsonStore::new(&http, BucketName::parse("bkt").unwrap(), config).unwrap();
    match store.bucket().await {
        Ok(bucket) => println!("{FOUND}{}", bucket.location),
        Err(error) => println!("{FOUND}{error}"),
    }
}

/// What a child finds at `endpoint` with these variables and none of its parent's.
pub async fn found(endpoint: &str, variables: &[(&str, &str)]) -> String {
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "proxies::child", "--ignored", "--nocapture"])
        .env_clear()
        .env(ENDPOINT, endpoint)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = String::from_utf8(child.await.unwrap().stdout).unwrap();
    let (_, found) = output
        .split_once(FOUND)
        .unwrap_or_else(|| panic!("{output}"));
    found.lines().next().unwrap().to_owned()
}

/// Gone with the test.
struct Server(JoinHandle<()>);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads up to the end of a request's head.
async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// Answers every request as a bucket in the EU.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    while !head(&mut stream).await.is_empty() {
        let body = r#"{"location":"EU"}"#;
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A store at a port, behind TLS where it is given a certificate.
async fn store(tls: Option<TlsAcceptor>) -> (Server, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            match &tls {
                None => serve(stream).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream).await;
                    }
                }
            }
        }
    });
    (Server(server), port)
}

/// A proxy that leads everything to one port, and remembers what it was asked.
struct Proxy {
    _server: Server,
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    async fn before(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&heads);
        let server = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                relay(client, target, &seen).await;
            }
        });
        Self {
            _server: Server(server),
            port,
            heads,
        }
    }

    /// First line and authorization of each request so far.
    fn seen(&self) -> Vec<String> {
        let told = |head: &String| {
            let line = head.lines().next().unwrap_or_default();
            let authorization = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("proxy-authorization")
                    .then(|| format!(" | {value}"))
            });
            format!("{line}{}", authorization.unwrap_or_default())
        };
        std::mem::take(&mut *self.heads.lock())
            .iter()
            .map(told)
            .collect()
    }
}

async fn relay(mut client: TcpStream, target: u16, seen: &Mutex<Vec<String>>) {
    let asked = head(&mut client).await;
    seen.lock().push(asked.clone());
    let mut store = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
    if asked.starts_with("CONNECT ") {
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
    } else {
        let _ = store.write_all(asked.as_bytes()).await;
    }
    let _ = copy_bidirectional(&mut client, &mut store).await;
}

#[tokio::test]
async fn plain_requests_go_to_the_proxy_whole() {
    let (_store, port) = store(None).await;
    let proxy = Proxy::before(port).await;
    let host = nowhere();
    let endpoint = format!("http://{host}:81");
    let url = format!("http://u:s3cret@127.0.0.1:{}", proxy.port);
    let line = format!(
        "GET http://{host}:81/storage/v1/b/bkt?fields=location%2CstorageClass%2ChierarchicalNamespace%2C\
         iamConfiguration%2FuniformBucketLevelAccess%2Fenabled HTTP/1.1 | Basic dTpzM2NyZXQ="
    );
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        assert_eq!(
            found(&endpoint, &[(variable, &url)]).await,
            "EU",
            "{variable}"
        );
        assert_eq!(proxy.seen(), [&*line], "{variable}");
    }
    // Meant for others, or excepted: nobody asks the proxy, and without it there is no such host.
    for variables in [
        vec![("HTTPS_PROXY", &*url)],
        vec![("HTTP_PROXY", &*url), ("NO_PROXY", &*host)],
        vec![("http_proxy", &*url), ("no_proxy", ".test")],
    ] {
        let error = found(&endpoint, &variables).await;
        assert!(error.contains("does not resolve"), "{error}");
        assert_eq!(proxy.seen(), [""; 0], "{variables:?}");
    }
    // This machine is asked straight.
    let local = format!("http://127.0.0.1:{port}");
    assert_eq!(found(&local, &[("HTTP_PROXY", &url)]).await, "EU");
    assert_eq!(proxy.seen(), [""; 0]);
}

/// A certificate for `name`, as PEM and as a server uses it that offers these protocols.
pub fn certified(name: &str, offered: &[&[u8]]) -> (String, TlsAcceptor) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
    (cert.pem(), TlsAcceptor::from(Arc::new(config)))
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn tls_goes_through_a_tunnel_and_trusts_the_roots_that_are_named() {
    let (pem, tls) = certified("store.test", &[]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("root.pem");
    // The form that OpenSSL's `rehash` gives.
    let hashed = directory.path().join("hashed");
    std::fs::create_dir(&hashed).unwrap();
    std::fs::write(&file, &pem).unwrap();
    std::fs::write(hashed.join("00c0ffee.0"), &pem).unwrap();

    let (_store, port) = store(Some(tls)).await;
    let proxy = Proxy::before(port).await;
    let url = format!("http://u:s3cret@127.0.0.1:{}", proxy.port);
    let endpoint = "https://store.test";
    for (variable, roots) in [
        (("SSL_CERT_FILE", text(&file)), "HTTPS_PROXY"),
        (("SSL_CERT_DIR", text(&hashed)), "https_proxy"),
    ] {
        let variables = [variable, (roots, &url)];
        assert_eq!(found(endpoint, &variables).await, "EU", "{variables:?}");
        assert_eq!(
            proxy.seen(),
            ["CONNECT store.test:443 HTTP/1.1 | Basic dTpzM2NyZXQ="]
        );
    }
    // Without the roots nobody vouches for the store.
    let error = found(endpoint, &[("HTTPS_PROXY", &url)]).await;
    assert!(error.contains("TLS handshake with store.test"), "{error}");
}

#[tokio::test]
async fn a_proxy_that_fails_is_named_without_its_password() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let refusing = [
        ("http://store.test", "HTTP_PROXY", "http"),
        ("https://store.test", "HTTPS_PROXY", "http"),
        ("http://store.test", "ALL_PROXY", "socks5"),
        ("https://store.test", "ALL_PROXY", "socks5h"),
    ];
    for (endpoint, variable, scheme) in refusing {
        let url = format!("{scheme}://u:s3cret@127.0.0.1:{port}");
        let error = found(endpoint, &[(variable, &url)]).await;
        let named = format!("through the proxy 127.0.0.1:{port}: Connection refused");
        assert!(error.contains("store.test"), "{error}");
        assert!(error.contains(&named), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    // A password with an unescaped @ in it, which no URL can hold.
    let url = format!("http://u:s3@cret@127.0.0.1:{port}");
    let error = found("http://store.test", &[("HTTP_PROXY", &url)]).await;
    assert!(!error.contains("s3") && !error.contains("cret"), "{error}");
    let old = [("ALL_PROXY", "socks4://u:s3cret@127.0.0.1:1")];
    let error = found("http://store.test", &old).await;
    assert!(error.contains("none of http, https and socks5"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}

/// One connection through a SOCKS proxy that leads to `port`; the name and the port that it was asked for.
async fn socks(listener: TcpListener, port: u16) -> (String, u16) {
    // RFC 1928: no authentication, then a connection to a name.
    let (mut client, _) = listener.accept().await.unwrap();
    let mut hello = [0; 2];
    client.read_exact(&mut hello).await.unwrap();
    let mut methods = vec![0; usize::from(hello[1])];
    client.read_exact(&mut methods).await.unwrap();
    client.write_all(&[5, 0]).await.unwrap();
    let mut request = [0; 5];
    client.read_exact(&mut request).await.unwrap();
    assert_eq!(request[..4], [5, 1, 0, 3], "connect to a name");
    let mut name = vec![0; usize::from(request[4])];
    client.read_exact(&mut name).await.unwrap();
    let asked = client.read_u16().await.unwrap();
    let done = [5, 0, 0, 1, 127, 0, 0, 1, 0, 0];
    client.write_all(&done).await.unwrap();
    let mut store = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut store).await;
    (String::from_utf8(name).unwrap(), asked)
}

#[tokio::test]
async fn a_socks_proxy_is_told_name_and_port() {
    let (_store, port) = store(None).await;
    for (endpoint, asked) in [("http://store.test:81", 81), ("http://store.test", 80)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("socks5://{}", listener.local_addr().unwrap());
        let proxy = tokio::spawn(socks(listener, port));
        assert_eq!(found(endpoint, &[("ALL_PROXY", &url)]).await, "EU");
        assert_eq!(proxy.await.unwrap(), ("store.test".to_owned(), asked));
    }
}

#[tokio::test]
async fn tls_goes_through_a_socks_proxy() {
    let (pem, tls) = certified("store.test", &[]);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pem).unwrap();
    let (_store, port) = store(Some(tls)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("socks5h://{}", listener.local_addr().unwrap());
    let proxy = tokio::spawn(socks(listener, port));
    let variables = [("ALL_PROXY", &*url), ("SSL_CERT_FILE", text(file.path()))];
    assert_eq!(found("https://store.test", &variables).await, "EU");
    assert_eq!(proxy.await.unwrap(), ("store.test".to_owned(), 443));
}
