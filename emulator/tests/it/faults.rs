use std::time::Duration;

use gcsmount_emulator::{Auth, Config, FaultAction, FaultRule};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::client::{BUCKET, Bench, DEADLINE, ask, names, object_path, upload_path};

fn rule(method: &str, action: FaultAction) -> FaultRule {
    FaultRule::once(method, action)
}

#[tokio::test]
async fn a_status_answers_in_place_of_the_verb() {
    let bench = Bench::open().await;
    let action = FaultAction::Status {
        code: 503,
        reason: None,
        retry_after: Some(3),
    };
    bench
        .admin()
        .add_fault(rule("storage.objects.insert", action));
    let put = || ask("POST", upload_path("a", "uploadType=media")).body("x");
    let struck = bench.answer(put()).await.expect(503);
    assert_eq!(
        (struck.reason().as_str(), struck.header("retry-after")),
        ("backendError", Some("3"))
    );
    bench.stat("a").await.expect(404);
    bench.answer(put()).await.expect(200);
    let action = FaultAction::Status {
        code: 403,
        reason: Some("userRateLimitExceeded".into()),
        retry_after: None,
    };
    bench.admin().add_fault(rule("storage.objects.get", action));
    assert_eq!(
        bench.stat("a").await.expect(403).reason(),
        "userRateLimitExceeded"
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_reset_does_nothing_and_a_lost_answer_everything() {
    let bench = Bench::open().await;
    let put = |name: &str| ask("POST", upload_path(name, "uploadType=media")).body("x");
    bench
        .admin()
        .add_fault(rule("storage.objects.insert", FaultAction::Reset));
    assert!(bench.send(put("a")).await.is_err());
    bench.stat("a").await.expect(404);
    bench
        .admin()
        .add_fault(rule("storage.objects.insert", FaultAction::LostAnswer));
    assert!(bench.send(put("b")).await.is_err());
    bench.stat("b").await.expect(200);
    let counters = bench.admin().counters();
    assert_eq!(
        (counters.dropped, counters.of("storage.objects.insert")),
        (2, 2)
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn stalls_and_cuts_inside_a_body() {
    let bench = Bench::open().await;
    bench.put("a", vec![7; 1 << 20]).await;
    bench.admin().add_fault(rule(
        "storage.objects.get.media",
        FaultAction::Truncate { after: 1000 },
    ));
    assert!(
        bench
            .send(ask("GET", object_path("a", "alt=media")))
            .await
            .is_err()
    );
    let duration = Duration::from_millis(80);
    for action in [
        FaultAction::Stall { duration },
        FaultAction::StallBody {
            after: 1000,
            duration,
        },
    ] {
        bench
            .admin()
            .add_fault(rule("storage.objects.get.media", action.clone()));
        let start = Instant::now();
        assert_eq!(bench.read("a").await.expect(200).body.len(), 1 << 20);
        assert!(start.elapsed() >= duration, "{action:?}");
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn checksums_are_told_wrong_and_the_bytes_are_right() {
    let bench = Bench::open().await;
    let right = bench.put("a", "123456789").await;
    let add = |method: &str| {
        let fault = json!({"method": method, "name": "a", "after": 1, "action": "wrong_checksum"});
        ask("POST", "/_emulator/faults").json(&fault)
    };
    for method in ["storage.objects.get.media", "storage.objects.get"] {
        bench.answer(add(method)).await.expect(200);
    }
    let hash = format!("crc32c={}", right["crc32c"].as_str().unwrap());
    for told_right in [true, false, true] {
        let read = bench.read("a").await.expect(200);
        assert_eq!(read.body, "123456789");
        assert_eq!(read.header("x-goog-hash") == Some(&hash), told_right);
        let stat = bench.stat("a").await.expect(200).json();
        assert_eq!(stat["crc32c"] == right["crc32c"], told_right);
        assert_eq!(stat["md5Hash"] == right["md5Hash"], told_right);
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn an_empty_page_leads_to_what_it_should_have_held() {
    let bench = Bench::open().await;
    for name in ["a", "b", "c"] {
        bench.put(name, "x").await;
    }
    bench.admin().add_fault(FaultRule {
        count: 3,
        ..rule("storage.objects.list", FaultAction::EmptyPage)
    });
    let (mut found, mut pages, mut token) = (Vec::new(), 0, String::new());
    loop {
        let path = format!("/storage/v1/b/{BUCKET}/o?maxResults=2&pageToken={token}");
        let page = bench.answer(ask("GET", path)).await.expect(200).json();
        found.extend(names(&page, "items"));
        pages += 1;
        let Some(next) = page["nextPageToken"].as_str() else {
            break;
        };
        next.clone_into(&mut token);
    }
    assert_eq!(
        (found, pages),
        (names(&json!({"n": ["a", "b", "c"]}), "n"), 5)
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_token_is_revoked_in_the_middle_of_its_life() {
    let bench = Bench::with(Config::default()).await;
    let (first, second) = (
        bench.access_token("ns", "sa").await,
        bench.access_token("ns", "sa").await,
    );
    let list = |token: &str| ask("GET", format!("/storage/v1/b/{BUCKET}/o")).bearer(token);
    bench.admin().add_fault(FaultRule {
        after: 1,
        ..rule("storage.objects.list", FaultAction::RevokeToken)
    });
    bench.answer(list(&first)).await.expect(200);
    for _ in 0..2 {
        let refused = bench.answer(list(&first)).await.expect(401);
        assert_eq!(refused.reason(), "authError");
    }
    bench.answer(list(&second)).await.expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn rules_match_by_name_and_count_and_are_cleared() {
    let bench = Bench::open().await;
    for name in ["dir/a", "b"] {
        bench.put(name, "x").await;
    }
    bench.admin().add_fault(FaultRule {
        method: Some("storage.objects.*".into()),
        name: Some("dir/*".into()),
        after: 1,
        count: 100,
        action: FaultAction::Status {
            code: 500,
            reason: None,
            retry_after: None,
        },
    });
    bench.stat("b").await.expect(200);
    bench.stat("dir/a").await.expect(200);
    bench.stat("dir/a").await.expect(500);
    bench.read("dir/a").await.expect(500);
    bench
        .answer(ask("GET", format!("/storage/v1/b/{BUCKET}/o?prefix=dir/")))
        .await
        .expect(500);
    bench.stat("b").await.expect(200);
    bench.admin().clear_faults();
    bench.stat("dir/a").await.expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn rules_match_a_name_that_only_the_body_has() {
    let bench = Bench::open().await;
    bench.admin().add_fault(FaultRule {
        name: Some("dir/*".into()),
        count: 4,
        ..rule("storage.objects.insert*", FaultAction::Reset)
    });
    let path = |kind: &str| format!("/upload/storage/v1/b/{BUCKET}/o?uploadType={kind}");
    // Longer than what is looked through for the name.
    let data = "7".repeat(300_000);
    let multipart = |name: &str| {
        let body = format!("--B\r\n\r\n{{\"name\":\"{name}\"}}\r\n--B\r\n\r\n{data}\r\n--B--");
        ask("POST", path("multipart"))
            .header("content-type", "multipart/related; boundary=B")
            .body(body)
    };
    let resumable = |name: &str| ask("POST", path("resumable")).json(&json!({"name": name}));
    for struck in ["dir/a", "dir/b"] {
        assert!(bench.send(multipart(struck)).await.is_err());
        bench.stat(struck).await.expect(404);
        bench.answer(multipart("a")).await.expect(200);
        assert_eq!(bench.read("a").await.expect(200).body, data);
        assert!(bench.send(resumable(struck)).await.is_err());
        bench.answer(resumable("b")).await.expect(200);
    }
    // The rule is used up, and what has no name, or no boundary, is refused as ever.
    bench.answer(multipart("dir/a")).await.expect(200);
    bench.admin().add_fault(FaultRule {
        name: Some("dir/*".into()),
        ..rule("*", FaultAction::Reset)
    });
    for (kind, body) in [("resumable", "{}"), ("resumable", ""), ("multipart", "x")] {
        bench
            .answer(ask("POST", path(kind)).body(body))
            .await
            .expect(400);
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_body_that_ends_before_its_name_fails_as_without_a_rule() {
    let bench = Bench::with(Config {
        auth: Auth::Off,
        idle_timeout: Duration::from_millis(50),
        ..Config::default()
    })
    .await;
    bench.admin().add_fault(FaultRule {
        name: Some("a".into()),
        ..rule("*", FaultAction::Reset)
    });
    let head = format!(
        "POST /upload/storage/v1/b/{BUCKET}/o?uploadType=multipart HTTP/1.1\r\nHost: h\r\n\
         Content-Type: multipart/related; boundary=B\r\nContent-Length: 1000\r\n\r\n--B\r\n\r\n{{"
    );
    for (breaks, answer) in [(true, ""), (false, "HTTP/1.1 408 Request Timeout")] {
        let addr = bench.emulator.local_addrs()[0];
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        if breaks {
            stream.shutdown().await.unwrap();
        }
        let mut heard = String::new();
        let mut reader = tokio::io::BufReader::new(stream);
        timeout(DEADLINE, reader.read_line(&mut heard))
            .await
            .expect("it ends")
            .unwrap();
        assert_eq!(heard.trim_end(), answer);
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn latency_and_rate_slow_requests_down() {
    let bench = Bench::open().await;
    bench.put("a", vec![7; 100_000]).await;
    bench
        .admin()
        .set_latency("storage.objects.get", Duration::from_millis(60));
    let start = Instant::now();
    bench.stat("a").await.expect(200);
    assert!(start.elapsed() >= Duration::from_millis(60));
    bench.admin().set_stream_rate(Some(1_000_000));
    let start = Instant::now();
    bench.read("a").await.expect(200);
    bench.put("b", vec![7; 100_000]).await;
    assert!(
        start.elapsed() >= Duration::from_millis(150),
        "{:?}",
        start.elapsed()
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn everything_goes_over_http_too() {
    let bench = Bench::with(Config::default()).await;
    let post =
        |path: &str, body: serde_json::Value| ask("POST", format!("/_emulator/{path}")).json(&body);
    let put =
        |path: &str, body: serde_json::Value| ask("PUT", format!("/_emulator/{path}")).json(&body);
    let minted = bench
        .answer(post(
            "tokens",
            json!({"namespace": "n", "service_account": "s", "ttl_seconds": 60}),
        ))
        .await;
    let minted = minted.expect(200).json();
    assert!(
        minted["expires_at"]
            .as_str()
            .is_some_and(|at| at.ends_with('Z'))
    );
    bench
        .answer(put("access_tokens", json!({"ttl_seconds": 7})))
        .await
        .expect(200);
    let audience = bench.admin().sts_audience();
    let exchange = crate::client::exchange(&audience, minted["token"].as_str().unwrap());
    let access = bench.answer(exchange).await.expect(200).json();
    assert_eq!(access["expires_in"], 7);
    let token = access["access_token"].as_str().unwrap();
    let list = |bucket: &str| ask("GET", format!("/storage/v1/b/{bucket}/o")).bearer(token);
    bench
        .answer(post("buckets", json!({"name": "fresh"})))
        .await
        .expect(200);
    bench
        .answer(post("buckets", json!({"name": "fresh"})))
        .await
        .expect(409);
    bench.answer(list("fresh")).await.expect(200);
    bench
        .answer(put("buckets/fresh/grants", json!([])))
        .await
        .expect(200);
    bench.answer(list("fresh")).await.expect(403);
    let grant =
        json!({"member": bench.admin().member("n", "s"), "role": "roles/storage.objectViewer"});
    bench
        .answer(post("buckets/fresh/grants", grant))
        .await
        .expect(200);
    bench.answer(list("fresh")).await.expect(200);
    let fault =
        json!({"method": "storage.objects.list", "count": 9, "action": {"status": {"code": 503}}});
    bench.answer(post("faults", fault)).await.expect(200);
    bench.answer(list("fresh")).await.expect(503);
    bench
        .answer(ask("DELETE", "/_emulator/faults"))
        .await
        .expect(200);
    bench
        .answer(put(
            "shape",
            json!({"latency_ms": 1, "method": "storage.*", "stream_rate": 0}),
        ))
        .await
        .expect(200);
    bench.answer(list("fresh")).await.expect(200);
    bench
        .answer(post("access_tokens/revoke", json!({})))
        .await
        .expect(200);
    bench.answer(list("fresh")).await.expect(401);
    bench
        .answer(post("clock", json!({"advance_ms": 1000})))
        .await
        .expect(200);
    let counters = bench
        .answer(ask("GET", "/_emulator/counters"))
        .await
        .expect(200)
        .json();
    assert_eq!(counters["requests"]["storage.objects.list"], 6);
    assert_eq!(counters["exchanges"], 1);
    bench
        .answer(post("counters/reset", json!({})))
        .await
        .expect(200);
    assert_eq!(
        bench.admin().counters(),
        gcsmount_emulator::Counters::default()
    );
    for (path, body) in [
        ("tokens", json!({"typo": 1})),
        ("faults", json!({})),
        (
            "faults",
            json!({"method": "storage.objects.fetch", "action": "reset"}),
        ),
        ("faults", json!({"action": {"status": {"code": 1000}}})),
        ("buckets", json!({"name": "No"})),
    ] {
        bench.answer(post(path, body)).await.expect(400);
    }
    bench
        .answer(post(
            "buckets/fresh/grants",
            json!({"member": "x", "role": "x"}),
        ))
        .await
        .expect(400);
    bench.answer(post("nonsense", json!({}))).await.expect(404);
    bench.emulator.shutdown().await;
}
