//! The file: a line with its version, then frames. A frame is the length of its head (4 bytes), that of its body (8),
//! the CRC32C of both numbers and the head (4), all little-endian, the head in JSON, and the body, which is the bytes of
//! contents. Their own checksums are in the head.
//!
//! A frame that ends beyond the file, or is wrong and the last, was being written when the emulator ended: nobody was
//! told of it, and it is cut off. A wrong one before the end is damage, and the emulator does not start on it. A file of
//! another version is renamed and not read.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::record::{ContentRecord, Head};
use super::{Batch, Mirror};
use crate::content::{Content, Rope};

const VERSION: &[u8] = b"gcsmount-emulator journal 1\n";

/// What the file may hold before anybody asks whether it is worth keeping.
const SMALL: u64 = 64 << 20;

const PREFIX: usize = 16;

/// A journal that is written to.
#[derive(Debug)]
pub(super) struct Log {
    dir: PathBuf,
    out: BufWriter<File>,
    length: u64,
    /// The length at which it is written anew.
    due: u64,
    /// Contents that are in it.
    written: HashSet<u64>,
    /// Held as long as the directory is in use.
    _lock: File,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("journal")
}

/// Reads the journal of a directory, or begins one.
pub(super) fn load(dir: &Path) -> io::Result<(Log, Mirror)> {
    fs::create_dir_all(dir)?;
    let lock = lock(dir)?;
    let path = path(dir);
    let mut file = open(&path)?;
    if has_other_version(&mut file)? {
        set_aside(&path)?;
        file = open(&path)?;
    }
    if file.metadata()?.len() < VERSION.len() as u64 {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(VERSION)?;
        file.sync_all()?;
        File::open(dir)?.sync_all()?;
    }
    let end = file.metadata()?.len();
    let mut reader = Reader {
        input: BufReader::new(&file),
        at: VERSION.len() as u64,
        end,
        contents: HashMap::new(),
    };
    reader.input.seek(SeekFrom::Start(reader.at))?;
    let mut mirror = Mirror::default();
    while let Some(batch) = reader.next()? {
        mirror.apply(&batch);
    }
    let (length, written) = (reader.at, reader.contents.keys().copied().collect());
    file.set_len(length)?;
    file.seek(SeekFrom::Start(length))?;
    let log = Log {
        dir: dir.to_owned(),
        out: BufWriter::new(file),
        length,
        due: due(&mirror),
        written,
        _lock: lock,
    };
    Ok((log, mirror))
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

fn lock(dir: &Path) -> io::Result<File> {
    let file = open(&dir.join("lock"))?;
    file.try_lock().map_err(|_| {
        let message = format!("{} is in use by another emulator", dir.display());
        io::Error::new(io::ErrorKind::ResourceBusy, message)
    })?;
    Ok(file)
}

/// A file that is shorter than the version, and begins like it, was being begun.
fn has_other_version(file: &mut File) -> io::Result<bool> {
    let mut version = Vec::new();
    Read::by_ref(file)
        .take(VERSION.len() as u64)
        .read_to_end(&mut version)?;
    Ok(!VERSION.starts_with(&version))
}

fn set_aside(path: &Path) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let name = format!("journal.set-aside-{}", now.unwrap_or_default().as_micros());
    fs::rename(path, path.with_file_name(name))
}

fn due(mirror: &Mirror) -> u64 {
    SMALL + 2 * mirror.bytes()
}

impl Log {
    /// Adds a frame, which is on the disk after the next [`Self::sync`].
    pub(super) fn append(&mut self, batch: &Batch) -> io::Result<()> {
        let (head, contents) = Head::new(batch, &mut self.written);
        self.length += frame(&mut self.out, &head, &contents)?;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.out.flush()?;
        self.out.get_ref().sync_data()
    }

    /// Whether it has grown enough to look at what of it is still of use.
    pub(super) fn is_due(&self) -> bool {
        self.length > self.due
    }

    /// Replaces the file by one that says what `mirror` is and no more.
    pub(super) fn rewrite(&mut self, mirror: &Mirror) -> io::Result<()> {
        self.due = due(mirror);
        if self.length <= self.due {
            return Ok(());
        }
        let fresh = self.dir.join("journal.new");
        let file = open(&fresh)?;
        file.set_len(0)?;
        let mut out = BufWriter::new(file);
        out.write_all(VERSION)?;
        let (mut length, mut written) = (VERSION.len() as u64, HashSet::new());
        for batch in mirror.batches() {
            let (head, contents) = Head::new(&batch, &mut written);
            length += frame(&mut out, &head, &contents)?;
        }
        out.flush()?;
        out.get_ref().sync_all()?;
        fs::rename(&fresh, path(&self.dir))?;
        File::open(&self.dir)?.sync_all()?;
        (self.out, self.length, self.written) = (out, length, written);
        Ok(())
    }
}

/// Writes a frame and says how long it is.
fn frame(out: &mut impl Write, head: &Head, contents: &[&Content]) -> io::Result<u64> {
    let json = serde_json::to_vec(head)?;
    let body: u64 = contents.iter().map(|content| content.rope.len()).sum();
    let short = u32::try_from(json.len())
        .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, "a frame of over 4 GiB"))?;
    let lengths = [&short.to_le_bytes()[..], &body.to_le_bytes()].concat();
    out.write_all(&lengths)?;
    out.write_all(&checksum(&lengths, &json).to_le_bytes())?;
    out.write_all(&json)?;
    for piece in contents.iter().flat_map(|content| content.rope.pieces()) {
        out.write_all(piece)?;
    }
    Ok(PREFIX as u64 + u64::from(short) + body)
}

fn checksum(lengths: &[u8], json: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(lengths), json)
}

/// Reads a journal frame by frame.
struct Reader<'f> {
    input: BufReader<&'f File>,
    /// Where the next frame begins.
    at: u64,
    end: u64,
    contents: HashMap<u64, Content>,
}

impl Reader<'_> {
    /// The next batch; nothing at the end, or where the rest was never written in full.
    fn next(&mut self) -> io::Result<Option<Batch>> {
        let left = self.end - self.at;
        if left < PREFIX as u64 {
            return Ok(None);
        }
        let mut prefix = [0; PREFIX];
        self.input.read_exact(&mut prefix)?;
        let (lengths, crc) = prefix.split_at(12);
        let head = lengths[..4].try_into().map_or(0, u32::from_le_bytes);
        let body = lengths[4..].try_into().map_or(0, u64::from_le_bytes);
        let crc = crc.try_into().map_or(0, u32::from_le_bytes);
        let length = (PREFIX as u64 + u64::from(head)).saturating_add(body);
        if length > left {
            return Ok(None);
        }
        let mut json = vec![0; usize::try_from(head).unwrap_or(usize::MAX)];
        self.input.read_exact(&mut json)?;
        let parsed = match checksum(lengths, &json) == crc {
            true => self.parse(&json, body)?,
            false => Err("a checksum does not fit"),
        };
        match parsed {
            Ok(batch) => {
                self.at += length;
                Ok(Some(batch))
            }
            Err(_) if length == left => Ok(None),
            Err(why) => Err(self.damaged(why)),
        }
    }

    fn parse(&mut self, json: &[u8], body: u64) -> io::Result<Result<Batch, &'static str>> {
        let Ok(head) = serde_json::from_slice::<Head>(json) else {
            return Ok(Err("a head is no head"));
        };
        let total: u64 = head.contents.iter().map(|content| content.length).sum();
        if total != body {
            return Ok(Err("a body is not as long as its contents"));
        }
        for record in &head.contents {
            let Some(content) = self.content(record)? else {
                return Ok(Err("a content does not fit its checksum"));
            };
            self.contents.insert(record.id, content);
        }
        Ok(head.batch(&self.contents))
    }

    fn content(&mut self, record: &ContentRecord) -> io::Result<Option<Content>> {
        let mut data = vec![0; usize::try_from(record.length).unwrap_or(usize::MAX)];
        self.input.read_exact(&mut data)?;
        if crc32c::crc32c(&data) != record.crc32c {
            return Ok(None);
        }
        let content = Content {
            id: record.id,
            rope: Rope::new([Bytes::from(data)]),
            crc32c: record.crc32c,
            md5: record.md5,
            components: record.components,
        };
        content.claim_id();
        Ok(Some(content))
    }

    fn damaged(&self, why: &str) -> io::Error {
        let message = format!(
            "the journal is damaged at byte {}: {why}; move it out of the data directory to start without it",
            self.at
        );
        io::Error::new(io::ErrorKind::InvalidData, message)
    }
}
