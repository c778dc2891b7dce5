//! Folders over canned answers, worded as the service words them.

use gcsmount_gcs::object::Layout;
use gcsmount_gcs::store::{FolderListRequest, FolderRename};
use gcsmount_gcs::{FolderName, Kind, Metageneration, Store};

use crate::script::{Seen, Server, Step, answer, json, refusal};

fn folder(name: &str) -> FolderName {
    FolderName::parse(name).unwrap()
}

fn resource(name: &str) -> Step {
    json(format!(
        r#"{{"kind":"storage#folder","bucket":"bkt","name":"{name}","metageneration":"1","createTime":"2026-10-02T19:10:28.854Z","updateTime":"2026-10-02T19:10:28.854Z"}}"#
    ))
}

/// Whatever is in a folder's way.
fn conflict() -> Step {
    refusal(409, "conflict")
}

fn missing() -> Step {
    refusal(404, "notFound")
}

fn targets(seen: &[Seen]) -> Vec<String> {
    let target = |seen: &Seen| {
        let path = seen.target.strip_prefix("/storage/v1/b/bkt/");
        format!("{} {}", seen.method, path.unwrap_or(&seen.target))
    };
    seen.iter().map(target).collect()
}

#[tokio::test(start_paused = true)]
async fn calls_are_worded_as_the_service_wants_them() {
    let page = r#"{"items":[{"name":"a/"},{"name":"a/b/"}],"nextPageToken":"t/2"}"#;
    let layout = r#"{"location":"US-CENTRAL1","locationType":"region","hierarchicalNamespace":{"enabled":true}}"#;
    let server = Server::new([
        resource("a/b/"),
        resource("a/b/"),
        json(page),
        json("{}"),
        answer(204, &[], ""),
        json(layout),
    ]);
    let store = server.store();
    let made = store.create_folder(&folder("a/b/"), true).await.unwrap();
    assert_eq!(store.folder(&folder("a/b/")).await.unwrap(), made);
    let mut request = FolderListRequest {
        prefix: "a/".to_owned(),
        children_only: true,
        max_results: Some(2),
        page_token: None,
    };
    let page = store.list_folders(&request).await.unwrap();
    assert_eq!(page.folders.len(), 2);
    request.page_token = page.next_page_token;
    assert!(
        store
            .list_folders(&request)
            .await
            .unwrap()
            .folders
            .is_empty()
    );
    let first = Some(Metageneration(1));
    store.delete_folder(&folder("a/b/"), first).await.unwrap();
    assert_eq!(
        store.layout().await.unwrap(),
        Layout {
            location: "US-CENTRAL1".to_owned(),
            location_type: "region".to_owned(),
            hierarchical: true,
        }
    );
    let seen = server.seen();
    assert_eq!(
        targets(&seen),
        [
            "POST folders?recursive=true",
            "GET folders/a%2Fb%2F",
            "GET folders?prefix=a%2F&delimiter=%2F&pageSize=2",
            "GET folders?prefix=a%2F&delimiter=%2F&pageToken=t%2F2&pageSize=2",
            "DELETE folders/a%2Fb%2F?ifMetagenerationMatch=1",
            "GET storageLayout",
        ]
    );
    assert_eq!(seen[0].body, r#"{"name":"a/b/"}"#);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_told_apart_by_a_look() {
    let a = folder("a/");
    // What a look answers, and what the conflict then was: to a creation, to a removal.
    for (look, create, delete) in [
        (resource("a/"), Kind::Exists, Kind::NotEmpty),
        (conflict(), Kind::Unsupported, Kind::Unsupported),
    ] {
        let server = Server::new([conflict(), look]);
        let error = server.store().create_folder(&a, false).await.unwrap_err();
        assert_eq!(error.kind, create);
        assert_eq!(targets(&server.seen())[1], "GET folders/a%2F");
        let look = match delete {
            Kind::NotEmpty => resource("a/"),
            _ => conflict(),
        };
        server.then([conflict(), look]);
        let error = server.store().delete_folder(&a, None).await.unwrap_err();
        assert_eq!(error.kind, delete);
        server.seen();
    }
    // No parent.
    let server = Server::new([conflict(), missing()]);
    let error = server.store().create_folder(&folder("x/y/"), false).await;
    assert_eq!(error.unwrap_err().kind, Kind::NotFound);
    server.seen();
    // In a flat bucket nothing can be in a look's way.
    server.then([conflict(), conflict()]);
    let store = server.store();
    assert_eq!(store.folder(&a).await.unwrap_err().kind, Kind::Unsupported);
    let list = store.list_folders(&FolderListRequest::default()).await;
    assert_eq!(list.unwrap_err().kind, Kind::Unsupported);
    server.seen();
}

#[tokio::test(start_paused = true)]
async fn a_lost_creation_or_removal_has_one_effect() {
    let a = folder("a/");
    // Its own echo, or a look, tells that it acted.
    let server = Server::new([Step::Lost, conflict(), resource("a/")]);
    server.store().create_folder(&a, false).await.unwrap();
    assert_eq!(server.seen().len(), 3);
    server.then([Step::Lost, resource("a/")]);
    server.store().create_folder(&a, false).await.unwrap();
    server.seen();

    let first = Some(Metageneration(1));
    server.then([Step::Lost, missing()]);
    server.store().delete_folder(&a, first).await.unwrap();
    let methods: Vec<_> = server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, ["DELETE", "DELETE"]);
    // Without a metageneration it is not repeated, but looked into.
    for (look, outcome) in [
        (missing(), Ok(())),
        (resource("a/"), Err(Kind::Unavailable)),
    ] {
        server.then([Step::Lost, look]);
        let deleted = server.store().delete_folder(&a, None).await;
        assert_eq!(deleted.map_err(|error| error.kind), outcome);
        let methods: Vec<_> = server.seen().into_iter().map(|seen| seen.method).collect();
        assert_eq!(methods, ["DELETE", "GET"]);
    }
    server.then([missing()]);
    let error = server.store().delete_folder(&a, first).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotFound);
}

fn rename() -> FolderRename {
    FolderRename {
        source: folder("a/"),
        target: folder("t/"),
        source_metageneration: None,
    }
}

fn pending(percent: u32) -> Step {
    json(format!(
        r#"{{"done":false,"kind":"storage#operation","name":"projects/_/buckets/bkt/operations/CiQ","metadata":{{"commonMetadata":{{"progressPercent":{percent}}}}}}}"#
    ))
}

fn done() -> Step {
    json(
        r#"{"done":true,"name":"projects/_/buckets/bkt/operations/CiQ","response":{"name":"projects/_/buckets/bkt/folders/t/","metageneration":"1"}}"#,
    )
}

#[tokio::test(start_paused = true)]
async fn a_rename_is_followed_to_its_end() {
    let server = Server::new([
        pending(1),
        pending(50),
        refusal(503, "backendError"),
        done(),
    ]);
    let request = FolderRename {
        source_metageneration: Some(Metageneration(3)),
        ..rename()
    };
    let moved = server.store().rename_folder(&request).await.unwrap();
    assert_eq!(moved.name, folder("t/"));
    let seen = server.seen();
    assert_eq!(
        targets(&seen[..2]),
        [
            "POST folders/a%2F/renameTo/folders/t%2F?ifSourceMetagenerationMatch=3",
            "GET operations/CiQ"
        ]
    );
    assert_eq!(seen[0].header("content-length"), "0");

    // Done at once, with and without the folder.
    server.then([done()]);
    server.store().rename_folder(&rename()).await.unwrap();
    let bare = json(r#"{"done":true,"name":"projects/_/buckets/bkt/operations/CiQ"}"#);
    server.then([bare, resource("t/")]);
    server.store().rename_folder(&rename()).await.unwrap();
    assert_eq!(targets(&server.seen())[2], "GET folders/t%2F");
}

#[tokio::test(start_paused = true)]
async fn a_rename_that_gets_on_has_the_time_it_needs() {
    // Ten minutes, a hundredth every six seconds; then it stands still.
    let mut looks = 0;
    let server = Server::thinking(move |_| {
        looks += 1;
        pending(looks / 3)
    });
    let limit = std::time::Duration::from_secs(600);
    let follow = tokio::time::timeout(limit, async {
        server.store().rename_folder(&rename()).await
    });
    assert!(follow.await.is_err(), "it gets on");
    let server = Server::thinking(|_| pending(40));
    let start = tokio::time::Instant::now();
    let error = server.store().rename_folder(&rename()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(error.message.contains("outcome is unknown"), "{error}");
    assert!((118..=120).contains(&start.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn a_rename_that_fails_says_why() {
    let failed = |code: u32| {
        json(format!(
            r#"{{"done":true,"name":"projects/_/buckets/bkt/operations/CiQ","error":{{"code":{code},"message":"the source changed"}}}}"#
        ))
    };
    for (steps, kind) in [
        (vec![missing()], Kind::NotFound),
        (vec![conflict(), resource("t/")], Kind::Exists),
        (vec![conflict(), missing()], Kind::NotFound),
        (vec![refusal(412, "conditionNotMet")], Kind::Precondition),
        (vec![pending(1), failed(9)], Kind::Precondition),
        (vec![pending(1), failed(7)], Kind::Denied),
        (vec![pending(1), failed(13)], Kind::Unavailable),
        (vec![json("{}")], Kind::Corrupt),
    ] {
        let server = Server::new(steps);
        let request = FolderRename {
            source_metageneration: Some(Metageneration(3)),
            ..rename()
        };
        let error = server.store().rename_folder(&request).await.unwrap_err();
        assert_eq!(
            (error.kind, error.operation, &*error.subject),
            (kind, "storage.folders.rename", "a/")
        );
        server.seen();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_rename_is_found_under_way_or_at_its_target() {
    let moving = || json(r#"{"name":"a/","pendingRenameInfo":{"operationId":"CiQ"}}"#);
    for (looks, outcome) in [
        (vec![moving(), pending(1), done()], Ok(())),
        (vec![missing(), resource("t/")], Ok(())),
        (vec![resource("a/")], Err("broke")),
        (vec![missing(), missing()], Err("broke")),
        (vec![refusal(403, "forbidden")], Err("unknown")),
        (vec![missing(), refusal(403, "forbidden")], Err("unknown")),
    ] {
        let server = Server::new([Step::Lost]);
        server.then(looks);
        match (server.store().rename_folder(&rename()).await, outcome) {
            (Ok(moved), Ok(())) => assert_eq!(moved.name, folder("t/")),
            (Err(error), Err(why)) => {
                assert_eq!(error.kind, Kind::Unavailable);
                assert!(error.message.contains(why), "{error}");
            }
            (got, _) => panic!("{got:?}"),
        }
        let posts = server.seen();
        let posts = posts.iter().filter(|seen| seen.method == "POST").count();
        assert_eq!(posts, 1, "it is never sent twice");
    }
    // With the source's metageneration it is, and meets its own echo.
    let server = Server::new([Step::Lost, missing(), missing(), resource("t/")]);
    let request = FolderRename {
        source_metageneration: Some(Metageneration(3)),
        ..rename()
    };
    server.store().rename_folder(&request).await.unwrap();
    assert_eq!(server.seen().len(), 4);
}
