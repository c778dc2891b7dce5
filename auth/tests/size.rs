//! What an identity pays for being held, in bytes: before its first exchange and right after it, over
//! plain HTTP and over TLS. A binary of its own, since a process has one allocator.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use gcsmount_auth::secret::SubjectToken;
use gcsmount_auth::{Audience, Broker, BrokerConfig, Endpoint, FileSource, Identities, Pushed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

#[expect(dead_code, reason = "calls are counted in another binary")]
mod counting;

const IDENTITIES: usize = 100;
const TOKEN: usize = 2048;
const LIMIT: isize = 16 << 10;

/// A token service on a thread of its own, whose memory is not counted. It never closes a connection.
fn serve<S: Read + Write + Send + 'static>(
    accept: impl Fn(TcpStream) -> S + Send + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming() {
            let mut stream = BufReader::new(accept(stream.unwrap()));
            answer(&mut stream);
            kept.push(stream);
        }
    });
    address
}

fn answer<S: Read + Write>(stream: &mut BufReader<S>) {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let line = line.trim().to_ascii_lowercase();
        if let Some(told) = line.strip_prefix("content-length: ") {
            length = told.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    stream.read_exact(&mut vec![0; length]).unwrap();
    let body = format!(
        r#"{{"access_token":"{}","expires_in":3600}}"#,
        "x".repeat(TOKEN)
    );
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(answer.as_bytes()).unwrap();
    stream.get_mut().flush().unwrap();
}

fn over_tls() -> SocketAddr {
    let cert = include_bytes!("data/test-only-cert.pem");
    let key = include_bytes!("data/test-only-key.pem");
    let config =
        ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(cert).unwrap()],
                PrivateKeyDer::from_pem_slice(key).unwrap(),
            )
            .unwrap();
    let config = Arc::new(config);
    serve(move |stream| {
        StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream)
    })
}

/// Lets tasks that were ended or begun do so.
async fn settle() {
    for _ in 0..16 {
        tokio::task::yield_now().await;
    }
}

fn each(before: isize) -> isize {
    (counting::held() - before) / IDENTITIES.cast_signed()
}

async fn unexchanged(identities: &Identities, sts: &Endpoint) -> isize {
    settle().await;
    let before = counting::held();
    let held: Vec<_> = (0..IDENTITIES)
        .map(|number| {
            let source = FileSource::new(format!("/nowhere/{number}"));
            let config = BrokerConfig {
                sts: sts.clone(),
                ..BrokerConfig::new(Arc::new(source))
            };
            identities.broker(&config).unwrap()
        })
        .collect();
    settle().await;
    let each = each(before);
    drop(held);
    each
}

async fn exchanged(identities: &Identities, sts: &Endpoint) -> isize {
    settle().await;
    let before = counting::held();
    let mut held: Vec<Broker> = Vec::with_capacity(IDENTITIES);
    for number in 0..IDENTITIES {
        let source = Pushed::new(format!("pushed {number}"));
        let token = SubjectToken::new("e30.e30.e30".to_owned()).unwrap();
        source.push(token, SystemTime::now() + Duration::from_secs(3600));
        let config = BrokerConfig {
            sts: sts.clone(),
            audience: Audience::Explicit("audience".to_owned()),
            ..BrokerConfig::new(Arc::new(source))
        };
        let broker = identities.broker(&config).unwrap();
        assert_eq!(broker.token().await.unwrap().expose().len(), TOKEN);
        held.push(broker);
    }
    // No time passes: a connection that were kept for a while would be weighed.
    settle().await;
    each(before)
}

/// The certificate that the service shows.
const TRUSTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/test-only-cert.pem");

/// Runs this test again in a process that trusts the service, whatever the machine trusts.
fn again_with_trust() {
    let test = "an_identity_costs_less_than_16_kib_beyond_its_token";
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("SSL_CERT_FILE", TRUSTED)
        .status()
        .unwrap();
    assert!(again.success(), "see above");
}

#[test]
fn an_identity_costs_less_than_16_kib_beyond_its_token() {
    match std::env::var_os("SSL_CERT_FILE").is_some_and(|file| file == TRUSTED) {
        true => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(weigh()),
        false => again_with_trust(),
    }
}

async fn weigh() {
    let plain = serve(|stream| stream);
    let tls = over_tls();
    let identities = Identities::new(2 * IDENTITIES);
    for url in [format!("http://{plain}"), format!("https://{tls}")] {
        let sts = Endpoint::parse(&url).unwrap();
        // What the first one makes, such as the trusted certificates, all share.
        let _first = exchanged(&identities, &sts).await;
        let unexchanged = unexchanged(&identities, &sts).await;
        let exchanged = exchanged(&identities, &sts).await;
        let token = TOKEN.cast_signed();
        println!("{url}: {unexchanged} bytes, {exchanged} right after an exchange");
        assert!((1..LIMIT).contains(&unexchanged), "{unexchanged} at {url}");
        assert!(
            (token..token + LIMIT).contains(&exchanged),
            "{exchanged} at {url}"
        );
    }
}
