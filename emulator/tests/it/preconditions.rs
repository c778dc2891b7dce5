//! Every precondition on every verb, against an object that is there and one that is not.

use serde_json::json;

use crate::client::{Ask, BUCKET, Bench, ask, object_path, upload_path};

/// The conditions that hold for the object's version, and those that do not.
struct Conditions {
    hold: Vec<String>,
    fail: Vec<String>,
    /// Fail as well; on reads they mean that the caller has the object.
    fail_not: Vec<String>,
}

fn conditions(prefix: &str, generation: u64, metageneration: u64) -> Conditions {
    let [other, next] = [generation + 1, metageneration + 1];
    Conditions {
        hold: vec![
            format!("{prefix}GenerationMatch={generation}"),
            format!("{prefix}GenerationNotMatch={other}"),
            format!("{prefix}MetagenerationMatch={metageneration}"),
            format!("{prefix}MetagenerationNotMatch={next}"),
        ],
        fail: vec![
            format!("{prefix}GenerationMatch={other}"),
            format!("{prefix}GenerationMatch=0"),
            format!("{prefix}MetagenerationMatch={next}"),
        ],
        fail_not: vec![
            format!("{prefix}GenerationNotMatch={generation}"),
            format!("{prefix}MetagenerationNotMatch={metageneration}"),
        ],
    }
}

/// A verb that is made conditional on the object `a`; `b` is there too, and `c` is not.
type Verb = (&'static str, &'static str, fn(&str) -> Ask);

fn writes() -> Vec<Verb> {
    vec![
        ("media", "if", |q| {
            ask("POST", upload_path("a", &format!("uploadType=media&{q}"))).body("new")
        }),
        ("multipart", "if", |q| {
            ask(
                "POST",
                upload_path("a", &format!("uploadType=multipart&{q}")),
            )
            .header("content-type", "multipart/related; boundary=B")
            .body("--B\r\n\r\n{}\r\n--B\r\n\r\nnew\r\n--B--")
        }),
        ("resumable", "if", |q| {
            ask(
                "POST",
                upload_path("a", &format!("uploadType=resumable&{q}")),
            )
        }),
        ("patch", "if", |q| {
            ask("PATCH", object_path("a", q)).json(&json!({"contentType": "x/y"}))
        }),
        ("update", "if", |q| {
            ask("PUT", object_path("a", q)).json(&json!({"contentType": "x/y"}))
        }),
        ("delete", "if", |q| ask("DELETE", object_path("a", q))),
        ("compose", "if", |q| {
            let path = format!("/storage/v1/b/{BUCKET}/o/a/compose?{q}");
            ask("POST", path).json(&json!({"sourceObjects": [{"name": "b"}]}))
        }),
        ("rewrite onto", "if", |q| {
            ask(
                "POST",
                format!("/storage/v1/b/{BUCKET}/o/b/rewriteTo/b/{BUCKET}/o/a?{q}"),
            )
        }),
        ("rewrite from", "ifSource", |q| {
            ask(
                "POST",
                format!("/storage/v1/b/{BUCKET}/o/a/rewriteTo/b/{BUCKET}/o/c?{q}"),
            )
        }),
        ("copy onto", "if", |q| {
            ask(
                "POST",
                format!("/storage/v1/b/{BUCKET}/o/b/copyTo/b/{BUCKET}/o/a?{q}"),
            )
        }),
        ("copy from", "ifSource", |q| {
            ask(
                "POST",
                format!("/storage/v1/b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/c?{q}"),
            )
        }),
        ("move onto", "if", |q| {
            ask("POST", format!("/storage/v1/b/{BUCKET}/o/b/moveTo/o/a?{q}"))
        }),
        ("move from", "ifSource", |q| {
            ask("POST", format!("/storage/v1/b/{BUCKET}/o/a/moveTo/o/c?{q}"))
        }),
    ]
}

async fn fresh(bench: &Bench) -> u64 {
    let admin = bench.admin();
    admin.put_object(BUCKET, "b", "b".into()).unwrap();
    bench.answer(ask("DELETE", object_path("c", ""))).await;
    admin.put_object(BUCKET, "a", "old".into()).unwrap()
}

#[tokio::test]
async fn writes_act_only_if_every_condition_holds() {
    let bench = Bench::open().await;
    for (verb, prefix, request) in writes() {
        for index in 0..4 {
            let generation = fresh(&bench).await;
            let query = &conditions(prefix, generation, 1).hold[index];
            let code = bench.answer(request(query)).await.code();
            assert!(code == 200 || code == 204, "{verb} {query}: {code}");
        }
        let generation = fresh(&bench).await;
        let Conditions { fail, fail_not, .. } = conditions(prefix, generation, 1);
        for query in fail.iter().chain(&fail_not) {
            let answer = bench.answer(request(query)).await;
            assert_eq!(answer.code(), 412, "{verb} {query}");
            assert_eq!(answer.reason(), "conditionNotMet", "{verb} {query}");
            assert_eq!(
                bench.read("a").await.expect(200).body,
                "old",
                "{verb} {query}"
            );
        }
        let both = format!("{}&{}", conditions(prefix, generation, 1).hold[0], fail[2]);
        assert_eq!(
            bench.answer(request(&both)).await.code(),
            412,
            "{verb} {both}"
        );
        assert_eq!(
            bench
                .answer(request(&format!("{prefix}GenerationMatch=x")))
                .await
                .code(),
            400,
            "{verb}"
        );
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn generation_zero_wants_the_name_free() {
    let bench = Bench::open().await;
    for (verb, prefix, request) in writes() {
        if prefix != "if" || ["patch", "update", "delete"].contains(&verb) {
            continue;
        }
        fresh(&bench).await;
        bench
            .answer(ask("DELETE", object_path("a", "")))
            .await
            .expect(204);
        let code = bench.answer(request("ifGenerationNotMatch=0")).await.code();
        assert_eq!(code, 412, "{verb}");
        bench
            .answer(request("ifGenerationMatch=0"))
            .await
            .expect(200);
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_missing_object_is_404_whatever_the_condition() {
    let bench = Bench::open().await;
    bench.put("b", "b").await;
    for (verb, prefix, request) in writes() {
        let reads_it = prefix == "ifSource" || ["patch", "update", "delete"].contains(&verb);
        if reads_it {
            bench
                .answer(request(&format!("{prefix}GenerationMatch=5")))
                .await
                .expect(404);
        }
    }
    for media in ["", "alt=media&"] {
        let path = object_path("a", &format!("{media}ifGenerationMatch=5"));
        bench.answer(ask("GET", path)).await.expect(404);
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn reads_are_refused_or_not_modified() {
    let bench = Bench::open().await;
    let generation = fresh(&bench).await;
    let Conditions {
        hold,
        fail,
        fail_not,
    } = conditions("if", generation, 1);
    for media in ["", "alt=media&"] {
        let get = |query: &String| ask("GET", object_path("a", &format!("{media}{query}")));
        for query in &hold {
            bench.answer(get(query)).await.expect(200);
        }
        for query in &fail {
            bench.answer(get(query)).await.expect(412);
        }
        for query in &fail_not {
            assert_eq!(bench.answer(get(query)).await.expect(304).body, "");
        }
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn xml_conditions_are_headers() {
    let bench = Bench::open().await;
    let generation = fresh(&bench).await;
    for (header, value, code) in [
        ("x-goog-if-generation-match", generation, 200),
        ("x-goog-if-generation-match", generation + 1, 412),
        ("x-goog-if-metageneration-match", 1, 200),
        ("x-goog-if-metageneration-match", 2, 412),
    ] {
        let get = ask("GET", format!("/{BUCKET}/a")).header(header, value.to_string());
        bench.answer(get).await.expect(code);
    }
    let put = |value: &str| {
        ask("PUT", format!("/{BUCKET}/a"))
            .header("x-goog-if-generation-match", value)
            .body("new")
    };
    let refused = bench.answer(put("0")).await.expect(412);
    assert!(refused.text().contains("<Code>PreconditionFailed</Code>"));
    bench.answer(put(&generation.to_string())).await.expect(200);
    assert_eq!(bench.read("a").await.body, "new");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn one_of_many_creations_wins() {
    let bench = Bench::open().await;
    for _ in 0..20 {
        bench.answer(ask("DELETE", object_path("a", ""))).await;
        let create = |data: &'static str| {
            ask(
                "POST",
                upload_path("a", "uploadType=media&ifGenerationMatch=0"),
            )
            .body(data)
        };
        let (one, two) = tokio::join!(bench.answer(create("one")), bench.answer(create("two")));
        let winner = if one.code() == 200 { "one" } else { "two" };
        let mut codes = [one.code(), two.code()];
        codes.sort_unstable();
        assert_eq!(codes, [200, 412]);
        assert_eq!(bench.read("a").await.body, winner);
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn entity_tags_are_conditions() {
    let bench = Bench::open().await;
    let etag = bench.put("a", "data").await["etag"]
        .as_str()
        .unwrap()
        .to_owned();
    let xml = bench.answer(ask("HEAD", format!("/{BUCKET}/a"))).await;
    let xml = xml.expect(200).header("etag").unwrap().to_owned();
    let stat = || ask("GET", object_path("a", ""));
    let media = || ask("GET", object_path("a", "alt=media"));
    let bucket = || ask("GET", format!("/storage/v1/b/{BUCKET}"));
    let of_bucket = bench.answer(bucket()).await.json()["etag"].clone();
    let of_bucket = of_bucket.as_str().unwrap();
    for (read, tag) in [
        (stat as fn() -> Ask, etag.as_str()),
        (media, &etag),
        (|| ask("GET", format!("/{BUCKET}/a")), &xml),
        (|| ask("HEAD", format!("/{BUCKET}/a")), &xml),
        (bucket, of_bucket),
    ] {
        for (name, value, status) in [
            ("if-match", tag, 200),
            ("if-match", "*", 200),
            ("if-match", "\"other\"", 412),
            ("if-none-match", tag, 304),
            ("if-none-match", "*", 304),
            ("if-none-match", "\"other\"", 200),
        ] {
            bench
                .answer(read().header(name, value))
                .await
                .expect(status);
        }
    }
    let patch = || ask("PATCH", object_path("a", "")).json(&json!({"contentType": "x/y"}));
    let update = || ask("PUT", object_path("a", "")).json(&json!({"contentType": "x/y"}));
    let upload = || ask("POST", upload_path("a", "uploadType=media")).body("new");
    let put = || ask("PUT", format!("/{BUCKET}/a")).body("new");
    let delete = || ask("DELETE", object_path("a", ""));
    let writes: [fn() -> Ask; 5] = [patch, update, upload, put, delete];
    for write in writes {
        for (name, value) in [("if-match", "\"other\""), ("if-none-match", "*")] {
            bench.answer(write().header(name, value)).await.expect(412);
        }
    }
    bench
        .answer(patch().header("if-match", &etag))
        .await
        .expect(200);
    bench
        .answer(delete().header("if-match", &etag))
        .await
        .expect(412);
    bench
        .answer(delete().header("if-match", "*"))
        .await
        .expect(204);
    bench
        .answer(put().header("if-none-match", "*"))
        .await
        .expect(200);
    bench.emulator.shutdown().await;
}
