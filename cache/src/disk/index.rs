//! The format of an index: what a data file is, and which of its blocks count.
//!
//! ```text
//! "gcsmblk\0"  version u32  length u32  header, JSON  crc32c u32 of all before  zeros up to a multiple of 16
//! one record for each block, where it belongs: length u64  crc32c u32 of the block  check u32
//! ```
//!
//! Numbers are little-endian. A record of zeros, or one behind the end of the file, says that the block is not there.
//! The check of a record covers the header and its place, so that one that was torn, moved or taken from another file
//! is none. Every record stands alone: damage costs a block and not its neighbours.

use serde::{Deserialize, Serialize};

/// The version of the format. Whatever changes in it changes this.
pub(super) const VERSION: u32 = 1;

/// The most bytes that a header takes, prefix and checksum included: name and realm of 1 KiB each, at six bytes for a
/// character that JSON escapes, and a bucket's name.
pub(super) const MAX_HEADER: usize = 16 << 10;

/// Bytes in a record.
pub(super) const RECORD: usize = 16;

const MAGIC: [u8; 8] = *b"gcsmblk\0";
const PREFIX: usize = 16;

/// What a data file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) bucket: String,
    pub(super) realm: String,
    pub(super) name: String,
    pub(super) generation: i64,
    /// Bytes in the whole object.
    pub(super) size: u64,
    /// Of the whole object, where the store told it.
    pub(super) crc32c: Option<u32>,
    /// Bytes in a block but the last.
    pub(super) block_size: u64,
}

/// Why there is no header to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is of a version that we do not know.
    Version(u32),
    /// It was torn or overwritten.
    Damaged,
}

/// Where the records are, and what their checks begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    start: u64,
    salt: u32,
}

/// What a record says of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// It is not there.
    Absent,
    /// It is there.
    Present {
        /// Its bytes.
        length: u64,
        /// Their CRC32C.
        crc32c: u32,
    },
    /// Nothing that we have written whole.
    Damaged,
}

impl Header {
    /// Whether both are of the same bytes. One may know less of their checksum.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        let crc32c = match (self.crc32c, other.crc32c) {
            (Some(one), Some(other)) => one == other,
            (None, _) | (_, None) => true,
        };
        crc32c
            && self.bucket == other.bucket
            && self.realm == other.realm
            && self.name == other.name
            && self.generation == other.generation
            && self.size == other.size
            && self.block_size == other.block_size
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> u64 {
        self.size.div_ceil(self.block_size)
    }

    /// The length of a block, if there is one of this index.
    pub(super) fn length(&self, index: u64) -> Option<u64> {
        let left = self.size.checked_sub(self.offset(index)?)?;
        (left > 0).then(|| left.min(self.block_size))
    }

    /// Where the block begins in the data.
    pub(super) fn offset(&self, index: u64) -> Option<u64> {
        index.checked_mul(self.block_size)
    }

    /// The bytes at the front of an index. `None`: the header is too long to be read again.
    pub(super) fn encode(&self) -> Option<(Vec<u8>, Layout)> {
        let body = serde_json::to_vec(self).ok()?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(u32::try_from(body.len()).ok()?.to_le_bytes());
        bytes.extend(body);
        let salt = crc32c::crc32c(&bytes);
        bytes.extend(salt.to_le_bytes());
        bytes.resize(bytes.len().next_multiple_of(RECORD), 0);
        let layout = Layout {
            start: bytes.len() as u64,
            salt,
        };
        (bytes.len() <= MAX_HEADER).then_some((bytes, layout))
    }

    /// The header at the front of an index, of which the first [`MAX_HEADER`] bytes are given.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, Layout), Unreadable> {
        Self::whole(bytes).map_or(Err(Unreadable::Damaged), |(version, rest)| match version {
            VERSION => rest.ok_or(Unreadable::Damaged),
            other => Err(Unreadable::Version(other)),
        })
    }

    /// The version, and what it is if it is ours.
    fn whole(bytes: &[u8]) -> Option<(u32, Option<(Self, Layout)>)> {
        let prefix = bytes.strip_prefix(&MAGIC)?;
        let (version, rest) = prefix.split_first_chunk()?;
        Some((u32::from_le_bytes(*version), Self::body(bytes, rest)))
    }

    fn body(bytes: &[u8], rest: &[u8]) -> Option<(Self, Layout)> {
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (body, rest) = rest.split_at_checked(length)?;
        let (check, _) = rest.split_first_chunk()?;
        let salt = crc32c::crc32c(&bytes[..PREFIX + length]);
        if salt != u32::from_le_bytes(*check) {
            return None;
        }
        let header: Self = serde_json::from_slice(body).ok()?;
        let start = (PREFIX + length + size_of::<u32>()).next_multiple_of(RECORD) as u64;
        (header.block_size > 0).then_some((header, Layout { start, salt }))
    }
}

impl Layout {
    /// Where the record of a block is in the index.
    pub(super) fn place(self, index: u64) -> u64 {
        self.start + index * RECORD as u64
    }

    /// The record of a block that is there.
    pub(super) fn encode(self, index: u64, length: u64, crc32c: u32) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&length.to_le_bytes());
        record[8..12].copy_from_slice(&crc32c.to_le_bytes());
        let check = self.check(index, &record);
        record[12..].copy_from_slice(&check.to_le_bytes());
        record
    }

    /// What a record says of the block `index`.
    pub(super) fn decode(self, index: u64, record: &[u8; RECORD]) -> Record {
        if *record == [0; RECORD] {
            return Record::Absent;
        }
        let [length @ .., _, _, _, _, _, _, _, _] = *record;
        let [_, _, _, _, _, _, _, _, crc @ .., _, _, _, _] = *record;
        let [.., a, b, c, d] = *record;
        if u32::from_le_bytes([a, b, c, d]) != self.check(index, record) {
            return Record::Damaged;
        }
        Record::Present {
            length: u64::from_le_bytes(length),
            crc32c: u32::from_le_bytes(crc),
        }
    }

    fn check(self, index: u64, record: &[u8; RECORD]) -> u32 {
        let check = crc32c::crc32c_append(self.salt, &index.to_le_bytes());
        crc32c::crc32c_append(check, &record[..12])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            bucket: "bucket".to_owned(),
            realm: "realm".to_owned(),
            name: "a/b".to_owned(),
            generation: 7,
            size: 25,
            crc32c: Some(3),
            block_size: 10,
        }
    }

    #[test]
    fn a_header_reads_back() {
        let (bytes, layout) = header().encode().unwrap();
        assert_eq!(bytes.len() % RECORD, 0);
        assert_eq!(layout.place(2), bytes.len() as u64 + 32);
        assert_eq!(Header::decode(&bytes), Ok((header(), layout)));
    }

    #[test]
    fn the_longest_names_fit() {
        let longest = Header {
            bucket: "b".repeat(222),
            realm: "\u{1}".repeat(1024),
            name: "\u{1}".repeat(1024),
            generation: i64::MIN,
            size: u64::MAX,
            crc32c: Some(u32::MAX),
            block_size: u64::MAX,
        };
        let (bytes, _) = longest.encode().unwrap();
        assert_eq!(Header::decode(&bytes).unwrap().0, longest);
        let longer = Header {
            realm: "\u{1}".repeat(4096),
            ..longest
        };
        assert_eq!(longer.encode(), None);
    }

    #[test]
    fn a_header_that_was_cut_or_changed_anywhere_is_damaged() {
        let (whole, _) = header().encode().unwrap();
        let end = whole.iter().rposition(|b| *b != 0).unwrap() + 1;
        for at in 0..end {
            assert_eq!(
                Header::decode(&whole[..at]),
                Err(Unreadable::Damaged),
                "{at}"
            );
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let expected = match at {
                8 => Unreadable::Version(0),
                9..12 => Unreadable::Version(VERSION ^ (1 << (8 * (at - 8)))),
                _ => Unreadable::Damaged,
            };
            // The last bytes of the checksum may be zeros, which are not told from padding: then nothing changed.
            assert_eq!(Header::decode(&changed), Err(expected), "{at}");
        }
    }

    #[test]
    fn a_later_version_is_told_from_damage_whatever_follows() {
        let mut later = MAGIC.to_vec();
        later.extend(2_u32.to_le_bytes());
        later.extend(b"anything");
        assert_eq!(Header::decode(&later), Err(Unreadable::Version(2)));
    }

    #[test]
    fn a_record_holds_only_where_it_was_written() {
        let (_, layout) = header().encode().unwrap();
        let record = layout.encode(1, 10, 99);
        let present = Record::Present {
            length: 10,
            crc32c: 99,
        };
        assert_eq!(layout.decode(1, &record), present);
        assert_eq!(layout.decode(2, &record), Record::Damaged);
        assert_eq!(layout.decode(1, &[0; RECORD]), Record::Absent);
        let other = Layout { salt: 1, ..layout };
        assert_eq!(other.decode(1, &record), Record::Damaged);
        for bit in 0..8 * RECORD {
            let mut changed = record;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(layout.decode(1, &changed), Record::Damaged, "{bit}");
        }
    }

    #[test]
    fn blocks_end_with_the_object() {
        let header = header();
        assert_eq!(header.blocks(), 3);
        let lengths: Vec<_> = (0..4).map(|i| header.length(i)).collect();
        assert_eq!(lengths, [Some(10), Some(10), Some(5), None]);
        assert_eq!(header.length(u64::MAX), None);
        let empty = Header { size: 0, ..header };
        assert_eq!((empty.blocks(), empty.length(0)), (0, None));
    }

    #[test]
    fn headers_are_of_the_same_bytes_if_they_do_not_contradict() {
        let known = header();
        let unknown = Header {
            crc32c: None,
            ..header()
        };
        let other = Header {
            crc32c: Some(4),
            ..header()
        };
        assert!(known.is_of(&unknown) && unknown.is_of(&known));
        assert!(!known.is_of(&other));
        let resized = Header {
            block_size: 20,
            ..header()
        };
        assert!(!known.is_of(&resized));
    }
}
