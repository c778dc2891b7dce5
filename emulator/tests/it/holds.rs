use std::time::Duration;

use gcsmount_emulator::{Auth, BucketSettings, Config};
use serde_json::{Value, json};

use crate::client::{Ask, BUCKET, Bench, ask, object_path, upload_path};

/// Half of a retention period, longer than any test.
const HALF: Duration = Duration::from_secs(3600);

/// Every way to end the version of an object that is there.
fn endings(name: &str) -> Vec<Ask> {
    let bucket = format!("/storage/v1/b/{BUCKET}/o");
    let source = json!({"sourceObjects": [{"name": "free"}]});
    let deleting = json!({"sourceObjects": [{"name": name}], "deleteSourceObjects": true});
    vec![
        ask("POST", upload_path(name, "uploadType=media")).body("x"),
        ask("POST", format!("{bucket}/{name}/compose")).json(&source),
        ask("POST", format!("{bucket}/composed/compose")).json(&deleting),
        ask("POST", format!("{bucket}/free/copyTo/b/{BUCKET}/o/{name}")),
        ask("POST", format!("{bucket}/{name}/moveTo/o/moved")),
        ask("POST", format!("{bucket}/free/moveTo/o/{name}")),
        ask("DELETE", object_path(name, "")),
    ]
}

async fn check(bench: &Bench, reason: &str, part: &str) {
    for (index, ask) in endings("a").into_iter().enumerate() {
        let answer = bench.answer(ask).await;
        assert_eq!(answer.code(), 403, "{index}: {}", answer.text());
        assert_eq!(answer.reason(), reason);
        assert!(answer.text().contains(part), "{index}: {}", answer.text());
    }
    assert_eq!(bench.read("a").await.expect(200).text(), "data");
}

async fn patch(bench: &Bench, body: Value) -> Value {
    let ask = ask("PATCH", object_path("a", "")).json(&body);
    bench.answer(ask).await.expect(200).json()
}

async fn bench() -> Bench {
    let config = Config {
        auth: Auth::Off,
        mutation_limit: None,
        ..Config::default()
    };
    let bench = Bench::with(config).await;
    bench.put("a", "data").await;
    bench.put("free", "data").await;
    bench
}

fn retain(bench: &Bench, period: Option<u64>) {
    let settings = BucketSettings {
        retention: period.map(Duration::from_secs),
        ..BucketSettings::default()
    };
    bench.admin().set_bucket(BUCKET, settings).unwrap();
}

#[tokio::test]
async fn what_is_held_stays_until_the_hold_is_removed() {
    let bench = bench().await;
    for (key, kind) in [
        ("temporaryHold", "Temporary"),
        ("eventBasedHold", "Event-Based"),
    ] {
        assert_eq!(patch(&bench, json!({key: true})).await[key], true);
        check(
            &bench,
            "objectUnderActiveHold",
            &format!("under active {kind} hold"),
        )
        .await;
        let copy = format!("/storage/v1/b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/copy");
        let copied = bench.answer(ask("POST", copy)).await.expect(200).json();
        assert!(copied.get(key).is_none(), "{copied}");
        let held = bench.stat("a").await.expect(200).json();
        assert_eq!(held[key], true);
        let freed = patch(&bench, json!({key: false})).await;
        assert!(freed.get(key).is_none(), "{freed}");
    }
    let xml = ask("DELETE", format!("/{BUCKET}/a"));
    patch(&bench, json!({"temporaryHold": true})).await;
    let refused = bench.answer(xml).await.expect(403).text();
    assert!(
        refused.contains("<Code>ObjectUnderActiveHold</Code>"),
        "{refused}"
    );
    patch(&bench, json!({"temporaryHold": null})).await;
    bench
        .answer(ask("DELETE", object_path("a", "")))
        .await
        .expect(204);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn what_is_young_stays_for_the_period_of_the_bucket() {
    let bench = bench().await;
    retain(&bench, Some(2 * HALF.as_secs()));
    let told = bench.stat("a").await.json()["retentionExpirationTime"].clone();
    assert!(told.as_str().unwrap().starts_with("20"), "{told}");
    check(
        &bench,
        "retentionPolicyNotMet",
        "cannot be deleted or overwritten until 20",
    )
    .await;
    // Metadata may change, and something new may come.
    patch(&bench, json!({"contentType": "x/y"})).await;
    bench.put("new", "x").await;
    bench.admin().advance_clock(2 * HALF);
    assert_eq!(
        bench.stat("a").await.json()["retentionExpirationTime"],
        told
    );
    bench.put("a", "replaced").await;
    bench
        .answer(ask("DELETE", object_path("a", "")))
        .await
        .expect(403);
    retain(&bench, None);
    assert!(
        bench
            .stat("a")
            .await
            .json()
            .get("retentionExpirationTime")
            .is_none()
    );
    bench
        .answer(ask("DELETE", object_path("a", "")))
        .await
        .expect(204);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn the_end_of_an_event_begins_the_period() {
    let bench = bench().await;
    retain(&bench, Some(2 * HALF.as_secs()));
    let held = patch(&bench, json!({"eventBasedHold": true})).await;
    assert!(held.get("retentionExpirationTime").is_none(), "{held}");
    bench.admin().advance_clock(2 * HALF);
    patch(&bench, json!({"eventBasedHold": false})).await;
    bench.admin().advance_clock(HALF);
    // A second patch is no second release.
    patch(&bench, json!({"eventBasedHold": false})).await;
    let delete = || ask("DELETE", object_path("a", ""));
    assert_eq!(
        bench.answer(delete()).await.expect(403).reason(),
        "retentionPolicyNotMet"
    );
    bench.admin().advance_clock(HALF);
    bench.answer(delete()).await.expect(204);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_policy_is_set_with_the_bucket_or_by_the_administrator() {
    let bench = bench().await;
    let create = |name: &str, period: Value| {
        ask("POST", "/storage/v1/b?project=demo")
            .json(&json!({"name": name, "retentionPolicy": {"retentionPeriod": period}}))
    };
    bench
        .answer(create("kept", json!("3600")))
        .await
        .expect(200);
    let kept = bench.answer(ask("GET", "/storage/v1/b/kept")).await.json();
    assert_eq!(kept["retentionPolicy"]["retentionPeriod"], "3600");
    for period in [json!(null), json!("0"), json!("x"), json!("9999999999")] {
        bench.answer(create("other", period)).await.expect(400);
    }
    let settings = format!("/_emulator/buckets/{BUCKET}/settings");
    bench
        .answer(ask("PUT", settings).json(&json!({"retention_seconds": 5})))
        .await
        .expect(200);
    let told = bench
        .answer(ask("GET", format!("/storage/v1/b/{BUCKET}")))
        .await
        .json();
    assert_eq!(told["retentionPolicy"]["retentionPeriod"], "5");
    bench.emulator.shutdown().await;
}
