use std::time::Duration;

use gcsmount_emulator::{Auth, Config, MutationLimit};
use serde_json::{Value, json};

use crate::client::{BUCKET, Bench, ask, generation, names, object_path, upload_path};

fn compose_path(name: &str, query: &str) -> String {
    format!("/storage/v1/b/{BUCKET}/o/{name}/compose?{query}")
}

#[tokio::test]
async fn patch_merges_and_null_deletes() {
    let bench = Bench::open().await;
    let first = bench.put("a", "data").await;
    let patch = |body: Value| ask("PATCH", object_path("a", "")).json(&body);
    bench
        .answer(patch(
            json!({"metadata": {"x": "1", "y": "2"}, "cacheControl": "no-store"}),
        ))
        .await
        .expect(200);
    let answer = bench
        .answer(patch(
            json!({"metadata": {"x": null, "z": "3"}, "contentLanguage": "en"}),
        ))
        .await;
    let resource = answer.expect(200).json();
    assert_eq!(resource["metadata"], json!({"y": "2", "z": "3"}));
    assert_eq!(
        (&resource["cacheControl"], &resource["contentLanguage"]),
        (&json!("no-store"), &json!("en"))
    );
    assert_eq!(resource["metageneration"], "3");
    assert_eq!(resource["generation"], first["generation"]);
    assert_eq!(resource["timeCreated"], first["timeCreated"]);
    assert_ne!(resource["updated"], first["updated"]);
    assert_ne!(resource["etag"], first["etag"]);
    let cleared = bench
        .answer(patch(json!({"metadata": null, "cacheControl": null})))
        .await
        .expect(200)
        .json();
    assert!(cleared.get("metadata").is_none() && cleared.get("cacheControl").is_none());
    assert_eq!(bench.read("a").await.body, "data");
    bench
        .answer(patch(json!({"metadata": 5})))
        .await
        .expect(400);
    assert_eq!(
        bench
            .answer(ask("PATCH", object_path("a", "")).body("{"))
            .await
            .expect(400)
            .reason(),
        "parseError"
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn update_replaces_all_attributes() {
    let bench = Bench::open().await;
    bench.put("a", "data").await;
    let put = |body: Value| ask("PUT", object_path("a", "")).json(&body);
    bench
        .answer(put(json!({"metadata": {"x": "1"}, "contentType": "a/b"})))
        .await
        .expect(200);
    let resource = bench
        .answer(put(json!({"contentType": "c/d"})))
        .await
        .expect(200)
        .json();
    assert!(resource.get("metadata").is_none());
    assert_eq!(
        (&resource["contentType"], &resource["metageneration"]),
        (&json!("c/d"), &json!("3"))
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn delete_answers_204_then_404() {
    let bench = Bench::open().await;
    let old = generation(&bench.put("a", "1").await);
    bench.put("a", "2").await;
    bench
        .answer(ask(
            "DELETE",
            object_path("a", &format!("generation={old}")),
        ))
        .await
        .expect(404);
    let gone = bench
        .answer(ask("DELETE", object_path("a", "")))
        .await
        .expect(204);
    assert!(gone.body.is_empty());
    bench
        .answer(ask("DELETE", object_path("a", "")))
        .await
        .expect(404);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn compose_joins_in_order_and_says_so() {
    let bench = Bench::open().await;
    for (name, data) in [("a", "1234"), ("b", "56789")] {
        bench.put(name, data).await;
    }
    let request = json!({
        "sourceObjects": [{"name": "a"}, {"name": "b"}],
        "destination": {"contentType": "text/plain", "metadata": {"k": "v"}},
    });
    let resource = bench
        .answer(ask("POST", compose_path("c", "")).json(&request))
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&resource["componentCount"], &resource["crc32c"]),
        (&json!(2), &json!("4waSgw=="))
    );
    assert_eq!(
        (&resource["contentType"], &resource["metadata"]["k"]),
        (&json!("text/plain"), &json!("v"))
    );
    assert!(resource.get("md5Hash").is_none());
    let media = bench.read("c").await;
    assert_eq!(
        (
            media.text().as_str(),
            media.headers.get_all("x-goog-hash").iter().count()
        ),
        ("123456789", 1)
    );
    let append = json!({"sourceObjects": [{"name": "c"}, {"name": "a"}]});
    let appended = bench
        .answer(ask("POST", compose_path("c", "")).json(&append))
        .await
        .expect(200)
        .json();
    assert_eq!(appended["componentCount"], 3);
    assert_eq!(bench.read("c").await.text(), "1234567891234");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn compose_refuses_bad_sources() {
    let bench = Bench::open().await;
    let generation = generation(&bench.put("a", "x").await);
    let sources = |count: usize| json!({"sourceObjects": vec![json!({"name": "a"}); count]});
    let conditional = |value: u64| {
        let conditions = json!({"ifGenerationMatch": value.to_string()});
        json!({"sourceObjects": [{"name": "a", "objectPreconditions": conditions}]})
    };
    for (request, code) in [
        (sources(0), 400),
        (sources(32), 200),
        (sources(33), 400),
        (conditional(generation), 200),
        (conditional(generation + 1), 412),
        (
            json!({"sourceObjects": [{"name": "a", "generation": generation}]}),
            200,
        ),
        (
            json!({"sourceObjects": [{"name": "a", "generation": "1"}]}),
            404,
        ),
        (
            json!({"sourceObjects": [{"name": "a", "generation": "x"}]}),
            400,
        ),
        (json!({"sourceObjects": [{"name": "missing"}]}), 404),
        (json!({"sourceObjects": "a"}), 400),
    ] {
        let answer = bench
            .answer(ask("POST", compose_path("c", "")).json(&request))
            .await;
        assert_eq!(answer.code(), code, "{request}");
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn compose_deletes_its_sources_on_request_but_never_the_target() {
    let bench = Bench::open().await;
    for name in ["a", "b", "c"] {
        bench.put(name, name.to_owned()).await;
    }
    let request =
        json!({"sourceObjects": [{"name": "a"}, {"name": "b"}], "deleteSourceObjects": true});
    bench
        .answer(ask("POST", compose_path("a", "")).json(&request))
        .await
        .expect(200);
    let list = bench
        .answer(ask("GET", format!("/storage/v1/b/{BUCKET}/o")))
        .await
        .json();
    assert_eq!(names(&list, "items"), ["a", "c"]);
    assert_eq!(bench.read("a").await.text(), "ab");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn rewrite_and_copy_carry_metadata_or_take_new() {
    let bench = Bench::open().await;
    bench.admin().create_bucket("other-bucket").unwrap();
    bench.put("a", "data").await;
    bench
        .answer(ask("PATCH", object_path("a", "")).json(&json!({"metadata": {"k": "v"}})))
        .await
        .expect(200);
    let path = format!("/storage/v1/b/{BUCKET}/o/a/rewriteTo/b/other-bucket/o/b");
    bench
        .answer(ask("POST", path.clone()).body("null"))
        .await
        .expect(200);
    let reply = bench.answer(ask("POST", path)).await.expect(200).json();
    assert_eq!(
        (&reply["done"], &reply["totalBytesRewritten"]),
        (&json!(true), &json!("4"))
    );
    assert_eq!(
        (
            &reply["resource"]["metadata"]["k"],
            &reply["resource"]["bucket"]
        ),
        (&json!("v"), &json!("other-bucket"))
    );
    assert_eq!(reply["resource"]["metageneration"], "1");
    let path = format!("/storage/v1/b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/c");
    let copied = bench
        .answer(ask("POST", path).json(&json!({"contentType": "x/y"})))
        .await
        .expect(200)
        .json();
    assert_eq!(copied["contentType"], "x/y");
    assert!(copied.get("metadata").is_none() && copied.get("md5Hash").is_some());
    let path = format!("/storage/v1/b/{BUCKET}/o/missing/copyTo/b/{BUCKET}/o/c");
    bench.answer(ask("POST", path)).await.expect(404);
    let path = format!("/storage/v1/b/{BUCKET}/o/a/copyTo/b/nobucket/o/c");
    bench.answer(ask("POST", path)).await.expect(404);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn rewrite_goes_in_steps_when_asked() {
    let bench = Bench::open().await;
    let size = (2 << 20) + 5;
    bench.put("a", vec![7; size]).await;
    let path = |token: &str| {
        format!(
            "/storage/v1/b/{BUCKET}/o/a/rewriteTo/b/{BUCKET}/o/b?maxBytesRewrittenPerCall=1048576&rewriteToken={token}"
        )
    };
    let mut token = String::new();
    for written in [1_usize << 20, 2 << 20] {
        let reply = bench
            .answer(ask("POST", path(&token)))
            .await
            .expect(200)
            .json();
        assert_eq!(
            (&reply["done"], &reply["totalBytesRewritten"]),
            (&json!(false), &json!(written.to_string()))
        );
        bench.stat("b").await.expect(404);
        token = reply["rewriteToken"].as_str().unwrap().to_owned();
    }
    assert_eq!(
        bench
            .answer(ask("POST", path(&token)))
            .await
            .expect(200)
            .json()["done"],
        true
    );
    assert_eq!(bench.read("b").await.body.len(), size);
    bench.put("a", "changed").await;
    bench.answer(ask("POST", path(&token))).await.expect(400);
    bench
        .answer(ask("POST", path("").replace("1048576", "5")))
        .await
        .expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn move_leaves_one_object_under_the_new_name() {
    let bench = Bench::open().await;
    let old = bench.put("a", "data").await;
    let path = format!("/storage/v1/b/{BUCKET}/o/a/moveTo/o/dir%2Fb");
    let moved = bench
        .answer(ask("POST", path.clone()))
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&moved["name"], &moved["md5Hash"]),
        (&json!("dir/b"), &old["md5Hash"])
    );
    assert!(generation(&moved) > generation(&old));
    bench.stat("a").await.expect(404);
    assert_eq!(bench.read("dir/b").await.body, "data");
    bench.answer(ask("POST", path)).await.expect(404);
    let onto_itself = format!("/storage/v1/b/{BUCKET}/o/dir%2Fb/moveTo/o/dir%2Fb");
    bench.answer(ask("POST", onto_itself)).await.expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn one_object_changes_five_times_at_once_and_then_once_a_second() {
    // So slow that nothing is refilled while the test runs.
    let limit = MutationLimit {
        per_second: 0.001,
        burst: 5,
    };
    let bench = Bench::with(Config {
        auth: Auth::Off,
        mutation_limit: Some(limit),
        ..Config::default()
    })
    .await;
    for _ in 0..4 {
        bench.put("a", "x").await;
    }
    bench
        .answer(ask("PATCH", object_path("a", "")).json(&json!({})))
        .await
        .expect(200);
    let refused = bench
        .answer(ask("POST", upload_path("a", "uploadType=media")).body("y"))
        .await
        .expect(429);
    assert_eq!(refused.reason(), "rateLimitExceeded");
    let message = refused.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.starts_with(
            "The object bucket/a exceeded the rate limit for object mutation operations"
        )
    );
    for ask in [
        ask("PATCH", object_path("a", "")).json(&json!({})),
        ask("DELETE", object_path("a", "")),
        ask("POST", format!("/storage/v1/b/{BUCKET}/o/a/moveTo/o/b")),
        ask("POST", compose_path("a", "")).json(&json!({"sourceObjects": [{"name": "a"}]})),
    ] {
        bench.answer(ask).await.expect(429);
    }
    let failed = ask("DELETE", object_path("a", "ifGenerationMatch=1"));
    bench.answer(failed).await.expect(412);
    assert_eq!(bench.read("a").await.body, "x");
    bench.put("b", "x").await;
    bench
        .admin()
        .put_object(BUCKET, "a", "planted".into())
        .unwrap();
    bench.admin().advance_clock(Duration::from_secs(1000));
    bench.put("a", "y").await;
    bench.emulator.shutdown().await;
}
