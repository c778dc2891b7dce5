//! Every mutation, with its answer lost after the store acted or its request lost before: the effect is there exactly
//! once, or not at all where the caller hears of a failure, and never twice.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use gcsmount_emulator::{Counters, Emulator, FaultAction, FaultRule};
use gcsmount_gcs::client::json::{Http, JsonStore, Pool};
use gcsmount_gcs::store::{
    ComposeSource, ListRequest, Patch, Preconditions, Sources, TransferRequest,
};
use gcsmount_gcs::{Generation, Kind, Object, Result, Store};

use crate::emulator::{emulator, pattern, status, store};
use crate::script::{drain, name, read, write};

/// Chunks of the upload: two whole ones and a rest.
const UPLOADED: usize = 600_000;

/// The objects of the bucket under test as they were before.
struct Before {
    o: Object,
    p: Object,
}

/// What is in the bucket afterwards: name, content, metageneration and whether the generation is a new one.
type After = &'static [(&'static str, &'static str, i64, bool)];

type Outcome<'a> = BoxFuture<'a, Result<Option<Object>>>;

struct Mutation {
    label: &'static str,
    /// As the emulator counts it.
    method: &'static str,
    after: After,
    /// Careful callers send preconditions; the others get at most one attempt.
    run: for<'a> fn(&'a JsonStore, &'a Before, bool) -> Outcome<'a>,
}

fn on(object: &Object, careful: bool) -> Preconditions {
    if careful {
        Preconditions::generation(object.generation)
    } else {
        Preconditions::default()
    }
}

fn free(careful: bool) -> Preconditions {
    if careful {
        Preconditions::absent()
    } else {
        Preconditions::default()
    }
}

fn to_t(before: &Before, careful: bool) -> TransferRequest {
    TransferRequest {
        source: name("o"),
        target: name("t"),
        source_preconditions: on(&before.o, careful),
        target_preconditions: free(careful),
    }
}

fn joined(before: &Before) -> [ComposeSource; 2] {
    [&before.o, &before.p].map(ComposeSource::from)
}

const UNCHANGED: After = &[("o", "old", 1, false), ("p", "other", 1, false)];

fn mutations() -> Vec<Mutation> {
    vec![
        Mutation {
            label: "write",
            method: "storage.objects.insert",
            after: &[("o", "new", 1, true), ("p", "other", 1, false)],
            run: |store, before, careful| {
                Box::pin(async move {
                    let request = write("o", on(&before.o, careful));
                    store.write(&request, "new".into()).await.map(Some)
                })
            },
        },
        Mutation {
            label: "patch",
            method: "storage.objects.patch",
            after: &[("o", "old", 2, false), ("p", "other", 1, false)],
            run: |store, before, careful| {
                Box::pin(async move {
                    let patch = Patch {
                        content_type: None,
                        metadata: vec![("k".to_owned(), Some("v".to_owned()))],
                    };
                    let preconditions = Preconditions {
                        metageneration: careful.then_some(before.o.metageneration),
                        ..on(&before.o, careful)
                    };
                    let patched = store.patch(&name("o"), &patch, &preconditions).await;
                    patched.map(Some)
                })
            },
        },
        Mutation {
            label: "delete",
            method: "storage.objects.delete",
            after: &[("p", "other", 1, false)],
            run: |store, before, careful| {
                Box::pin(async move {
                    let preconditions = on(&before.o, careful);
                    store
                        .delete(&name("o"), &preconditions)
                        .await
                        .map(|()| None)
                })
            },
        },
        Mutation {
            label: "compose onto a source",
            method: "storage.objects.compose",
            after: &[("o", "oldother", 1, true), ("p", "other", 1, false)],
            run: |store, before, careful| {
                Box::pin(async move {
                    let request = write("o", on(&before.o, careful));
                    store
                        .compose(&request, &joined(before), Sources::Keep)
                        .await
                        .map(Some)
                })
            },
        },
        Mutation {
            label: "compose",
            method: "storage.objects.compose",
            after: &[
                ("o", "old", 1, false),
                ("p", "other", 1, false),
                ("t", "oldother", 1, true),
            ],
            run: |store, before, careful| {
                Box::pin(async move {
                    let request = write("t", free(careful));
                    store
                        .compose(&request, &joined(before), Sources::Keep)
                        .await
                        .map(Some)
                })
            },
        },
        Mutation {
            label: "compose that deletes its sources",
            method: "storage.objects.compose",
            after: &[("t", "oldother", 1, true)],
            run: |store, before, careful| {
                Box::pin(async move {
                    let request = write("t", free(careful));
                    let sources = joined(before);
                    let composed = store.compose(&request, &sources, Sources::Delete);
                    composed.await.map(Some)
                })
            },
        },
        Mutation {
            label: "compose onto a source that deletes the other",
            method: "storage.objects.compose",
            after: &[("o", "oldother", 1, true)],
            run: |store, before, careful| {
                Box::pin(async move {
                    let request = write("o", on(&before.o, careful));
                    let sources = joined(before);
                    let composed = store.compose(&request, &sources, Sources::Delete);
                    composed.await.map(Some)
                })
            },
        },
        Mutation {
            label: "copy",
            method: "storage.objects.rewrite",
            after: &[
                ("o", "old", 1, false),
                ("p", "other", 1, false),
                ("t", "old", 1, true),
            ],
            run: |store, before, careful| {
                Box::pin(async move { store.copy(&to_t(before, careful)).await.map(Some) })
            },
        },
        Mutation {
            label: "rename",
            method: "storage.objects.move",
            after: &[("p", "other", 1, false), ("t", "old", 1, true)],
            run: |store, before, careful| {
                Box::pin(async move { store.rename(&to_t(before, careful)).await.map(Some) })
            },
        },
    ]
}

/// A bucket in which `o` holds "old" and `p` "other".
async fn planted() -> (Emulator, JsonStore, Before) {
    let emulator = emulator(vec!["bkt".to_owned()]).await;
    for (object, content) in [("o", "old"), ("p", "other")] {
        emulator
            .admin()
            .put_object("bkt", object, content.into())
            .unwrap();
    }
    let store = store(&Http::new(&Pool::default()), &emulator, "bkt");
    let before = Before {
        o: store.stat(&name("o")).await.unwrap(),
        p: store.stat(&name("p")).await.unwrap(),
    };
    emulator.admin().reset_counters();
    (emulator, store, before)
}

type State = BTreeMap<String, (Bytes, i64, bool)>;

fn expected(after: After) -> State {
    after
        .iter()
        .map(|(name, content, metageneration, new)| {
            let entry = (Bytes::from(*content), *metageneration, *new);
            ((*name).to_owned(), entry)
        })
        .collect()
}

async fn state(store: &JsonStore, before: &Before) -> State {
    let old: Vec<Generation> = [&before.o, &before.p].map(|o| o.generation).to_vec();
    let mut state = State::new();
    for object in store.list(&ListRequest::default()).await.unwrap().objects {
        let content = drain(store.read(&read(object.name.as_str())).await).await;
        let new = !old.contains(&object.generation);
        let entry = (content.unwrap().into(), object.metageneration.0, new);
        state.insert(object.name.to_string(), entry);
    }
    state
}

fn refused(counters: &Counters) -> u64 {
    counters.statuses.get("4xx").copied().unwrap_or(0)
}

#[tokio::test]
async fn a_careful_mutation_has_one_effect_whatever_is_lost() {
    for mutation in mutations() {
        // What happens, and whether the store has acted by then.
        for (action, acted) in [
            (FaultAction::LostAnswer, true),
            (FaultAction::Reset, false),
            (status(503), false),
        ] {
            let label = format!("{} {action:?}", mutation.label);
            let (emulator, store, before) = planted().await;
            emulator
                .admin()
                .add_fault(FaultRule::once(mutation.method, action));
            let outcome = (mutation.run)(&store, &before, true).await;
            let outcome = outcome.unwrap_or_else(|error| panic!("{label}: {error}"));
            let counters = emulator.admin().counters();
            // Two requests: one that acted, and one that was lost before or refused as an echo of the first.
            assert_eq!(counters.of(mutation.method), 2, "{label}");
            if acted {
                assert!(refused(&counters) >= 1, "{label}: it acted twice");
            } else {
                assert_eq!(refused(&counters), 0, "{label}: nothing is in its way");
            }
            assert_eq!(
                state(&store, &before).await,
                expected(mutation.after),
                "{label}"
            );
            if let Some(object) = outcome {
                let live = store.stat(&object.name).await.unwrap();
                assert_eq!(live, object, "{label}: what is live is what was told");
            }
            emulator.shutdown().await;
        }
    }
}

#[tokio::test]
async fn a_careless_mutation_is_sent_once_whatever_is_lost() {
    for mutation in mutations() {
        for (action, acted) in [
            (FaultAction::LostAnswer, true),
            (FaultAction::Reset, false),
            (status(503), false),
        ] {
            let label = format!("{} {action:?}", mutation.label);
            let (emulator, store, before) = planted().await;
            emulator
                .admin()
                .add_fault(FaultRule::once(mutation.method, action));
            let outcome = (mutation.run)(&store, &before, false).await;
            let counters = emulator.admin().counters();
            assert_eq!(counters.of(mutation.method), 1, "{label}");
            let after = if acted { mutation.after } else { UNCHANGED };
            assert_eq!(state(&store, &before).await, expected(after), "{label}");
            match outcome {
                Ok(_) => assert!(acted, "{label}: nothing happened"),
                Err(error) => assert_eq!(error.kind, Kind::Unavailable, "{label}: {error}"),
            }
            emulator.shutdown().await;
        }
    }
}

/// Uploads over `o`, in pieces that do not fit the chunks.
async fn upload(store: &JsonStore, before: &Before) -> Result<Object> {
    let request = write("o", on(&before.o, true));
    let mut upload = store.upload(&request).await?;
    for piece in pattern(UPLOADED).chunks(70_000) {
        upload.write(Bytes::copy_from_slice(piece)).await?;
    }
    upload.finish().await
}

#[tokio::test]
async fn an_upload_publishes_once_whichever_of_its_requests_is_lost() {
    const START: &str = "storage.objects.insert.start";
    const CHUNK: &str = "storage.objects.insert.chunk";
    const QUERY: &str = "storage.objects.insert.query";
    let lost = || FaultAction::LostAnswer;
    let reset = || FaultAction::Reset;
    // The method, which of its requests, what happens to it; how many sessions begin, chunks are sent and questions
    // are asked for that. A chunk whose answer alone was lost is not sent again.
    let table = [
        (START, 0, lost(), [2, 3, 0]),
        (START, 0, reset(), [2, 3, 0]),
        (CHUNK, 0, lost(), [1, 3, 1]),
        (CHUNK, 0, reset(), [1, 4, 1]),
        (CHUNK, 1, lost(), [1, 3, 1]),
        (CHUNK, 1, reset(), [1, 4, 1]),
        (CHUNK, 2, lost(), [1, 3, 1]),
        (CHUNK, 2, reset(), [1, 4, 1]),
        (CHUNK, 2, status(503), [1, 4, 1]),
    ];
    for (method, after, action, counts) in table {
        let label = format!("{method} {after} {action:?}");
        let (emulator, store, before) = planted().await;
        emulator.admin().add_fault(FaultRule {
            after,
            ..FaultRule::once(method, action)
        });
        let object = upload(&store, &before).await;
        let object = object.unwrap_or_else(|error| panic!("{label}: {error}"));
        let counters = emulator.admin().counters();
        let sent = [START, CHUNK, QUERY].map(|method| counters.of(method));
        assert_eq!(sent, counts, "{label}");
        assert_eq!(store.stat(&name("o")).await.unwrap(), object, "{label}");
        assert!(object.generation > before.o.generation, "{label}");
        let mut expected = expected(UNCHANGED);
        expected.insert("o".to_owned(), (pattern(UPLOADED), 1, true));
        assert_eq!(state(&store, &before).await, expected, "{label}");
        emulator.shutdown().await;
    }
}

#[tokio::test]
async fn an_upload_whose_question_is_lost_too_publishes_once() {
    let (emulator, store, before) = planted().await;
    for (method, after) in [
        ("storage.objects.insert.chunk", 2),
        ("storage.objects.insert.query", 0),
    ] {
        emulator.admin().add_fault(FaultRule {
            after,
            ..FaultRule::once(method, FaultAction::LostAnswer)
        });
    }
    let object = upload(&store, &before).await.unwrap();
    assert_eq!(store.stat(&name("o")).await.unwrap(), object);
    let counters = emulator.admin().counters();
    assert_eq!(counters.of("storage.objects.insert.chunk"), 3);
    assert_eq!(counters.of("storage.objects.insert.query"), 2);
    emulator.shutdown().await;
}
