//! The records of an index, read and written where they are.
//!
//! They are not kept in memory: the page cache has those that are in use, and an object may have millions.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::index::{Layout, RECORD, Record};

/// Records that are read at a time.
const AT_ONCE: u64 = 4096;

/// The records of one content.
#[derive(Debug)]
pub(super) struct Records {
    file: File,
    layout: Layout,
    /// How many blocks the content has.
    blocks: u64,
}

impl Records {
    /// The records in `file`, of a content of so many blocks.
    pub(super) fn new(file: File, layout: Layout, blocks: u64) -> Self {
        Self {
            file,
            layout,
            blocks,
        }
    }

    /// The index.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The record of a block. Behind the end of the index there is none.
    pub(super) fn read(&self, index: u64) -> io::Result<Record> {
        let mut record = [0; RECORD];
        read_up_to(&self.file, &mut record, self.layout.place(index))?;
        Ok(self.layout.decode(index, &record))
    }

    /// Says that a block is there.
    pub(super) fn write(&self, index: u64, length: u64, crc32c: u32) -> io::Result<()> {
        let record = self.layout.encode(index, length, crc32c);
        self.file.write_all_at(&record, self.layout.place(index))
    }

    /// Says that a block is not there.
    pub(super) fn erase(&self, index: u64) -> io::Result<()> {
        self.file
            .write_all_at(&[0; RECORD], self.layout.place(index))
    }

    /// The first block from `start` on that is there.
    pub(super) fn first_from(&self, start: u64) -> io::Result<Option<u64>> {
        let mut present = None;
        self.each(start, |index, record| {
            if matches!(record, Record::Present { .. }) {
                present = Some(index);
            }
            present.is_none()
        })?;
        Ok(present)
    }

    /// Hands out the records from `start` on, for as long as `more` says so and the index has any.
    pub(super) fn each(
        &self,
        start: u64,
        mut more: impl FnMut(u64, Record) -> bool,
    ) -> io::Result<()> {
        let mut piece = Vec::new();
        let mut at = start;
        while at < self.blocks {
            let count = AT_ONCE.min(self.blocks - at);
            piece.resize(bytes(count), 0);
            let read = read_up_to(&self.file, &mut piece, self.layout.place(at))?;
            let (whole, _) = piece[..read].as_chunks::<RECORD>();
            if whole.is_empty() {
                break;
            }
            for record in whole {
                if !more(at, self.layout.decode(at, record)) {
                    return Ok(());
                }
                at += 1;
            }
        }
        Ok(())
    }
}

/// Fills `bytes` from `offset` on, and tells how far the file goes.
fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on every platform that is supported"
)]
fn bytes(records: u64) -> usize {
    records as usize * RECORD
}

#[cfg(test)]
mod tests {
    use super::super::index::Header;
    use super::*;

    fn records(blocks: u64) -> Records {
        let header = Header {
            bucket: String::new(),
            realm: String::new(),
            name: String::new(),
            generation: 0,
            size: blocks,
            crc32c: None,
            block_size: 1,
        };
        let (_, layout) = header.encode().unwrap();
        Records::new(tempfile::tempfile().unwrap(), layout, blocks)
    }

    #[test]
    fn what_is_there_is_found_across_pieces() {
        let records = records(3 * AT_ONCE);
        assert_eq!(records.first_from(0).unwrap(), None);
        for index in [AT_ONCE - 1, AT_ONCE, 2 * AT_ONCE + 5] {
            records.write(index, 1, 9).unwrap();
        }
        let from = |start| records.first_from(start).unwrap();
        assert_eq!(from(0), Some(AT_ONCE - 1));
        assert_eq!(from(AT_ONCE), Some(AT_ONCE));
        assert_eq!(from(AT_ONCE + 1), Some(2 * AT_ONCE + 5));
        assert_eq!(from(2 * AT_ONCE + 6), None);
        records.erase(AT_ONCE).unwrap();
        assert_eq!(from(AT_ONCE), Some(2 * AT_ONCE + 5));
        let mut present = 0;
        let all = records.each(0, |_, record| {
            present += u64::from(record != Record::Absent);
            true
        });
        all.unwrap();
        assert_eq!(present, 2);
        assert_eq!(records.read(u64::from(u32::MAX)).unwrap(), Record::Absent);
    }
}
