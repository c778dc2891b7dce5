use std::pin::pin;

use gcsmount_gcs::{Error, Kind};

use super::*;
use crate::BlockBuffer;

const BLOCK: usize = 10;

fn cache(budget: &Budget) -> Arc<BlockCache> {
    let config = CacheConfig {
        block_size: BLOCK,
        max_read: 3 * BLOCK,
    };
    BlockCache::new(budget, config)
}

fn key(index: u64) -> BlockKey {
    key_of("object", index)
}

fn key_of(name: &str, index: u64) -> BlockKey {
    BlockKey {
        name: ObjectName::parse(name).unwrap(),
        generation: Generation(7),
        index,
    }
}

fn block(budget: &Budget, byte: u8) -> Block {
    let lease = budget.try_acquire(BLOCK, Priority::Reader).unwrap();
    let mut buffer = BlockBuffer::new(lease);
    assert_eq!(buffer.fill(&[byte; 4]), 4);
    assert_eq!(buffer.remaining(), 6);
    assert_eq!(buffer.fill(&[byte; 8]), 6, "no more than there is room for");
    buffer.freeze()
}

/// Fetches a block ahead.
fn prefetch(cache: &Arc<BlockCache>, key: &BlockKey) {
    let filler = cache.lead(key).unwrap();
    filler.fill(block(cache.budget(), 1));
}

#[test]
fn a_block_knows_its_checksum() {
    let budget = Budget::new(100);
    let block = block(&budget, b'x');
    assert_eq!(block.bytes, [b'x'; BLOCK].as_slice());
    assert_eq!(block.crc32c, crc32c::crc32c(&[b'x'; BLOCK]));
}

#[test]
fn memory_is_held_until_the_last_slice_is_gone() {
    let budget = Budget::new(100);
    let cache = cache(&budget);
    prefetch(&cache, &key(0));
    let slice = cache.get(&key(0)).unwrap().bytes.slice(2..4);
    cache.clear();
    assert_eq!(cache.presence(&key(0)), Presence::Absent);
    assert_eq!(budget.used(), BLOCK);
    drop(slice);
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn one_claim_fetches_and_the_others_follow() {
    let budget = Budget::new(100);
    let cache = cache(&budget);
    let Claim::Absent(filler, own) = cache.claim(&key(0)) else {
        panic!("the first claim leads");
    };
    let Claim::InFlight(other) = cache.claim(&key(0)) else {
        panic!("the second claim follows");
    };
    assert!(cache.lead(&key(0)).is_none());
    assert_eq!(cache.presence(&key(0)), Presence::InFlight);
    assert_eq!(filler.key(), &key(0));
    filler.fill(block(&budget, 3));
    for follower in [own, other] {
        let block = follower.wait().await.unwrap().unwrap();
        assert_eq!(block.bytes[0], 3);
    }
    assert!(matches!(cache.claim(&key(0)), Claim::Ready(_)));
    assert_eq!(cache.flights(), 0);
}

#[tokio::test]
async fn a_failure_reaches_the_followers_and_nobody_after_them() {
    let budget = Budget::new(100);
    let cache = cache(&budget);
    let Claim::Absent(filler, follower) = cache.claim(&key(0)) else {
        panic!("the first claim leads");
    };
    let error = Error::not_found("storage.objects.get", &key(0).name);
    filler.fail(error.clone());
    assert_eq!(follower.wait().await.unwrap().unwrap_err(), error);
    assert_eq!(error.kind, Kind::NotFound);
    assert!(cache.lead(&key(0)).is_some());
}

#[tokio::test]
async fn a_fetch_that_is_given_up_can_be_taken_over() {
    let budget = Budget::new(100);
    let cache = cache(&budget);
    let filler = cache.lead(&key(0)).unwrap();
    let Claim::InFlight(follower) = cache.claim(&key(0)) else {
        panic!("the claim follows");
    };
    let waiting = pin!(follower.wait());
    drop(filler);
    assert!(waiting.await.is_none());
    assert!(cache.lead(&key(0)).is_some());
}

#[test]
fn prefetch_evicts_what_was_read_and_readers_evict_all() {
    let budget = Budget::new(4 * BLOCK);
    let cache = cache(&budget);
    for index in 0..4 {
        prefetch(&cache, &key(index));
    }
    let _ = cache.get(&key(2));
    let lease = budget.try_acquire(BLOCK, Priority::Prefetch);
    assert!(lease.is_none(), "above the ceiling of prefetch");
    assert_eq!(cache.presence(&key(2)), Presence::Absent);
    assert_eq!(cache.bytes(), (3 * BLOCK, 0));
    let lease = budget.try_acquire(2 * BLOCK, Priority::Reader);
    assert!(lease.is_some());
    assert_eq!(cache.presence(&key(0)), Presence::Absent, "the oldest went");
    assert_eq!(cache.presence(&key(3)), Presence::Ready);
}

#[test]
fn what_was_read_is_kept_up_to_a_size() {
    let budget = Budget::new(100 * BLOCK);
    let cache = cache(&budget);
    for index in 0..5 {
        prefetch(&cache, &key(index));
    }
    for index in [0, 1, 2, 0, 3, 4] {
        assert!(cache.get(&key(index)).is_some());
    }
    let ready = |i: &u64| cache.presence(&key(*i)) == Presence::Ready;
    assert_eq!((0..5).filter(ready).collect::<Vec<_>>(), [0, 3, 4]);
    assert_eq!(cache.bytes(), (0, 3 * BLOCK));
    assert_eq!(budget.used(), 3 * BLOCK);
}

#[test]
fn disowned_blocks_go_first() {
    let budget = Budget::new(4 * BLOCK);
    let cache = cache(&budget);
    for index in 0..3 {
        prefetch(&cache, &key(index));
    }
    let _ = cache.get(&key(0));
    cache.disown(&key(0).name, Generation(7), 1..2);
    assert_eq!(cache.evict(1, Priority::Prefetch), BLOCK);
    assert_eq!(cache.presence(&key(1)), Presence::Absent);
    assert_eq!(cache.presence(&key(0)), Presence::Ready);
}

#[test]
fn wrong_blocks_are_dropped_by_key_and_by_content() {
    let budget = Budget::new(100 * BLOCK);
    let cache = cache(&budget);
    for index in 0..3 {
        prefetch(&cache, &key(index));
    }
    prefetch(&cache, &key_of("other", 0));
    let _ = cache.get(&key(1));
    cache.remove(&key(1));
    cache.remove(&key(9));
    assert_eq!(cache.bytes(), (3 * BLOCK, 0));
    cache.remove_all(&key(0).name, Generation(8));
    assert_eq!(cache.bytes(), (3 * BLOCK, 0), "another generation");
    cache.remove_all(&key(0).name, Generation(7));
    assert_eq!(cache.bytes(), (BLOCK, 0));
    cache.clear();
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn a_block_that_lands_gives_way_to_a_reader_that_waits() {
    let budget = Budget::new(BLOCK);
    let cache = cache(&budget);
    let filler = cache.lead(&key(0)).unwrap();
    let filled = block(&budget, 1);
    let acquire = tokio::spawn({
        let budget = budget.clone();
        async move { budget.acquire(BLOCK, Priority::Reader).await.bytes() }
    });
    while budget.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    filler.fill(filled);
    assert_eq!(acquire.await.unwrap(), BLOCK);
}

#[test]
fn caches_of_several_buckets_share_a_budget() {
    let budget = Budget::new(4 * BLOCK);
    let (one, two) = (cache(&budget), cache(&budget));
    for index in 0..4 {
        prefetch(&one, &key(index));
    }
    prefetch(&two, &key(0));
    assert_eq!(one.bytes(), (3 * BLOCK, 0));
    assert_eq!(two.bytes(), (BLOCK, 0));
    drop(one);
    assert_eq!(budget.used(), BLOCK);
    assert!(format!("{two:?} {budget:?}").contains("fresh_bytes: 10"));
}
