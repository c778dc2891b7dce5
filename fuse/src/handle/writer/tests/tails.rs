//! What an append leaves in the bucket beside the file: nothing, or as little as can be.

use super::*;

/// Larger than what is fetched and written anew.
fn base() -> Vec<u8> {
    pattern(300 << 10)
}

/// A tail that is one request, and one that streams.
const TAILS: [usize; 2] = [10, LIMIT + 1];

#[tokio::test]
async fn a_tail_that_cannot_be_removed_now_is_removed_behind_the_next() {
    let bench = bench();
    let writer = bench.open(&base());
    let away = Fault::Before(Kind::Unavailable);
    bench.faults.inject(Method::Delete, 2, away);
    for left in [1, 2, 0] {
        append(&writer, b"more").await;
        writer.publish().await.unwrap();
        assert_eq!(bench.store.names().len(), 1 + left);
    }
    assert!(bench.bytes().unwrap().ends_with(b"moremoremore"));
}

#[tokio::test]
async fn what_is_left_goes_at_the_end() {
    let bench = bench();
    let writer = bench.open(&base());
    let away = Fault::Before(Kind::Unavailable);
    bench.faults.inject(Method::Delete, 1, away);
    append(&writer, b"more").await;
    writer.publish().await.unwrap();
    assert_eq!(bench.store.names().len(), 2);
    bench.workshop.remove_leftovers().await;
    assert_eq!(bench.store.names(), ["f"]);
    let deletes = bench.store.calls().of(Method::Delete);
    bench.workshop.remove_leftovers().await;
    assert_eq!(bench.store.calls().of(Method::Delete), deletes);
}

#[tokio::test]
async fn a_tail_that_may_not_be_removed_is_not_tried_again() {
    let bench = bench();
    let writer = bench.open(&base());
    let held = Fault::Before(Kind::Held);
    bench.faults.inject(Method::Delete, 1, held);
    append(&writer, b"more").await;
    writer.publish().await.unwrap();
    assert_eq!(bench.store.names().len(), 2);
    append(&writer, b"more").await;
    writer.publish().await.unwrap();
    assert_eq!(bench.store.calls().of(Method::Delete), 1);
}

#[tokio::test]
async fn a_tail_whose_answer_is_lost_does_not_stay() {
    for (tail, method) in TAILS.into_iter().zip([Method::Write, Method::UploadFinish]) {
        let bench = bench();
        let writer = bench.open(&base());
        let lost = Fault::After(Kind::Unavailable);
        bench.faults.inject(method, 1, lost);
        append(&writer, &pattern(tail)).await;
        assert_eq!(errno(writer.publish()).await, Errno::EIO);
        assert_eq!(bench.faults.pending(method), 0);
        assert_eq!(bench.store.names(), ["f"]);
        assert!(bench.bytes().unwrap() == base());
    }
}

#[tokio::test]
async fn an_append_deletes_no_source_in_one_step() {
    for tail in TAILS {
        let bench = bench();
        let writer = bench.open(&base());
        append(&writer, &pattern(tail)).await;
        writer.publish().await.unwrap();
        let calls = bench.store.calls();
        assert_eq!(
            (calls.of(Method::Compose), calls.of(Method::Delete)),
            (1, 1)
        );
        assert_eq!(bench.store.names(), ["f"]);
    }
}
