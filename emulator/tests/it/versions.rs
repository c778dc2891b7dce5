use std::time::Duration;

use gcsmount_emulator::{BucketSettings, Kept, Usage};
use serde_json::{Value, json};

use crate::client::{BUCKET, Bench, ask, generation, object_path, upload_path};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

async fn bench(versioning: bool, soft_delete: Option<Duration>) -> Bench {
    let bench = Bench::open().await;
    let settings = BucketSettings {
        versioning,
        soft_delete,
        ..BucketSettings::default()
    };
    bench.admin().set_bucket(BUCKET, settings).unwrap();
    bench
}

async fn list(bench: &Bench, query: &str) -> Vec<Value> {
    let path = format!("/storage/v1/b/{BUCKET}/o?{query}");
    let list = bench.answer(ask("GET", path)).await.expect(200).json();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn generations(items: &[Value]) -> Vec<u64> {
    items.iter().map(generation).collect()
}

fn usage(bench: &Bench) -> [(u64, u64); 3] {
    let Usage {
        live,
        noncurrent,
        soft_deleted,
    } = bench.admin().usage(BUCKET).unwrap();
    [live, noncurrent, soft_deleted].map(|Kept { versions, bytes }| (versions, bytes))
}

#[tokio::test]
async fn versioning_keeps_what_is_replaced_and_deleted() {
    let bench = bench(true, None).await;
    let first = generation(&bench.put("a", "1").await);
    let second = generation(&bench.put("a", "22").await);
    assert_eq!(usage(&bench), [(1, 2), (1, 1), (0, 0)]);
    let delete = |query: String| ask("DELETE", object_path("a", &query));
    bench.answer(delete(String::new())).await.expect(204);
    bench.stat("a").await.expect(404);
    assert!(list(&bench, "").await.is_empty());
    let all = list(&bench, "versions=true").await;
    assert_eq!(generations(&all), [first, second]);
    assert!(all.iter().all(|version| version["timeDeleted"].is_string()));
    let read = |generation: u64| {
        let query = format!("alt=media&generation={generation}");
        ask("GET", object_path("a", &query))
    };
    assert_eq!(bench.answer(read(first)).await.expect(200).body, "1");
    let patch = ask("PATCH", object_path("a", &format!("generation={first}")));
    let patch = patch.json(&json!({"contentType": "x/y"}));
    let patched = bench.answer(patch).await.expect(200).json();
    assert_eq!(
        (&patched["metageneration"], &patched["contentType"]),
        (&json!("2"), &json!("x/y"))
    );
    assert!(patched["timeDeleted"].is_string());
    // A name whose versions are all noncurrent is free, and keeps the bucket.
    let third = generation(
        &bench
            .answer(
                ask(
                    "POST",
                    upload_path("a", "uploadType=media&ifGenerationMatch=0"),
                )
                .body("3"),
            )
            .await
            .expect(200)
            .json(),
    );
    let all = list(&bench, "versions=true&maxResults=2").await;
    assert_eq!(generations(&all), [first, second]);
    bench
        .answer(delete(format!("generation={third}")))
        .await
        .expect(204);
    bench
        .answer(delete(format!("generation={first}")))
        .await
        .expect(204);
    bench.answer(read(first)).await.expect(404);
    assert_eq!(usage(&bench), [(0, 0), (1, 2), (0, 0)]);
    bench
        .answer(ask("DELETE", format!("/storage/v1/b/{BUCKET}")))
        .await
        .expect(409);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn soft_delete_keeps_for_a_while_what_would_be_gone() {
    let bench = bench(false, Some(WEEK)).await;
    let first = generation(&bench.put("a", "1").await);
    let second = generation(&bench.put("a", "22").await);
    bench
        .answer(ask("DELETE", object_path("a", "")))
        .await
        .expect(204);
    assert_eq!(usage(&bench), [(0, 0), (0, 0), (2, 3)]);
    assert!(list(&bench, "versions=true").await.is_empty());
    let deleted = list(&bench, "softDeleted=true").await;
    assert_eq!(generations(&deleted), [first, second]);
    assert!(deleted[0]["softDeleteTime"].is_string() && deleted[0]["hardDeleteTime"].is_string());
    let get = |query: &str| ask("GET", object_path("a", query));
    let of_first = format!("softDeleted=true&generation={first}");
    bench.answer(get(&of_first)).await.expect(200);
    bench.answer(get("softDeleted=true")).await.expect(400);
    bench
        .answer(get(&format!("generation={first}")))
        .await
        .expect(404);
    let restore = |query: &str| {
        let path = format!("/storage/v1/b/{BUCKET}/o/a/restore?{query}");
        ask("POST", path)
    };
    bench.answer(restore("")).await.expect(400);
    bench.answer(restore("generation=7")).await.expect(404);
    let restored = restore(&format!("generation={first}&ifGenerationMatch=0"));
    let restored = bench.answer(restored).await.expect(200).json();
    assert!(generation(&restored) > second && restored["softDeleteTime"].is_null());
    assert_eq!(bench.read("a").await.expect(200).body, "1");
    let again = restore(&format!("generation={second}&ifGenerationMatch=0"));
    bench.answer(again).await.expect(412);
    assert_eq!(usage(&bench), [(1, 1), (0, 0), (1, 2)]);
    bench.admin().advance_clock(WEEK + Duration::from_secs(1));
    assert_eq!(usage(&bench), [(1, 1), (0, 0), (0, 0)]);
    bench
        .answer(get(&format!("softDeleted=true&generation={second}")))
        .await
        .expect(404);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn noncurrent_versions_are_soft_deleted_when_they_are_deleted() {
    let bench = bench(true, Some(WEEK)).await;
    let first = generation(&bench.put("a", "1").await);
    bench.put("a", "22").await;
    let delete = ask("DELETE", object_path("a", &format!("generation={first}")));
    bench.answer(delete).await.expect(204);
    assert_eq!(usage(&bench), [(1, 2), (0, 0), (1, 1)]);
    let over_http = format!("/_emulator/buckets/{BUCKET}/usage");
    let told = bench.answer(ask("GET", over_http)).await.expect(200).json();
    assert_eq!(told["soft_deleted"], json!({"versions": 1, "bytes": 1}));
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_bucket_is_patched_and_tells_its_policies() {
    let bench = Bench::open().await;
    let path = format!("/storage/v1/b/{BUCKET}");
    let patch = |query: &str, body: Value| ask("PATCH", format!("{path}?{query}")).json(&body);
    let on = json!({
        "versioning": {"enabled": true},
        "softDeletePolicy": {"retentionDurationSeconds": "604800"},
    });
    bench
        .answer(patch("ifMetagenerationMatch=9", on.clone()))
        .await
        .expect(412);
    let told = bench
        .answer(patch("ifMetagenerationMatch=1", on))
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&told["versioning"]["enabled"], &told["metageneration"]),
        (&json!(true), &json!("2"))
    );
    assert_eq!(
        told["softDeletePolicy"]["retentionDurationSeconds"],
        "604800"
    );
    let off = json!({"softDeletePolicy": {"retentionDurationSeconds": 0}});
    let told = bench.answer(patch("", off)).await.expect(200).json();
    assert_eq!(told["softDeletePolicy"]["retentionDurationSeconds"], "0");
    assert_eq!(told["versioning"]["enabled"], true);
    let short = json!({"softDeletePolicy": {"retentionDurationSeconds": 60}});
    bench.answer(patch("", short)).await.expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_class_is_given_or_the_buckets_and_only_a_rewrite_changes_it() {
    let bench = Bench::open().await;
    let cold = json!({"name": "cold", "storageClass": "COLDLINE"});
    bench
        .answer(ask("POST", "/storage/v1/b?project=p").json(&cold))
        .await
        .expect(200);
    let put = ask(
        "POST",
        "/upload/storage/v1/b/cold/o?uploadType=media&name=a",
    )
    .body("x");
    let put = bench.answer(put).await.expect(200).json();
    assert_eq!(put["storageClass"], "COLDLINE");
    bench.put("a", "x").await;
    let patch = ask("PATCH", object_path("a", "")).json(&json!({"storageClass": "ARCHIVE"}));
    assert_eq!(
        bench.answer(patch).await.expect(200).json()["storageClass"],
        "STANDARD"
    );
    let path = format!("/storage/v1/b/{BUCKET}/o/a/rewriteTo/b/{BUCKET}/o/a");
    let rewrite = |class: &str| ask("POST", path.as_str()).json(&json!({"storageClass": class}));
    bench.answer(rewrite("TAPE")).await.expect(400);
    bench.answer(rewrite("NEARLINE")).await.expect(200);
    let listed = list(&bench, "").await;
    assert_eq!(listed[0]["storageClass"], "NEARLINE");
    let read = bench.read("a").await.expect(200);
    assert_eq!(read.header("x-goog-storage-class"), Some("NEARLINE"));
    bench.emulator.shutdown().await;
}
