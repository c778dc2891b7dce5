//! Promises of `bucket`, `permissions`, `stat` and `read`.

use super::{Bucket, collect, kind, name, pattern, to, whole};
use crate::object::Attributes;
use crate::store::{Preconditions, ReadRequest};
use crate::{Generation, Kind, Metageneration};

pub(super) async fn bucket_is_there(store: Bucket) {
    let bucket = store.bucket().await.unwrap();
    assert!(!bucket.hierarchical);
    assert_eq!(bucket.uniform_access, Some(true));
}

pub(super) async fn layout_agrees_with_the_bucket(store: Bucket) {
    let (bucket, layout) = (store.bucket().await.unwrap(), store.layout().await.unwrap());
    assert_eq!(
        (layout.location, layout.hierarchical),
        (bucket.location, bucket.hierarchical)
    );
    assert!(!layout.location_type.is_empty());
}

pub(super) async fn permissions_are_those_that_were_asked_for(store: Bucket) {
    for wanted in [
        &["storage.objects.list", "storage.objects.get"][..],
        &["storage.objects.get", "storage.objects.list"],
        &["storage.objects.create"],
    ] {
        assert_eq!(store.permissions(wanted).await.unwrap(), wanted);
    }
}

pub(super) async fn permissions_of_nothing_are_invalid(store: Bucket) {
    assert_eq!(kind(store.permissions(&[]).await), Kind::Invalid);
}

pub(super) async fn stat_tells_what_was_written(store: Bucket) {
    let written = store.put("a/b", "hello").await;
    assert_eq!(written.name, name("a/b"));
    assert_eq!(written.size, 5);
    assert_eq!(written.metageneration, Metageneration(1));
    assert_eq!(written.crc32c, Some(0x9A71_BB4C));
    assert!(written.generation > Generation::ABSENT);
    assert_eq!(store.stat(&name("a/b")).await.unwrap(), written);
}

pub(super) async fn stat_of_nothing_is_not_found(store: Bucket) {
    store.put("a/b", "x").await;
    for missing in ["a", "a/", "a/b/", "A/b"] {
        assert_eq!(kind(store.stat(&name(missing)).await), Kind::NotFound);
    }
}

pub(super) async fn read_whole_object(store: Bucket) {
    let bytes = pattern(300_001);
    let object = store.put("o", bytes.clone()).await;
    let read = store.read(&whole("o")).await.unwrap();
    assert_eq!(read.generation, object.generation);
    assert_eq!(read.metageneration, object.metageneration);
    assert_eq!(read.size, 300_001);
    assert_eq!(read.range, 0..300_001);
    assert_eq!(read.crc32c, object.crc32c);
    assert_eq!(collect(read).await.unwrap(), bytes);
}

pub(super) async fn read_ranges_are_clipped(store: Bucket) {
    let bytes = pattern(1000);
    store.put("o", bytes.clone()).await;
    for (asked, given) in [
        (0..1, 0..1),
        (0..1000, 0..1000),
        (1..999, 1..999),
        (999..1000, 999..1000),
        (500..5000, 500..1000),
        (0..u64::MAX, 0..1000),
    ] {
        let request = ReadRequest {
            range: Some(asked.clone()),
            ..whole("o")
        };
        let read = store.read(&request).await.unwrap();
        assert_eq!(read.range, given, "{asked:?}");
        assert_eq!(read.size, 1000, "{asked:?}");
        let expected = bytes.slice(given.start as usize..given.end as usize);
        assert_eq!(collect(read).await.unwrap(), expected, "{asked:?}");
    }
}

pub(super) async fn read_behind_the_end_is_out_of_range(store: Bucket) {
    store.put("o", pattern(10)).await;
    for range in [10..11, 10..20, 1_000_000..2_000_000] {
        let request = ReadRequest {
            range: Some(range),
            ..whole("o")
        };
        assert_eq!(kind(store.read(&request).await), Kind::OutOfRange);
    }
}

pub(super) async fn read_of_an_empty_object(store: Bucket) {
    store.put("o", "").await;
    let read = store.read(&whole("o")).await.unwrap();
    assert_eq!((read.size, read.range.clone()), (0, 0..0));
    assert_eq!(collect(read).await.unwrap(), "");
    let request = ReadRequest {
        range: Some(0..1),
        ..whole("o")
    };
    assert_eq!(kind(store.read(&request).await), Kind::OutOfRange);
}

pub(super) async fn read_of_nothing_is_not_found(store: Bucket) {
    assert_eq!(kind(store.read(&whole("o")).await), Kind::NotFound);
}

pub(super) async fn read_of_another_generation_is_not_found(store: Bucket) {
    let object = store.put("o", "one").await;
    let pinned = |generation| ReadRequest {
        generation: Some(generation),
        ..whole("o")
    };
    let read = store.read(&pinned(object.generation)).await.unwrap();
    assert_eq!(collect(read).await.unwrap(), "one");
    let never = Generation(object.generation.0 - 1);
    assert_eq!(kind(store.read(&pinned(never)).await), Kind::NotFound);
}

pub(super) async fn read_honours_preconditions(store: Bucket) {
    let object = store.put("o", "one").await;
    let other = Generation(object.generation.0 + 1);
    let none = Preconditions::default();
    let table = [
        (Preconditions::generation(object.generation), true),
        (Preconditions::generation(other), false),
        (
            Preconditions {
                generation_not: Some(other),
                ..none
            },
            true,
        ),
        (
            Preconditions {
                generation_not: Some(object.generation),
                ..none
            },
            false,
        ),
        (
            Preconditions {
                metageneration: Some(Metageneration(1)),
                ..none
            },
            true,
        ),
        (
            Preconditions {
                metageneration: Some(Metageneration(2)),
                ..none
            },
            false,
        ),
        (
            Preconditions {
                metageneration_not: Some(Metageneration(1)),
                ..none
            },
            false,
        ),
    ];
    for (preconditions, holds) in table {
        let request = ReadRequest {
            preconditions,
            ..whole("o")
        };
        match store.read(&request).await {
            Ok(read) => {
                assert!(holds, "{preconditions:?}");
                assert_eq!(collect(read).await.unwrap(), "one");
            }
            Err(error) => {
                assert!(!holds, "{preconditions:?}: {error}");
                assert_eq!(error.kind, Kind::Precondition, "{preconditions:?}");
            }
        }
    }
}

pub(super) async fn read_keeps_its_generation_while_the_object_changes(store: Bucket) {
    let bytes = pattern(2_000_000);
    let object = store.put("o", bytes.clone()).await;
    let read = store.read(&whole("o")).await.unwrap();
    store.put("o", "another").await;
    assert_eq!(read.generation, object.generation);
    // The store may no longer have it all, but nothing else may come in its place.
    match collect(read).await {
        Ok(read) => assert_eq!(read, bytes),
        Err(error) => assert_eq!(error.kind, Kind::NotFound),
    }
}

pub(super) async fn gzip_is_read_as_stored(store: Bucket) {
    // A gzip header and some of a stream: what is stored need not decompress.
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    bytes.extend_from_slice(&pattern(5000));
    let request = crate::store::WriteRequest {
        attributes: Attributes {
            content_encoding: Some("gzip".to_owned()),
            content_type: Some("text/plain".to_owned()),
            ..Attributes::default()
        },
        ..to("o.gz", Preconditions::default())
    };
    let object = store.write(&request, bytes.clone().into()).await.unwrap();
    assert_eq!(object.size, 5010);
    assert_eq!(store.get("o.gz").await.unwrap(), bytes);
    let request = ReadRequest {
        range: Some(5..50),
        ..whole("o.gz")
    };
    let read = store.read(&request).await.unwrap();
    assert_eq!(collect(read).await.unwrap(), bytes[5..50]);
}

pub(super) async fn odd_names_are_ordinary(store: Bucket) {
    let longest = "n".repeat(1024);
    let names = [
        "a//b",
        "/lead",
        "a/./b",
        "../y",
        "trail/",
        "50% #1?+&=;:@,$!*'()~",
        "%2F%00%",
        "é/日本/🦀",
        " space ",
        "tab\there",
        "quote\"back\\slash",
        "[brackets]{}|^`<>",
        &longest,
    ];
    for odd in names {
        let written = store.put(odd, odd.to_owned()).await;
        assert_eq!(written.name.as_str(), odd);
    }
    for odd in names {
        assert_eq!(store.stat(&name(odd)).await.unwrap().name.as_str(), odd);
        assert_eq!(store.get(odd).await.unwrap(), odd, "{odd}");
    }
    for odd in names {
        let none = Preconditions::default();
        store.delete(&name(odd), &none).await.unwrap();
        assert_eq!(kind(store.stat(&name(odd)).await), Kind::NotFound);
    }
}
