//! Promises of `patch`, `delete`, `compose`, `copy` and `rename`.

use std::collections::BTreeMap;

use super::{Bucket, kind, name, to};
use crate::object::Attributes;
use crate::store::{ComposeSource, Patch, Preconditions, Sources, TransferRequest, WriteRequest};
use crate::{Generation, Kind, Metageneration, Object, Result};

const ANY: Preconditions = Preconditions {
    generation: None,
    generation_not: None,
    metageneration: None,
    metageneration_not: None,
};

fn stale(object: &Object) -> Preconditions {
    Preconditions::generation(Generation(object.generation.0 + 1))
}

fn set(key: &str, value: Option<&str>) -> Patch {
    Patch {
        content_type: None,
        metadata: vec![(key.to_owned(), value.map(str::to_owned))],
    }
}

async fn put_with_metadata(store: &Bucket, object: &str, body: &'static str) -> Object {
    let request = WriteRequest {
        attributes: Attributes {
            content_type: Some("text/plain".to_owned()),
            metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            ..Attributes::default()
        },
        ..to(object, ANY)
    };
    store.write(&request, body.into()).await.unwrap()
}

pub(super) async fn patch_counts_metageneration_only(store: Bucket) {
    let before = put_with_metadata(&store, "o", "body").await;
    let patch = Patch {
        content_type: Some("text/html".to_owned()),
        metadata: vec![("new".to_owned(), Some("1".to_owned()))],
    };
    let after = store.patch(&name("o"), &patch, &ANY).await.unwrap();
    assert_eq!(after.generation, before.generation);
    assert_eq!(after.metageneration, Metageneration(2));
    assert!(after.updated >= before.updated);
    assert_eq!(after.created, before.created);
    assert_eq!(after.attributes.content_type.as_deref(), Some("text/html"));
    let keys: Vec<_> = after.attributes.metadata.keys().collect();
    assert_eq!(keys, ["k", "new"], "keys that are not named stay");

    let after = store
        .patch(&name("o"), &set("k", None), &ANY)
        .await
        .unwrap();
    assert_eq!(after.metageneration, Metageneration(3));
    assert!(!after.attributes.metadata.contains_key("k"));
    assert_eq!(after.attributes.content_type.as_deref(), Some("text/html"));
    assert_eq!(store.stat(&name("o")).await.unwrap(), after);
    assert_eq!(store.get("o").await.unwrap(), "body");
}

pub(super) async fn patch_honours_preconditions(store: Bucket) {
    let object = store.put("o", "body").await;
    let patch = set("k", Some("v"));
    let refused = store.patch(&name("o"), &patch, &stale(&object)).await;
    assert_eq!(kind(refused), Kind::Precondition);
    let first = Preconditions {
        metageneration: Some(Metageneration(1)),
        ..ANY
    };
    store.patch(&name("o"), &patch, &first).await.unwrap();
    let refused = store.patch(&name("o"), &patch, &first).await;
    assert_eq!(kind(refused), Kind::Precondition);
    let missing = store.patch(&name("p"), &patch, &ANY).await;
    assert_eq!(kind(missing), Kind::NotFound);
}

pub(super) async fn delete_removes(store: Bucket) {
    store.put("o", "body").await;
    store.put("o/1", "body").await;
    store.delete(&name("o"), &ANY).await.unwrap();
    assert_eq!(kind(store.stat(&name("o")).await), Kind::NotFound);
    assert_eq!(kind(store.delete(&name("o"), &ANY).await), Kind::NotFound);
    assert_eq!(store.get("o/1").await.unwrap(), "body");
}

pub(super) async fn delete_honours_preconditions(store: Bucket) {
    let object = store.put("o", "body").await;
    let refused = store.delete(&name("o"), &stale(&object)).await;
    assert_eq!(kind(refused), Kind::Precondition);
    assert_eq!(store.get("o").await.unwrap(), "body");
    let exact = Preconditions::generation(object.generation);
    store.delete(&name("o"), &exact).await.unwrap();
    assert_eq!(kind(store.stat(&name("o")).await), Kind::NotFound);
}

fn source(object: &str) -> ComposeSource {
    ComposeSource {
        name: name(object),
        generation: None,
        known: None,
    }
}

pub(super) async fn compose_joins_in_order(store: Bucket) {
    for part in ["1", "2", "3"] {
        store.put(part, format!("<{part}>")).await;
    }
    let request = WriteRequest {
        attributes: Attributes {
            content_type: Some("text/joined".to_owned()),
            metadata: BTreeMap::from([("k".to_owned(), "v".to_owned())]),
            ..Attributes::default()
        },
        ..to("all", Preconditions::absent())
    };
    let sources = ["2", "1", "3", "1"].map(source);
    let object = store
        .compose(&request, &sources, Sources::Keep)
        .await
        .unwrap();
    assert_eq!(object.size, 12);
    assert_eq!(object.crc32c, Some(crc32c::crc32c(b"<2><1><3><1>")));
    assert_eq!(object.md5, None);
    assert_eq!(object.component_count, Some(4));
    assert_eq!(
        object.attributes.content_type.as_deref(),
        Some("text/joined")
    );
    assert_eq!(object.attributes.metadata["k"], "v");
    assert_eq!(store.get("all").await.unwrap(), "<2><1><3><1>");
    assert_eq!(store.get("1").await.unwrap(), "<1>", "sources stay");
}

pub(super) async fn compose_onto_a_source_appends(store: Bucket) {
    let base = store.put("log", "one ").await;
    let tail = store.put("tail", "two").await;
    let request = to("log", Preconditions::generation(base.generation));
    let sources = [&base, &tail].map(ComposeSource::from);
    assert!(sources.iter().all(|source| source.known.is_some()));
    let object = store
        .compose(&request, &sources, Sources::Keep)
        .await
        .unwrap();
    assert!(object.generation > base.generation);
    assert_eq!(store.get("log").await.unwrap(), "one two");
}

pub(super) async fn compose_honours_preconditions(store: Bucket) {
    let object = store.put("o", "body").await;
    let refused = store
        .compose(
            &to("o", Preconditions::absent()),
            &[source("o")],
            Sources::Keep,
        )
        .await;
    assert_eq!(kind(refused), Kind::Precondition);
    let other = ComposeSource {
        name: name("o"),
        generation: Some(Generation(object.generation.0 + 1)),
        known: None,
    };
    let refused = store.compose(&to("p", ANY), &[other], Sources::Keep).await;
    assert_eq!(kind(refused), Kind::Precondition);
    let missing = store
        .compose(
            &to("p", ANY),
            &[source("o"), source("nothing")],
            Sources::Keep,
        )
        .await;
    assert_eq!(kind(missing), Kind::NotFound);
    assert_eq!(kind(store.stat(&name("p")).await), Kind::NotFound);
    assert_eq!(store.stat(&name("o")).await.unwrap(), object);
}

pub(super) async fn compose_takes_1_to_32_sources(store: Bucket) {
    store.put("o", "x").await;
    for wrong in [0, 33] {
        let sources = vec![source("o"); wrong];
        let refused = store.compose(&to("p", ANY), &sources, Sources::Keep).await;
        assert_eq!(kind(refused), Kind::Invalid, "{wrong}");
    }
    let sources = vec![source("o"); 32];
    let object = store
        .compose(&to("p", ANY), &sources, Sources::Keep)
        .await
        .unwrap();
    assert_eq!(object.size, 32);
}

pub(super) async fn compose_deletes_its_sources_on_request(store: Bucket) {
    let objects = [
        store.put("a", "<a>").await,
        store.put("b", "<b>").await,
        store.put("log", "<log>").await,
    ];
    let [a, b, log] = objects.each_ref().map(ComposeSource::from);
    let request = to("all", Preconditions::absent());
    let sources = [a.clone(), b, a];
    let joined = store.compose(&request, &sources, Sources::Delete).await;
    assert_eq!(joined.unwrap().component_count, Some(3));
    assert_eq!(store.get("all").await.unwrap(), "<a><b><a>");
    for gone in ["a", "b"] {
        assert_eq!(
            kind(store.stat(&name(gone)).await),
            Kind::NotFound,
            "{gone}"
        );
    }

    // A source that is the target stays as the target.
    let tail = ComposeSource::from(&store.put("tail", "<tail>").await);
    let request = to("log", Preconditions::generation(objects[2].generation));
    let sources = [log, tail];
    let joined = store.compose(&request, &sources, Sources::Delete).await;
    assert_eq!(store.stat(&name("log")).await.unwrap(), joined.unwrap());
    assert_eq!(store.get("log").await.unwrap(), "<log><tail>");
    assert_eq!(kind(store.stat(&name("tail")).await), Kind::NotFound);
}

pub(super) async fn compose_that_fails_deletes_nothing(store: Bucket) {
    let objects = [store.put("a", "<a>").await, store.put("b", "<b>").await];
    let [a, b] = objects.each_ref().map(ComposeSource::from);
    let other = ComposeSource {
        generation: Some(Generation(objects[1].generation.0 + 1)),
        known: None,
        ..b.clone()
    };
    let unnamed = ComposeSource {
        generation: None,
        ..b.clone()
    };
    for (preconditions, last, why) in [
        (ANY, other, Kind::Precondition),
        (ANY, unnamed, Kind::Invalid),
        (stale(&objects[0]), b, Kind::Precondition),
    ] {
        let sources = [a.clone(), last];
        let refused = store
            .compose(&to("a", preconditions), &sources, Sources::Delete)
            .await;
        assert_eq!(kind(refused), why);
        for object in &objects {
            assert_eq!(store.stat(&object.name).await.unwrap(), *object, "{why:?}");
        }
    }
}

fn from_to(source: &str, target: &str) -> TransferRequest {
    TransferRequest {
        source: name(source),
        target: name(target),
        source_preconditions: ANY,
        target_preconditions: ANY,
    }
}

fn assert_same_but_new(moved: &Object, source: &Object, target: &str) {
    assert_eq!(moved.name, name(target));
    assert_eq!(moved.size, source.size);
    assert_eq!(moved.crc32c, source.crc32c);
    assert_eq!(moved.metageneration, Metageneration(1));
    assert_eq!(moved.attributes, source.attributes);
}

pub(super) async fn copy_carries_everything(store: Bucket) {
    let object = put_with_metadata(&store, "o", "body").await;
    let copy = store.copy(&from_to("o", "dir/p")).await.unwrap();
    assert_same_but_new(&copy, &object, "dir/p");
    assert_eq!(store.get("dir/p").await.unwrap(), "body");
    assert_eq!(store.stat(&name("o")).await.unwrap(), object);
}

pub(super) async fn copy_honours_preconditions(store: Bucket) {
    refuses(&store, |store, request| {
        Box::pin(async move { store.copy(&request).await })
    })
    .await;
}

pub(super) async fn rename_moves_in_one_step(store: Bucket) {
    let object = put_with_metadata(&store, "o", "body").await;
    store.put("p", "in the way").await;
    let moved = store.rename(&from_to("o", "p")).await.unwrap();
    assert_same_but_new(&moved, &object, "p");
    assert_eq!(store.get("p").await.unwrap(), "body");
    assert_eq!(kind(store.stat(&name("o")).await), Kind::NotFound);
}

pub(super) async fn rename_honours_preconditions(store: Bucket) {
    refuses(&store, |store, request| {
        Box::pin(async move { store.rename(&request).await })
    })
    .await;
}

/// A transfer fails where source or target are not as required, and then nothing changed.
async fn refuses<F>(store: &Bucket, transfer: F)
where
    F: Fn(Bucket, TransferRequest) -> futures_util::future::BoxFuture<'static, Result<Object>>,
{
    let source = store.put("o", "source").await;
    let target = store.put("p", "target").await;
    let with = |source_preconditions, target_preconditions| TransferRequest {
        source_preconditions,
        target_preconditions,
        ..from_to("o", "p")
    };
    for request in [
        with(stale(&source), ANY),
        with(ANY, Preconditions::absent()),
        with(ANY, stale(&target)),
        with(stale(&source), Preconditions::generation(target.generation)),
    ] {
        let refused = transfer(store.clone(), request.clone()).await;
        assert_eq!(kind(refused), Kind::Precondition, "{request:?}");
    }
    let missing = transfer(store.clone(), from_to("nothing", "p")).await;
    assert_eq!(kind(missing), Kind::NotFound);
    assert_eq!(store.stat(&name("o")).await.unwrap(), source);
    assert_eq!(store.stat(&name("p")).await.unwrap(), target);

    let exact = with(
        Preconditions::generation(source.generation),
        Preconditions::generation(target.generation),
    );
    transfer(store.clone(), exact).await.unwrap();
    assert_eq!(store.get("p").await.unwrap(), "source");
}
