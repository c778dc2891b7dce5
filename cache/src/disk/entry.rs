//! Two files of one content: its bytes, each where it belongs, and the index that says which of them count.
//!
//! Bytes are written before the record that makes them count, and a record is removed before its bytes are. Both may
//! be torn, lost or changed at any time: whatever does not fit its checksum is not there.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use nix::fcntl::{FallocateFlags, fallocate};
use parking_lot::Mutex;

use super::home::Home;
use super::index::{Header, Layout, MAX_HEADER, Record, Unreadable};
use super::key::Key;
use super::records::Records;

/// What two names in a directory take, roughly, and what their inodes would not show.
pub(super) const OVERHEAD: u64 = 512;

/// The most that a new content takes besides its blocks, and that a block takes besides its bytes: pages of the index,
/// blocks of the file system's own maps, and the rest of a page.
pub(super) const COST: u64 = 32 << 10;

/// How exact the order of last use is after a crash. After a clean end it is as exact as the clock.
const TOUCH: Duration = Duration::from_secs(60);

/// The files of a content, open.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    header: Header,
    data: File,
    records: Records,
    /// Held while a record is changed, so that nobody takes back what another has just mended.
    edit: Mutex<()>,
    /// How many records were removed.
    removals: AtomicU64,
    /// When the data was last written to before every block was read and found right.
    verified: Mutex<Option<Written>>,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    last: SystemTime,
    /// What the file system knows.
    noted: SystemTime,
}

/// When a file was last written to, by whomever: the time that nobody can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    seconds: i64,
    nanos: i64,
}

impl Written {
    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            seconds: meta.ctime(),
            nanos: meta.ctime_nsec(),
        })
    }

    /// Whether a write after `now` would show: the clock of a file system may stand still for some milliseconds.
    fn is_telling(self, now: SystemTime) -> bool {
        let now = now.duration_since(SystemTime::UNIX_EPOCH);
        now.is_ok_and(|now| i64::try_from(now.as_secs()).is_ok_and(|now| now > self.seconds + 1))
    }
}

/// Why a content cannot be opened.
#[derive(Debug)]
pub(super) enum Unopened {
    /// It is of a version that we do not know.
    Version(u32),
    /// It is not whole, not ours, or not there.
    Damaged,
    /// The file system says no.
    Failed(io::Error),
}

/// What became of a read.
#[derive(Debug)]
pub(super) enum Got {
    /// The block, with this CRC32C.
    Block(u32),
    /// It is not there.
    Nothing,
    /// It was there and is wrong. It is not there any more.
    Corrupt,
    /// It could not be read.
    Failed(io::Error),
}

/// Whether a content is there as a whole.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Every byte is there and right.
    Yes,
    /// Blocks are missing.
    No,
    /// A block is wrong. It is not there any more.
    Corrupt,
    /// Every block is as it was written, and together they are not the object.
    WrongSum,
    /// It could not be read.
    Failed(io::Error),
}

impl Entry {
    /// Makes the files of a content that has none.
    pub(super) fn create(home: &Home, key: Key, header: Header) -> io::Result<Self> {
        let Some((front, layout)) = header.encode() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // Half of a content may be left where no index ever came.
        home.unlink(&key.index())?;
        home.unlink(&key.data())?;
        let data = home.create(&key.data())?;
        let index = home.create(&key.index())?;
        data.set_len(header.size)?;
        index.write_all_at(&front, 0)?;
        Ok(Self::new(key, header, layout, data, index))
    }

    /// Opens the files of a content.
    pub(super) fn open(home: &Home, key: Key) -> Result<Self, Unopened> {
        let index = home.open(&key.index())?;
        let mut front = Vec::with_capacity(MAX_HEADER);
        io::Read::read_to_end(&mut io::Read::take(&index, MAX_HEADER as u64), &mut front)?;
        let (header, layout) = Header::decode(&front).map_err(|why| match why {
            Unreadable::Version(version) => Unopened::Version(version),
            Unreadable::Damaged => Unopened::Damaged,
        })?;
        let data = home.open(&key.data())?;
        if data.metadata()?.len() != header.size {
            return Err(Unopened::Damaged);
        }
        Ok(Self::new(key, header, layout, data, index))
    }

    fn new(key: Key, header: Header, layout: Layout, data: File, index: File) -> Self {
        let now = SystemTime::now();
        let used = Used {
            last: now,
            noted: SystemTime::UNIX_EPOCH,
        };
        Self {
            key,
            records: Records::new(index, layout, header.blocks()),
            header,
            data,
            edit: Mutex::default(),
            removals: AtomicU64::new(0),
            verified: Mutex::default(),
            used: Mutex::new(used),
        }
    }

    /// What it is.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// What both files take on the disk.
    pub(super) fn allocated(&self) -> io::Result<u64> {
        let blocks = self.data.metadata()?.blocks() + self.records.file().metadata()?.blocks();
        Ok(blocks * 512 + OVERHEAD)
    }

    /// Whether the block counts.
    pub(super) fn has(&self, index: u64) -> io::Result<bool> {
        Ok(matches!(self.records.read(index)?, Record::Present { .. }))
    }

    /// Whether no block counts.
    pub(super) fn is_empty(&self) -> io::Result<bool> {
        Ok(self.records.first_from(0)?.is_none())
    }

    /// Reads a block into a buffer of its length.
    pub(super) fn read(&self, index: u64, bytes: &mut [u8]) -> Got {
        self.touch();
        match self.try_read(index, bytes) {
            Ok(got) => got,
            // Somebody has cut the file.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let _ = self.remove(index);
                Got::Corrupt
            }
            Err(error) => {
                let _ = self.remove(index);
                Got::Failed(error)
            }
        }
    }

    fn try_read(&self, index: u64, bytes: &mut [u8]) -> io::Result<Got> {
        let removals = self.removals.load(Ordering::Acquire);
        let record = self.records.read(index)?;
        let right = match record {
            Record::Absent => return Ok(Got::Nothing),
            Record::Damaged => None,
            Record::Present { length, crc32c } => {
                let (Some(offset), true) =
                    (self.header.offset(index), length == bytes.len() as u64)
                else {
                    return Ok(Got::Nothing);
                };
                self.data.read_exact_at(bytes, offset)?;
                (crc32c::crc32c(bytes) == crc32c).then_some(crc32c)
            }
        };
        if let Some(crc32c) = right {
            return Ok(Got::Block(crc32c));
        }
        let _edit = self.edit.lock();
        // It may have been evicted meanwhile: then it was right.
        if self.removals.load(Ordering::Acquire) != removals || self.records.read(index)? != record
        {
            return Ok(Got::Nothing);
        }
        self.erase(index)?;
        Ok(Got::Corrupt)
    }

    /// Writes a block and then makes it count.
    pub(super) fn write(&self, index: u64, bytes: &[u8], crc32c: u32) -> io::Result<()> {
        let Some(offset) = self.header.offset(index) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.used.lock().last = SystemTime::now();
        self.data.write_all_at(bytes, offset)?;
        let _edit = self.edit.lock();
        self.records.write(index, bytes.len() as u64, crc32c)
    }

    /// Makes a block count no more.
    pub(super) fn remove(&self, index: u64) -> io::Result<()> {
        let _edit = self.edit.lock();
        self.erase(index)
    }

    /// With `edit` held.
    fn erase(&self, index: u64) -> io::Result<()> {
        *self.verified.lock() = None;
        self.removals.fetch_add(1, Ordering::AcqRel);
        self.records.erase(index)
    }

    /// Removes some block, not `spared`, and gives its space back. `false`: there is none.
    pub(super) fn give_way(&self, spared: u64) -> io::Result<bool> {
        // Spread over the object: whoever reads it in order, again and again, finds some of it each time.
        let blocks = self.header.blocks().max(1);
        let start = spared.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
        let found = match self.records.first_from(start)? {
            None => self.records.first_from(0)?,
            found => found,
        };
        let Some(index) = found.filter(|index| *index != spared) else {
            return Ok(false);
        };
        self.remove(index)?;
        let (Some(offset), Some(length)) = (self.header.offset(index), self.header.length(index))
        else {
            return Ok(false);
        };
        let mode = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&self.data, mode, signed(offset)?, signed(length)?)?;
        Ok(true)
    }

    /// Whether every byte is there and right, reading them where that was not found before or somebody has written since. `crc32c` is that of
    /// the object, where somebody knows it.
    pub(super) fn whole(&self, crc32c: Option<u32>) -> Verdict {
        match self.try_whole(crc32c.or(self.header.crc32c)) {
            Ok(whole) => whole,
            Err(error) => Verdict::Failed(error),
        }
    }

    fn try_whole(&self, expected: Option<u32>) -> io::Result<Verdict> {
        let (mut count, mut sum) = (0, 0);
        self.records.each(0, |index, record| {
            let Record::Present { length, crc32c } = record else {
                return false;
            };
            let length = usize::try_from(length).unwrap_or(0);
            sum = crc32c::crc32c_combine(sum, crc32c, length);
            count = index + 1;
            true
        })?;
        if count != self.header.blocks() || count == 0 {
            return Ok(Verdict::No);
        }
        if expected.is_some_and(|expected| expected != sum) {
            return Ok(Verdict::WrongSum);
        }
        let written = Written::of(&self.data)?;
        if *self.verified.lock() == Some(written) {
            return Ok(Verdict::Yes);
        }
        let removals = self.removals.load(Ordering::Acquire);
        let mut buffer = Vec::new();
        for index in 0..count {
            let length = self.header.length(index).unwrap_or(0);
            buffer.resize(usize::try_from(length).unwrap_or(0), 0);
            match self.read(index, &mut buffer) {
                Got::Block(_) => {}
                Got::Nothing => return Ok(Verdict::No),
                Got::Corrupt => return Ok(Verdict::Corrupt),
                Got::Failed(error) => return Err(error),
            }
        }
        let mut verified = self.verified.lock();
        if self.removals.load(Ordering::Acquire) != removals {
            return Ok(Verdict::No);
        }
        *verified = written.is_telling(SystemTime::now()).then_some(written);
        Ok(Verdict::Yes)
    }

    /// The bytes, by a descriptor that cannot write them.
    pub(super) fn reopen(&self, home: &Home) -> io::Result<File> {
        let file = home.open_to_read(&self.key.data())?;
        let (one, other) = (file.metadata()?, self.data.metadata()?);
        if (one.dev(), one.ino()) != (other.dev(), other.ino()) || one.len() != self.header.size {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(file)
    }

    /// Keeps when it was used, on the disk as well once in a while.
    fn touch(&self) {
        let mut used = self.used.lock();
        used.last = SystemTime::now();
        let since = used.last.duration_since(used.noted);
        if since.is_ok_and(|since| since >= TOUCH) {
            used.noted = used.last;
            let now = used.last;
            drop(used);
            self.note(now);
        }
    }

    fn note(&self, used: SystemTime) {
        // Without it, the entry may only be evicted a little early.
        if let Err(error) = self.records.file().set_modified(used) {
            tracing::trace!(%error, "the last use of a cached object is not kept");
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let last = self.used.get_mut().last;
        self.note(last);
    }
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // What is not there, or is something else, is damage: a cache can do without.
            io::ErrorKind::NotFound | io::ErrorKind::InvalidData => Self::Damaged,
            _ => Self::Failed(error),
        }
    }
}

fn signed(offset: u64) -> io::Result<i64> {
    i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_tells_of_later_writes_once_its_second_is_over() {
        let written = Written {
            seconds: 100,
            nanos: 0,
        };
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        assert!(!written.is_telling(at(100_000)) && !written.is_telling(at(101_999)));
        assert!(written.is_telling(at(102_000)));
        assert!(!written.is_telling(at(1_000)), "a clock that was set back");
    }
}
