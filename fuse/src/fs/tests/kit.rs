use std::ffi::{OsStr, OsString};

use bytes::Bytes;
use gcsmount_cache::{Budget, CacheConfig};
use gcsmount_gcs::testing::{FakeStore, FaultyStore};

use super::super::*;
use crate::metadata::Posix;

pub(super) const READ: OpenFlags = OpenFlags {
    access: Access::Read,
    truncate: false,
    append: false,
    exclusive: false,
};

pub(super) const WRITE: OpenFlags = OpenFlags {
    access: Access::Write,
    ..READ
};

pub(super) struct Bench {
    pub(super) store: FakeStore,
    pub(super) faults: FaultyStore<FakeStore>,
    pub(super) fs: Arc<Fs>,
}

pub(super) fn bench() -> Bench {
    bench_with(|_| {})
}

pub(super) fn bench_with(change: impl FnOnce(&mut FsConfig)) -> Bench {
    bench_over(&FaultyStore::new(FakeStore::new()), change)
}

pub(super) fn bench_over(
    faults: &FaultyStore<FakeStore>,
    change: impl FnOnce(&mut FsConfig),
) -> Bench {
    let (store, faults) = (faults.inner().clone(), faults.clone());
    let mut config = FsConfig::default();
    change(&mut config);
    let cache = BlockCache::new(&Budget::new(64 << 20), CacheConfig::default());
    let fs = Fs::new(config, Arc::new(faults.clone()), cache, Handle::current());
    Bench { store, faults, fs }
}

impl Bench {
    pub(super) async fn lookup(&self, parent: Ino, name: &str) -> Result<Entry> {
        self.fs.lookup(parent, OsStr::new(name)).await
    }

    /// The number of a path that exists.
    pub(super) async fn ino(&self, path: &str) -> Ino {
        let mut ino = Ino::ROOT;
        for part in path.split('/') {
            ino = self.lookup(ino, part).await.unwrap().attr.ino;
        }
        ino
    }

    pub(super) async fn create(&self, name: &str) -> (Ino, Fh) {
        let created = self
            .fs
            .create(Ino::ROOT, OsStr::new(name), WRITE, Posix::default())
            .await;
        let (entry, opened) = created.unwrap();
        (entry.attr.ino, opened.fh)
    }

    pub(super) async fn write(&self, fh: Fh, bytes: &'static str) {
        let bytes = Bytes::from_static(bytes.as_bytes());
        let size = self
            .fs
            .file(fh)
            .unwrap()
            .writer
            .as_ref()
            .unwrap()
            .view()
            .size;
        self.fs.write(fh, size, bytes, false).await.unwrap();
    }

    pub(super) async fn read(&self, fh: Fh) -> Result<Bytes> {
        self.fs.read(fh, 0, 1 << 20).await
    }

    /// Opens, reads and closes.
    pub(super) async fn content(&self, path: &str) -> Bytes {
        let ino = self.ino(path).await;
        let fh = self.fs.open(ino, READ).await.unwrap().fh;
        let content = self.read(fh).await.unwrap();
        self.fs.release(fh).await;
        content
    }

    pub(super) async fn put(&self, name: &str, bytes: &'static str) {
        let (_, fh) = self.create(name).await;
        self.write(fh, bytes).await;
        self.fs.flush(fh).await.unwrap();
        self.fs.release(fh).await;
    }
}

/// Collects entries, so many at a time.
pub(super) struct Sink {
    pub(super) plus: bool,
    pub(super) room: usize,
    pub(super) taken: Vec<(u64, Ino, OsString)>,
}

impl Sink {
    pub(super) fn new(plus: bool, room: usize) -> Self {
        Self {
            plus,
            room,
            taken: Vec::new(),
        }
    }
}

impl EntrySink for Sink {
    fn wants_attributes(&self) -> bool {
        self.plus
    }

    fn add(&mut self, next: u64, ino: Ino, _: Kind, name: &OsStr) -> bool {
        let fits = self.taken.len() < self.room;
        if fits {
            self.taken.push((next, ino, name.to_owned()));
        }
        fits
    }

    fn add_with_attributes(&mut self, next: u64, entry: &Entry, name: &OsStr) -> bool {
        self.add(next, entry.attr.ino, entry.attr.kind, name)
    }
}
