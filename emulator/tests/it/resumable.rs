use std::time::Duration;

use gcsmount_emulator::{Auth, Config, FaultAction, FaultRule, MutationLimit};
use serde_json::json;

use crate::client::{Answer, Ask, BUCKET, Bench, ask, upload_path};

const QUANTUM: usize = 256 * 1024;

/// One session of a test.
struct Session<'a> {
    bench: &'a Bench,
    path: String,
}

impl<'a> Session<'a> {
    async fn start(bench: &'a Bench, query: &str) -> Self {
        let path = upload_path("a", &format!("uploadType=resumable&{query}"));
        let answer = bench.answer(ask("POST", path)).await.expect(200);
        let location = answer.header("location").unwrap();
        let path = location
            .strip_prefix(&bench.emulator.endpoint())
            .expect("the host that was asked");
        Self {
            bench,
            path: path.to_owned(),
        }
    }

    fn ask(&self, range: &str, data: &[u8]) -> Ask {
        ask("PUT", self.path.clone())
            .header("content-range", range)
            .body(data.to_vec())
    }

    async fn send(&self, range: &str, data: &[u8]) -> Answer {
        self.bench.answer(self.ask(range, data)).await
    }

    /// The end of what is persisted, as the service says.
    async fn persisted(&self) -> Option<String> {
        let answer = self.send("bytes */*", b"").await.expect(308);
        answer.header("range").map(str::to_owned)
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| u8::try_from(index * 31 % 251).unwrap())
        .collect()
}

#[tokio::test]
async fn unknown_size_in_chunks() {
    let bench = Bench::open().await;
    let session = Session::start(&bench, "").await;
    let data = pattern(2 * QUANTUM + 77);
    assert_eq!(session.persisted().await, None);
    let first = session
        .send("bytes 0-262143/*", &data[..QUANTUM])
        .await
        .expect(308);
    assert_eq!(first.header("range"), Some("bytes=0-262143"));
    session
        .send("bytes 262144-524287/*", &data[QUANTUM..2 * QUANTUM])
        .await
        .expect(308);
    assert_eq!(session.persisted().await.as_deref(), Some("bytes=0-524287"));
    bench.stat("a").await.expect(404);
    let last = session
        .send("bytes 524288-524364/524365", &data[2 * QUANTUM..])
        .await
        .expect(200);
    assert_eq!(last.json()["size"], data.len().to_string());
    assert_eq!(bench.read("a").await.body, data);
    assert_eq!(
        session.send("bytes */*", b"").await.expect(200).json(),
        last.json()
    );
    let counters = bench.admin().counters();
    assert_eq!(counters.of("storage.objects.insert.chunk"), 3);
    assert_eq!(counters.of("storage.objects.insert.query"), 3);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn whole_objects_and_empty_ones() {
    let bench = Bench::open().await;
    let session = Session::start(&bench, "").await;
    let whole = ask("POST", session.path.clone()).body("data");
    bench.answer(whole).await.expect(200);
    assert_eq!(bench.read("a").await.body, "data");
    let session = Session::start(&bench, "").await;
    session.send("bytes */0", b"").await.expect(200);
    assert_eq!(bench.read("a").await.body, "");
    let session = Session::start(&bench, "").await;
    let data = pattern(QUANTUM);
    session.send("bytes 0-262143/*", &data).await.expect(308);
    session.send("bytes */262144", b"").await.expect(200);
    assert_eq!(bench.read("a").await.body, data);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn replayed_bytes_are_skipped_and_gaps_refused() {
    let bench = Bench::open().await;
    let session = Session::start(&bench, "").await;
    let data = pattern(3 * QUANTUM);
    session
        .send("bytes 0-524287/*", &data[..2 * QUANTUM])
        .await
        .expect(308);
    session
        .send("bytes 0-262143/*", &data[..QUANTUM])
        .await
        .expect(308);
    assert_eq!(session.persisted().await.as_deref(), Some("bytes=0-524287"));
    session
        .send("bytes 786432-786441/786442", &data[..10])
        .await
        .expect(400);
    let rest = session
        .send("bytes 262144-786431/786432", &data[QUANTUM..])
        .await
        .expect(200);
    assert_eq!(rest.json()["size"], "786432");
    assert_eq!(bench.read("a").await.body, data);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn bad_chunks_leave_the_session_as_it_was() {
    let bench = Bench::open().await;
    let session = Session::start(&bench, "").await;
    for (range, length) in [
        ("bytes 0-99/*", 100),
        ("bytes 0-9/10", 9),
        ("bytes 9-0/10", 10),
        ("bytes x", 1),
        ("bytes 0-262143/*", 10),
    ] {
        session.send(range, &vec![0; length]).await.expect(400);
        assert_eq!(session.persisted().await, None, "{range}");
    }
    session
        .send("bytes 0-262143/300000", &pattern(QUANTUM))
        .await
        .expect(308);
    session
        .send("bytes 262144-262153/262154", &[0; 10])
        .await
        .expect(400);
    session.send("bytes */300000", b"").await.expect(308);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn go_clients_get_200_for_308() {
    let bench = Bench::open().await;
    let session = Session::start(&bench, "").await;
    let chunk = session
        .ask("bytes 0-262143/*", &pattern(QUANTUM))
        .header("x-guploader-no-308", "yes");
    let answer = bench.answer(chunk).await.expect(200);
    assert_eq!(answer.header("x-http-status-code-override"), Some("308"));
    assert_eq!(answer.header("range"), Some("bytes=0-262143"));
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_cancelled_session_is_gone() {
    let bench = Bench::open().await;
    let session = Session::start(&bench, "").await;
    bench
        .answer(ask("DELETE", session.path.clone()))
        .await
        .expect(499);
    session.send("bytes */*", b"").await.expect(410);
    session.send("bytes 0-0/1", b"x").await.expect(410);
    bench
        .answer(ask("DELETE", session.path.clone()))
        .await
        .expect(410);
    bench.stat("a").await.expect(404);
    let unknown = format!("/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&upload_id=x");
    bench
        .answer(ask("PUT", unknown).body("x"))
        .await
        .expect(404);
    let old = Session::start(&bench, "").await;
    bench
        .admin()
        .advance_clock(Duration::from_secs(8 * 24 * 3600));
    old.send("bytes */*", b"").await.expect(410);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn preconditions_hold_from_start_to_publication() {
    let bench = Bench::open().await;
    let session = Session::start(&bench, "ifGenerationMatch=0").await;
    bench.put("a", "first").await;
    let refused = session.send("bytes 0-5/6", b"second").await.expect(412);
    assert_eq!(refused.reason(), "conditionNotMet");
    assert_eq!(bench.read("a").await.body, "first");
    session.send("bytes */*", b"").await.expect(410);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn checksums_of_start_and_last_chunk_are_checked() {
    let bench = Bench::open().await;
    let start = |crc: &str| {
        ask("POST", upload_path("a", "uploadType=resumable"))
            .json(&json!({"crc32c": crc, "contentType": "a/b"}))
    };
    for (claimed, header, code) in [
        ("4waSgw==", None, 200),
        ("AAAAAA==", None, 400),
        ("4waSgw==", Some("crc32c=AAAAAA=="), 400),
    ] {
        let answer = bench.answer(start(claimed)).await.expect(200);
        let path = answer
            .header("location")
            .unwrap()
            .strip_prefix(&bench.emulator.endpoint())
            .unwrap()
            .to_owned();
        let mut send = ask("PUT", path).body("123456789");
        if let Some(header) = header {
            send = send.header("x-goog-hash", header);
        }
        bench.answer(send).await.expect(code);
    }
    assert_eq!(bench.stat("a").await.json()["contentType"], "a/b");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_declared_length_is_binding() {
    let bench = Bench::open().await;
    let start = ask("POST", upload_path("a", "uploadType=resumable"))
        .header("x-upload-content-length", "5");
    let answer = bench.answer(start).await.expect(200);
    let path = answer
        .header("location")
        .unwrap()
        .strip_prefix(&bench.emulator.endpoint())
        .unwrap()
        .to_owned();
    bench
        .answer(ask("PUT", path.clone()).body("four"))
        .await
        .expect(400);
    bench
        .answer(ask("PUT", path).body("fives"))
        .await
        .expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_cut_connection_keeps_whole_quanta() {
    let bench = Bench::open().await;
    let session = Session::start(&bench, "").await;
    let data = pattern(3 * QUANTUM);
    let after = u64::try_from(QUANTUM + QUANTUM / 2).unwrap();
    bench.admin().add_fault(FaultRule::once(
        "storage.objects.insert.chunk",
        FaultAction::Truncate { after },
    ));
    let cut = bench
        .send(session.ask("bytes 0-786431/786432", &data))
        .await;
    assert!(cut.is_err(), "{cut:?}");
    assert_eq!(session.persisted().await.as_deref(), Some("bytes=0-262143"));
    session
        .send("bytes 262144-786431/786432", &data[QUANTUM..])
        .await
        .expect(200);
    assert_eq!(bench.read("a").await.body, data);
    assert_eq!(bench.admin().counters().dropped, 1);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_rate_refusal_at_the_end_can_be_retried_without_data() {
    let limit = MutationLimit {
        per_second: 0.001,
        burst: 1,
    };
    let bench = Bench::with(Config {
        auth: Auth::Off,
        mutation_limit: Some(limit),
        ..Config::default()
    })
    .await;
    bench.put("a", "old").await;
    let session = Session::start(&bench, "").await;
    session.send("bytes 0-2/3", b"new").await.expect(429);
    bench.admin().advance_clock(Duration::from_secs(1000));
    session.send("bytes */3", b"").await.expect(200);
    assert_eq!(bench.read("a").await.body, "new");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn open_sessions_are_bounded() {
    let bench = Bench::with(Config {
        auth: Auth::Off,
        max_sessions: 2,
        ..Config::default()
    })
    .await;
    let first = Session::start(&bench, "").await;
    Session::start(&bench, "").await;
    let start = || ask("POST", upload_path("a", "uploadType=resumable"));
    assert_eq!(
        bench.answer(start()).await.expect(503).reason(),
        "backendError"
    );
    first.send("bytes 0-0/1", b"x").await.expect(200);
    bench.answer(start()).await.expect(200);
    bench.emulator.shutdown().await;
}
