use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::client::{Answer, BUCKET, Bench, ask, object_path};

const HOUR: Duration = Duration::from_secs(3600);

fn told(answer: &Answer) -> SystemTime {
    let date = answer.header("date").expect("a date");
    httpdate::parse_http_date(date).unwrap()
}

/// Whether `answer` tells this time, which was now before it was asked for. Dates are cut to whole seconds, and no
/// answer here takes a minute.
fn tells(answer: &Answer, now: SystemTime) -> bool {
    let earliest = now - Duration::from_secs(1);
    (earliest..=now + Duration::from_secs(60)).contains(&told(answer))
}

#[tokio::test]
async fn every_answer_tells_the_time_with_its_skew() {
    let bench = Bench::open().await;
    let every = || {
        [
            ask("GET", format!("/storage/v1/b/{BUCKET}")),
            ask("GET", object_path("none", "")),
            ask("GET", object_path("none", "alt=media")),
            ask("GET", format!("/{BUCKET}/none")),
            ask("POST", "/v1/token"),
            ask("GET", "/computeMetadata/v1/"),
            ask("GET", "/_emulator/counters"),
            ask("GET", "/nonsense"),
        ]
    };
    for ask in every() {
        let now = SystemTime::now();
        let answer = bench.answer(ask).await;
        assert!(tells(&answer, now), "{answer:?}");
    }
    bench.admin().set_clock_skew(-3600);
    for ask in every() {
        let now = SystemTime::now();
        let answer = bench.answer(ask).await;
        assert!(tells(&answer, now - HOUR), "{answer:?}");
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_skew_is_set_over_http_and_stays_through_other_shapes() {
    let bench = Bench::open().await;
    let shape = |body| ask("PUT", "/_emulator/shape").json(&body);
    let skew = shape(json!({"clock_skew_seconds": 7200}));
    bench.answer(skew).await.expect(200);
    let now = SystemTime::now();
    let other = shape(json!({"stream_rate": 0}));
    let answer = bench.answer(other).await.expect(200);
    assert!(tells(&answer, now + 2 * HOUR), "{answer:?}");
    let half = shape(json!({"clock_skew_seconds": 0.5}));
    bench.answer(half).await.expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_skew_expires_nothing_and_an_advance_is_told() {
    let bench = Bench::with(gcsmount_emulator::Config::default()).await;
    let token = bench.access_token("ns", "sa").await;
    let list = || ask("GET", format!("/storage/v1/b/{BUCKET}/o")).bearer(&token);
    bench.admin().set_clock_skew(1_000_000);
    bench.answer(list()).await.expect(200);
    bench.admin().set_clock_skew(0);
    bench.admin().advance_clock(2 * HOUR);
    let now = SystemTime::now();
    let answer = bench.answer(list()).await.expect(401);
    assert!(tells(&answer, now + 2 * HOUR), "{answer:?}");
    bench.emulator.shutdown().await;
}
