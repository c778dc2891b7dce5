//! The token socket over real connections: what is answered, to whom, and at whose cost.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::future::join_all;
use gcsmount_auth::error::{Refusal, SourceFault};
use gcsmount_auth::{Kind, Routes, SocketConfig, TokenSocket};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::AbortHandle;

use crate::doubles::{Scripted, Step, TestClock, broker, pass};

struct Client {
    sender: SendRequest<Empty<Bytes>>,
    connection: AbortHandle,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    async fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).await.unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async { drop(connection.await) }).abort_handle();
        Self { sender, connection }
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
    ) -> hyper::Result<(StatusCode, HeaderMap, Value)> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "unix")
            .body(Empty::new())
            .unwrap();
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Ok((head.status, head.headers, body))
    }

    async fn get(&mut self, path: &str) -> (StatusCode, Value) {
        let (status, _, body) = self.ask("GET", path).await.unwrap();
        (status, body)
    }
}

async fn get(socket: &Path, path: &str) -> (StatusCode, Value) {
    Client::connect(socket).await.get(path).await
}

fn place() -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("token.sock");
    (dir, path)
}

fn serving(steps: impl IntoIterator<Item = Step>) -> Routes {
    Routes::Any(broker(&Scripted::new(steps)).0)
}

async fn socket(config: SocketConfig) -> TokenSocket {
    TokenSocket::bind(config).await.unwrap()
}

#[tokio::test]
async fn a_client_gets_the_token_in_the_fields_of_an_oauth_library() {
    let (_dir, path) = place();
    let served = socket(SocketConfig::new(&path, serving([Step::Grant(3600)]))).await;
    let mut client = Client::connect(served.path()).await;
    for (method, target) in [
        ("GET", "/"),
        ("POST", "/"),
        ("GET", "/computeMetadata/v1?x=y"),
    ] {
        let before = SystemTime::now();
        let (status, headers, body) = client.ask(method, target).await.unwrap();
        assert_eq!(status, 200);
        assert_eq!(headers["content-type"], "application/json");
        assert_eq!(body["access_token"], "tok-1");
        assert_eq!(body["token_type"], "Bearer");
        let expires_in = body["expires_in"].as_u64().unwrap();
        assert!((3500..3600).contains(&expires_in), "{expires_in}");
        let expiry = body["expiry"].as_str().unwrap();
        let expiry: SystemTime =
            time::OffsetDateTime::parse(expiry, &time::format_description::well_known::Rfc3339)
                .unwrap()
                .into();
        let left = expiry.duration_since(before).unwrap().as_secs();
        assert!(left.abs_diff(expires_in) <= 1, "{left} {expires_in}");
    }
    let (status, headers, _) = client.ask("DELETE", "/").await.unwrap();
    assert_eq!(
        (status.as_u16(), &headers["allow"]),
        (405, &"GET, POST".parse().unwrap())
    );
    let status = served.status();
    assert_eq!((status.answered, status.failed, status.refused), (3, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_life_that_is_told_is_what_is_left_of_it_and_never_nothing() {
    let (_dir, path) = place();
    let clock = TestClock::new();
    let exchange = Scripted::new([Step::Grant(120), Step::Fail(Kind::Unavailable)]);
    let tuning = gcsmount_auth::Tuning {
        clock: std::sync::Arc::clone(&clock) as _,
        ..gcsmount_auth::Tuning::default()
    };
    let broker =
        gcsmount_auth::Broker::with_exchange(std::sync::Arc::clone(&exchange) as _, tuning);
    let served = socket(SocketConfig::new(&path, Routes::Any(broker))).await;
    let (_, first) = get(served.path(), "/").await;
    clock.suspend(Duration::from_secs(30));
    let (_, second) = get(served.path(), "/").await;
    assert_eq!(first["access_token"], second["access_token"]);
    let left = |body: &Value| body["expires_in"].as_u64().unwrap();
    assert!(
        (29..=31).contains(&(left(&first) - left(&second))),
        "{first} {second}"
    );
    // Within the margin of its end a new one is fetched first, and without one there is no token.
    clock.suspend(Duration::from_secs(86));
    assert_eq!(get(served.path(), "/").await.0, 503);
    exchange.now_follow([Step::Grant(120)]);
    pass(40).await;
    let (_, third) = get(served.path(), "/").await;
    assert_ne!(third["access_token"], first["access_token"]);
    assert!(left(&third) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_token_with_less_than_a_second_is_replaced_before_it_is_told() {
    let (_dir, path) = place();
    let clock = TestClock::new();
    let exchange = Scripted::new([Step::Grant(8), Step::Fail(Kind::Unavailable)]);
    let tuning = gcsmount_auth::Tuning {
        clock: std::sync::Arc::clone(&clock) as _,
        ..gcsmount_auth::Tuning::default()
    };
    let broker =
        gcsmount_auth::Broker::with_exchange(std::sync::Arc::clone(&exchange) as _, tuning);
    let served = socket(SocketConfig::new(&path, Routes::Any(broker.clone()))).await;
    broker.token().await.unwrap();
    clock.suspend(Duration::from_millis(7300));
    assert!(broker.current().is_some(), "within its margin, yet");
    let (status, body) = get(served.path(), "/").await;
    assert_eq!(
        (status.as_u16(), &body["error"]),
        (503, &"temporarily_unavailable".into())
    );
}

#[tokio::test]
async fn one_socket_serves_several_identities_by_path() {
    let (_dir, path) = place();
    let named = |steps: [Step; 1]| broker(&Scripted::new(steps)).0;
    let routes = Routes::ByPath(BTreeMap::from([
        ("/a".to_owned(), named([Step::Grant(60)])),
        (
            "/b".to_owned(),
            named([Step::Fail(Kind::Refused(Refusal::Denied))]),
        ),
    ]));
    let served = socket(SocketConfig::new(&path, routes)).await;
    let (status, body) = get(served.path(), "/a?x=1").await;
    assert_eq!(
        (status.as_u16(), &body["access_token"]),
        (200, &"tok-1".into())
    );
    let (status, body) = get(served.path(), "/b").await;
    assert_eq!(
        (status.as_u16(), &body["error"]),
        (403, &"access_denied".into())
    );
    for elsewhere in ["/", "/A", "/a/", "/c"] {
        let (status, body) = get(served.path(), elsewhere).await;
        assert_eq!(
            (status.as_u16(), &body["error"]),
            (404, &"not_found".into())
        );
    }
}

#[tokio::test]
async fn a_failure_is_told_with_its_reason_and_the_delay_that_was_asked_for() {
    for (step, status, error) in [
        (Step::Throttle { retry_after: 17 }, 429, "quota_exceeded"),
        (
            Step::Fail(Kind::Source(SourceFault::Missing)),
            500,
            "subject_token_missing",
        ),
    ] {
        let (_dir, path) = place();
        let served = socket(SocketConfig::new(&path, serving([step]))).await;
        let (got, headers, body) = Client::connect(served.path())
            .await
            .ask("GET", "/")
            .await
            .unwrap();
        assert_eq!((got.as_u16(), &body["error"]), (status, &error.into()));
        assert!(
            body["error_description"]
                .as_str()
                .unwrap()
                .contains("scripted")
        );
        assert_eq!(headers.get("retry-after").is_some(), status == 429);
        assert_eq!(served.status().failed, 1);
    }
}

#[tokio::test]
async fn the_socket_is_for_its_owner_and_ready_when_it_appears() {
    let (dir, path) = place();
    let served = socket(SocketConfig::new(&path, serving([Step::Grant(60)]))).await;
    let file = std::fs::symlink_metadata(&path).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing else is left: {names:?}");
    assert_eq!(get(&path, "/").await.0, 200);
    drop(served);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_path_longer_than_an_address_serves_all_the_same() {
    let dir = tempdir().unwrap();
    let deep = dir.path().join("d".repeat(150));
    std::fs::create_dir(&deep).unwrap();
    let path = deep.join("token.sock");
    let served = socket(SocketConfig::new(&path, serving([Step::Grant(60)]))).await;
    let short = dir.path().join("short");
    std::os::unix::fs::symlink(&deep, &short).unwrap();
    assert_eq!(get(&short.join("token.sock"), "/").await.0, 200);
    served.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn what_a_dead_process_left_is_replaced_and_a_living_one_is_not() {
    let (_dir, path) = place();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "stale");
    let first = socket(SocketConfig::new(&path, serving([Step::Grant(60)]))).await;
    assert_eq!(get(&path, "/").await.0, 200);
    let second = TokenSocket::bind(SocketConfig::new(&path, serving([Step::Grant(60)]))).await;
    let error = second.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("another process"), "{error}");
    assert_eq!(get(&path, "/").await.0, 200);
    // One that was put there by somebody else meanwhile is not taken away.
    std::fs::remove_file(&path).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    first.stop().await;
    assert!(path.exists());
    drop(other);
}

#[tokio::test]
async fn where_no_socket_can_be_the_reason_is_told_and_nothing_is_destroyed() {
    let (dir, path) = place();
    std::fs::write(&path, "precious").unwrap();
    for (path, why) in [
        (path.clone(), "something else"),
        (PathBuf::from("/"), "no name"),
        (
            dir.path().join("none/token.sock"),
            "does the directory exist",
        ),
        (dir.path().join("n".repeat(300)), "too long"),
    ] {
        let bound = TokenSocket::bind(SocketConfig::new(&path, serving([Step::Grant(60)]))).await;
        let error = bound.unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        let sentence = error.message().to_lowercase();
        assert!(sentence.contains(why), "{sentence}");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn who_sends_nothing_or_half_a_request_is_let_go_and_costs_the_others_nothing() {
    let (_dir, path) = place();
    let config = SocketConfig {
        connections: 4,
        idle: Duration::from_millis(300),
        ..SocketConfig::new(&path, serving([Step::Grant(60)]))
    };
    let served = socket(config).await;
    let mut stuck = Vec::new();
    for _ in 0..4 {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost").await.unwrap();
        stuck.push(stream);
    }
    let asked = tokio::time::timeout(Duration::from_secs(5), get(&path, "/")).await;
    assert_eq!(asked.unwrap().0, 200);
    for mut stream in stuck {
        let mut rest = Vec::new();
        // The end, by whatever means.
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest))
            .await
            .unwrap();
    }
    assert!(served.status().connections <= 1);
}

#[tokio::test]
async fn who_asks_and_never_reads_gives_way() {
    let (_dir, path) = place();
    let config = SocketConfig {
        connections: 2,
        ..SocketConfig::new(&path, serving([Step::Grant(60)]))
    };
    let _served = socket(config).await;
    let mut deaf = Vec::new();
    for _ in 0..2 {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        let many = b"GET / HTTP/1.1\r\nhost: unix\r\n\r\n".repeat(20_000);
        let writing = stream.write_all(&many);
        let _ = tokio::time::timeout(Duration::from_millis(200), writing).await;
        deaf.push(stream);
    }
    let asked = tokio::time::timeout(Duration::from_secs(5), get(&path, "/")).await;
    assert_eq!(asked.unwrap().0, 200);
}

#[tokio::test]
async fn a_thousand_who_come_at_once_are_all_answered_by_one_exchange() {
    let (_dir, path) = place();
    let exchange = Scripted::new([Step::Grant(3600)]);
    let config = SocketConfig {
        connections: 64,
        ..SocketConfig::new(&path, Routes::Any(broker(&exchange).0))
    };
    let served = socket(config).await;
    let answers = join_all((0..1000).map(|_| get(&path, "/"))).await;
    assert!(
        answers
            .iter()
            .all(|(status, body)| *status == 200 && body["access_token"] == "tok-1")
    );
    assert_eq!((exchange.count(), served.status().answered), (1, 1000));
}

#[tokio::test]
async fn who_is_not_on_the_list_gets_a_refusal_and_takes_no_place() {
    let (_dir, path) = place();
    let own = nix::unistd::geteuid().as_raw();
    let config = SocketConfig {
        uids: vec![own + 1],
        mode: 0o666,
        ..SocketConfig::new(&path, serving([Step::Grant(60)]))
    };
    let served = socket(config).await;
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o666
    );
    let mut client = Client::connect(&path).await;
    let (status, body) = client.get("/").await;
    assert_eq!(
        (status.as_u16(), &body["error"]),
        (403, &"access_denied".into())
    );
    let told = body["error_description"].as_str().unwrap();
    assert!(told.contains(&format!("uid {own}")), "{told}");
    let many = join_all((0..100).map(|_| UnixStream::connect(&path))).await;
    assert!(many.iter().all(Result::is_ok));
    while served.status().refused < 101 {
        tokio::task::yield_now().await;
    }
    let status = served.status();
    assert_eq!((status.answered, status.connections), (0, 0));
}

#[tokio::test]
async fn a_stop_answers_what_was_asked_and_takes_no_more() {
    let (_dir, path) = place();
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, _clock) = broker(&exchange);
    let served = socket(SocketConfig::new(&path, Routes::Any(broker.clone()))).await;
    let mut idle = Client::connect(&path).await;
    let asking = tokio::spawn({
        let path = path.clone();
        async move { get(&path, "/").await }
    });
    while broker.status().waiters < 1 {
        tokio::task::yield_now().await;
    }
    served.stop().await;
    assert_eq!(asking.await.unwrap().0, 200);
    assert!(!path.exists());
    assert!(idle.ask("GET", "/").await.is_err());
    assert!(UnixStream::connect(&path).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_with_its_lifetime() {
    let (_dir, path) = place();
    let config = SocketConfig {
        lifetime: Duration::from_secs(5),
        ..SocketConfig::new(&path, serving([Step::Grant(60)]))
    };
    let _served = socket(config).await;
    let mut client = Client::connect(&path).await;
    assert_eq!(client.get("/").await.0, 200);
    pass(6).await;
    assert!(client.ask("GET", "/").await.is_err());
    assert_eq!(get(&path, "/").await.0, 200);
}

#[tokio::test]
async fn a_server_that_does_not_accept_is_not_waited_for_and_not_replaced() {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
    };
    use std::os::fd::AsRawFd;
    let (_dir, path) = place();
    let flags = SockFlag::empty();
    let stuck = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    bind(stuck.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&stuck, Backlog::new(0).unwrap()).unwrap();
    let _queued = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let (broker, _) = broker(&Scripted::new([Step::Grant(60)]));
    let config = SocketConfig::new(&path, Routes::Any(broker));
    // Only a defect takes that long. The panic closes the socket, which ends a thread that waits on it.
    let bound = tokio::time::timeout(Duration::from_secs(20), TokenSocket::bind(config)).await;
    let error = bound.expect("it is waited for").unwrap_err();
    assert!(
        error.message().contains("another process serves there"),
        "{error}"
    );
    assert!(path.exists());
}

#[tokio::test]
async fn who_keeps_connections_beyond_the_places_is_told_so_and_never_cut_off() {
    let (_dir, path) = place();
    let config = SocketConfig {
        connections: 4,
        ..SocketConfig::new(&path, serving([Step::Grant(3600)]))
    };
    let served = socket(config).await;
    let many = join_all((0..16).map(|_| async {
        let mut client = Client::connect(&path).await;
        let (mut closed, mut cut) = (0, 0);
        for _ in 0..50 {
            match client.ask("GET", "/").await {
                Ok((status, headers, _)) => {
                    assert_eq!(status, 200);
                    if headers
                        .get("connection")
                        .is_some_and(|value| value == "close")
                    {
                        closed += 1;
                        client = Client::connect(&path).await;
                    }
                }
                Err(_) => {
                    cut += 1;
                    client = Client::connect(&path).await;
                }
            }
        }
        (closed, cut)
    }));
    let told = many.await;
    let sum = |each: fn(&(u32, u32)) -> u32| told.iter().map(each).sum::<u32>();
    assert!(sum(|(closed, _)| *closed) > 0, "{told:?}");
    // A connection that was idle at the moment when its place was needed is closed; the many that
    // are in use are not.
    assert!(sum(|(_, cut)| *cut) <= 16, "{told:?}");
    assert!(served.status().connections <= 4);
}

#[tokio::test]
async fn a_client_that_says_no_more_still_gets_its_answer() {
    let (_dir, path) = place();
    let _served = socket(SocketConfig::new(&path, serving([Step::Grant(60)]))).await;
    // The first has to wait for the exchange, the second does not.
    for _ in 0..2 {
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("tok-1"), "{answer}");
    }
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: unix\r\n\r\n";

#[tokio::test(flavor = "current_thread")]
async fn what_was_sent_before_the_end_is_answered() {
    let (_dir, path) = place();
    let served = socket(SocketConfig::new(&path, serving([Step::Grant(60)]))).await;
    let (_, _, first) = {
        let mut client = Client::connect(&path).await;
        client.ask("GET", "/").await.unwrap()
    };
    assert_eq!(first["access_token"], "tok-1");
    // Nothing of the server runs between these and the stop: all are in the queue of the kernel.
    let mut waiting: Vec<_> = (0..100)
        .map(|_| {
            use std::io::Write;
            let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
            stream.write_all(REQUEST).unwrap();
            stream
        })
        .collect();
    served.stop().await;
    for stream in &mut waiting {
        use std::io::Read;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("tok-1"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_never_reads_does_not_hold_up_the_end() {
    let (_dir, path) = place();
    let config = SocketConfig {
        grace: Duration::from_secs(3600),
        ..SocketConfig::new(&path, serving([Step::Grant(7200)]))
    };
    let served = socket(config).await;
    assert_eq!(get(&path, "/").await.0, 200);
    let mut deaf = UnixStream::connect(&path).await.unwrap();
    let many = REQUEST.repeat(20_000);
    let _ = tokio::time::timeout(Duration::from_secs(1), deaf.write_all(&many)).await;
    let half = {
        let mut half = UnixStream::connect(&path).await.unwrap();
        half.write_all(&REQUEST[..20]).await.unwrap();
        half
    };
    let begun = tokio::time::Instant::now();
    served.stop().await;
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    drop((deaf, half));
}

#[tokio::test]
async fn an_identity_whose_service_hangs_leaves_places_to_the_others() {
    let (_dir, path) = place();
    let named = |step| broker(&Scripted::new([step])).0;
    let (bad, good) = (named(Step::Hang), named(Step::Grant(3600)));
    good.token().await.unwrap();
    let routes = Routes::ByPath(BTreeMap::from([
        ("/bad".to_owned(), bad.clone()),
        ("/good".to_owned(), good),
    ]));
    let config = SocketConfig {
        connections: 8,
        ..SocketConfig::new(&path, routes)
    };
    let _served = socket(config).await;
    let stuck: Vec<_> = (0..20)
        .map(|_| {
            let path = path.clone();
            tokio::spawn(async move { Client::connect(&path).await.ask("GET", "/bad").await })
        })
        .collect();
    while bad.status().waiters < 3 {
        tokio::task::yield_now().await;
    }
    for _ in 0..8 {
        let asked = tokio::time::timeout(Duration::from_secs(10), get(&path, "/good")).await;
        assert_eq!(asked.expect("it waits for the other identity").0, 200);
    }
    // Its share goes on waiting; the others are told to come again.
    let settled = async {
        while bad.status().waiters > 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(10), settled).await;
    settled.expect("the others wait as well");
    let mut told = 0;
    for task in stuck {
        let Ok(answer) = tokio::time::timeout(Duration::from_millis(50), task).await else {
            continue;
        };
        let (status, headers, body) = answer.unwrap().unwrap();
        assert_eq!(status, 503);
        assert_eq!(headers["retry-after"], "1");
        assert_eq!(body["error"], "temporarily_unavailable");
        told += 1;
    }
    assert_eq!(told, 17);
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_somebody_removes_is_made_anew_and_gone_in_the_end() {
    let (dir, path) = place();
    let served = socket(SocketConfig::new(&path, serving([Step::Grant(7200)]))).await;
    for _ in 0..2 {
        std::fs::remove_file(&path).unwrap();
        pass(12).await;
        assert_eq!(get(&path, "/").await.0, 200);
    }
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // What is not ours is left alone.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    pass(12).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    pass(12).await;
    assert!(path.exists());
    served.stop().await;
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
