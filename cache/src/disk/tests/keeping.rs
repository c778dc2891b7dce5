//! What is put comes back, to whom it belongs, for as long as it may.

use std::io::Read;
use std::os::fd::AsFd;

use super::*;
use crate::disk::Found;

#[tokio::test]
async fn what_was_put_is_read_into_the_budget() {
    let bench = Bench::new(MB);
    let content = bench.content("object", BLOCK + 100);
    let at_rest = bench.budget.used();
    let all = bytes("object", BLOCK + 100);
    assert!(!content.is_known());
    for (index, block) in all.chunks(BLOCK).enumerate() {
        content.put(index as u64, &made(block));
    }
    bench.settle();
    assert!(content.is_known());
    for (index, expected) in all.chunks(BLOCK).enumerate() {
        let lease = bench.budget.acquire(expected.len(), Priority::Reader).await;
        let Found::Block(block) = content.read(index as u64, lease).await else {
            panic!("it is there")
        };
        assert!(block.bytes == expected);
        assert_eq!(bench.budget.used(), at_rest + expected.len());
    }
    assert_eq!(bench.budget.used(), at_rest);
    let figures = bench.figures();
    assert_eq!((figures.entries, figures.filled), (1, 2));
    assert_eq!((figures.hits, figures.misses, figures.dropped), (2, 0, 0));
    assert!(figures.on && figures.queued == 0);
}

#[tokio::test]
async fn what_is_not_there_gives_the_lease_back() {
    let bench = Bench::new(MB);
    let content = bench.content("object", 3 * BLOCK);
    content.put(1, &made(&bytes("object", 3 * BLOCK)[BLOCK..2 * BLOCK]));
    bench.settle();
    let unknown = bench.content("another", BLOCK);
    for (content, index, length) in [(&content, 0, BLOCK), (&content, 1, 7), (&unknown, 0, BLOCK)] {
        let lease = bench.budget.acquire(length, Priority::Reader).await;
        match content.read(index, lease).await {
            Found::Nothing(lease) => assert_eq!(lease.bytes(), length),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bench.figures().misses, 3);
    assert_eq!(bench.figures().corrupt, 0);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_a_test_owns_makes_nothing_late() {
    let bench = Bench::new(MB);
    let content = bench.fill("object", BLOCK);
    for _ in 0..20 {
        let lease = bench.budget.acquire(BLOCK, Priority::Reader).await;
        let found = content.read(0, lease).await;
        assert!(matches!(found, Found::Block(_)), "{found:?}");
    }
    assert_eq!(bench.figures().failed, 0);
}

#[test]
fn nobody_gets_what_belongs_to_another() {
    let bench = Bench::new(MB);
    let content = bench.fill("object", 100);
    let crc = content.header.crc32c;
    let name = object("object");
    let volume = |bucket, realm| bench.cache().volume(scope(bucket, realm));
    let own = volume("bucket", "realm");
    for (what, other) in [
        (
            "bucket",
            volume("bucket-2", "realm").content(&name, Generation(1), 100, crc),
        ),
        (
            "realm",
            volume("bucket", "other").content(&name, Generation(1), 100, crc),
        ),
        ("generation", own.content(&name, Generation(2), 100, crc)),
        (
            "name",
            own.content(&object("object2"), Generation(1), 100, crc),
        ),
        ("checksum", own.content(&name, Generation(1), 100, Some(1))),
    ] {
        assert!(bench.get(&other, 0).is_none(), "{what}");
    }
    let unknown = own.content(&name, Generation(1), 100, None);
    assert!(bench.get(&unknown, 0).is_some());
}

#[test]
fn a_block_of_a_wrong_length_or_checksum_is_not_kept() {
    let bench = Bench::new(MB);
    let content = bench.content("object", 100);
    content.put(0, &made(&[1; 99]));
    content.put(1, &made(&[1; 100]));
    content.put(u64::MAX, &made(&[1; 100]));
    assert_eq!(bench.figures().dropped, 3);
    let mut block = made(&[1; 100]);
    block.crc32c ^= 1;
    content.put(0, &block);
    bench.settle();
    assert_eq!(bench.figures().corrupt, 1);
    assert_eq!(bench.present("object", 100), 0);
}

#[test]
fn a_block_that_is_there_is_not_written_again() {
    let bench = Bench::new(MB);
    bench.fill("object", 2 * BLOCK);
    bench.fill("object", 2 * BLOCK);
    assert_eq!(bench.figures().filled, 2);
}

#[test]
fn everything_is_there_after_a_restart() {
    let mut bench = Bench::new(MB);
    bench.fill("one", 3 * BLOCK + 1);
    bench.fill("two", 10);
    let before = bench.figures();
    bench.reopen();
    let after = bench.figures();
    assert_eq!((after.entries, after.bytes), (before.entries, before.bytes));
    assert_eq!(bench.present("one", 3 * BLOCK + 1), 4);
    assert_eq!(bench.present("two", 10), 1);
}

#[test]
fn what_is_queued_is_written_before_the_end() {
    let mut bench = Bench::new(4 * MB);
    let all = bytes("object", 50 * BLOCK);
    let content = bench.content("object", all.len());
    for (index, block) in all.chunks(BLOCK).enumerate() {
        content.put(index as u64, &made(block));
    }
    drop(content);
    bench.reopen();
    assert_eq!(bench.present("object", all.len()), 50);
}

#[test]
fn blocks_of_another_size_give_way() {
    let mut bench = Bench::new(MB);
    bench.fill("object", 4 * BLOCK);
    bench.config.block_size = 2 * BLOCK;
    bench.reopen();
    assert_eq!(bench.present("object", 4 * BLOCK), 0);
    bench.fill("object", 4 * BLOCK);
    assert_eq!(bench.present("object", 4 * BLOCK), 2);
    assert_eq!(bench.figures().corrupt, 0);
    bench.assert_bounded();
}

#[test]
fn a_forgotten_object_is_gone_in_every_generation() {
    let bench = Bench::new(MB);
    let one = bench.fill("object", 100);
    bench.fill("other", 100);
    let name = object("object");
    let two = bench.volume().content(&name, Generation(2), 100, None);
    two.put(0, &made(&[7; 100]));
    bench.settle();
    bench.volume().forget(&name);
    assert!(!one.is_known() && !two.is_known());
    bench.settle();
    assert!(!bench.data(&one).exists() && !bench.index(&two).exists());
    assert_eq!(bench.figures().entries, 1);
    assert_eq!(bench.present("other", 100), 1);
    bench.assert_bounded();
    // It may come back.
    bench.fill("object", 100);
    assert_eq!(bench.present("object", 100), 1);
}

#[test]
fn a_distrusted_content_is_fetched_afresh() {
    let mut bench = Bench::new(MB);
    let content = bench.fill("object", 2 * BLOCK);
    content.distrust();
    assert!(bench.get(&content, 0).is_none());
    bench.settle();
    drop(content);
    bench.reopen();
    assert_eq!(bench.present("object", 2 * BLOCK), 0);
    bench.fill("object", 2 * BLOCK);
    assert_eq!(bench.present("object", 2 * BLOCK), 2);
}

#[test]
fn what_is_queued_of_a_distrusted_content_is_not_written() {
    let bench = Bench::new(MB);
    let content = bench.content("object", 4 * BLOCK);
    let all = bytes("object", 4 * BLOCK);
    let queue = &bench.cache().inner.queue;
    // The writer waits for this with the first block in its hands.
    let hanging = bench.cache().inner.state.lock();
    for (index, block) in all.chunks(BLOCK).enumerate() {
        content.put(index as u64, &made(block));
    }
    std::thread::scope(|scope| {
        scope.spawn(|| content.distrust());
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while queue.len() > 1 {
            assert!(std::time::Instant::now() < deadline, "it is still queued");
            std::thread::yield_now();
        }
        drop(hanging);
    });
    bench.settle();
    assert!(bench.figures().filled <= 1);
}

#[tokio::test]
async fn a_whole_object_is_one_file() {
    let bench = Bench::new(MB);
    let size = 2 * BLOCK + 5;
    let all = bytes("object", size);
    let content = bench.content("object", size);
    for (index, block) in all.chunks(BLOCK).enumerate().rev() {
        assert!(content.whole().await.is_none(), "{index} is missing");
        content.put(index as u64, &made(block));
        bench.settle();
    }
    let whole = content.whole().await.unwrap();
    let mut file = fs::File::from(whole.as_fd().try_clone_to_owned().unwrap());
    let mut read = Vec::new();
    file.read_to_end(&mut read).unwrap();
    assert!(read == all);
    assert!(std::io::Write::write(&mut file, b"x").is_err());
}

#[test]
fn a_whole_object_of_an_unknown_checksum_is_one_too() {
    let mut bench = Bench::new(MB);
    bench.fill("object", 3 * BLOCK);
    bench.reopen();
    let unknown = |bench: &Bench| {
        let name = object("object");
        bench
            .volume()
            .content(&name, Generation(1), 3 * BLOCK as u64, None)
    };
    assert!(bench.whole(&unknown(&bench)).is_some());
}

#[test]
fn blocks_that_are_not_the_object_together_are_dropped_together() {
    let bench = Bench::new(MB);
    let content = bench.content("object", 2 * BLOCK);
    content.put(0, &made(&bytes("object", BLOCK)));
    content.put(1, &made(&[1; BLOCK]));
    bench.settle();
    assert!(bench.whole(&content).is_none());
    assert_eq!(bench.figures().corrupt, 1);
    assert!(!content.is_known());
}

#[test]
fn the_longest_realm_is_bounded() {
    let bucket = BucketName::parse("bucket").unwrap();
    let scope = |length| Scope::new(bucket.clone(), "r".repeat(length));
    assert!(scope(Scope::MAX_REALM + 1).is_none());
    let bench = Bench::new(MB);
    let volume = bench.cache().volume(scope(Scope::MAX_REALM).unwrap());
    let name = object(&"\u{1}".repeat(1024));
    let content = volume.content(&name, Generation(1), 100, None);
    content.put(0, &made(&[1; 100]));
    bench.settle();
    assert!(bench.get(&content, 0).is_some());
}
