//! The limit, and who goes for whom.

use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::thread;

use super::*;

#[test]
fn many_objects_stay_below_the_limit() {
    let bench = Bench::new(MB);
    for i in 0..60 {
        bench.fill(&format!("object-{i}"), 3 * BLOCK);
        bench.assert_bounded();
    }
    assert!(bench.assert_bounded() > MB / 2, "it is used as well");
    assert_eq!(bench.present("object-59", 3 * BLOCK), 3);
    assert_eq!(bench.present("object-0", 3 * BLOCK), 0);
    let figures = bench.figures();
    assert_eq!(figures.evictions + figures.entries, 60);
    assert_eq!((figures.dropped, figures.corrupt), (0, 0));
}

#[test]
fn small_objects_count_as_what_they_take() {
    let bench = Bench::new(MB);
    for i in 0..300 {
        bench.fill(&format!("object-{i}"), 1);
    }
    bench.assert_bounded();
    assert!(bench.figures().evictions > 0);
}

#[test]
fn an_object_larger_than_the_cache_replaces_blocks_of_its_own() {
    let bench = Bench::new(MB);
    let size = 200 * BLOCK;
    let content = bench.content("large", size);
    let all = bytes("large", size);
    for (index, block) in all.chunks(BLOCK).enumerate() {
        content.put(index as u64, &made(block));
        bench.settle();
        bench.assert_bounded();
    }
    let figures = bench.figures();
    assert_eq!((figures.filled, figures.dropped), (200, 0));
    assert!(bench.get(&content, 199).is_some(), "the latest is there");
    assert!(
        bench.present("large", size) > 40,
        "as much as fits is there"
    );
    assert_eq!(bench.figures().corrupt, 0);
    assert!(bench.whole(&content).is_none());
}

#[test]
fn a_block_larger_than_the_limit_evicts_nothing() {
    let mut bench = Bench::new(MB);
    bench.fill("small", 100);
    bench.config.block_size = 2 << 20;
    bench.reopen();
    bench.fill("large", 2 << 20);
    assert_eq!(bench.figures().dropped, 1);
    assert_eq!(bench.figures().entries, 1);
}

#[test]
fn the_order_of_use_survives_a_restart() {
    let mut bench = Bench::new(MB);
    for name in ["one", "two", "three"] {
        bench.fill(name, 16 * BLOCK);
    }
    for name in ["one", "two", "one"] {
        assert_eq!(bench.present(name, 16 * BLOCK), 16);
    }
    bench.reopen();
    let there = |bench: &Bench| {
        ["one", "two", "three", "four"].map(|name| bench.content(name, 1).is_known())
    };
    bench.fill("four", 20 * BLOCK);
    assert_eq!(there(&bench), [true, true, false, true]);
    bench.fill("four", 36 * BLOCK);
    assert_eq!(there(&bench), [true, false, false, true]);
}

#[test]
fn a_lower_limit_holds_from_the_start() {
    let mut bench = Bench::new(2 * MB);
    for i in 0..10 {
        bench.fill(&format!("object-{i}"), 8 * BLOCK);
    }
    bench.config.limit = MB / 2;
    bench.reopen();
    bench.assert_bounded();
    assert_eq!(bench.present("object-9", 8 * BLOCK), 8);
}

#[test]
fn objects_are_bounded_in_number() {
    let mut bench = Bench::new(MB);
    bench.close();
    let cache = DiskCache::open_bounded(bench.config.clone(), &bench.budget, 3).unwrap();
    bench.cache = Some(cache);
    for i in 0..5 {
        bench.fill(&format!("object-{i}"), 10);
    }
    assert_eq!(bench.figures().entries, 3);
    assert_eq!(bench.present("object-4", 10), 1);
}

#[test]
fn what_was_passed_on_stays_until_it_is_given_back() {
    let bench = Bench::new(MB);
    let size = 8 * BLOCK;
    let content = bench.fill("passed", size);
    let whole = bench.whole(&content).unwrap();
    // More than are kept open as well.
    for i in 0..200 {
        bench.fill(&format!("object-{i}"), 1);
        bench.assert_bounded();
    }
    assert!(bench.figures().evictions > 0);
    assert!(content.is_known() && bench.index(&content).exists());
    assert!(bench.data(&content).exists());
    bench.volume().forget(&object("passed"));
    bench.settle();
    assert!(!content.is_known() && !bench.index(&content).exists());
    let before = bench.figures().bytes;
    // The same content cannot come back while its former file is in use.
    content.put(0, &made(&bytes("passed", BLOCK)));
    bench.settle();
    assert_eq!(bench.figures().dropped, 1);
    assert_eq!(bench.figures().bytes, before, "it still takes its room");
    let file = fs::File::from(whole.as_fd().try_clone_to_owned().unwrap());
    let mut read = vec![0; size];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == bytes("passed", size));
    drop((whole, file));
    bench.fill("passed", size);
    assert_eq!(bench.present("passed", size), 8);
    bench.assert_bounded();
}

#[test]
fn a_full_queue_drops_and_delays_nobody() {
    let bench = Bench::new(8 * MB);
    let content = bench.content("object", 400 * BLOCK);
    let all = bytes("object", 400 * BLOCK);
    // As if the disk hung: the writer needs this.
    let hanging = bench.cache().inner.state.lock();
    for (index, block) in all.chunks(BLOCK).enumerate() {
        content.put(index as u64, &made(block));
    }
    drop(hanging);
    bench.settle();
    let figures = bench.figures();
    assert_eq!(
        (figures.filled, figures.dropped),
        (256, 144),
        "4 MiB of 16 KiB"
    );
    assert_eq!(bench.present("object", all.len()), 256);
}

#[test]
fn the_queue_takes_its_memory_from_the_budget() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let config = |queue| DiskConfig {
        dir: dir.path().to_owned(),
        limit: MB,
        block_size: BLOCK,
        queue,
    };
    for (limit, queue, taken) in [
        (64 * BLOCK, 4 * BLOCK, 4 * BLOCK),
        (64 * BLOCK, 64 * BLOCK, 8 * BLOCK),
        (4 * BLOCK, 64 * BLOCK, BLOCK),
        (2 * BLOCK, 64 * BLOCK, 0),
    ] {
        let budget = Budget::new(limit);
        let cache = DiskCache::open(config(queue), &budget).unwrap();
        assert_eq!(budget.used(), taken, "{limit}, {queue}");
        let volume = cache.volume(scope("bucket", ""));
        let content = volume.content(&object("object"), Generation(1), 10, None);
        content.put(0, &made(&[1; 10]));
        assert_eq!(cache.figures().dropped, u64::from(taken == 0));
        drop((content, volume, cache));
        assert_eq!(budget.used(), 0);
    }
}

#[test]
fn readers_and_writers_at_once_see_right_bytes_only() {
    const SIZE: usize = 6 * BLOCK;
    let bench = Bench::new(MB / 2);
    thread::scope(|scope| {
        for worker in 0..4 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..150 {
                    let name = format!("object-{}", (worker + round * 7) % 10);
                    let content = bench.content(&name, SIZE);
                    let all = bytes(&name, SIZE);
                    for (index, block) in all.chunks(BLOCK).enumerate() {
                        match bench.get(&content, index as u64) {
                            Some(found) => assert!(found.bytes == block),
                            None => content.put(index as u64, &made(block)),
                        }
                    }
                    if round % 10 == 0 {
                        drop(bench.whole(&content));
                    }
                    if round % 25 == worker {
                        bench.volume().forget(&object(&name));
                    }
                    assert!(bench.figures().bytes <= MB / 2);
                }
            });
        }
    });
    bench.settle();
    bench.assert_bounded();
    assert_eq!(bench.budget.used(), 4 << 20, "the queue's alone");
}
