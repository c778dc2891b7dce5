use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};

use async_trait::async_trait;
use gcsmount_k8s_contract::layout::Base;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const LIMIT: Duration = Duration::from_secs(60);
const GET: &str = "GET /metrics HTTP/1.1\r\nHost: unix\r\n\r\n";

/// What a session does when it is asked.
enum Metrics {
    Text(&'static str),
    None,
    Panic,
    /// Waits until the test says.
    Stuck(Mutex<mpsc::Receiver<()>>),
}

struct Played {
    metrics: Metrics,
    asked: AtomicUsize,
}

#[async_trait]
impl Session for Played {
    async fn ended(&self) {}

    async fn drain(&self, _limit: Duration) -> Vec<String> {
        Vec::new()
    }

    fn metrics(&self) -> Option<String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match &self.metrics {
            Metrics::Text(text) => Some((*text).to_owned()),
            Metrics::None => None,
            Metrics::Panic => panic!("as it was told to"),
            Metrics::Stuck(until) => {
                let _ = until.lock().unwrap().recv();
                Some("late 1\n".to_owned())
            }
        }
    }
}

struct Scene {
    _dir: tempfile::TempDir,
    volume: Volume,
    session: Arc<Played>,
    socket: MetricsSocket,
}

fn scene(name: &str, metrics: Metrics) -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let volume = Base(dir.path().into()).volume(name);
    std::fs::create_dir(&volume.dir).unwrap();
    let session = Arc::new(Played {
        metrics,
        asked: AtomicUsize::new(0),
    });
    let socket = MetricsSocket::serve(volume.clone(), Arc::clone(&session) as _).unwrap();
    Scene {
        _dir: dir,
        volume,
        session,
        socket,
    }
}

impl Scene {
    async fn dial(&self) -> UnixStream {
        let directory = Opened::of(&self.volume).unwrap();
        let path = directory.reach(&self.volume.metrics_socket()).unwrap();
        UnixStream::connect(path).await.unwrap()
    }

    /// Sends a request and reads until the other side closes.
    async fn ask(&self, request: &str) -> String {
        let mut stream = self.dial().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        read(stream).await
    }
}

async fn read(mut stream: UnixStream) -> String {
    let mut answer = String::new();
    timeout(LIMIT, stream.read_to_string(&mut answer))
        .await
        .expect("the other side closes")
        .unwrap();
    answer
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test]
async fn any_path_is_answered_with_the_text_as_section_3_of_the_sidecar_mounter_says() {
    let scene = scene("pv-1", Metrics::Text("fs_ops_count 7\n"));
    for path in ["/metrics", "/", "/any?x=1", "http://localhost/metrics"] {
        let answer = scene
            .ask(&format!("GET {path} HTTP/1.1\r\nHost: unix\r\n\r\n"))
            .await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let kind = "\r\ncontent-type: text/plain; version=0.0.4\r\n";
        assert!(answer.contains(kind), "{answer}");
        assert_eq!(body(&answer), "fs_ops_count 7\n");
    }
    let head = scene.ask("HEAD / HTTP/1.1\r\nHost: unix\r\n\r\n").await;
    assert!(
        head.contains("content-length: 15") && body(&head).is_empty(),
        "{head}"
    );
    assert_eq!(scene.session.asked.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn another_method_or_what_is_no_request_asks_nobody() {
    let scene = scene("pv-1", Metrics::Text("fs_ops_count 7\n"));
    let answer = scene
        .ask("POST / HTTP/1.1\r\nHost: unix\r\ncontent-length: 1\r\n\r\nx")
        .await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    assert!(answer.contains("allow: GET, HEAD"), "{answer}");
    for junk in ["\0\0\0\0 junk\r\n\r\n", "GET\r\n\r\n"] {
        let answer = scene.ask(junk).await;
        assert!(!answer.contains("fs_ops_count"), "{answer}");
    }
    assert_eq!(scene.session.asked.load(Ordering::SeqCst), 0);
    assert_eq!(body(&scene.ask(GET).await), "fs_ops_count 7\n");
}

#[tokio::test]
async fn what_cannot_be_told_is_an_error_with_a_text_and_the_next_question_is_heard() {
    for (metrics, want) in [
        (Metrics::None, "the volume has no metrics any more"),
        (
            Metrics::Panic,
            "writing the metrics broke off; the log has more",
        ),
    ] {
        let scene = scene("pv-1", metrics);
        for _ in 0..2 {
            let answer = scene.ask(GET).await;
            assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
            assert_eq!(body(&answer), want);
        }
        assert_eq!(scene.session.asked.load(Ordering::SeqCst), 2);
    }
}

// Time stands still but where everybody waits for it; the session that is stuck keeps tokio from moving it, so the test does.
#[tokio::test]
async fn a_session_that_is_stuck_takes_one_thread_and_later_questions_an_error() {
    let (go, until) = mpsc::channel();
    let scene = scene("pv-1", Metrics::Stuck(Mutex::new(until)));
    let mut first = scene.dial().await;
    first.write_all(GET.as_bytes()).await.unwrap();
    while scene.session.asked.load(Ordering::SeqCst) == 0 {
        sleep(Duration::from_millis(5)).await;
    }
    tokio::time::pause();
    tokio::time::advance(PATIENCE).await;
    tokio::time::resume();
    let answer = read(first).await;
    assert_eq!(body(&answer), "the metrics were not written in time");
    let answer = scene.ask(GET).await;
    let earlier = "the metrics are still being written for an earlier question";
    assert_eq!(body(&answer), earlier);
    assert_eq!(scene.session.asked.load(Ordering::SeqCst), 1);
    drop(go);
}

#[tokio::test]
async fn who_says_nothing_is_let_go_and_the_next_one_served() {
    let scene = scene("pv-1", Metrics::Text("fs_ops_count 7\n"));
    let mut silent = scene.dial().await;
    silent.write_all(b"GET / HT").await.unwrap();
    let next = scene.ask(GET);
    tokio::time::pause();
    assert_eq!(body(&next.await), "fs_ops_count 7\n");
    drop(silent);
}

#[tokio::test]
async fn a_volume_with_the_longest_name_has_its_socket_with_its_mode_and_leaves_none() {
    use std::os::unix::fs::FileTypeExt;

    let long = "v".repeat(253);
    let scene = scene(&long, Metrics::Text("fs_ops_count 7\n"));
    let path = scene.volume.metrics_socket();
    let there = std::fs::symlink_metadata(&path).unwrap();
    assert!(there.file_type().is_socket());
    assert_eq!(there.permissions().mode() & 0o7777, 0o600);
    assert_eq!(body(&scene.ask(GET).await), "fs_ops_count 7\n");
    drop(scene.socket);
    assert_eq!(std::fs::read_dir(&scene.volume.dir).unwrap().count(), 0);
}

#[tokio::test]
async fn what_a_dead_process_left_is_replaced_under_both_names() {
    let dir = tempfile::tempdir().unwrap();
    let volume = Base(dir.path().into()).volume("pv-1");
    std::fs::create_dir(&volume.dir).unwrap();
    drop(std::os::unix::net::UnixListener::bind(volume.metrics_socket()).unwrap());
    let unready = volume.metrics_socket().with_extension("new");
    drop(std::os::unix::net::UnixListener::bind(unready).unwrap());
    let listener = bind(&volume).unwrap();
    let path = volume.metrics_socket();
    let (dialed, taken) = tokio::join!(UnixStream::connect(&path), listener.accept());
    assert!(dialed.is_ok() && taken.is_ok());
    assert_eq!(std::fs::read_dir(&volume.dir).unwrap().count(), 1);
}
