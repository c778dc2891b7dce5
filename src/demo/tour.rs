//! A walk through the mounted bucket with plain file calls, each step checked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gcsmount_emulator::Admin;
use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::report::Report;

/// Size of the large object.
const LARGE: usize = 256 << 20;
/// Bytes of one file call.
const CALL: usize = 1 << 20;
/// The bucket of the demo.
pub(super) const BUCKET: &str = "demo";
/// Name of the large object.
const LARGE_NAME: &str = "datasets/large.bin";

/// What the bucket holds before the tour.
#[derive(Debug)]
pub(super) struct Seed {
    objects: Vec<(String, u64)>,
    large_crc32c: u32,
}

impl Seed {
    /// Fills the bucket.
    ///
    /// # Errors
    /// The emulator refuses an object.
    pub(super) fn plant(admin: &Admin) -> Result<Self, gcsmount_emulator::Error> {
        let large = noise(1, LARGE);
        let large_crc32c = crc32c::crc32c(&large);
        let mut objects = vec![
            (
                "README.txt".to_owned(),
                Bytes::from_static(b"An object, seen as a file.\n"),
            ),
            (LARGE_NAME.to_owned(), large),
        ];
        for day in 1..=9u64 {
            objects.push((format!("logs/2026/11/{day:02}.log"), noise(day, 4096)));
        }
        for (name, data) in &objects {
            admin.put_object(BUCKET, name, data.clone())?;
        }
        let sizes = objects
            .into_iter()
            .map(|(name, data)| (name, data.len() as u64));
        Ok(Self {
            objects: sizes.collect(),
            large_crc32c,
        })
    }
}

/// Bytes that look random and are the same each time.
fn noise(seed: u64, len: usize) -> Bytes {
    let mut data = vec![0; len];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut data);
    data.into()
}

/// The root of the mount, held open.
///
/// Paths lead through the descriptor: should the mount go away in the middle of the tour, they fail, and never reach what
/// lies below it on the disk.
#[derive(Debug)]
pub(super) struct Root(File);

impl Root {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        File::open(dir).map(Self)
    }

    fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        let root = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        Path::new(&root).join(name)
    }
}

/// Where the tour goes.
#[derive(Debug)]
pub(super) struct Tour {
    /// The mounted bucket.
    pub(super) root: Root,
    /// A directory outside of it, for what is copied in.
    pub(super) scratch: PathBuf,
    /// What the bucket held.
    pub(super) seed: Seed,
    /// How long to go on across token expiries.
    pub(super) soak: Duration,
    /// Set when the tour is to end early.
    pub(super) stop: Arc<AtomicBool>,
}

impl Tour {
    /// Takes every step, until told to stop. The outcome of a step that is stopped is nobody's concern.
    pub(super) fn walk(&self, report: &mut Report) {
        type Step = fn(&Tour) -> Result<String, String>;
        let steps: [(&str, Step); 8] = [
            ("list", Self::list),
            ("read a large file", Self::read_large),
            ("copy a tree in", Self::copy_tree),
            ("write a large file", Self::write_large),
            ("append and fsync", Self::append),
            ("rename", Self::rename),
            ("delete", Self::delete),
            ("read and write on", Self::soak),
        ];
        for (name, step) in steps {
            let begun = Instant::now();
            let outcome = step(self);
            if self.stopped() {
                return;
            }
            report.row(name, outcome, begun);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn list(&self) -> Result<String, String> {
        let mut found =
            files_below(&self.root.join("")).map_err(explain("list", &self.root.join("")))?;
        let mut wanted = self.seed.objects.clone();
        found.sort();
        wanted.sort();
        check(found == wanted, || {
            format!("found {found:?}, expected {wanted:?}")
        })?;
        Ok(format!(
            "{} files in 4 directories, as the bucket has them",
            found.len()
        ))
    }

    fn read_large(&self) -> Result<String, String> {
        let path = self.root.join(LARGE_NAME);
        let mut file = File::open(&path).map_err(explain("open", &path))?;
        let bar = progress("reading", LARGE as u64);
        let (begun, mut buffer, mut crc, mut total) = (Instant::now(), vec![0; CALL], 0, 0);
        loop {
            let n = file.read(&mut buffer).map_err(explain("read", &path))?;
            if n == 0 || self.stopped() {
                break;
            }
            crc = crc32c::crc32c_append(crc, &buffer[..n]);
            total += n;
            bar.inc(n as u64);
        }
        bar.finish_and_clear();
        check(total == LARGE && crc == self.seed.large_crc32c, || {
            format!(
                "{total} bytes with CRC32C {crc:08x}, expected {LARGE} with {:08x}",
                self.seed.large_crc32c
            )
        })?;
        Ok(format!(
            "{} MiB at {}, CRC32C as stored",
            LARGE >> 20,
            rate(total, begun.elapsed())
        ))
    }

    fn copy_tree(&self) -> Result<String, String> {
        let (from, to) = (self.scratch.join("tree"), self.root.join("tree"));
        for dir in 0..12u64 {
            let dir_path = from.join(format!("part-{dir:02}"));
            fs::create_dir_all(&dir_path).map_err(explain("make", &dir_path))?;
            for file in 0..20u64 {
                let path = dir_path.join(format!("{file:02}.bin"));
                let size = usize::try_from(dir * 997 + file * 131).unwrap_or(0);
                fs::write(&path, noise(dir * 100 + file, size)).map_err(explain("write", &path))?;
            }
        }
        let count = copy_below(&from, &to).map_err(explain("copy into", &to))?;
        let same = same_below(&from, &to).map_err(explain("read back", &to))?;
        check(same == count, || {
            format!("{same} of {count} files read back equal")
        })?;
        Ok(format!("{count} files, read back equal"))
    }

    fn write_large(&self) -> Result<String, String> {
        let path = self.root.join("checkpoints/model.bin");
        let size = LARGE / 2;
        let data = noise(7, size);
        let bar = progress("writing", size as u64);
        let begun = Instant::now();
        let write = || -> io::Result<()> {
            fs::create_dir_all(self.root.join("checkpoints"))?;
            let mut file = File::create(&path)?;
            for piece in data.chunks(CALL) {
                file.write_all(piece)?;
                bar.inc(piece.len() as u64);
            }
            file.sync_all()
        };
        write().map_err(explain("write", &path))?;
        bar.finish_and_clear();
        let speed = rate(size, begun.elapsed());
        let back = fs::read(&path).map_err(explain("read back", &path))?;
        check(back == data, || {
            format!(
                "{} bytes came back, and not those that were written",
                back.len()
            )
        })?;
        Ok(format!(
            "{} MiB at {speed}, durable at fsync, read back equal",
            size >> 20
        ))
    }

    fn append(&self) -> Result<String, String> {
        let path = self.root.join("logs/app.log");
        let append = |line: &str| -> io::Result<()> {
            let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        for line in ["one\n", "two\n", "three\n"] {
            append(line).map_err(explain("append to", &path))?;
        }
        let text = fs::read_to_string(&path).map_err(explain("read back", &path))?;
        check(text == "one\ntwo\nthree\n", || {
            format!("the file holds {text:?}")
        })?;
        Ok("three lines, each an object generation when fsync returned".into())
    }

    fn rename(&self) -> Result<String, String> {
        let dir = self.root.join("checkpoints");
        let (old, new) = (dir.join("model.bin"), dir.join("final.bin"));
        fs::rename(&old, &new).map_err(explain("rename", &old))?;
        let size = fs::metadata(&new).map_err(explain("look at", &new))?.len();
        check(!old.exists() && size == (LARGE / 2) as u64, || {
            "the old name is still there, or the size changed".into()
        })?;
        Ok(format!("{} MiB moved by the store, none sent", size >> 20))
    }

    fn delete(&self) -> Result<String, String> {
        for name in ["tree", "checkpoints"] {
            let path = self.root.join(name);
            fs::remove_dir_all(&path).map_err(explain("remove", &path))?;
        }
        let path = self.root.join("logs/app.log");
        fs::remove_file(&path).map_err(explain("remove", &path))?;
        self.list().map(|_| "the bucket is as it was".into())
    }

    fn soak(&self) -> Result<String, String> {
        let bar = progress_time(self.soak);
        let (begun, mut round) = (Instant::now(), 0u64);
        while begun.elapsed() < self.soak && !self.stopped() {
            self.round(round).map_err(|error| {
                format!(
                    "round {round}, {:.1} s in: {error}",
                    begun.elapsed().as_secs_f64()
                )
            })?;
            round += 1;
            bar.set_position(begun.elapsed().as_secs());
        }
        bar.finish_and_clear();
        Ok(format!(
            "{round} rounds of write, read, delete in {} s, no call failed",
            self.soak.as_secs()
        ))
    }

    fn round(&self, round: u64) -> io::Result<()> {
        let data = noise(round, 8192);
        let path = self.root.join(format!("soak-{round}"));
        fs::write(&path, &data)?;
        if fs::read(&path)? != data {
            return Err(io::Error::other("what was written did not come back"));
        }
        fs::remove_file(&path)?;
        let mut piece = [0; 4096];
        let offset = (round * 7919 * 4096) % (LARGE as u64 - 4096);
        File::open(self.root.join(LARGE_NAME))?.read_exact_at(&mut piece, offset)
    }
}

fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn explain<'a>(what: &'a str, path: &'a Path) -> impl Fn(io::Error) -> String + 'a {
    move |error| {
        // Without the way through the descriptor, which means nothing to a person.
        let name: PathBuf = match path.strip_prefix("/proc/self/fd") {
            Ok(below) => below.components().skip(1).collect(),
            Err(_) => path.into(),
        };
        format!("{what} {}: {error}", name.display())
    }
}

fn rate(bytes: usize, time: Duration) -> String {
    format!("{:.0} MB/s", bytes as f64 / 1e6 / time.as_secs_f64())
}

fn progress(what: &'static str, bytes: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("  {msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}");
    ProgressBar::new(bytes)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        .with_message(what)
}

fn progress_time(time: Duration) -> ProgressBar {
    let style = ProgressStyle::with_template("  reading and writing {wide_bar} {pos}/{len} s");
    ProgressBar::new(time.as_secs())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Every file below `root`: its path relative to it, and its size.
fn files_below(root: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut found = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else {
                let path = entry.path();
                let name = path
                    .strip_prefix(root)
                    .unwrap_or(&path)
                    .to_string_lossy()
                    .into_owned();
                found.push((name, entry.metadata()?.len()));
            }
        }
    }
    Ok(found)
}

fn copy_below(from: &Path, to: &Path) -> io::Result<usize> {
    let files = files_below(from)?;
    for (name, _) in &files {
        let target = to.join(name);
        fs::create_dir_all(target.parent().unwrap_or(to))?;
        fs::copy(from.join(name), target)?;
    }
    Ok(files.len())
}

fn same_below(left: &Path, right: &Path) -> io::Result<usize> {
    let mut same = 0;
    for (name, _) in files_below(left)? {
        same += usize::from(fs::read(left.join(&name))? == fs::read(right.join(&name))?);
    }
    Ok(same)
}
