use serde_json::{Value, json};

use crate::client::{Answer, Ask, BUCKET, Bench, ask, object_path, upload_path};

const QUANTUM: usize = 256 * 1024;

async fn create(bench: &Bench, instructions: Value) -> String {
    let ask = ask("POST", "/retry_test").json(&json!({"instructions": instructions}));
    let test = bench.answer(ask).await.expect(200).json();
    assert_eq!(
        (&test["completed"], &test["transport"]),
        (&json!(false), &json!("HTTP"))
    );
    test["id"].as_str().unwrap().to_owned()
}

async fn left(bench: &Bench, id: &str) -> Value {
    let get = ask("GET", format!("/retry_test/{id}"));
    bench.answer(get).await.expect(200).json()
}

fn of(id: &str, ask: Ask) -> Ask {
    ask.header("x-retry-test-id", id)
}

#[tokio::test]
async fn instructions_strike_those_who_name_the_test_one_after_the_other() {
    let bench = Bench::open().await;
    bench.put("a", vec![7; 2 * QUANTUM]).await;
    let id = create(
        &bench,
        json!({
            "storage.objects.get": ["return-503", "return-reset-connection", "return-broken-stream-after-256K"],
            "storage.objects.list": ["return-429"],
        }),
    )
    .await;
    let stat = || ask("GET", object_path("a", ""));
    let read = || ask("GET", object_path("a", "alt=media"));
    bench.answer(stat()).await.expect(200);
    bench.answer(of("nobody", stat())).await.expect(404);
    bench.answer(of(&id, stat())).await.expect(503);
    let test = left(&bench, &id).await;
    assert_eq!(
        test["instructions"]["storage.objects.get"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert!(bench.send(of(&id, read())).await.is_err());
    assert!(bench.send(of(&id, read())).await.is_err());
    assert_eq!(
        bench.answer(of(&id, read())).await.expect(200).body.len(),
        2 * QUANTUM
    );
    assert_eq!(left(&bench, &id).await["completed"], false);
    let list = ask("GET", format!("/storage/v1/b/{BUCKET}/o"));
    bench.answer(of(&id, list)).await.expect(429);
    assert_eq!(left(&bench, &id).await["completed"], true);
    let all = bench
        .answer(ask("GET", "/retry_tests"))
        .await
        .expect(200)
        .json();
    assert_eq!(all["retry_test"].as_array().unwrap().len(), 1);
    let path = format!("/retry_test/{id}");
    bench.answer(ask("DELETE", path.as_str())).await.expect(200);
    bench.answer(ask("DELETE", path.as_str())).await.expect(404);
    bench.answer(of(&id, stat())).await.expect(404);
    bench.emulator.shutdown().await;
}

/// A resumable upload of four quanta in two chunks, each sent under the test.
struct Chunks<'b> {
    bench: &'b Bench,
    id: String,
    session: String,
}

impl Chunks<'_> {
    async fn send(&self, from: usize, to: usize) -> Result<Answer, hyper::Error> {
        let total = if to == 4 { "1048576" } else { "*" };
        let range = format!("bytes {}-{}/{total}", from * QUANTUM, to * QUANTUM - 1);
        let put = ask("PUT", self.session.as_str())
            .header("content-range", range)
            .body(vec![7; (to - from) * QUANTUM]);
        self.bench.send(of(&self.id, put)).await
    }

    async fn persisted(&self) -> Option<String> {
        let query = ask("PUT", self.session.as_str()).header("content-range", "bytes */*");
        let answer = self.bench.answer(query).await;
        answer.header("range").map(str::to_owned)
    }
}

async fn chunks<'b>(bench: &'b Bench, instruction: &str) -> Chunks<'b> {
    let id = create(bench, json!({"storage.objects.insert": [instruction]})).await;
    let start = ask("POST", upload_path("a", "uploadType=resumable"));
    let started = bench.answer(start).await.expect(200);
    let location = started.header("location").unwrap();
    let at = location.find("/upload/").unwrap();
    Chunks {
        bench,
        id,
        session: location[at..].to_owned(),
    }
}

#[tokio::test]
async fn an_upload_is_refused_once_it_has_so_many_bytes() {
    let bench = Bench::open().await;
    let upload = chunks(&bench, "return-503-after-768K").await;
    upload.send(0, 2).await.unwrap().expect(308);
    assert_eq!(left(&bench, &upload.id).await["completed"], false);
    upload.send(2, 4).await.unwrap().expect(503);
    assert_eq!(upload.persisted().await.as_deref(), Some("bytes=0-786431"));
    assert_eq!(left(&bench, &upload.id).await["completed"], true);
    upload.send(3, 4).await.unwrap().expect(200);
    assert_eq!(bench.read("a").await.expect(200).body.len(), 4 * QUANTUM);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn the_answer_to_the_last_chunk_is_cut() {
    let bench = Bench::open().await;
    let upload = chunks(&bench, "return-broken-stream-final-chunk-after-9B").await;
    upload.send(0, 2).await.unwrap().expect(308);
    assert!(upload.send(2, 4).await.is_err());
    bench.stat("a").await.expect(200);
    upload.send(2, 4).await.unwrap().expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn what_is_no_test_is_refused() {
    let bench = Bench::open().await;
    for body in [
        json!({}),
        json!({"instructions": {"storage.objects.get": ["return-nothing-after-1K"]}}),
        json!({"instructions": {"storage.objects.gte": ["return-503"]}}),
    ] {
        bench
            .answer(ask("POST", "/retry_test").json(&body))
            .await
            .expect(400);
    }
    bench.answer(ask("PUT", "/retry_test")).await.expect(405);
    bench
        .answer(ask("GET", "/retry_test/none"))
        .await
        .expect(404);
    bench.emulator.shutdown().await;
}
