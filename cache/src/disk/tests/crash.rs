//! A process that ends anywhere, and a disk that loses the end of anything.

use super::*;

/// Small, so that every byte can be tried.
const SMALL: usize = 50;
const SIZE: usize = 3 * SMALL - 9;

/// Another bench on a copy of the files, as they are at this moment.
fn copied(bench: &Bench) -> Bench {
    let mut copy = Bench::of_blocks(bench.config.limit, bench.config.block_size);
    copy.close();
    for file in fs::read_dir(bench.place()).unwrap() {
        let file = file.unwrap();
        super::copy(&file.path(), &copy.place().join(file.file_name()));
    }
    copy.reopen();
    copy
}

/// Whatever is there is right, and what is missing can be filled in.
fn mends(bench: &Bench) -> usize {
    let present = bench.present("object", SIZE);
    bench.fill("object", SIZE);
    assert_eq!(bench.present("object", SIZE), 3);
    assert!(bench.whole(&bench.content("object", SIZE)).is_some());
    present
}

#[test]
fn what_was_written_before_a_crash_counts() {
    let bench = Bench::of_blocks(MB, SMALL);
    assert_eq!(mends(&copied(&bench)), 0);
    let content = bench.content("object", SIZE);
    let all = bytes("object", SIZE);
    for (index, block) in all.chunks(SMALL).enumerate() {
        content.put(index as u64, &made(block));
        bench.settle();
        let copy = copied(&bench);
        assert_eq!(mends(&copy), index + 1);
        assert_eq!(copy.figures().corrupt, 0);
    }
}

#[test]
fn files_that_end_anywhere_cost_blocks_and_never_their_truth() {
    let original = Bench::of_blocks(MB, SMALL);
    let content = original.fill("object", SIZE);
    for path in [original.data(&content), original.index(&content)] {
        let name = path.file_name().unwrap();
        for end in 0..fs::metadata(&path).unwrap().len() {
            let mut copy = copied(&original);
            copy.close();
            let torn = copy.place().join(name);
            let file = fs::File::options().write(true).open(&torn).unwrap();
            file.set_len(end).unwrap();
            copy.reopen();
            assert!(mends(&copy) < 3, "{name:?} of {end} bytes");
        }
    }
}

#[test]
fn a_block_whose_record_never_came_does_not_count() {
    let original = Bench::of_blocks(MB, SMALL);
    let content = original.fill("object", SIZE);
    let mut copy = copied(&original);
    copy.close();
    // What a crash leaves between the bytes of the last block and its record.
    let index = copy.place().join(content.key.index());
    let length = fs::metadata(&index).unwrap().len();
    let file = fs::File::options().write(true).open(&index).unwrap();
    file.set_len(length - 16).unwrap();
    copy.reopen();
    assert_eq!(mends(&copy), 2);
    assert_eq!(copy.figures().corrupt, 0);
}
