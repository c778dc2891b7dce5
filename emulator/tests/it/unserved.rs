//! Calls that Cloud Storage has and the emulator has not: each is refused as such, and nothing happens.

use crate::client::{BUCKET, Bench, ask, object_path};

#[tokio::test]
async fn a_call_that_is_not_implemented_leaves_the_object_as_it_is() {
    let bench = Bench::open().await;
    bench.put("o", "precious").await;
    let before = bench.stat("o").await.expect(200).body;
    for (method, query, header) in [
        ("PUT", "?acl", ""),
        ("PUT", "?tagging", ""),
        ("PUT", "?compose", ""),
        ("PUT", "?partNumber=1&uploadId=", ""),
        ("PUT", "", "x-goog-copy-source"),
        ("PUT", "", "x-amz-copy-source"),
        ("DELETE", "?uploadId=zz", ""),
        ("POST", "?uploads", ""),
        ("POST", "", "x-goog-resumable"),
        ("GET", "?acl", ""),
        ("HEAD", "?acl", ""),
    ] {
        let mut call = ask(method, format!("/{BUCKET}/o{query}")).body("<Other/>");
        if !header.is_empty() {
            call = call.header(header, "/bucket/other");
        }
        let answer = bench.answer(call).await.expect(501);
        let told = answer.text().contains("<Code>NotImplemented</Code>");
        assert!(told || method == "HEAD", "{}", answer.text());
        assert_eq!(bench.stat("o").await.expect(200).body, before, "{query}");
    }
    let listed = bench.answer(ask("GET", format!("/{BUCKET}"))).await;
    assert!(
        listed
            .expect(501)
            .text()
            .contains("does not implement GET /bucket")
    );
    let iam = ask("GET", format!("/storage/v1/b/{BUCKET}/iam"));
    let iam = bench.answer(iam).await.expect(501);
    assert_eq!(iam.reason(), "notImplemented");
    assert!(iam.text().contains("GET /storage/v1/b/bucket/iam"));
    bench.answer(ask("GET", "/x")).await.expect(404);
    let name = object_path("", "").replace('?', "%ff");
    bench.answer(ask("GET", name)).await.expect(400);
    let upload = format!("/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=%ff%fe");
    bench.answer(ask("POST", upload)).await.expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn xml_asks_after_buckets_and_names_the_headers_of_an_answer() {
    let bench = Bench::open().await;
    bench.put("o", "data").await;
    for (path, status) in [("/bucket", 200), ("/bucket/", 200), ("/nobucket", 404)] {
        bench.answer(ask("HEAD", path)).await.expect(status);
    }
    let query = "response-content-type=text%2Fx&response-content-disposition=inline";
    let read = bench.answer(ask("GET", format!("/{BUCKET}/o?{query}")));
    let read = read.await.expect(200);
    assert_eq!(read.header("content-type"), Some("text/x"));
    assert_eq!(read.header("content-disposition"), Some("inline"));
    bench.emulator.shutdown().await;
}
