use std::time::Duration;

use super::*;
use crate::Generation;
use crate::testing::{FakeStore, Fault, FaultyStore, Method};

const PREFIX: &str = ".gcsmount/m/1/";

fn plan() -> Plan {
    Plan {
        prefix: PREFIX.to_owned(),
        part: 1000,
        in_flight: 3,
    }
}

fn to_o(preconditions: Preconditions) -> WriteRequest {
    WriteRequest {
        name: ObjectName::parse("o").unwrap(),
        attributes: Attributes {
            content_type: Some("text/x-test".to_owned()),
            metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            ..Attributes::default()
        },
        preconditions,
    }
}

fn content(length: usize) -> Bytes {
    (0..length)
        .map(|i| u8::try_from(i % 251).unwrap())
        .collect()
}

fn store() -> FaultyStore<FakeStore> {
    FaultyStore::new(FakeStore::new())
}

fn begin(store: &FaultyStore<FakeStore>, preconditions: Preconditions) -> PartsUpload {
    PartsUpload::new(Arc::new(store.clone()), &to_o(preconditions), plan())
}

async fn fill(upload: &mut PartsUpload, content: &Bytes) -> Result<()> {
    for piece in content.chunks(370) {
        upload.write(Bytes::copy_from_slice(piece)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn whatever_its_length_an_object_is_what_was_written() {
    // Bytes; requests that write, that join, and that remove: what the last join takes goes with it.
    for (length, writes, joins, removals) in [
        (0, 1, 0, 0),
        (1, 1, 0, 0),
        (1000, 1, 0, 0),
        (1001, 2, 1, 0),
        (32_000, 32, 1, 0),
        (32_001, 33, 2, 32),
        (70_500, 71, 4, 71),
        (260_000, 260, 10, 260),
    ] {
        let store = store();
        let mut upload = begin(&store, Preconditions::absent());
        let content = content(length);
        fill(&mut upload, &content).await.unwrap();
        let object = upload.finish().await.unwrap();
        let fake = store.inner();
        assert_eq!(fake.bytes("o").unwrap(), content, "{length}");
        assert_eq!(fake.object("o").unwrap(), object);
        assert_eq!(object.attributes.metadata["k"], "v");
        assert_eq!(
            object.attributes.content_type.as_deref(),
            Some("text/x-test")
        );
        assert_eq!(fake.names(), ["o"], "{length}: nothing stays behind");
        let calls = fake.calls();
        let counts = [Method::Write, Method::Compose, Method::Delete].map(|call| calls.of(call));
        assert_eq!(counts, [writes, joins, removals], "{length}");
    }
}

#[tokio::test]
async fn parts_say_whose_they_are() {
    let store = store();
    let old = store.inner().put("o", "old");
    let mut upload = begin(&store, Preconditions::generation(old.generation));
    fill(&mut upload, &content(2500)).await.unwrap();
    while upload.stored.len() < 2 {
        upload.settle_one().await.unwrap();
    }
    let part = store.inner().object(&format!("{PREFIX}00000001")).unwrap();
    assert_eq!(part.attributes.metadata["gcsmount-target"], "o");
    assert_eq!(
        part.attributes.metadata["gcsmount-base"],
        old.generation.to_string()
    );
    assert_eq!(store.inner().bytes("o").unwrap(), "old");
    upload.cancel().await;
    assert_eq!(store.inner().names(), ["o"]);
    let error = upload.write("x".into()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Canceled);
    assert_eq!(upload.finish().await.unwrap_err().kind, Kind::Canceled);
}

#[tokio::test]
async fn what_fails_leaves_the_old_object_and_no_parts() {
    let before = Fault::Before(Kind::Unavailable);
    for (method, pass, fault, kind) in [
        (Method::Write, 0, before, Kind::Unavailable),
        (Method::Write, 40, before, Kind::Unavailable),
        (Method::Compose, 0, before, Kind::Unavailable),
        (Method::Compose, 1, before, Kind::Unavailable),
        (
            Method::Compose,
            2,
            Fault::Before(Kind::Denied),
            Kind::Denied,
        ),
        // A conflict over a part's name is none over the target.
        (
            Method::Write,
            3,
            Fault::Before(Kind::Precondition),
            Kind::Invalid,
        ),
        (
            Method::Compose,
            0,
            Fault::Before(Kind::Precondition),
            Kind::Invalid,
        ),
        (
            Method::Compose,
            2,
            Fault::Before(Kind::Precondition),
            Kind::Precondition,
        ),
    ] {
        let store = store();
        let old = store.inner().put("o", "old");
        store.pass(method, pass);
        // Where parts may not be removed, the last join is asked for once more.
        let times = if kind == Kind::Denied { 2 } else { 1 };
        store.inject(method, times, fault);
        let mut upload = begin(&store, Preconditions::generation(old.generation));
        let result = match fill(&mut upload, &content(45_000)).await {
            Ok(()) => upload.finish().await.map(|_| ()),
            Err(error) => Err(error),
        };
        let label = format!("{method:?} {pass} {fault:?}");
        assert_eq!(result.unwrap_err().kind, kind, "{label}");
        assert_eq!(upload.finish().await.unwrap_err().kind, kind, "{label}");
        assert_eq!(store.inner().names(), ["o"], "{label}");
        assert_eq!(store.inner().bytes("o").unwrap(), "old", "{label}");
    }
}

#[tokio::test]
async fn a_stranger_in_between_is_a_conflict() {
    let store = store();
    let mut upload = begin(&store, Preconditions::absent());
    fill(&mut upload, &content(5000)).await.unwrap();
    let theirs = store.inner().put("o", "theirs");
    let error = upload.finish().await.unwrap_err();
    assert_eq!(error.kind, Kind::Precondition);
    assert_eq!(store.inner().object("o").unwrap(), theirs);
    assert_eq!(store.inner().names(), ["o"]);
}

#[tokio::test]
async fn parts_that_cannot_be_removed_are_no_failure() {
    for kind in [Kind::Held, Kind::Denied, Kind::Unsupported] {
        let store = store();
        store.inject(Method::Compose, 1, Fault::Before(kind));
        store.inject(Method::Delete, 2, Fault::Before(Kind::Held));
        let mut upload = begin(&store, Preconditions::absent());
        let content = content(5000);
        fill(&mut upload, &content).await.unwrap();
        upload.finish().await.unwrap();
        assert_eq!(store.inner().bytes("o").unwrap(), content);
        assert_eq!(store.inner().names().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_before_the_target_is_there() {
    // The last of two levels does not come about in time.
    let store = store();
    store.pass(Method::Compose, 2);
    store.inject(Method::Compose, 1, Fault::Stall);
    let mut upload = begin(&store, Preconditions::absent());
    fill(&mut upload, &content(45_000)).await.unwrap();
    let second = Duration::from_secs(1);
    let finished = tokio::time::timeout(second, upload.finish()).await;
    assert!(finished.is_err());
    assert_eq!(store.inner().calls().of(Method::Delete), 0);
    let names = store.inner().names();
    assert_eq!(names.len(), 45 + 2, "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn no_more_is_under_way_than_was_planned() {
    let store = store();
    store.inject(Method::Write, 100, Fault::Stall);
    let mut upload = begin(&store, Preconditions::absent());
    let content = content(50_000);
    let filling = fill(&mut upload, &content);
    let second = Duration::from_secs(1);
    assert!(tokio::time::timeout(second, filling).await.is_err());
    assert_eq!(upload.sending.len(), 3);
    let held = upload.sending.len() * 1000 + upload.filling.len();
    assert!(held <= plan().memory(), "{held}");
    // The call that was dropped has left a gap.
    let error = upload.write("x".into()).await.unwrap_err();
    assert_eq!(error.kind, Kind::Canceled);
    assert_eq!(store.pending(Method::Write), 100 - 3);
}

#[tokio::test]
async fn an_upload_is_finished_once() {
    let store = store();
    let mut upload = begin(&store, Preconditions::absent());
    upload.write("x".into()).await.unwrap();
    let object = upload.finish().await.unwrap();
    assert!(object.generation > Generation::ABSENT);
    assert_eq!(upload.finish().await.unwrap_err().kind, Kind::Invalid);
    upload.cancel().await;
    assert_eq!(store.inner().names(), ["o"]);
}
