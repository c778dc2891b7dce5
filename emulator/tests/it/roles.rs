use gcsmount_emulator::{Config, Role};
use serde_json::json;

use crate::client::{Ask, BUCKET, Bench, ask, encode, object_path, upload_path};

/// One ask for each kind of access, in the order of the table below.
fn asks() -> [Ask; 9] {
    let compose = format!("/storage/v1/b/{BUCKET}/o/c/compose");
    let moved = format!("/storage/v1/b/{BUCKET}/o/m/moveTo/o/{}", encode("n"));
    [
        ask("GET", object_path("a", "")),
        ask("GET", format!("/storage/v1/b/{BUCKET}/o")),
        ask("POST", upload_path("new", "uploadType=media")).body("x"),
        ask("POST", upload_path("a", "uploadType=media")).body("x"),
        ask("PATCH", object_path("a", "")).json(&json!({"contentType": "x/y"})),
        ask("POST", compose).json(&json!({"sourceObjects": [{"name": "a"}]})),
        ask("POST", moved),
        ask("DELETE", object_path("d", "")),
        ask("GET", format!("/storage/v1/b/{BUCKET}")),
    ]
}

#[tokio::test]
async fn each_role_lets_in_as_the_predefined_one_does() {
    // get, list, create, replace, update, compose, move, delete, the bucket
    for (role, allowed) in [
        (Role::Admin, [1, 1, 1, 1, 1, 1, 1, 1, 1]),
        (Role::ObjectAdmin, [1, 1, 1, 1, 1, 1, 1, 1, 0]),
        (Role::ObjectUser, [1, 1, 1, 1, 1, 1, 1, 1, 0]),
        (Role::ObjectViewer, [1, 1, 0, 0, 0, 0, 0, 0, 0]),
        (Role::ObjectCreator, [0, 0, 1, 0, 0, 0, 0, 0, 0]),
        (Role::ObjectReader, [1, 0, 0, 0, 0, 0, 0, 0, 0]),
        (Role::ObjectOwner, [1, 0, 0, 0, 1, 0, 0, 0, 0]),
        (Role::BucketReader, [0, 1, 0, 0, 0, 0, 0, 0, 1]),
        (Role::BucketWriter, [0, 1, 1, 1, 0, 0, 0, 1, 1]),
        (Role::BucketOwner, [0, 1, 1, 1, 0, 0, 0, 1, 1]),
    ] {
        let bench = Bench::with(Config {
            mutation_limit: None,
            ..Config::default()
        })
        .await;
        let admin = bench.admin();
        for name in ["a", "m", "d"] {
            admin.put_object(BUCKET, name, "data".into()).unwrap();
        }
        let binding = (admin.member("ns", "sa"), role);
        admin.replace_grants(BUCKET, &[binding]).unwrap();
        let token = bench.access_token("ns", "sa").await;
        let mut codes = Vec::new();
        for ask in asks() {
            codes.push(bench.answer(ask.bearer(&token)).await.code());
        }
        let let_in: Vec<i32> = codes.iter().map(|code| i32::from(*code < 300)).collect();
        assert_eq!(let_in, allowed, "{}: {codes:?}", role.name());
        let refused = codes.iter().filter(|code| **code >= 300);
        assert!(refused.into_iter().all(|code| *code == 403), "{codes:?}");
        bench.emulator.shutdown().await;
    }
}

/// Whoever may only create learns of an object in the way: by a condition before, or by the permission that lacks.
#[tokio::test]
async fn a_creator_replaces_nothing_by_any_way() {
    let bench = Bench::with(Config {
        mutation_limit: None,
        ..Config::default()
    })
    .await;
    let admin = bench.admin();
    admin.put_object(BUCKET, "a", "old".into()).unwrap();
    let bindings =
        [Role::ObjectCreator, Role::ObjectReader].map(|role| (admin.member("ns", "sa"), role));
    admin.replace_grants(BUCKET, &bindings).unwrap();
    let token = bench.access_token("ns", "sa").await;
    let copy = |target: &str| {
        ask(
            "POST",
            format!("/storage/v1/b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/{target}"),
        )
    };
    let compose = |target: &str| {
        ask("POST", format!("/storage/v1/b/{BUCKET}/o/{target}/compose"))
            .json(&json!({"sourceObjects": [{"name": "a"}]}))
    };
    for (ask, code) in [
        (copy("b"), 200),
        (copy("b"), 403),
        (compose("c"), 200),
        (compose("c"), 403),
        (ask("PUT", format!("/{BUCKET}/d")).body("x"), 200),
        (ask("PUT", format!("/{BUCKET}/d")).body("x"), 403),
        (ask("POST", upload_path("a", "uploadType=resumable")), 403),
        (
            ask(
                "POST",
                upload_path("a", "uploadType=media&ifGenerationMatch=0"),
            ),
            412,
        ),
    ] {
        let answer = bench.answer(ask.bearer(&token)).await;
        assert_eq!(answer.code(), code, "{}", answer.text());
        if code == 403 {
            assert!(
                answer.text().contains("storage.objects.delete"),
                "{}",
                answer.text()
            );
        }
    }
    // An object that came while a session was open is in the way of its end.
    let start = ask("POST", upload_path("late", "uploadType=resumable")).bearer(&token);
    let started = bench.answer(start).await.expect(200);
    let url: http::Uri = started.header("location").unwrap().parse().unwrap();
    admin.put_object(BUCKET, "late", "first".into()).unwrap();
    let end = ask("PUT", url.path_and_query().unwrap().as_str()).body("second");
    bench.answer(end).await.expect(403);
    let read = ask("GET", object_path("late", "alt=media")).bearer(&token);
    assert_eq!(bench.answer(read).await.expect(200).text(), "first");
    bench.emulator.shutdown().await;
}
