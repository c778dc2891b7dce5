use bytes::Bytes;
use serde_json::json;

use crate::client::{BUCKET, Bench, ask, generation, names, object_path, upload_path};

#[tokio::test]
async fn a_resource_has_what_gcs_says_of_an_object() {
    let bench = Bench::open().await;
    let path = upload_path("dir/a", "uploadType=media");
    let inserted = bench
        .answer(
            ask("POST", path)
                .header("content-type", "text/plain")
                .body("123456789"),
        )
        .await;
    let stat = bench.stat("dir/a").await.expect(200);
    assert_eq!(inserted.json(), stat.json());
    let resource = stat.json();
    for (key, value) in [
        ("kind", "storage#object"),
        ("name", "dir/a"),
        ("bucket", BUCKET),
        ("metageneration", "1"),
        ("contentType", "text/plain"),
        ("storageClass", "STANDARD"),
        ("size", "9"),
        ("crc32c", "4waSgw=="),
        ("md5Hash", "JfnnlDI7RTiF9RgfG2JNCw=="),
    ] {
        assert_eq!(resource[key], value, "{key}");
    }
    let generation = generation(&resource);
    assert!(
        generation > 1_600_000_000_000_000,
        "microseconds: {generation}"
    );
    assert_eq!(resource["id"], format!("{BUCKET}/dir/a/{generation}"));
    let host = bench.emulator.local_addrs()[0];
    let link = format!(
        "http://{host}/download/storage/v1/b/{BUCKET}/o/dir%2Fa?generation={generation}&alt=media"
    );
    assert_eq!(resource["mediaLink"], link);
    let media = bench
        .answer(ask(
            "GET",
            link.trim_start_matches(&format!("http://{host}")),
        ))
        .await;
    assert_eq!(media.expect(200).body, "123456789");
    assert_eq!(stat.header("etag"), resource["etag"].as_str());
    assert!(resource.get("componentCount").is_none());
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn media_headers_describe_the_object() {
    let bench = Bench::open().await;
    bench.put("a", "123456789").await;
    let patch = json!({"metadata": {"key": "välue"}, "cacheControl": "no-store", "contentDisposition": "inline",
        "contentLanguage": "de"});
    let resource = bench
        .answer(ask("PATCH", object_path("a", "")).json(&patch))
        .await
        .expect(200)
        .json();
    for path in [object_path("a", "alt=media"), format!("/{BUCKET}/a")] {
        let answer = bench.answer(ask("GET", path.clone())).await.expect(200);
        for (name, value) in [
            (
                "x-goog-generation",
                resource["generation"].as_str().unwrap(),
            ),
            ("x-goog-metageneration", "2"),
            ("x-goog-stored-content-length", "9"),
            ("x-goog-stored-content-encoding", "identity"),
            ("x-goog-storage-class", "STANDARD"),
            ("content-length", "9"),
            ("accept-ranges", "bytes"),
            ("cache-control", "no-store"),
            ("content-disposition", "inline"),
            ("content-language", "de"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{name} of {path}");
        }
        assert_eq!(
            answer.headers["x-goog-meta-key"].as_bytes(),
            "välue".as_bytes()
        );
        let hashes: Vec<_> = answer.headers.get_all("x-goog-hash").iter().collect();
        assert_eq!(hashes, ["crc32c=4waSgw==", "md5=JfnnlDI7RTiF9RgfG2JNCw=="]);
        assert!(
            answer
                .header("last-modified")
                .is_some_and(|date| date.ends_with("GMT"))
        );
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn ranges_over_the_wire() {
    let bench = Bench::open().await;
    bench.put("a", "0123456789").await;
    bench.put("empty", "").await;
    for (name, range, code, body, content_range) in [
        ("a", "bytes=2-4", 206, "234", Some("bytes 2-4/10")),
        ("a", "bytes=7-", 206, "789", Some("bytes 7-9/10")),
        ("a", "bytes=-2", 206, "89", Some("bytes 8-9/10")),
        ("a", "bytes=5-999", 206, "56789", Some("bytes 5-9/10")),
        ("a", "bytes=x", 200, "0123456789", None),
        (
            "a",
            "bytes=10-",
            416,
            "Request range not satisfiable",
            Some("bytes */10"),
        ),
        (
            "empty",
            "bytes=0-",
            416,
            "Request range not satisfiable",
            Some("bytes */0"),
        ),
    ] {
        let answer = bench
            .answer(ask("GET", object_path(name, "alt=media")).header("range", range))
            .await;
        assert_eq!(
            (answer.code(), answer.text().as_str()),
            (code, body),
            "{range}"
        );
        assert_eq!(answer.header("content-range"), content_range, "{range}");
    }
    assert_eq!(bench.read("empty").await.expect(200).body, "");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn only_the_live_generation_is_found() {
    let bench = Bench::open().await;
    let old = generation(&bench.put("a", "old").await);
    let new = generation(&bench.put("a", "new").await);
    assert!(new > old);
    for query in ["", "alt=media&"] {
        let get = |generation| {
            ask(
                "GET",
                object_path("a", &format!("{query}generation={generation}")),
            )
        };
        bench.answer(get(old)).await.expect(404);
        bench.answer(get(new)).await.expect(200);
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn what_is_missing_is_said_in_the_callers_dialect() {
    let bench = Bench::open().await;
    let json = bench.stat("x").await.expect(404);
    assert_eq!(json.reason(), "notFound");
    assert_eq!(json.json()["error"]["message"], "No such object: bucket/x");
    assert_eq!(
        bench.read("x").await.expect(404).text(),
        "No such object: bucket/x"
    );
    let xml = bench.answer(ask("GET", "/bucket/x")).await.expect(404);
    assert!(xml.text().contains("<Code>NoSuchKey</Code>"), "{xml:?}");
    let bucket = bench
        .answer(ask("GET", "/storage/v1/b/nobucket/o"))
        .await
        .expect(404);
    assert_eq!(
        bucket.json()["error"]["message"],
        "The specified bucket does not exist."
    );
    let xml = bench.answer(ask("GET", "/nobucket/x")).await.expect(404);
    assert!(xml.text().contains("<Code>NoSuchBucket</Code>"), "{xml:?}");
    bench.answer(ask("GET", "/nonsense")).await.expect(501);
    bench.answer(ask("GET", "/x")).await.expect(404);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn head_says_what_get_would() {
    let bench = Bench::open().await;
    bench.put("a", "0123456789").await;
    let head = bench
        .answer(ask("HEAD", format!("/{BUCKET}/a")))
        .await
        .expect(200);
    assert_eq!(
        (head.header("content-length"), head.body.len()),
        (Some("10"), 0)
    );
    assert!(head.header("x-goog-generation").is_some());
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn gzip_is_unpacked_only_for_callers_that_cannot() {
    let bench = Bench::open().await;
    let packed = gzip(b"hello hello hello");
    for (name, cache_control) in [("a", ""), ("kept", "no-transform")] {
        let path = upload_path(name, "uploadType=media&contentEncoding=gzip");
        bench
            .answer(ask("POST", path).body(packed.clone()))
            .await
            .expect(200);
        let patch = json!({"cacheControl": format!("private, {cache_control}")});
        bench
            .answer(ask("PATCH", object_path(name, "")).json(&patch))
            .await
            .expect(200);
    }
    let get = |name| ask("GET", object_path(name, "alt=media"));
    let stored = bench
        .answer(get("a").header("accept-encoding", "gzip"))
        .await
        .expect(200);
    assert_eq!(
        (&stored.body, stored.header("content-encoding")),
        (&packed, Some("gzip"))
    );
    let ranged = get("a")
        .header("accept-encoding", "gzip")
        .header("range", "bytes=1-2");
    assert_eq!(bench.answer(ranged).await.expect(206).body, packed[1..3]);
    let unpacked = bench
        .answer(get("a").header("range", "bytes=1-2"))
        .await
        .expect(200);
    assert_eq!(unpacked.body, "hello hello hello");
    assert_eq!(unpacked.header("content-encoding"), None);
    assert_eq!(unpacked.header("content-length"), None);
    assert_eq!(
        unpacked.header("x-goog-stored-content-encoding"),
        Some("gzip")
    );
    let stored_length = packed.len().to_string();
    assert_eq!(
        unpacked.header("x-goog-stored-content-length"),
        Some(stored_length.as_str())
    );
    let kept = bench.answer(get("kept")).await.expect(200);
    assert_eq!(
        (&kept.body, kept.header("content-encoding")),
        (&packed, Some("gzip"))
    );
    bench.emulator.shutdown().await;
}

fn gzip(data: &[u8]) -> Bytes {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap().into()
}

#[tokio::test]
async fn lists_in_pages_with_prefixes() {
    let bench = Bench::open().await;
    for name in ["a", "b/1", "b/2", "c", "d/1"] {
        bench.put(name, "x").await;
    }
    let mut seen = (Vec::new(), Vec::new());
    let mut token = String::new();
    let mut pages = 0;
    loop {
        pages += 1;
        let path = format!(
            "/storage/v1/b/{BUCKET}/o?delimiter=/&maxResults=2&pageToken={token}&fields=items(name),prefixes,nextPageToken"
        );
        let list = bench.answer(ask("GET", path)).await.expect(200).json();
        assert!(list.get("kind").is_none(), "fields are honoured: {list}");
        seen.0.extend(names(&list, "items"));
        seen.1.extend(names(&list, "prefixes"));
        match list["nextPageToken"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(pages, 2);
    assert_eq!(
        seen,
        (vec!["a".into(), "c".into()], vec!["b/".into(), "d/".into()])
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn list_refuses_what_it_cannot_do() {
    let bench = Bench::open().await;
    for query in [
        "matchGlob=*",
        "maxResults=0",
        "pageToken=!",
        "fields=(",
        "maxResults=x",
    ] {
        let path = format!("/storage/v1/b/{BUCKET}/o?{query}");
        assert_eq!(
            bench.answer(ask("GET", path)).await.expect(400).reason(),
            "invalid",
            "{query}"
        );
    }
    let path = format!(
        "/storage/v1/b/{BUCKET}/o?includeFoldersAsPrefixes=true&versions=false&projection=noAcl"
    );
    bench.answer(ask("GET", path)).await.expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn odd_names_survive_every_path() {
    let bench = Bench::open().await;
    let longest = "n".repeat(1024);
    let odd = [
        "a//b",
        "/a",
        "a/",
        "./x",
        "../y",
        "a b",
        "a+b",
        "a%2Fb",
        "#?&=",
        "ü/é",
        "\u{1F980}",
        longest.as_str(),
    ];
    for name in odd {
        let resource = bench.put(name, name.to_owned()).await;
        assert_eq!(resource["name"], name);
        assert_eq!(bench.read(name).await.expect(200).text(), name);
        let xml = format!("/{BUCKET}/{}", crate::client::encode(name));
        assert_eq!(bench.answer(ask("GET", xml)).await.expect(200).text(), name);
    }
    let list = bench
        .answer(ask("GET", format!("/storage/v1/b/{BUCKET}/o")))
        .await
        .json();
    let mut sorted = odd.map(str::to_owned).to_vec();
    sorted.sort();
    assert_eq!(names(&list, "items"), sorted);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn names_that_gcs_refuses_are_refused() {
    let bench = Bench::open().await;
    let long = "n".repeat(1025);
    for name in [
        ".",
        "..",
        "a\nb",
        "a\rb",
        long.as_str(),
        ".well-known/acme-challenge/x",
    ] {
        let answer = bench
            .answer(ask("POST", upload_path(name, "uploadType=media")).body("x"))
            .await;
        assert_eq!(answer.expect(400).reason(), "invalid", "{name:?}");
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn buckets_and_their_layout() {
    let bench = Bench::open().await;
    let get = |path: &str| ask("GET", path);
    let bucket = bench
        .answer(get("/storage/v1/b/bucket"))
        .await
        .expect(200)
        .json();
    assert_eq!(
        bucket["iamConfiguration"]["uniformBucketLevelAccess"]["enabled"],
        true
    );
    assert_eq!(bucket["storageClass"], "STANDARD");
    let layout = bench
        .answer(get("/storage/v1/b/bucket/storageLayout"))
        .await
        .expect(200)
        .json();
    assert_eq!(layout["hierarchicalNamespace"]["enabled"], false);
    let create =
        |name: &str| ask("POST", "/storage/v1/b?project=demo").json(&json!({"name": name}));
    bench.answer(create("another")).await.expect(200);
    assert_eq!(
        bench.answer(create("another")).await.expect(409).reason(),
        "conflict"
    );
    bench.answer(create("No")).await.expect(400);
    let list = bench
        .answer(get("/storage/v1/b?project=demo"))
        .await
        .expect(200)
        .json();
    assert_eq!(names(&list, "items"), ["another", "bucket"]);
    bench.put("x", "x").await;
    bench
        .answer(ask("DELETE", "/storage/v1/b/bucket"))
        .await
        .expect(409);
    bench
        .answer(ask("DELETE", "/storage/v1/b/another"))
        .await
        .expect(204);
    bench.answer(get("/storage/v1/b/another")).await.expect(404);
    bench.emulator.shutdown().await;
}
