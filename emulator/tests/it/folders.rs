use gcsmount_emulator::{BucketSettings, Config, Role};
use serde_json::{Value, json};

use crate::client::{Answer, Ask, Bench, ask, encode, names};

const HNS: &str = "folders";

/// With a bucket that has folders.
async fn bench() -> Bench {
    let bench = Bench::open().await;
    bench.admin().create_hierarchical_bucket(HNS).unwrap();
    bench
}

fn path(rest: &str) -> String {
    format!("/storage/v1/b/{HNS}/{rest}")
}

fn folder(name: &str) -> String {
    path(&format!("folders/{}", encode(name)))
}

fn insert(name: &str, query: &str) -> Ask {
    ask("POST", path(&format!("folders?{query}"))).json(&json!({"name": name}))
}

fn rename(source: &str, target: &str, query: &str) -> Ask {
    let target = encode(target);
    ask(
        "POST",
        format!("{}/renameTo/folders/{target}?{query}", folder(source)),
    )
}

async fn put(bench: &Bench, name: &str) -> Answer {
    let path = format!(
        "/upload/storage/v1/b/{HNS}/o?uploadType=media&name={}",
        encode(name)
    );
    bench.answer(ask("POST", path).body(name.to_owned())).await
}

async fn stat(bench: &Bench, name: &str) -> Answer {
    bench
        .answer(ask("GET", path(&format!("o/{}", encode(name)))))
        .await
}

async fn list(bench: &Bench, query: &str) -> Value {
    bench
        .answer(ask("GET", path(query)))
        .await
        .expect(200)
        .json()
}

#[tokio::test]
async fn folders_come_with_objects_and_stay() {
    let bench = bench().await;
    put(&bench, "a/b/o").await.expect(200);
    let made = bench
        .answer(ask("GET", folder("a/b/")))
        .await
        .expect(200)
        .json();
    assert_eq!(made["kind"], "storage#folder");
    assert_eq!(
        (&made["id"], &made["metageneration"]),
        (&json!("folders/a/b/"), &json!("1"))
    );
    assert_eq!(
        names(&list(&bench, "folders").await, "items"),
        ["a/", "a/b/"]
    );
    bench
        .answer(ask("DELETE", folder("a/b/")))
        .await
        .expect(409);
    bench
        .answer(ask("DELETE", path("o/a%2Fb%2Fo")))
        .await
        .expect(204);
    bench.answer(ask("DELETE", folder("a/"))).await.expect(409);
    bench
        .answer(ask("DELETE", format!("/storage/v1/b/{HNS}")))
        .await
        .expect(409);
    let stale = format!("{}?ifMetagenerationMatch=2", folder("a/b/"));
    bench.answer(ask("DELETE", stale)).await.expect(412);
    bench
        .answer(ask("DELETE", folder("a/b/")))
        .await
        .expect(204);
    bench.answer(ask("DELETE", folder("a/"))).await.expect(204);
    bench.answer(ask("GET", folder("a/"))).await.expect(404);
    let long = "x".repeat(513);
    assert_eq!(
        put(&bench, &format!("a/{long}")).await.expect(400).reason(),
        "invalid"
    );
    assert!(names(&list(&bench, "folders").await, "items").is_empty());
    bench
        .answer(ask("DELETE", format!("/storage/v1/b/{HNS}")))
        .await
        .expect(204);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_rename_is_an_operation_that_moves_everything_at_once() {
    let bench = bench().await;
    for name in ["a/o", "a/b/o", "a", "ab/o"] {
        put(&bench, name).await.expect(200);
    }
    bench.answer(insert("a/empty/", "")).await.expect(200);
    let before = stat(&bench, "a/b/o").await.expect(200).json();
    bench.answer(rename("a/", "t/new/", "")).await.expect(409);
    bench.answer(insert("t/", "")).await.expect(200);
    for key in ["ifMetagenerationMatch", "ifSourceMetagenerationMatch"] {
        let stale = rename("a/", "t/new/", &format!("{key}=9"));
        bench.answer(stale).await.expect(412);
    }
    for (source, target, code) in [
        ("a/", "ab/", 409),
        ("a/", "a/c/", 400),
        ("none/", "c/", 404),
        ("a/", "c", 400),
    ] {
        bench.answer(rename(source, target, "")).await.expect(code);
    }
    let asked = rename("a/", "t/new/", "ifMetagenerationMatch=1");
    let begun = bench.answer(asked).await.expect(200).json();
    assert_eq!(begun["done"], false);
    let id = begun["name"].as_str().unwrap().rsplit('/').next().unwrap();
    let done = list(&bench, &format!("operations/{id}")).await;
    assert_eq!(done["done"], true);
    assert_eq!(
        done["response"]["name"],
        format!("projects/_/buckets/{HNS}/folders/t/new/")
    );
    let objects = list(&bench, "o").await;
    assert_eq!(
        names(&objects, "items"),
        ["a", "ab/o", "t/new/b/o", "t/new/o"]
    );
    let folders = list(&bench, "folders?prefix=t/&delimiter=/").await;
    assert_eq!(names(&folders, "items"), ["t/", "t/new/"]);
    let after = stat(&bench, "t/new/b/o").await.expect(200).json();
    assert_eq!(
        (&after["generation"], &after["metageneration"]),
        (&before["generation"], &before["metageneration"])
    );
    let prefixes = "o?delimiter=/&prefix=t/new/&includeFoldersAsPrefixes=true";
    assert_eq!(
        names(&list(&bench, prefixes).await, "prefixes"),
        ["t/new/b/", "t/new/empty/"]
    );
    bench
        .answer(ask("GET", path("operations/none")))
        .await
        .expect(404);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn the_namespace_is_chosen_at_birth() {
    let bench = Bench::open().await;
    let create = |body: Value| ask("POST", "/storage/v1/b?project=demo").json(&body);
    let without = json!({
        "name": HNS,
        "hierarchicalNamespace": {"enabled": true},
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": false}},
    });
    bench.answer(create(without)).await.expect(400);
    let with = json!({
        "name": HNS,
        "hierarchicalNamespace": {"enabled": true},
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": true}},
    });
    let bucket = bench.answer(create(with)).await.expect(200).json();
    assert_eq!(bucket["hierarchicalNamespace"]["enabled"], true);
    let layout = list(&bench, "storageLayout").await;
    assert_eq!(layout["hierarchicalNamespace"]["enabled"], true);
    let settings = BucketSettings {
        uniform_access: false,
        ..BucketSettings::default()
    };
    bench.admin().set_bucket(HNS, settings).unwrap_err();
    let over_http = json!({"name": "more-folders", "hierarchical": true});
    bench
        .answer(ask("POST", "/_emulator/buckets").json(&over_http))
        .await
        .expect(200);
    let flat = "/storage/v1/b/bucket/folders";
    for asked in [
        ask("GET", flat),
        ask("GET", format!("{flat}/a%2F")),
        ask("DELETE", format!("{flat}/a%2F")),
        ask("POST", flat).json(&json!({"name": "a/"})),
        ask("POST", format!("{flat}/a%2F/renameTo/folders/b%2F")),
    ] {
        assert_eq!(bench.answer(asked).await.expect(409).reason(), "conflict");
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn folders_ask_for_permissions_of_their_own() {
    let bench = Bench::with(Config::default()).await;
    let admin = bench.admin();
    admin.create_hierarchical_bucket(HNS).unwrap();
    let token = bench.access_token("ns", "sa").await;
    let member = admin.member("ns", "sa");
    for (role, codes) in [
        (Role::ObjectUser, [200, 200, 200, 200, 204]),
        (Role::ObjectViewer, [403, 404, 200, 403, 403]),
        (Role::ObjectCreator, [200, 403, 403, 403, 403]),
    ] {
        admin
            .replace_grants(HNS, &[(member.clone(), role)])
            .unwrap();
        let name = format!("{role:?}/");
        let target = format!("{role:?}-moved/");
        for (asked, code) in [
            insert(&name, ""),
            ask("GET", folder(&name)),
            ask("GET", path("folders")),
            rename(&name, &target, ""),
            ask("DELETE", folder(&target)),
        ]
        .into_iter()
        .zip(codes)
        {
            bench.answer(asked.bearer(&token)).await.expect(code);
        }
    }
    bench.emulator.shutdown().await;
}
