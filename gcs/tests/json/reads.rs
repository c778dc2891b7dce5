//! Bodies that break, stall, lie or are refused.

use std::time::Duration;

use futures_util::StreamExt;
use gcsmount_gcs::client::json::Pool;
use gcsmount_gcs::store::{ListRequest, Preconditions, ReadRequest};
use gcsmount_gcs::{Cause, Generation, Kind, Store};
use tokio::time::Instant;

use crate::script::{
    End, Server, Step, answer, config, drain, json, media, media_with, name, object, read, refusal,
    refusal_with,
};

fn content() -> Vec<u8> {
    (0..10_000_u32).flat_map(u32::to_le_bytes).collect()
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_goes_on_from_its_last_byte() {
    let content = content();
    let server = Server::new([
        media(&content, 0, 5_000, End::Broken),
        media(&content, 5_000, 7_000, End::Broken),
        media(&content, 12_000, 28_000, End::Well),
    ]);
    let bytes = drain(server.store().read(&read("o")).await).await.unwrap();
    assert_eq!(bytes, content);
    let seen = server.seen();
    assert_eq!(seen[0].target, "/storage/v1/b/bkt/o/o?alt=media");
    assert_eq!(seen[0].header("range"), "");
    for (seen, range) in seen[1..]
        .iter()
        .zip(["bytes=5000-39999", "bytes=12000-39999"])
    {
        assert_eq!(seen.target, "/storage/v1/b/bkt/o/o?alt=media&generation=7");
        assert_eq!(seen.header("range"), range);
        assert_eq!(seen.header("accept-encoding"), "gzip");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_body_is_asked_for_again() {
    let content = content();
    let server = Server::new([
        media(&content, 0, 9_000, End::Stalled),
        media(&content, 9_000, 31_000, End::Well),
    ]);
    let start = Instant::now();
    let bytes = drain(server.store().read(&read("o")).await).await.unwrap();
    assert_eq!(bytes, content);
    assert_eq!(start.elapsed().as_secs(), 15, "the idle limit");
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_moves_is_an_error() {
    let content = content();
    let server = Server::new([
        media(&content, 0, 4_000, End::Broken),
        media(&content, 4_000, 0, End::Stalled),
        media(&content, 4_000, 0, End::Broken),
    ]);
    let (bytes, error) = drain(server.store().read(&read("o")).await)
        .await
        .unwrap_err();
    assert_eq!(bytes, content[..4_000]);
    assert_eq!(error.kind, Kind::Unavailable);
    assert_eq!(error.cause, Some(Cause::Broken));
    assert_eq!(server.seen().len(), 3, "the first and two resumes");
}

#[tokio::test(start_paused = true)]
async fn a_generation_that_went_away_ends_the_body() {
    let content = content();
    let server = Server::new([
        media(&content, 0, 4_000, End::Broken),
        refusal(404, "notFound"),
    ]);
    let (_, error) = drain(server.store().read(&read("o")).await)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::NotFound);
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn wrong_bytes_never_end_well() {
    let content = content();
    let server = Server::new([media_with(&content, 0, 40_000, End::Well, 1)]);
    let mut body = server.store().read(&read("o")).await.unwrap().body;
    let (mut seen, mut last) = (0, None);
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) => seen += piece.len(),
            Err(error) => last = Some(error.kind),
        }
    }
    assert_eq!(last, Some(Kind::Corrupt));
    assert!(seen < content.len(), "the last piece is withheld");
}

#[tokio::test(start_paused = true)]
async fn the_checksum_survives_a_resume() {
    let content = content();
    for (crc32c, good) in [(crc32c::crc32c(&content), true), (7, false)] {
        let server = Server::new([
            media_with(&content, 0, 5_000, End::Broken, crc32c),
            media_with(&content, 5_000, 35_000, End::Well, crc32c),
        ]);
        let result = drain(server.store().read(&read("o")).await).await;
        assert_eq!(result.is_ok(), good);
    }
}

#[tokio::test(start_paused = true)]
async fn another_generation_than_asked_for_is_corrupt() {
    let content = content();
    let server = Server::new([
        media(&content, 0, 40_000, End::Well),
        media(&content, 0, 40_000, End::Well),
    ]);
    let store = server.store();
    let pinned = ReadRequest {
        generation: Some(Generation(8)),
        ..read("o")
    };
    let expected = ReadRequest {
        preconditions: Preconditions::generation(Generation(9)),
        ..read("o")
    };
    for request in [pinned, expected] {
        assert_eq!(store.read(&request).await.unwrap_err().kind, Kind::Corrupt);
    }
    assert_eq!(
        server.seen()[1].target,
        "/storage/v1/b/bkt/o/o?alt=media&ifGenerationMatch=9"
    );
}

#[tokio::test(start_paused = true)]
async fn a_resume_that_answers_otherwise_is_corrupt() {
    let content = content();
    let longer = [&content[..], b"more"].concat();
    let server = Server::new([
        media(&content, 0, 4_000, End::Broken),
        media(&longer, 4_000, 36_004, End::Well),
    ]);
    let (_, error) = drain(server.store().read(&read("o")).await)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Corrupt);
}

#[tokio::test(start_paused = true)]
async fn a_longer_body_than_announced_is_corrupt() {
    let headers = [
        ("x-goog-generation", "7"),
        ("x-goog-stored-content-length", "3"),
        ("transfer-encoding", "chunked"),
    ];
    let server = Server::new([answer(200, &headers, "four")]);
    let (_, error) = drain(server.store().read(&read("o")).await)
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Corrupt);
}

#[tokio::test(start_paused = true)]
async fn silence_ends_with_the_operation() {
    let server = Server::new([Step::Stall, Step::Stall, Step::Stall, Step::Stall]);
    let start = Instant::now();
    let error = server.store().stat(&name("o")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (Kind::Unavailable, Some(Cause::TimedOut))
    );
    assert!(error.message.contains("store.test"), "{error}");
    assert!(start.elapsed() <= Duration::from_secs(120));
    assert_eq!(server.seen().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn reads_are_repeated_while_the_store_is_away() {
    let server = Server::new([
        refusal(503, "backendError"),
        Step::Lost,
        refusal(500, "backendError"),
        json(object(7, b"x")),
    ]);
    assert_eq!(server.store().stat(&name("o")).await.unwrap().size, 1);
    assert_eq!(server.seen().len(), 4);
    server.then((0..4).map(|_| refusal(503, "backendError")));
    let error = server.store().stat(&name("o")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert_eq!(
        (error.status, error.reason.as_deref()),
        (Some(503), Some("backendError"))
    );
    assert_eq!(
        error.to_string(),
        "storage.objects.get o: said backendError (status 503, reason backendError, 4 attempts)"
    );
    assert_eq!(
        server.seen().len(),
        4,
        "as many attempts as the policy allows"
    );
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_for() {
    let server = Server::new([
        refusal_with(429, "rateLimitExceeded", &[("retry-after", "21")]),
        json(object(7, b"x")),
    ]);
    let start = Instant::now();
    server.store().stat(&name("o")).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 21);
}

#[tokio::test(start_paused = true)]
async fn throttling_is_waited_out_until_the_deadline() {
    let server = Server::new((0..7).map(|_| refusal(429, "rateLimitExceeded")));
    server.then([json(object(7, b"x"))]);
    server.store().stat(&name("o")).await.unwrap();
    assert_eq!(
        server.seen().len(),
        8,
        "more than the attempts of an outage"
    );

    let mut config = config(None);
    config.timeouts.operation = Duration::from_secs(2);
    server.then((0..2).map(|_| refusal(429, "rateLimitExceeded")));
    let start = Instant::now();
    let error = server
        .store_with(config)
        .stat(&name("o"))
        .await
        .unwrap_err();
    assert_eq!(error.kind, Kind::Throttled);
    assert!(start.elapsed() <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn answers_that_cannot_be_read_are_corrupt() {
    let server = Server::new([json("{"), json(r#"{"name":"o"}"#), answer(200, &[], "")]);
    let store = server.store();
    for _ in 0..3 {
        assert_eq!(
            store.stat(&name("o")).await.unwrap_err().kind,
            Kind::Corrupt
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_page_may_have_a_next_one() {
    let server = Server::new([
        json(r#"{"nextPageToken":"t/1"}"#),
        json(format!(r#"{{"items":[{}]}}"#, object(7, b"x"))),
    ]);
    let store = server.store();
    let mut request = ListRequest {
        prefix: "a b/".to_owned(),
        delimiter: Some("/".to_owned()),
        max_results: Some(10),
        ..ListRequest::default()
    };
    let page = store.list(&request).await.unwrap();
    assert!(page.objects.is_empty());
    request.page_token = page.next_page_token;
    let page = store.list(&request).await.unwrap();
    assert_eq!((page.objects.len(), page.next_page_token), (1, None));
    let seen = server.seen();
    assert!(
        seen[1]
            .target
            .contains("&prefix=a%20b%2F&delimiter=%2F&pageToken=t%2F1&maxResults=10")
    );
    assert!(
        seen[1]
            .target
            .contains("?fields=nextPageToken%2Cprefixes%2Citems%28name%2C")
    );
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_read_hold_their_place() {
    let content = content();
    let server = Server::new([media(&content, 0, 100, End::Stalled)]);
    let pool = Pool {
        in_flight: 1,
        ..Pool::default()
    };
    let mut config = config(None);
    config.timeouts.operation = Duration::from_secs(1);
    let store = server.pooled(&pool, config);
    let reading = store.read(&read("o")).await.unwrap();
    let error = store.stat(&name("o")).await.unwrap_err();
    assert_eq!(
        (error.kind, error.cause),
        (Kind::Unavailable, Some(Cause::Busy))
    );
    drop(reading);
    server.then([json(object(7, b"x"))]);
    store.stat(&name("o")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refused_connections_are_tried_again() {
    let server = Server::new([json(object(7, b"x"))]);
    server.refuse(2);
    server.store().stat(&name("o")).await.unwrap();
    server.refuse(4);
    let error = server.store().stat(&name("o")).await.unwrap_err();
    assert_eq!(error.cause, Some(Cause::Refused));
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_keys_of_metadata_are_many_headers() {
    let keys: Vec<_> = (0..300).map(|i| format!("x-goog-meta-{i}")).collect();
    let mut headers: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    headers.push(("x-goog-generation", "7"));
    let many = || answer(200, &headers, "x");
    // Whoever repeats nothing reads it as well: it was no failure.
    let mut config = config(None);
    config.retry.attempts = 1;
    let server = Server::new([many(), many()]);
    let store = server.store_with(config);
    let start = Instant::now();
    let bytes = drain(store.read(&read("o")).await).await;
    assert_eq!(bytes.unwrap(), b"x");
    assert_eq!(server.seen().len(), 2, "the first asks twice");
    assert_eq!(start.elapsed(), Duration::ZERO);
    for _ in 0..2 {
        server.then([many()]);
        let bytes = drain(store.read(&read("o")).await).await;
        assert_eq!(bytes.unwrap(), b"x");
        assert_eq!(server.seen().len(), 1);
    }
    // More than are ever looked at, and no second request for that.
    let keys: Vec<_> = (0..600).map(|i| format!("x-goog-meta-{i}")).collect();
    let headers: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    server.then([answer(200, &headers, "x")]);
    let error = store.read(&read("o")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unavailable);
    assert_eq!(server.seen().len(), 1);
}
