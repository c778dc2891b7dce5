//! Promises of `write` and `upload`.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::{Bucket, kind, name, pattern, to};
use crate::object::Attributes;
use crate::store::{ListRequest, Preconditions, WriteRequest};
use crate::{Generation, Kind, Metageneration};

fn every_attribute() -> Attributes {
    Attributes {
        content_type: Some("text/x-test".to_owned()),
        content_encoding: Some("identity".to_owned()),
        content_disposition: Some("attachment; filename=\"a\"".to_owned()),
        content_language: Some("de".to_owned()),
        cache_control: Some("no-store".to_owned()),
        storage_class: Some("NEARLINE".to_owned()),
        custom_time: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123)),
        metadata: BTreeMap::from([
            (
                "gcsfuse_mtime".to_owned(),
                "2026-01-01T00:00:00Z".to_owned(),
            ),
            ("odd key é".to_owned(), "\"line\nbreak\"".to_owned()),
        ]),
    }
}

pub(super) async fn write_replaces_in_one_step(store: Bucket) {
    let first = store.put("o", "one").await;
    let second = store.put("o", "second").await;
    assert!(second.generation > first.generation);
    assert_eq!(store.get("o").await.unwrap(), "second");
    assert_eq!(store.stat(&name("o")).await.unwrap(), second);
}

pub(super) async fn write_keeps_attributes(store: Bucket) {
    let request = WriteRequest {
        attributes: every_attribute(),
        ..to("o", Preconditions::default())
    };
    let written = store.write(&request, "x".into()).await.unwrap();
    assert_eq!(written.attributes, every_attribute());
    let mut upload = store.upload(&request).await.unwrap();
    upload.write(pattern(100)).await.unwrap();
    let uploaded = upload.finish().await.unwrap();
    assert_eq!(uploaded.attributes, every_attribute());
    let stat = store.stat(&name("o")).await.unwrap();
    assert_eq!(stat, uploaded);
}

pub(super) async fn write_where_absent(store: Bucket) {
    let request = to("o", Preconditions::absent());
    store.write(&request, "one".into()).await.unwrap();
    let again = store.write(&request, "two".into()).await;
    assert_eq!(kind(again), Kind::Precondition);
    assert_eq!(store.get("o").await.unwrap(), "one");
}

pub(super) async fn write_over_a_generation(store: Bucket) {
    let base = store.put("o", "one").await.generation;
    let request = to("o", Preconditions::generation(base));
    let second = store.write(&request, "two".into()).await.unwrap();
    let stale = store.write(&request, "three".into()).await;
    assert_eq!(kind(stale), Kind::Precondition);
    assert_eq!(store.stat(&name("o")).await.unwrap(), second);
    let elsewhere = to("p", Preconditions::generation(base));
    let missing = store.write(&elsewhere, "x".into()).await;
    assert_eq!(kind(missing), Kind::Precondition);
    assert_eq!(kind(store.stat(&name("p")).await), Kind::NotFound);
    let exists = Preconditions {
        generation_not: Some(Generation::ABSENT),
        ..Preconditions::default()
    };
    store.write(&to("o", exists), "four".into()).await.unwrap();
    let missing = store.write(&to("p", exists), "x".into()).await;
    assert_eq!(kind(missing), Kind::Precondition);
}

pub(super) async fn write_over_a_metageneration(store: Bucket) {
    let base = store.put("o", "one").await.generation;
    let on = |metageneration| {
        let preconditions = Preconditions {
            metageneration: Some(Metageneration(metageneration)),
            ..Preconditions::generation(base)
        };
        to("o", preconditions)
    };
    let stale = store.write(&on(2), "two".into()).await;
    assert_eq!(kind(stale), Kind::Precondition);
    store.write(&on(1), "two".into()).await.unwrap();
    assert_eq!(store.get("o").await.unwrap(), "two");
}

pub(super) async fn generations_grow(store: Bucket) {
    let mut last = Generation::ABSENT;
    for _ in 0..3 {
        let object = store.put("o", "same").await;
        assert!(object.generation > last);
        last = object.generation;
    }
    let none = Preconditions::default();
    store.delete(&name("o"), &none).await.unwrap();
    assert!(store.put("o", "same").await.generation > last);
}

pub(super) async fn upload_is_invisible_until_finished(store: Bucket) {
    store.put("o", "old").await;
    let request = to("o", Preconditions::default());
    let mut upload = store.upload(&request).await.unwrap();
    upload.write("new ".into()).await.unwrap();
    assert_eq!(store.get("o").await.unwrap(), "old");
    upload.write("content".into()).await.unwrap();
    let object = upload.finish().await.unwrap();
    assert_eq!(object.size, 11);
    assert_eq!(object.crc32c, Some(crc32c::crc32c(b"new content")));
    assert_eq!(store.get("o").await.unwrap(), "new content");
    assert_eq!(store.stat(&name("o")).await.unwrap(), object);
}

pub(super) async fn upload_of_nothing_is_an_empty_object(store: Bucket) {
    let request = to("o", Preconditions::absent());
    let mut upload = store.upload(&request).await.unwrap();
    assert_eq!(upload.finish().await.unwrap().size, 0);
    assert_eq!(store.get("o").await.unwrap(), "");
}

pub(super) async fn upload_of_many_pieces(store: Bucket) {
    let bytes = pattern(3_000_017);
    let request = to("o", Preconditions::absent());
    let mut upload = store.upload(&request).await.unwrap();
    let mut rest = bytes.clone();
    for length in [0, 1, 262_144, 7, 1_048_576, 300_000].into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let piece = rest.split_to(rest.len().min(length));
        upload.write(piece).await.unwrap();
    }
    let object = upload.finish().await.unwrap();
    assert_eq!(object.size, 3_000_017);
    assert_eq!(store.get("o").await.unwrap(), bytes);
}

pub(super) async fn upload_checks_preconditions_twice(store: Bucket) {
    let request = to("o", Preconditions::absent());
    let mut upload = store.upload(&request).await.unwrap();
    upload.write("mine".into()).await.unwrap();
    let theirs = store.put("o", "theirs").await;
    assert_eq!(kind(upload.finish().await), Kind::Precondition);
    assert_eq!(kind(upload.finish().await), Kind::Precondition);
    assert_eq!(kind(upload.write("more".into()).await), Kind::Precondition);
    assert_eq!(store.stat(&name("o")).await.unwrap(), theirs);
    // An implementation may hold the first bytes back, but it tells before anything is published.
    let result = match store.upload(&request).await {
        Ok(mut upload) => upload.finish().await,
        Err(error) => Err(error),
    };
    assert_eq!(kind(result), Kind::Precondition);
    assert_eq!(store.get("o").await.unwrap(), "theirs");
}

pub(super) async fn upload_that_is_dropped_leaves_nothing(store: Bucket) {
    let request = to("o", Preconditions::absent());
    let mut upload = store.upload(&request).await.unwrap();
    upload.write(pattern(700_000)).await.unwrap();
    drop(upload);
    assert_eq!(kind(store.stat(&name("o")).await), Kind::NotFound);
    let page = store.list(&ListRequest::default()).await.unwrap();
    assert!(page.objects.is_empty());
}

pub(super) async fn upload_that_is_canceled_is_over(store: Bucket) {
    let request = to("o", Preconditions::absent());
    let mut upload = store.upload(&request).await.unwrap();
    upload.write(pattern(700_000)).await.unwrap();
    upload.cancel().await;
    assert_eq!(kind(upload.write("more".into()).await), Kind::Canceled);
    assert_eq!(kind(upload.finish().await), Kind::Canceled);
    assert_eq!(kind(store.stat(&name("o")).await), Kind::NotFound);
}
