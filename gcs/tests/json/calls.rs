//! Mutations and their lost answers: counted at the server, so that "once" is seen and not assumed.

use gcsmount_gcs::object::{Attributes, Digest};
use gcsmount_gcs::store::{ComposeSource, Patch, Preconditions, Sources, TransferRequest};
use gcsmount_gcs::{Cause, Generation, Kind, Metageneration, Store};

use crate::script::{
    Server, Step, answer, config, json, name, object, object_named, refusal, refusal_with, write,
};

const NONE: Preconditions = Preconditions {
    generation: None,
    generation_not: None,
    metageneration: None,
    metageneration_not: None,
};

fn at(generation: i64) -> Preconditions {
    Preconditions::generation(Generation(generation))
}

#[tokio::test(start_paused = true)]
async fn a_write_is_one_request() {
    let server = Server::new([json(object(7, b"body"))]);
    let mut request = write("o", Preconditions::absent());
    request.attributes.content_type = Some("text/plain\r\nx: y".to_owned());
    let written = server.store().write(&request, "body".into()).await.unwrap();
    assert_eq!(written.generation, Generation(7));
    let [seen] = &server.seen()[..] else {
        panic!("one request")
    };
    assert_eq!(
        seen.target,
        "/upload/storage/v1/b/bkt/o?uploadType=multipart&ifGenerationMatch=0"
    );
    assert_eq!(seen.header("content-length"), seen.body.len().to_string());
    let boundary = seen
        .header("content-type")
        .strip_prefix("multipart/related; boundary=")
        .unwrap();
    let text = std::str::from_utf8(&seen.body).unwrap();
    let parts: Vec<_> = text.split(&format!("--{boundary}")).collect();
    assert_eq!(
        parts,
        [
            "",
            "\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n\
             {\"name\":\"o\",\"crc32c\":\"Jj/JUA==\",\"contentType\":\"text/plain\\r\\nx: y\"}\r\n",
            "\r\nContent-Type: application/octet-stream\r\n\r\nbody\r\n",
            "--\r\n",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_under_a_generation_is_repeated() {
    let server = Server::new([
        refusal(503, "backendError"),
        Step::Lost,
        json(object(8, b"body")),
    ]);
    let written = server
        .store()
        .write(&write("o", at(7)), "body".into())
        .await;
    assert_eq!(written.unwrap().generation, Generation(8));
    let bodies: Vec<_> = server.seen().into_iter().map(|seen| seen.body).collect();
    assert!(bodies.len() == 3 && bodies.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test(start_paused = true)]
async fn a_write_without_precondition_is_not_repeated() {
    let server = Server::new([Step::Lost, json(object(6, b"old!"))]);
    let error = server
        .store()
        .write(&write("o", NONE), "body".into())
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (Kind::Unavailable, Some(Cause::Broken))
    );
    let seen = server.seen();
    assert_eq!([&seen[0].method, &seen[1].method], ["POST", "GET"]);

    // A throttled or refused write did nothing, so it is.
    server.then([
        refusal_with(429, "rateLimitExceeded", &[("retry-after", "1")]),
        json(object(8, b"body")),
    ]);
    server.refuse(1);
    server
        .store()
        .write(&write("o", NONE), "body".into())
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_echo_of_a_lost_write_is_a_success() {
    let server = Server::new([
        Step::Lost,
        refusal(412, "conditionNotMet"),
        json(object(8, b"body")),
    ]);
    let written = server
        .store()
        .write(&write("o", at(7)), "body".into())
        .await;
    assert_eq!(written.unwrap().generation, Generation(8));
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_echo_of_a_strangers_write_is_a_conflict() {
    for live in [object(8, b"them"), object(7, b"body")] {
        let server = Server::new([Step::Lost, refusal(412, "conditionNotMet"), json(live)]);
        let written = server
            .store()
            .write(&write("o", at(7)), "body".into())
            .await;
        assert_eq!(written.unwrap_err().kind, Kind::Precondition);
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_at_once_is_not_looked_into() {
    let server = Server::new([refusal(412, "conditionNotMet")]);
    let written = server
        .store()
        .write(&write("o", at(7)), "body".into())
        .await;
    assert_eq!(written.unwrap_err().kind, Kind::Precondition);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_looked_up_is_unknown() {
    let server = Server::new([
        Step::Lost,
        refusal(412, "conditionNotMet"),
        refusal(403, "forbidden"),
    ]);
    let error = server
        .store()
        .write(&write("o", at(7)), "body".into())
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(
        error.message.starts_with("the outcome is unknown"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn other_bytes_than_were_sent_are_corrupt() {
    let server = Server::new([json(object(8, b"bode"))]);
    let written = server
        .store()
        .write(&write("o", at(7)), "body".into())
        .await;
    assert_eq!(written.unwrap_err().kind, Kind::Corrupt);
}

#[tokio::test(start_paused = true)]
async fn a_lost_delete_is_not_a_missing_object() {
    let server = Server::new([Step::Lost, refusal(404, "notFound")]);
    server.store().delete(&name("o"), &at(7)).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[1].target, "/storage/v1/b/bkt/o/o?ifGenerationMatch=7");
    assert_eq!([&seen[0].method, &seen[1].method], ["DELETE", "DELETE"]);

    // Without a precondition it is looked into instead.
    server.then([Step::Lost, refusal(404, "notFound")]);
    server.store().delete(&name("o"), &NONE).await.unwrap();
    assert_eq!(server.seen()[1].method, "GET");
    server.then([Step::Lost, json(object(7, b"x"))]);
    let error = server.store().delete(&name("o"), &NONE).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    server.then([refusal(404, "notFound")]);
    let error = server.store().delete(&name("o"), &at(7)).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotFound);
    server.then([answer(204, &[], "")]);
    server.store().delete(&name("o"), &at(7)).await.unwrap();
}

fn transfer(source: Preconditions, target: Preconditions) -> TransferRequest {
    TransferRequest {
        source: name("o"),
        target: name("p"),
        source_preconditions: source,
        target_preconditions: target,
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_rename_is_found_at_its_target() {
    let server = Server::new([
        Step::Lost,
        refusal(404, "notFound"),
        refusal(404, "notFound"),
        json(object_named("p", 9, b"x")),
    ]);
    let request = transfer(at(7), Preconditions::absent());
    let moved = server.store().rename(&request).await.unwrap();
    assert_eq!(moved.name, name("p"));
    let seen = server.seen();
    assert_eq!(
        seen[1].target,
        "/storage/v1/b/bkt/o/o/moveTo/o/p?ifGenerationMatch=0&ifSourceGenerationMatch=7"
    );
    assert_eq!(seen[3].target, "/storage/v1/b/bkt/o/p");
}

#[tokio::test(start_paused = true)]
async fn a_rename_that_lost_its_source_to_somebody_else_is_told() {
    // The target is older than the source was: nobody moved anything there since.
    let server = Server::new([
        Step::Lost,
        refusal(404, "notFound"),
        refusal(404, "notFound"),
        json(object_named("p", 5, b"x")),
    ]);
    let error = server
        .store()
        .rename(&transfer(at(7), NONE))
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    // The source is still there: it did not happen.
    server.then([
        Step::Lost,
        refusal(412, "conditionNotMet"),
        json(object(8, b"x")),
    ]);
    let error = server
        .store()
        .rename(&transfer(at(7), NONE))
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Precondition);
}

#[tokio::test(start_paused = true)]
async fn a_copy_follows_its_tokens() {
    let done = format!(
        r#"{{"done":true,"resource":{}}}"#,
        object_named("p", 9, b"x")
    );
    let server = Server::new([
        json(r#"{"done":false,"rewriteToken":"t/1"}"#),
        json(r#"{"done":false,"rewriteToken":"t/2"}"#),
        json(done),
    ]);
    let copy = server
        .store()
        .copy(&transfer(NONE, Preconditions::absent()))
        .await;
    assert_eq!(copy.unwrap().generation, Generation(9));
    let seen = server.seen();
    assert_eq!(
        seen[2].target,
        "/storage/v1/b/bkt/o/o/rewriteTo/b/bkt/o/p?ifGenerationMatch=0&rewriteToken=t%2F2"
    );
    assert_eq!(seen[2].header("content-length"), "0");
    server.then([json(r#"{"done":false}"#)]);
    let error = server
        .store()
        .copy(&transfer(NONE, NONE))
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Corrupt);
}

#[tokio::test(start_paused = true)]
async fn a_lost_copy_equals_its_source() {
    let server = Server::new([
        Step::Lost,
        refusal(412, "conditionNotMet"),
        json(object(7, b"x")),
        json(object_named("p", 9, b"x")),
    ]);
    let request = transfer(NONE, Preconditions::absent());
    assert_eq!(
        server.store().copy(&request).await.unwrap().generation,
        Generation(9)
    );
    server.then([
        Step::Lost,
        refusal(412, "conditionNotMet"),
        json(object(7, b"x")),
        json(object_named("p", 9, b"y")),
    ]);
    let error = server.store().copy(&request).await.unwrap_err();
    assert_eq!(error.kind, Kind::Precondition);
}

#[tokio::test(start_paused = true)]
async fn a_lost_patch_is_one_metageneration_on() {
    let patched = |metageneration: i64, value: &str| {
        let resource = object(7, b"x").replace(
            r#""metageneration":"1""#,
            &format!(r#""metageneration":"{metageneration}","metadata":{{"k":"{value}"}}"#),
        );
        json(resource)
    };
    let patch = Patch {
        content_type: None,
        metadata: vec![("k".to_owned(), Some("v".to_owned()))],
    };
    let preconditions = Preconditions {
        metageneration: Some(Metageneration(3)),
        ..at(7)
    };
    for (live, good) in [
        (patched(4, "v"), true),
        (patched(5, "v"), false),
        (patched(4, "w"), false),
    ] {
        let server = Server::new([Step::Lost, refusal(412, "conditionNotMet"), live]);
        let result = server
            .store()
            .patch(&name("o"), &patch, &preconditions)
            .await;
        match result {
            Ok(object) => assert!(good && object.metageneration == Metageneration(4)),
            Err(error) => assert!(!good && error.kind == Kind::Precondition),
        }
        let seen = server.seen();
        assert_eq!(seen[1].body, r#"{"metadata":{"k":"v"}}"#);
        assert_eq!(seen[1].method, "PATCH");
    }
}

fn source(object: &str) -> ComposeSource {
    ComposeSource {
        name: name(object),
        generation: Some(Generation(3)),
        known: None,
    }
}

/// A source that the caller knows to hold `content`.
fn known(object: &str, generation: i64, content: &[u8]) -> ComposeSource {
    ComposeSource {
        name: name(object),
        generation: Some(Generation(generation)),
        known: Some(Digest {
            size: content.len() as u64,
            crc32c: crc32c::crc32c(content),
        }),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_compose_is_known_by_its_checksum() {
    for (target, good) in [(object(9, b"onetwo"), true), (object(9, b"twoone"), false)] {
        let server = Server::new([
            Step::Lost,
            refusal(412, "conditionNotMet"),
            json(object_named("a", 3, b"one")),
            json(object_named("b", 3, b"two")),
            json(target),
        ]);
        let result = server
            .store()
            .compose(
                &write("o", at(7)),
                &[source("a"), source("b")],
                Sources::Keep,
            )
            .await;
        assert_eq!(result.is_ok(), good);
        let seen = server.seen();
        assert_eq!(
            seen[0].target,
            "/storage/v1/b/bkt/o/o/compose?ifGenerationMatch=7"
        );
        assert_eq!(
            seen[0].body,
            r#"{"sourceObjects":[{"name":"a","objectPreconditions":{"ifGenerationMatch":"3"}},{"name":"b","objectPreconditions":{"ifGenerationMatch":"3"}}],"destination":{}}"#
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_replaced_proves_nothing() {
    let server = Server::new([
        Step::Lost,
        refusal(412, "conditionNotMet"),
        json(object_named("a", 4, b"one")),
        json(object_named("b", 3, b"two")),
    ]);
    let sources = [source("a"), source("b")];
    let result = server
        .store()
        .compose(&write("o", at(7)), &sources, Sources::Keep)
        .await;
    assert_eq!(result.unwrap_err().kind, Kind::Unavailable);
    server.seen();
}

#[tokio::test(start_paused = true)]
async fn a_lost_append_is_known_by_what_was_appended_to() {
    let append = |server: &Server| {
        let store = server.store();
        async move {
            let sources = [known("o", 7, b"base "), known("t", 3, b"tail")];
            store
                .compose(&write("o", at(7)), &sources, Sources::Keep)
                .await
        }
    };
    // What the repetition meets, what is live then, and what the caller hears.
    let echo = || refusal(412, "conditionNotMet");
    let gone = || refusal(404, "notFound");
    let done = || json(object(8, b"base tail"));
    for (echo, live, heard) in [
        (echo(), done(), Ok(Generation(8))),
        (gone(), done(), Ok(Generation(8))),
        (echo(), json(object(9, b"other")), Err(Kind::Precondition)),
        (echo(), gone(), Err(Kind::Precondition)),
        (echo(), refusal(403, "forbidden"), Err(Kind::Unavailable)),
    ] {
        let server = Server::new([Step::Lost, echo, live]);
        let result = append(&server).await;
        assert_eq!(
            result.map(|o| o.generation).map_err(|error| error.kind),
            heard
        );
        assert_eq!(server.seen()[2].target, "/storage/v1/b/bkt/o/o");
    }

    // The base is still there: the compose did not happen, is repeated, and does.
    let server = Server::new([refusal(503, "backendError"), done()]);
    assert_eq!(append(&server).await.unwrap().generation, Generation(8));
    server.seen();

    // It never happens: a failure, and no unknown outcome.
    let attempts = config(None).retry.attempts as usize;
    let server = Server::new((0..attempts).map(|_| Step::Lost));
    server.then([json(object(7, b"base "))]);
    let error = append(&server).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert!(!error.message.contains("unknown"), "{error}");
    server.seen();
}

#[tokio::test(start_paused = true)]
async fn sources_that_a_lost_compose_left_are_deleted_by_their_generation() {
    let compose = |server: &Server| {
        let store = server.store();
        async move {
            let sources = [
                known("o", 7, b"base "),
                known("a", 3, b"one"),
                known("b", 4, b"two"),
            ];
            let request = write("o", at(7));
            store.compose(&request, &sources, Sources::Delete).await
        }
    };
    let done = || json(object(8, b"base onetwo"));
    let ok = || answer(204, &[], "");
    // What the second of the others meets: it is gone already, or somebody else's by now, or may not be deleted. The
    // target is there all the same, and a failure would say that it is not.
    for second in [
        refusal(404, "notFound"),
        refusal(412, "conditionNotMet"),
        refusal(403, "forbidden"),
    ] {
        let server = Server::new([Step::Lost, refusal(404, "notFound"), done(), ok(), second]);
        let object = compose(&server).await.unwrap();
        assert_eq!(object.generation, Generation(8));
        let seen = server.seen();
        assert!(
            seen[0]
                .body
                .ends_with(br#""deleteSourceObjects":true,"destination":{}}"#),
            "{:?}",
            seen[0].body
        );
        let deleted: Vec<_> = seen[3..]
            .iter()
            .map(|seen| format!("{} {}", seen.method, seen.target))
            .collect();
        assert_eq!(
            deleted,
            [
                "DELETE /storage/v1/b/bkt/o/a?ifGenerationMatch=3",
                "DELETE /storage/v1/b/bkt/o/b?ifGenerationMatch=4"
            ]
        );
    }
    // It never happened: nobody deletes anything.
    let server = Server::new([
        Step::Lost,
        refusal(404, "notFound"),
        json(object(9, b"other")),
    ]);
    assert_eq!(compose(&server).await.unwrap_err().kind, Kind::NotFound);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_lost_append_to_what_nobody_knows_stays_unknown() {
    let server = Server::new([Step::Lost, refusal(412, "conditionNotMet")]);
    let result = server
        .store()
        .compose(
            &write("o", at(7)),
            &[source("o"), source("b")],
            Sources::Keep,
        )
        .await;
    assert_eq!(result.unwrap_err().kind, Kind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_412_without_precondition_is_a_denial() {
    let server = Server::new([refusal(412, "conditionNotMet")]);
    let error = server.store().stat(&name("o")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Denied);
    assert!(
        error.message.contains("uniform bucket-level access"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn every_request_says_who_and_for_whom() {
    let server = Server::new([json(object(7, b"x"))]);
    let mut config = config(None);
    config.billing_project = Some("payer".to_owned());
    config.user_agent = "tester/1".to_owned();
    server.store_with(config).stat(&name("o")).await.unwrap();
    let seen = server.seen();
    assert_eq!(seen[0].header("user-agent"), "tester/1");
    assert_eq!(seen[0].header("x-goog-user-project"), "payer");
    assert_eq!(seen[0].header("host"), "store.test");
    assert_eq!(seen[0].header("authorization"), "");
}

#[tokio::test(start_paused = true)]
async fn attributes_must_match_for_an_echo() {
    let mut request = write("o", at(7));
    request.attributes = Attributes {
        metadata: [("mtime".to_owned(), "1".to_owned())].into(),
        ..Attributes::default()
    };
    let server = Server::new([
        Step::Lost,
        refusal(412, "conditionNotMet"),
        json(object(8, b"body")),
    ]);
    let error = server
        .store()
        .write(&request, "body".into())
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Precondition);
}

#[tokio::test(start_paused = true)]
async fn an_error_says_what_was_asked_of_what_and_what_was_answered() {
    const ID: &[(&str, &str)] = &[("x-guploader-uploadid", "AHxI1nM-7")];
    let server = Server::new([
        refusal(503, "backendError"),
        refusal_with(403, "forbidden", ID),
    ]);
    let error = server.store().stat(&name("dir/em")).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "storage.objects.get dir/em: said forbidden (status 403, reason forbidden, 2 attempts, request AHxI1nM-7)"
    );
    server.seen();

    // The id of a request to an upload session is the session's secret.
    server.then([refusal_with(403, "forbidden", ID)]);
    let mut upload = server.store().upload(&write("o", at(7))).await.unwrap();
    upload.write(vec![0; 256 << 10].into()).await.unwrap();
    let error = upload.finish().await.unwrap_err();
    assert_eq!(
        (error.kind, error.request_id.as_deref()),
        (Kind::Denied, None)
    );
    assert!(!error.to_string().contains(ID[0].1), "{error}");
    server.seen();
}
