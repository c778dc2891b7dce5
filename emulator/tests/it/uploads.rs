use gcsmount_emulator::{Auth, Config};
use serde_json::json;

use crate::client::{BUCKET, Bench, ask, upload_path};

#[tokio::test]
async fn multipart_takes_two_or_three_parts_in_any_style() {
    let bench = Bench::open().await;
    let path = format!("/upload/storage/v1/b/{BUCKET}/o?uploadType=multipart");
    let crlf = "--B\r\nContent-Type: application/json\r\n\r\n{\"name\":\"a\",\"metadata\":{\"k\":\"v\"}}\r\n\
                --B\r\nContent-Type: text/x\r\n\r\n123456789\r\n--B--\r\n";
    let two = ask("POST", path.clone())
        .header("content-type", "multipart/related; boundary=B")
        .body(crlf);
    let resource = bench.answer(two).await.expect(200).json();
    assert_eq!(
        (&resource["contentType"], &resource["metadata"]["k"]),
        (&json!("text/x"), &json!("v"))
    );
    let lf = "--==B==\nContent-Type: application/json\n\n{\"name\":\"b\"}\n--==B==\n\n123456789\n--==B==--";
    let lines = ask("POST", path.clone())
        .header("content-type", "multipart/related; boundary=\"==B==\"")
        .body(lf);
    bench.answer(lines).await.expect(200);
    for (checksum, code) in [("4waSgw==", 200), ("AAAAAA==", 400)] {
        let three = format!(
            "--B\r\n\r\n{{\"name\":\"c\"}}\r\n--B\r\n\r\n123456789\r\n--B\r\n\r\n{{\"crc32c\":\"{checksum}\"}}\r\n--B--"
        );
        let three = ask("POST", path.clone())
            .header("content-type", "multipart/related; boundary=B")
            .body(three);
        bench.answer(three).await.expect(code);
    }
    for name in ["a", "b", "c"] {
        assert_eq!(
            bench.read(name).await.expect(200).body,
            "123456789",
            "{name}"
        );
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn malformed_uploads_are_refused() {
    let bench = Bench::open().await;
    let path = |query: &str| format!("/upload/storage/v1/b/{BUCKET}/o?{query}");
    for (query, content_type, body, reason) in [
        ("name=a", "text/plain", "x", "required"),
        ("uploadType=media", "text/plain", "x", "required"),
        ("uploadType=other&name=a", "text/plain", "x", "invalid"),
        ("uploadType=multipart&name=a", "text/plain", "x", "invalid"),
        (
            "uploadType=multipart&name=a",
            "multipart/related; boundary=B",
            "--B\r\n\r\n{}\r\n--B--",
            "invalid",
        ),
        (
            "uploadType=multipart",
            "multipart/related; boundary=B",
            "--B\r\n\r\n{}\r\n--B\r\n\r\nx\r\n--B--",
            "required",
        ),
        (
            "uploadType=multipart",
            "multipart/related; boundary=B",
            "--B\r\n\r\n{\r\n--B\r\n\r\nx\r\n--B--",
            "parseError",
        ),
    ] {
        let answer = bench
            .answer(
                ask("POST", path(query))
                    .header("content-type", content_type)
                    .body(body),
            )
            .await;
        assert_eq!(
            (answer.code(), answer.reason().as_str()),
            (400, reason),
            "{query} {body}"
        );
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn wrong_checksums_publish_nothing() {
    let bench = Bench::open().await;
    let path = upload_path("a", "uploadType=media");
    for (header, value) in [
        ("x-goog-hash", "crc32c=AAAAAA=="),
        ("x-goog-hash", "md5=AAAAAAAAAAAAAAAAAAAAAA=="),
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("x-goog-hash", "crc32c=nonsense"),
    ] {
        let answer = bench
            .answer(
                ask("POST", path.clone())
                    .header(header, value)
                    .body("123456789"),
            )
            .await;
        assert_eq!(
            (answer.code(), answer.reason().as_str()),
            (400, "invalid"),
            "{value}"
        );
        bench.stat("a").await.expect(404);
    }
    let right = "crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfG2JNCw==";
    bench
        .answer(
            ask("POST", path)
                .header("x-goog-hash", right)
                .body("123456789"),
        )
        .await
        .expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn xml_put_stores_headers_as_metadata() {
    let bench = Bench::open().await;
    let put = ask("PUT", format!("/{BUCKET}/dir/a"))
        .header("content-type", "text/plain")
        .header("x-goog-meta-k", "v")
        .body("data");
    bench.answer(put).await.expect(200);
    let resource = bench.stat("dir/a").await.expect(200).json();
    assert_eq!(
        (&resource["contentType"], &resource["metadata"]["k"]),
        (&json!("text/plain"), &json!("v"))
    );
    bench
        .answer(ask("DELETE", format!("/{BUCKET}/dir/a")))
        .await
        .expect(204);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn bodies_are_capped() {
    let bench = Bench::with(Config {
        auth: Auth::Off,
        max_body: 1000,
        ..Config::default()
    })
    .await;
    let put = |size: usize| ask("POST", upload_path("a", "uploadType=media")).body(vec![0; size]);
    bench.answer(put(1000)).await.expect(200);
    assert_eq!(
        bench.answer(put(1001)).await.expect(413).reason(),
        "uploadTooLarge"
    );
    let large = json!({"metadata": {"k": "x".repeat(2000)}});
    bench
        .answer(ask("PATCH", crate::client::object_path("a", "")).json(&large))
        .await
        .expect(413);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn without_md5_objects_have_none_but_claims_are_still_checked() {
    let bench = Bench::with(Config {
        auth: Auth::Off,
        md5: false,
        ..Config::default()
    })
    .await;
    assert!(bench.put("a", "123456789").await.get("md5Hash").is_none());
    let wrong = ask("POST", upload_path("a", "uploadType=media"))
        .header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")
        .body("123456789");
    bench.answer(wrong).await.expect(400);
    bench.emulator.shutdown().await;
}
