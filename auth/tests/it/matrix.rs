//! Each fault at each time: at the start, while a token is valid, after it expired. One table: what
//! a fault is taken for when it really happens (files and sockets), and what comes of it at each of
//! the three times (paused time), recovery without a restart included.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gcsmount_auth::broker::CLOUD_PLATFORM;
use gcsmount_auth::error::{Reach, Refusal, SourceFault};
use gcsmount_auth::{
    Audience, Endpoint, Error, Exchange, Federation, FileSource, Grant, Kind, Timeouts,
};
use serde_json::json;
use tempfile::{TempDir, tempdir};
use tokio::net::TcpListener;

use crate::doubles::{Scripted, Step, broker, pass};
use crate::sts::{Reply, Sts, gke_claims, jwt};

/// How long after the fault ended a token is back, at the latest.
const BACK_WITHIN: u64 = 31;

/// What happens to an exchange.
#[derive(Clone, Debug)]
enum Fault {
    /// The token service answers so.
    Answer(Reply),
    Refused,
    NoSuchName,
    /// The token file is so.
    File(Content),
}

#[derive(Clone, Debug)]
enum Content {
    Missing,
    Empty,
    Unreadable,
    HalfWritten,
    Expired,
    Rotated,
}

/// A row: the fault, what it is taken for (`None`: for none), what a script stands for it with,
/// whether a mount that is about to start gives up, and how often it is tried in five minutes of it,
/// at most.
struct Row {
    fault: Fault,
    kind: Option<Kind>,
    step: Step,
    gives_up: bool,
    attempts: usize,
}

fn row(fault: Fault, kind: Kind, gives_up: bool, attempts: usize) -> Row {
    Row {
        fault,
        kind: Some(kind),
        step: Step::Fail(kind),
        gives_up,
        attempts,
    }
}

fn status(code: u16, body: &str) -> Fault {
    Fault::Answer(Reply::Status(code, body.to_owned(), Vec::new()))
}

fn table() -> Vec<Row> {
    use Kind::{Refused, Source, Unreachable};
    let patient = Reply::Status(429, String::new(), vec![("retry-after", "7")]);
    let file = Fault::File;
    vec![
        Row {
            step: Step::Throttle { retry_after: 7 },
            ..row(Fault::Answer(patient), Kind::Throttled, false, 30)
        },
        row(status(429, ""), Kind::Throttled, false, 30),
        row(
            status(400, r#"{"error":"invalid_grant"}"#),
            Refused(Refusal::Grant),
            true,
            30,
        ),
        row(
            status(400, r#"{"error":"invalid_target"}"#),
            Refused(Refusal::Audience),
            true,
            30,
        ),
        row(status(403, ""), Refused(Refusal::Denied), true, 30),
        row(status(500, ""), Kind::Unavailable, false, 30),
        Row {
            step: Step::Hang,
            ..row(Fault::Answer(Reply::Hang), Kind::Timeout, false, 30)
        },
        row(
            status(200, "<html>sign in</html>"),
            Kind::BadAnswer,
            false,
            30,
        ),
        row(Fault::Refused, Unreachable(Reach::Network), false, 30),
        row(Fault::NoSuchName, Unreachable(Reach::UnknownHost), true, 30),
        row(
            file(Content::Missing),
            Source(SourceFault::Missing),
            true,
            30,
        ),
        row(file(Content::Empty), Source(SourceFault::Empty), false, 30),
        row(
            file(Content::Unreadable),
            Source(SourceFault::Unreadable),
            true,
            30,
        ),
        row(
            file(Content::HalfWritten),
            Source(SourceFault::Malformed),
            true,
            30,
        ),
        row(
            file(Content::Expired),
            Source(SourceFault::Expired),
            true,
            30,
        ),
        Row {
            fault: file(Content::Rotated),
            kind: None,
            step: Step::Grant(3600),
            gives_up: false,
            attempts: 1,
        },
    ]
}

#[tokio::test]
async fn every_fault_is_taken_for_what_it_is() {
    for row in table() {
        match (happen(&row.fault).await, row.kind) {
            (Ok(_), None) => {}
            (Err(error), Some(kind)) => {
                assert_eq!(error.kind(), kind, "{:?}: {error}", row.fault);
                assert_eq!(
                    error.is_permanent_for_mount(),
                    row.gives_up,
                    "{:?}",
                    row.fault
                );
            }
            (outcome, expected) => panic!("{:?}: {outcome:?}, not {expected:?}", row.fault),
        }
    }
}

/// One exchange that really meets the fault.
async fn happen(fault: &Fault) -> Result<Grant, Error> {
    let reply = match fault {
        Fault::Answer(reply) => reply.clone(),
        Fault::File(Content::Expired) => {
            Reply::Status(400, r#"{"error":"invalid_grant"}"#.to_owned(), Vec::new())
        }
        Fault::File(_) | Fault::Refused | Fault::NoSuchName => Reply::Grant(3600),
    };
    let sts = Sts::start([reply]).await;
    let endpoint = match fault {
        Fault::Refused => {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let closed = listener.local_addr().unwrap();
            Endpoint::parse(&format!("http://{closed}")).unwrap()
        }
        Fault::NoSuchName => {
            Endpoint::parse(&format!("http://{}.invalid", "a".repeat(64))).unwrap()
        }
        Fault::Answer(_) | Fault::File(_) => sts.endpoint(),
    };
    let (_dir, path) = token_file();
    let timeouts = Timeouts {
        exchange: match fault {
            Fault::Answer(Reply::Hang) => Duration::from_millis(50),
            _ => Duration::from_secs(5),
        },
        ..Timeouts::default()
    };
    let source = Arc::new(FileSource::new(&path));
    let scope = CLOUD_PLATFORM.to_owned();
    let federation =
        Federation::new(source, Audience::FromToken, endpoint, scope, timeouts).unwrap();
    if let Fault::File(content) = fault {
        // All but the service's own refusal: the file was good once.
        if !matches!(content, Content::Expired) {
            federation.exchange().await.unwrap();
        }
        become_of(&path, content);
    }
    federation.exchange().await
}

fn token_file() -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, jwt(&gke_claims())).unwrap();
    (dir, path)
}

fn become_of(path: &PathBuf, content: &Content) {
    std::fs::remove_file(path).unwrap();
    let write = |text: &str| std::fs::write(path, text).unwrap();
    match content {
        Content::Missing => {}
        Content::Empty => write(""),
        // Whoever runs the tests may be root, from whom no mode keeps anything; a loop does.
        Content::Unreadable => std::os::unix::fs::symlink(path, path).unwrap(),
        Content::HalfWritten => write(&jwt(&gke_claims())[..60]),
        Content::Expired => {
            let mut claims = gke_claims();
            claims["exp"] = json!(1_000_000_000);
            write(&jwt(&claims));
        }
        Content::Rotated => {
            let mut claims = gke_claims();
            claims["jti"] = json!("another");
            write(&jwt(&claims));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_fault_at_every_time_has_its_outcome_and_an_end() {
    let beyond = [
        row(status(200, ""), Kind::Internal, false, 30),
        row(status(200, ""), Kind::BadAnswer, false, 30),
    ];
    let unforeseen = [Step::Panic, Step::Junk].into_iter().zip(beyond);
    let unforeseen = unforeseen.map(|(step, row)| Row { step, ..row });
    for row in table().into_iter().chain(unforeseen) {
        at_start(&row).await;
        while_valid_and_after(&row).await;
    }
}

async fn at_start(row: &Row) {
    let exchange = Scripted::new([row.step]);
    let (broker, _clock) = broker(&exchange);
    let outcome = broker.token().await;
    assert_eq!(
        outcome.err().map(|error| error.kind()),
        row.kind,
        "{:?} at start",
        row.fault
    );
    pass(300).await;
    let tried = exchange.count();
    assert!(tried <= row.attempts, "{:?}: {tried} in 300 s", row.fault);
    exchange.now_follow([Step::Grant(3600)]);
    // A hang that began before the fault was mended is sat out first.
    pass(BACK_WITHIN + 20).await;
    broker.token().await.unwrap();
}

async fn while_valid_and_after(row: &Row) {
    let exchange = Scripted::new([Step::Grant(600), row.step]);
    let (broker, _clock) = broker(&exchange);
    broker.token().await.unwrap();
    for _ in 0..594 {
        let token = tokio::time::timeout(Duration::ZERO, broker.token()).await;
        let token = token.unwrap().unwrap();
        let served = row.kind.is_none() || token.expose() == "tok-1";
        assert!(served, "{:?} while valid", row.fault);
        pass(1).await;
    }
    assert!(
        exchange.count() > 1,
        "{:?} was met while a token was valid",
        row.fault
    );
    pass(5).await;
    let outcome = broker.token().await;
    assert_eq!(
        outcome.err().map(|error| error.kind()),
        row.kind,
        "{:?} after",
        row.fault
    );
    exchange.now_follow([Step::Grant(3600)]);
    pass(BACK_WITHIN + 20).await;
    broker.token().await.unwrap();
    assert_eq!(exchange.most_at_once(), 1);
}
