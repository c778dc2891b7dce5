//! Second requests for what is slow to begin: how many, whose answer is taken, and what is left of the other.

use std::collections::BTreeSet;
use std::time::Duration;

use gcsmount_gcs::client::json::{Config, Hedge, Hedged, Http, JsonStore, Pool};
use gcsmount_gcs::{BucketName, Kind, Store};

use crate::script::{End, Server, Step, config, drain, json, media, name, object, read, refusal};

const CONTENT: &[u8] = b"content";

fn hedging(server: &Server, hedge: Hedge) -> (Http, JsonStore) {
    let config = Config {
        hedge: Some(hedge),
        ..config(None)
    };
    let http = server.http(&Pool::default());
    let store = JsonStore::new(&http, BucketName::parse("bkt").unwrap(), config).unwrap();
    (http, store)
}

fn late(seconds: u64, step: Step) -> Step {
    Step::Late(Duration::from_secs(seconds), Box::new(step))
}

fn good() -> Step {
    media(CONTENT, 0, CONTENT.len(), End::Well)
}

#[tokio::test(start_paused = true)]
async fn the_first_good_answer_is_taken_and_the_other_request_given_up() {
    let busy = || refusal(503, "backendError");
    // What the first and the second request meet, counted from when each is sent; whether the second wins.
    for (first, second, won) in [
        (Step::Stall, good(), 1),
        (late(3, good()), Step::Stall, 0),
        (late(3, good()), late(1, good()), 1),
        (late(3, busy()), late(4, good()), 1),
        (late(4, good()), late(1, busy()), 0),
        (Step::Stall, Step::Lost, 0),
    ] {
        let ends = matches!(second, Step::Lost);
        let server = Server::new([first, second]);
        let (http, store) = hedging(&server, Hedge::default());
        if ends {
            // The first runs into its deadline, and the repetition has what it needs.
            server.then([good()]);
        }
        assert_eq!(drain(store.read(&read("o")).await).await.unwrap(), CONTENT);
        assert_eq!(http.hedged(), Hedged { sent: 1, won });
        assert_eq!(server.seen().len(), if ends { 3 } else { 2 });
        assert!(format!("{http:?}").contains("free: 256"), "{http:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_answer() {
    let server = Server::new([late(2, refusal(404, "notFound")), Step::Stall]);
    let (http, store) = hedging(&server, Hedge::default());
    let start = tokio::time::Instant::now();
    let error = store.stat(&name("o")).await.unwrap_err();
    assert_eq!((error.kind, error.attempts), (Kind::NotFound, 1));
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!(http.hedged(), Hedged { sent: 1, won: 0 });
}

#[tokio::test(start_paused = true)]
async fn what_is_quick_or_changes_something_is_asked_once() {
    let late_write = late(5, json(object(8, CONTENT)));
    let server = Server::new([good(), late_write]);
    let (http, store) = hedging(&server, Hedge::default());
    drain(store.read(&read("o")).await).await.unwrap();
    let request = crate::script::write("o", gcsmount_gcs::store::Preconditions::absent());
    store.write(&request, CONTENT.into()).await.unwrap();
    assert_eq!(server.seen().len(), 2);
    assert_eq!(http.hedged(), Hedged::default());
}

#[tokio::test(start_paused = true)]
async fn second_requests_are_a_bounded_part_of_all() {
    // The first request for each name is never answered.
    let mut known = BTreeSet::new();
    let server = Server::thinking(move |seen| {
        if known.insert(seen.target.clone()) {
            Step::Stall
        } else {
            json(object(7, CONTENT))
        }
    });
    let hedge = Hedge {
        percent: 25,
        burst: 2,
        ..Hedge::default()
    };
    let (http, store) = hedging(&server, hedge);
    for i in 0..40 {
        store.stat(&name(&format!("o{i}"))).await.unwrap();
    }
    // Two that were saved up; then each name has a second request or a repetition, a quarter as many as there are
    // requests that are not second ones.
    let Hedged { sent, won } = http.hedged();
    assert_eq!(sent, won);
    let others = 2 * 40 - sent;
    assert!(sent <= 2 + others / 4, "{sent}");
    assert!(sent >= 40 / 4, "{sent}");
}
