//! The contract, and faults in the middle of it, against the emulator over real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use gcsmount_emulator::{Auth, Config as EmulatorConfig, Emulator, FaultAction, FaultRule};
use gcsmount_gcs::client::json::{Budget, Config, Http, JsonStore, Pool, Retry, Timeouts};
use gcsmount_gcs::layer::parts::{PartsUpload, Plan};
use gcsmount_gcs::store::{ListRequest, Preconditions, Upload};
use gcsmount_gcs::testing::contract;
use gcsmount_gcs::{BucketName, Kind, Store};
use google_cloud_auth::credentials::Credentials;

use crate::script::{drain, name, read, write};

pub async fn emulator(buckets: Vec<String>) -> Emulator {
    let config = EmulatorConfig {
        auth: Auth::Off,
        buckets,
        mutation_limit: None,
        ..EmulatorConfig::default()
    };
    Emulator::start(config).await.unwrap()
}

pub fn store(http: &Http, emulator: &Emulator, bucket: &str) -> JsonStore {
    store_as(http, emulator, bucket, None)
}

pub fn store_as(
    http: &Http,
    emulator: &Emulator,
    bucket: &str,
    credentials: Option<Credentials>,
) -> JsonStore {
    let config = Config {
        credentials,
        endpoint: emulator.endpoint().parse().unwrap(),
        timeouts: Timeouts {
            first_byte: Duration::from_millis(500),
            idle: Duration::from_millis(500),
            ..Timeouts::default()
        },
        retry: Retry {
            base: Duration::from_millis(1),
            throttled_base: Duration::from_millis(1),
            // Tests with more faults than calls have to wait for nothing.
            budget: Budget {
                burst: 10_000,
                ..Budget::default()
            },
            seed: Some(1),
            ..Retry::default()
        },
        upload_chunk: 256 << 10,
        ..Config::default()
    };
    JsonStore::new(http, BucketName::parse(bucket).unwrap(), config).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_keeps_the_contract() {
    let count = contract::cases().len();
    let buckets: Vec<_> = (0..count).map(|i| format!("bucket-{i}")).collect();
    let emulator = emulator(buckets.clone()).await;
    let http = Http::new(&Pool::default());
    let next = parking_lot::Mutex::new(buckets.into_iter());
    contract::run_all(|| {
        let bucket = next.lock().next().unwrap();
        let store: Arc<dyn Store> = Arc::new(store(&http, &emulator, &bucket));
        async { store }
    })
    .await;
    emulator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_keeps_the_contract_of_folders() {
    let emulator = emulator(Vec::new()).await;
    let http = Http::new(&Pool::default());
    let next = AtomicUsize::new(0);
    contract::run_folders(|| {
        let name = format!("hns-{}", next.fetch_add(1, Ordering::Relaxed));
        emulator.admin().create_hierarchical_bucket(&name).unwrap();
        let store: Arc<dyn Store> = Arc::new(store(&http, &emulator, &name));
        async { store }
    })
    .await;
    emulator.shutdown().await;
}

/// A store in an emulator that has `action` happen to the next call of `method`.
async fn struck(method: &str, action: FaultAction) -> (Emulator, JsonStore) {
    let emulator = emulator(vec!["bkt".to_owned()]).await;
    emulator
        .admin()
        .put_object("bkt", "old", "old".into())
        .unwrap();
    emulator.admin().add_fault(FaultRule::once(method, action));
    let store = store(&Http::new(&Pool::default()), &emulator, "bkt");
    (emulator, store)
}

pub fn status(code: u16) -> FaultAction {
    FaultAction::Status {
        code,
        reason: None,
        retry_after: Some(0),
    }
}

pub fn pattern(length: usize) -> Bytes {
    (0..length).map(|i| (i % 253) as u8).collect()
}

#[tokio::test]
async fn reads_survive_every_fault() {
    let content = pattern(3_000_000);
    for action in [
        status(503),
        status(429),
        FaultAction::Reset,
        FaultAction::LostAnswer,
        FaultAction::Stall {
            duration: Duration::from_secs(60),
        },
        FaultAction::StallBody {
            after: 1_000_000,
            duration: Duration::from_secs(60),
        },
        FaultAction::Truncate { after: 1_000_000 },
    ] {
        let (emulator, store) = struck("storage.objects.get.media", action.clone()).await;
        emulator
            .admin()
            .put_object("bkt", "o", content.clone())
            .unwrap();
        let bytes = drain(store.read(&read("o")).await).await;
        assert_eq!(bytes.unwrap(), content, "{action:?}");
    }
}

#[tokio::test]
async fn uploads_survive_every_fault_at_every_step() {
    let content = pattern(600_000);
    for method in [
        "storage.objects.insert.start",
        "storage.objects.insert.chunk",
    ] {
        for (after, action) in [
            (0, FaultAction::Reset),
            (0, FaultAction::LostAnswer),
            (1, FaultAction::LostAnswer),
            (2, FaultAction::LostAnswer),
            (2, FaultAction::Reset),
            (1, status(503)),
            (2, status(503)),
            (1, FaultAction::Truncate { after: 100_000 }),
        ] {
            let emulator = emulator(vec!["bkt".to_owned()]).await;
            emulator.admin().add_fault(FaultRule {
                after,
                ..FaultRule::once(method, action.clone())
            });
            let store = store(&Http::new(&Pool::default()), &emulator, "bkt");
            let request = write("o", Preconditions::absent());
            let mut upload = store.upload(&request).await.unwrap();
            for piece in content.chunks(70_000) {
                upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
            }
            let object = upload.finish().await;
            assert_eq!(object.unwrap().size, 600_000, "{method} {after} {action:?}");
            assert_eq!(drain(store.read(&read("o")).await).await.unwrap(), content);
        }
    }
}

#[tokio::test]
async fn parts_come_together_though_answers_are_lost() {
    let emulator = emulator(vec!["bkt".to_owned()]).await;
    for (method, after) in [
        ("storage.objects.insert", 7),
        ("storage.objects.compose", 0),
        ("storage.objects.compose", 3),
        ("storage.objects.delete", 5),
    ] {
        emulator.admin().add_fault(FaultRule {
            after,
            ..FaultRule::once(method, FaultAction::LostAnswer)
        });
    }
    let store: Arc<dyn Store> = Arc::new(store(&Http::new(&Pool::default()), &emulator, "bkt"));
    let plan = Plan {
        prefix: ".gcsmount/m/1/".to_owned(),
        part: 64 << 10,
        in_flight: 4,
    };
    let request = write("o", Preconditions::absent());
    let mut upload = PartsUpload::new(Arc::clone(&store), &request, plan);
    let content = pattern(3_000_000);
    for piece in content.chunks(70_000) {
        upload.write(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    let object = upload.finish().await.unwrap();
    assert_eq!(store.stat(&name("o")).await.unwrap(), object);
    assert_eq!(object.component_count, Some(46));
    assert_eq!(drain(store.read(&read("o")).await).await.unwrap(), content);
    let left = store.list(&ListRequest::default()).await.unwrap();
    let names: Vec<_> = left.objects.iter().map(|o| o.name.as_str()).collect();
    assert_eq!(names, ["o"]);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_canceled_upload_is_forgotten() {
    let emulator = emulator(vec!["bkt".to_owned()]).await;
    let store = store(&Http::new(&Pool::default()), &emulator, "bkt");
    let mut upload = store
        .upload(&write("o", Preconditions::default()))
        .await
        .unwrap();
    upload.write(pattern(300_000)).await.unwrap();
    upload.write(pattern(300_000)).await.unwrap();
    upload.cancel().await;
    assert_eq!(
        store.stat(&name("o")).await.unwrap_err().kind,
        Kind::NotFound
    );
    let counters = emulator.admin().counters();
    assert_eq!(counters.of("storage.objects.insert.cancel"), 1);
}

#[tokio::test]
async fn calls_in_a_row_share_a_connection() {
    let emulator = emulator(vec!["bkt".to_owned()]).await;
    let store = store(&Http::new(&Pool::default()), &emulator, "bkt");
    for i in 0..5 {
        let request = write(&format!("o{i}"), Preconditions::absent());
        let object = store.write(&request, pattern(100_000)).await.unwrap();
        store.stat(&object.name).await.unwrap();
        // A reader that takes what was announced and does not look for the end.
        let mut body = store.read(&read(object.name.as_str())).await.unwrap().body;
        let mut left = object.size;
        while left > 0 {
            left -= body.next().await.unwrap().unwrap().len() as u64;
        }
        drop(body);
        store
            .delete(&object.name, &Preconditions::default())
            .await
            .unwrap();
        assert_eq!(
            store.stat(&object.name).await.unwrap_err().kind,
            Kind::NotFound
        );
    }
    assert_eq!(emulator.admin().counters().connections, 1);
}
