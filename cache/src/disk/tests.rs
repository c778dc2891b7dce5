mod crash;
mod damage;
mod failures;
mod keeping;
mod limit;
mod model;
mod places;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use gcsmount_gcs::{BucketName, Generation, ObjectName};
use tempfile::TempDir;

use super::{Content, DiskCache, DiskConfig, Figures, Scope, Volume};
use crate::{Block, Budget, Priority};

const BLOCK: usize = 16 << 10;
const MB: u64 = 1 << 20;

/// A cache in a directory of its own.
struct Bench {
    dir: Arc<TempDir>,
    config: DiskConfig,
    budget: Budget,
    cache: Option<Arc<DiskCache>>,
}

impl Bench {
    fn new(limit: u64) -> Self {
        Self::of_blocks(limit, BLOCK)
    }

    fn of_blocks(limit: u64, block_size: usize) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let config = DiskConfig {
            dir: dir.path().join("cache"),
            limit,
            block_size,
            queue: 4 << 20,
        };
        Self::open(dir, config)
    }

    fn open(dir: Arc<TempDir>, config: DiskConfig) -> Self {
        let budget = Budget::new(64 << 20);
        let cache = Some(DiskCache::open(config.clone(), &budget).unwrap());
        Self {
            dir,
            config,
            budget,
            cache,
        }
    }

    /// Another process in the same directory.
    fn beside(&self) -> Self {
        Self::open(self.dir.clone(), self.config.clone())
    }

    fn cache(&self) -> &Arc<DiskCache> {
        self.cache.as_ref().unwrap()
    }

    fn close(&mut self) {
        self.cache = None;
    }

    fn reopen(&mut self) {
        self.close();
        self.cache = Some(DiskCache::open(self.config.clone(), &self.budget).unwrap());
    }

    fn volume(&self) -> Volume {
        self.cache().volume(scope("bucket", "realm"))
    }

    /// The content `name`, of the bytes that [`bytes`] makes for it.
    fn content(&self, name: &str, size: usize) -> Content {
        let crc32c = Some(crc32c::crc32c(&bytes(name, size)));
        self.volume()
            .content(&object(name), Generation(1), size as u64, crc32c)
    }

    /// Fills a whole object.
    fn fill(&self, name: &str, size: usize) -> Content {
        let content = self.content(name, size);
        let all = bytes(name, size);
        for (index, block) in all.chunks(self.config.block_size).enumerate() {
            content.put(index as u64, &made(block));
            self.settle();
        }
        content
    }

    fn settle(&self) {
        self.cache().inner.queue.settle();
    }

    fn get(&self, content: &Content, index: u64) -> Option<Block> {
        let inner = &self.cache().inner;
        let length = content.header.length(index).unwrap();
        let length = usize::try_from(length).unwrap();
        let lease = self.budget.try_acquire(length, Priority::Reader).unwrap();
        inner.get(content.key, &content.header, index, lease).ok()
    }

    /// How many blocks of an object are there. Those that are, are right.
    fn present(&self, name: &str, size: usize) -> usize {
        let content = self.content(name, size);
        let all = bytes(name, size);
        let blocks = all.chunks(self.config.block_size).enumerate();
        blocks
            .filter_map(|(index, expected)| {
                let block = self.get(&content, index as u64)?;
                assert!(block.bytes == expected, "wrong bytes");
                assert_eq!(block.crc32c, crc32c::crc32c(expected));
                Some(())
            })
            .count()
    }

    fn whole(&self, content: &Content) -> Option<super::Whole> {
        self.cache().inner.whole(content.key, &content.header)
    }

    fn figures(&self) -> Figures {
        self.cache().figures()
    }

    fn place(&self) -> PathBuf {
        self.config.dir.join("gcsmount-blocks/0")
    }

    fn data(&self, content: &Content) -> PathBuf {
        self.place().join(content.key.data())
    }

    fn index(&self, content: &Content) -> PathBuf {
        self.place().join(content.key.index())
    }

    /// What the files of the cache take, and that it is no more than it says, nor more than it may be.
    fn assert_bounded(&self) -> u64 {
        let used = du(&self.place());
        let figures = self.figures();
        assert!(used <= figures.bytes, "{used} of {figures:?}");
        assert!(figures.bytes <= figures.limit, "{figures:?}");
        used
    }
}

fn du(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().blocks() * 512)
        .sum()
}

fn scope(bucket: &str, realm: &str) -> Scope {
    Scope::new(BucketName::parse(bucket).unwrap(), realm.to_owned()).unwrap()
}

fn object(name: &str) -> ObjectName {
    ObjectName::parse(name).unwrap()
}

/// Bytes that differ from object to object and from place to place, none of them zero.
fn bytes(name: &str, size: usize) -> Vec<u8> {
    let mut state = u64::from(crc32c::crc32c(name.as_bytes())) << 1 | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[4] | 1
    };
    (0..size).map(|_| next()).collect()
}

fn made(bytes: &[u8]) -> Block {
    Block {
        bytes: Bytes::copy_from_slice(bytes),
        crc32c: crc32c::crc32c(bytes),
    }
}

/// Copies a file with its holes, which `fs::copy` would fill, and its time.
fn copy(from: &Path, to: &Path) {
    use std::os::unix::fs::FileExt;
    let content = fs::read(from).unwrap();
    let file = fs::File::create(to).unwrap();
    for (page, bytes) in content.chunks(4096).enumerate() {
        if bytes.iter().any(|byte| *byte != 0) {
            file.write_all_at(bytes, page as u64 * 4096).unwrap();
        }
    }
    file.set_len(content.len() as u64).unwrap();
    let modified = fs::metadata(from).unwrap().modified().unwrap();
    file.set_modified(modified).unwrap();
}

fn flip(path: &Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
}
