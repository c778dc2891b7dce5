//! Failures that last and failures that pass, met by every call against the emulator; and what all calls together may
//! repeat.

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use gcsmount_emulator::{Emulator, FaultAction, FaultRule};
use gcsmount_gcs::client::json::{Budget, Config, Http, JsonStore, Pool};
use gcsmount_gcs::store::{
    ComposeSource, ListRequest, Patch, Preconditions, Sources, TransferRequest,
};
use gcsmount_gcs::{Kind, Object, Result, Store};
use tokio::time::Instant;

use crate::emulator::{emulator, store};
use crate::script::{Server, config, drain, name, read, refusal, write};

type Outcome<'a> = BoxFuture<'a, Result<()>>;

/// A call about the object that it is given, under all the preconditions that a careful caller has.
struct Act {
    label: &'static str,
    run: for<'a> fn(&'a JsonStore, &'a Object) -> Outcome<'a>,
}

macro_rules! acts {
    ($($label:literal: |$store:ident, $object:ident| $act:expr;)+) => {
        vec![$(Act {
            label: $label,
            run: |$store, $object| Box::pin(async move { $act.map(|_| ()) }),
        }),+]
    };
}

fn on(object: &Object) -> Preconditions {
    Preconditions::generation(object.generation)
}

fn transfer(object: &Object) -> TransferRequest {
    TransferRequest {
        source: object.name.clone(),
        target: name("target"),
        source_preconditions: on(object),
        target_preconditions: Preconditions::absent(),
    }
}

async fn upload(store: &JsonStore, object: &Object) -> Result<Object> {
    let mut upload = store
        .upload(&write(object.name.as_str(), on(object)))
        .await?;
    for _ in 0..3 {
        upload.write(Bytes::from(vec![7; 200 << 10])).await?;
    }
    upload.finish().await
}

fn acts() -> Vec<Act> {
    acts! {
        "bucket": |store, _object| store.bucket().await;
        "permissions": |store, _object| store.permissions(&["storage.objects.get"]).await;
        "stat": |store, object| store.stat(&object.name).await;
        "list": |store, _object| store.list(&ListRequest::default()).await;
        "read": |store, object| drain(store.read(&read(object.name.as_str())).await).await.map_err(|(_, error)| error);
        "write": |store, object| store.write(&write(object.name.as_str(), on(object)), "new".into()).await;
        "upload": |store, object| upload(store, object).await;
        "patch": |store, object| {
            let patch = Patch { content_type: Some("text/plain".to_owned()), metadata: Vec::new() };
            let metageneration = Some(object.metageneration);
            store.patch(&object.name, &patch, &Preconditions { metageneration, ..on(object) }).await
        };
        "compose": |store, object| {
            store.compose(&write(object.name.as_str(), on(object)), &[ComposeSource::from(object)], Sources::Keep).await
        };
        "copy": |store, object| store.copy(&transfer(object)).await;
        "rename": |store, object| store.rename(&transfer(object)).await;
        "delete": |store, object| store.delete(&object.name, &on(object)).await;
    }
}

async fn planted(emulator: &Emulator, store: &JsonStore) -> Object {
    let content = Bytes::from(vec![1; 1000]);
    emulator.admin().put_object("bkt", "o", content).unwrap();
    store.stat(&name("o")).await.unwrap()
}

/// Answers the next `count` requests, whatever they are, with `code`.
fn strike(emulator: &Emulator, code: u16, count: u64) {
    let action = FaultAction::Status {
        code,
        reason: None,
        retry_after: None,
    };
    emulator.admin().add_fault(FaultRule {
        method: None,
        count,
        ..FaultRule::once("*", action)
    });
}

#[tokio::test]
async fn what_lasts_is_told_after_a_call_or_two() {
    let emulator = emulator(vec!["bkt".to_owned()]).await;
    let store = store(&Http::new(&Pool::default()), &emulator, "bkt");
    for act in acts() {
        for (code, kind) in [
            (400, Kind::Invalid),
            (403, Kind::Denied),
            (404, Kind::NotFound),
            (410, Kind::Gone),
            (412, Kind::Precondition),
            (416, Kind::OutOfRange),
        ] {
            let label = act.label;
            let object = planted(&emulator, &store).await;
            strike(&emulator, code, 1000);
            emulator.admin().reset_counters();
            let error = (act.run)(&store, &object).await.unwrap_err();
            let calls: u64 = emulator.admin().counters().requests.values().sum();
            emulator.admin().clear_faults();
            assert!(calls <= 3, "{label} {code}: {calls} calls");
            // Reads that send no precondition meet 412 only from a bucket that is closed to them.
            let conditional = !matches!(label, "bucket" | "permissions" | "stat" | "list" | "read");
            let expected = match kind {
                Kind::Precondition if !conditional => Kind::Denied,
                kind => kind,
            };
            assert_eq!(error.kind, expected, "{label}: {error}");
            assert_eq!(error.status, Some(code), "{label}: {error}");
        }
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_burst_of_failures_is_outlasted() {
    let emulator = emulator(vec!["bkt".to_owned()]).await;
    let store = store(&Http::new(&Pool::default()), &emulator, "bkt");
    for act in acts() {
        for code in [408, 429, 500, 502, 503, 504] {
            let object = planted(&emulator, &store).await;
            strike(&emulator, code, 5);
            emulator.admin().reset_counters();
            let outcome = (act.run)(&store, &object).await;
            assert!(outcome.is_ok(), "{} {code}: {outcome:?}", act.label);
            let calls: u64 = emulator.admin().counters().requests.values().sum();
            assert!(calls > 5, "{} {code}: {calls} calls", act.label);
            let _ = store
                .delete(&name("target"), &Preconditions::default())
                .await;
        }
    }
    emulator.shutdown().await;
}

/// A configuration with this budget, and attempts enough to feel it.
fn budgeted(budget: Budget) -> Config {
    let mut config = config(None);
    config.retry.budget = budget;
    config.retry.attempts = 8;
    config
}

/// The calls that a store in an outage sees from `operations` at once, and for how many seconds.
async fn outage(operations: u64, budget: Budget) -> (u64, u64) {
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen = std::sync::Arc::clone(&calls);
    let server = Server::thinking(move |_| {
        seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        refusal(503, "backendError")
    });
    let store = server.store_with(budgeted(budget));
    let start = Instant::now();
    let object = name("o");
    let outcomes = join_all((0..operations).map(|_| store.stat(&object))).await;
    for outcome in outcomes {
        assert_eq!(outcome.unwrap_err().kind, Kind::Unavailable);
    }
    let calls = calls.load(std::sync::atomic::Ordering::Relaxed);
    (calls, start.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_multiply_the_load() {
    let budget = Budget::default();
    let (calls, seconds) = outage(1000, budget).await;
    let burst = u64::from(budget.burst);
    let share = 1000 * u64::from(budget.percent) / 100;
    let flow = (seconds + 1) * u64::from(budget.per_second);
    assert!(
        calls <= 1000 + burst + share + flow,
        "{calls} in {seconds} s"
    );
    // Without the budget it would be 8,000 within seconds.
    assert!(calls < 3000, "{calls}");

    // Few operations do not feel it.
    assert_eq!(outage(5, budget).await.0, 5 * 8);
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_counted_to_the_last_call() {
    let only = |percent, burst| Budget {
        percent,
        per_second: 0,
        burst,
    };
    for (operations, budget, calls) in [
        (20, only(0, 0), 20),
        (20, only(0, 7), 20 + 7),
        // Saved up before: 3; earned by 20 operations: half a call each, as far as there is room for it.
        (20, only(50, 3), 20 + 3),
        (20, only(100, 40), 20 + 40),
    ] {
        let (seen, _) = outage(operations, budget).await;
        assert_eq!(seen, calls, "{budget:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn operations_earn_their_repetitions() {
    let budget = Budget {
        percent: 50,
        per_second: 0,
        burst: 2,
    };
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen = std::sync::Arc::clone(&calls);
    let server = Server::thinking(move |_| {
        seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        refusal(500, "backendError")
    });
    let store = server.store_with(budgeted(budget));
    for _ in 0..100 {
        store.stat(&name("o")).await.unwrap_err();
    }
    // Two that were saved up, and one for every second operation.
    let calls = calls.load(std::sync::atomic::Ordering::Relaxed);
    assert!((100 + 50..=100 + 2 + 50).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_are_taken_up_again_draw_on_the_budget() {
    use crate::script::{End, media};
    let content = [7; 5000];
    let budget = Budget {
        percent: 0,
        per_second: 0,
        burst: 1,
    };
    let server = Server::new([
        media(&content, 0, 1000, End::Broken),
        media(&content, 1000, 1000, End::Broken),
    ]);
    let store = server.store_with(budgeted(budget));
    let (bytes, error) = drain(store.read(&read("o")).await).await.unwrap_err();
    assert_eq!((bytes.len(), error.kind), (2000, Kind::Unavailable));
    assert_eq!(server.seen().len(), 2);
}
