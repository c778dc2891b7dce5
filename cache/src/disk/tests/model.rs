//! Anything, in any order, against a model that knows what the bytes are.

use std::collections::HashSet;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

const LIMIT: u64 = 400 << 10;
const SMALL: usize = 5000;

#[derive(Debug, Clone)]
enum Step {
    Put(usize, u64),
    Get(usize, u64),
    Whole(usize),
    Forget(usize),
    Distrust(usize),
    Reopen,
    Kill,
    /// A wrong byte somewhere in a file.
    Flip(usize, bool, prop::sample::Index),
    /// A file that ends early.
    Cut(usize, bool, prop::sample::Index),
    Remove(usize, bool),
}

/// Sizes of the objects, in order: some of a part of a block, one of more than the limit.
const SIZES: [usize; 6] = [
    1,
    SMALL,
    3 * SMALL + 1,
    8 * SMALL,
    20 * SMALL - 1,
    120 * SMALL,
];

static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let objects = SIZES.iter().enumerate();
    objects
        .map(|(object, size)| bytes(&Model::name(object), *size))
        .collect()
});

fn step() -> impl Strategy<Value = Step> {
    let which = 0..SIZES.len();
    let block = 0..120_u64;
    let at = any::<prop::sample::Index>();
    prop_oneof![
        20 => (which.clone(), block.clone()).prop_map(|(o, b)| Step::Put(o, b)),
        12 => (which.clone(), block).prop_map(|(o, b)| Step::Get(o, b)),
        2 => which.clone().prop_map(Step::Whole),
        1 => which.clone().prop_map(Step::Forget),
        1 => which.clone().prop_map(Step::Distrust),
        1 => Just(Step::Reopen),
        1 => Just(Step::Kill),
        1 => (which.clone(), any::<bool>(), at.clone()).prop_map(|(o, d, at)| Step::Flip(o, d, at)),
        1 => (which.clone(), any::<bool>(), at).prop_map(|(o, d, at)| Step::Cut(o, d, at)),
        1 => (which, any::<bool>()).prop_map(|(o, d)| Step::Remove(o, d)),
    ]
}

struct Model {
    bench: Bench,
    /// Blocks that were written, or may have been.
    put: HashSet<(usize, u64)>,
    /// Somebody has changed files, so that a block may be missing that was put, and the disk may hold what was not
    /// counted.
    tampered: bool,
}

impl Model {
    fn new() -> Self {
        Self {
            bench: Bench::of_blocks(LIMIT, SMALL),
            put: HashSet::new(),
            tampered: false,
        }
    }

    fn name(object: usize) -> String {
        format!("object-{object}")
    }

    fn content(&self, object: usize) -> Content {
        let crc32c = Some(crc32c::crc32c(&CONTENTS[object]));
        let name = super::object(&Self::name(object));
        let size = SIZES[object] as u64;
        self.bench
            .volume()
            .content(&name, Generation(1), size, crc32c)
    }

    fn block(object: usize, block: u64) -> (u64, Vec<u8>) {
        let blocks = SIZES[object].div_ceil(SMALL) as u64;
        let index = block % blocks;
        let start = usize::try_from(index).unwrap() * SMALL;
        let end = (start + SMALL).min(SIZES[object]);
        (index, CONTENTS[object][start..end].to_vec())
    }

    fn file(&self, object: usize, data: bool) -> PathBuf {
        let content = self.content(object);
        if data {
            self.bench.data(&content)
        } else {
            self.bench.index(&content)
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Put(object, block) => {
                let (index, bytes) = Self::block(*object, *block);
                self.content(*object).put(index, &made(&bytes));
                self.put.insert((*object, index));
                self.bench.settle();
                if !self.tampered {
                    let there = self.bench.get(&self.content(*object), index);
                    assert!(there.is_some(), "what was put last is there");
                }
            }
            Step::Get(object, block) => {
                let (index, bytes) = Self::block(*object, *block);
                if let Some(found) = self.bench.get(&self.content(*object), index) {
                    assert!(found.bytes == bytes, "wrong bytes");
                    assert!(self.put.contains(&(*object, index)), "bytes of nowhere");
                }
            }
            Step::Whole(object) => {
                if let Some(whole) = self.bench.whole(&self.content(*object)) {
                    let mut read = Vec::new();
                    let mut file = &whole.file;
                    std::io::Read::read_to_end(&mut file, &mut read).unwrap();
                    assert!(read == CONTENTS[*object]);
                }
            }
            Step::Forget(object) => {
                let name = super::object(&Self::name(*object));
                self.bench.volume().forget(&name);
                self.forgotten(*object);
            }
            Step::Distrust(object) => {
                self.content(*object).distrust();
                self.forgotten(*object);
            }
            Step::Reopen => self.bench.reopen(),
            Step::Kill => self.kill(),
            Step::Flip(object, data, at) => self.flip(*object, *data, at),
            Step::Cut(object, data, at) => self.cut(*object, *data, at),
            Step::Remove(object, data) => {
                self.tampered |= fs::remove_file(self.file(*object, *data)).is_ok();
            }
        }
        self.bench.settle();
        let figures = self.bench.figures();
        assert!(figures.bytes <= LIMIT, "{figures:?}");
        assert!(du(&self.bench.place()) <= LIMIT, "{figures:?}");
        assert_eq!(figures.dropped, 0, "there is always room for a block");
        assert!(self.tampered || figures.corrupt == 0, "{figures:?}");
        assert!(figures.on);
    }

    fn forgotten(&mut self, object: usize) {
        self.bench.settle();
        self.put.retain(|(other, _)| *other != object);
        assert!(!self.content(object).is_known());
    }

    /// A process that ends without a word, and one that finds what it has left.
    fn kill(&mut self) {
        let mut next = Bench::of_blocks(LIMIT, SMALL);
        next.close();
        for file in fs::read_dir(self.bench.place()).unwrap() {
            let file = file.unwrap();
            copy(&file.path(), &next.place().join(file.file_name()));
        }
        next.reopen();
        self.bench = next;
    }

    fn flip(&mut self, object: usize, data: bool, at: &prop::sample::Index) {
        let path = self.file(object, data);
        let Ok(content) = fs::read(&path) else { return };
        // A hole that is written to takes room that nobody has counted.
        let written: Vec<_> = (0..content.len()).filter(|i| content[*i] != 0).collect();
        if !written.is_empty() {
            flip(&path, written[at.index(written.len())] as u64);
            self.tampered = true;
        }
    }

    fn cut(&mut self, object: usize, data: bool, at: &prop::sample::Index) {
        let path = self.file(object, data);
        if let Ok(file) = fs::File::options().write(true).open(path) {
            let length = file.metadata().unwrap().len();
            let end = at.index(usize::try_from(length).unwrap() + 1);
            file.set_len(end as u64).unwrap();
            self.tampered = true;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn nothing_gives_wrong_bytes_or_exceeds_the_limit(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new();
        for step in &steps {
            model.take(step);
        }
    }
}
