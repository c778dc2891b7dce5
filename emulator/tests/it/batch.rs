use serde_json::json;

use crate::client::{Answer, BUCKET, Bench, ask, object_path};

async fn send(bench: &Bench, parts: &[&str]) -> Answer {
    let mut body = String::new();
    for (index, part) in parts.iter().enumerate() {
        body += &format!(
            "--B\r\nContent-Type: application/http\r\nContent-ID: <x+{index}>\r\n\r\n{part}\r\n"
        );
    }
    let ask =
        ask("POST", "/batch/storage/v1").header("content-type", "multipart/mixed; boundary=\"B\"");
    bench.answer(ask.body(body + "--B--")).await
}

#[tokio::test]
async fn each_call_of_a_batch_has_its_own_answer() {
    let bench = Bench::open().await;
    for name in ["a", "b"] {
        bench.put(name, "x").await;
    }
    let patch = json!({"contentType": "x/y"}).to_string();
    let patch = format!(
        "PATCH {} HTTP/1.1\r\nContent-Type: application/json\r\n\r\n{patch}",
        object_path("b", "")
    );
    let delete = format!(
        "DELETE http://elsewhere{} HTTP/1.1\r\n\r\n",
        object_path("a", "")
    );
    let media = format!("GET {}\r\n\r\n", object_path("b", "alt=media"));
    let reply = send(&bench, &[&delete, &delete, &patch, &media])
        .await
        .expect(200);
    let text = reply.text();
    let statuses: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("HTTP/1.1 "))
        .collect();
    assert_eq!(
        statuses,
        [
            "204 No Content",
            "404 Not Found",
            "200 OK",
            "400 Bad Request"
        ]
    );
    assert!(
        text.contains("Content-ID: <response-x+2>") && text.contains("\"contentType\":\"x/y\"")
    );
    bench.stat("a").await.expect(404);
    let counters = bench.admin().counters();
    assert_eq!(
        (
            counters.of("storage.batch"),
            counters.of("storage.objects.delete")
        ),
        (1, 2)
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_batch_passes_its_authorization_on() {
    let bench = Bench::with(gcsmount_emulator::Config::default()).await;
    let list = format!("GET /storage/v1/b/{BUCKET}/o HTTP/1.1\r\n\r\n");
    assert!(
        send(&bench, &[&list])
            .await
            .expect(200)
            .text()
            .contains("HTTP/1.1 401")
    );
    let token = bench.access_token("ns", "sa").await;
    let own =
        format!("GET /storage/v1/b/{BUCKET}/o HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n");
    assert!(
        send(&bench, &[&own])
            .await
            .expect(200)
            .text()
            .contains("HTTP/1.1 200")
    );
    let body = format!("--B\n\n{}\n--B--", list.replace("\r\n", "\n"));
    let outer =
        ask("POST", "/batch/storage/v1").header("content-type", "multipart/mixed; boundary=B");
    let reply = bench
        .answer(outer.bearer(&token).body(body))
        .await
        .expect(200);
    assert!(reply.text().contains("HTTP/1.1 200"), "{reply:?}");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_batch_that_is_none_is_refused() {
    let bench = Bench::open().await;
    let get = "GET /storage/v1/b HTTP/1.1\r\n\r\n";
    send(&bench, &[get; 100]).await.expect(200);
    for parts in [
        vec![get; 101],
        vec![""],
        vec!["GET"],
        vec!["\u{1} / HTTP/1.1\r\n\r\n"],
    ] {
        assert_eq!(
            send(&bench, &parts).await.expect(400).reason(),
            "invalid",
            "{:?}",
            parts[0]
        );
    }
    bench.emulator.shutdown().await;
}
