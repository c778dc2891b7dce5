//! The bytes of an object: an immutable rope of slices as they arrived, with the checksums that GCS keeps.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use md5::{Digest as _, Md5};

/// Frames below this size are copied together. A slice keeps alive the whole buffer that it was received in,
/// so many small objects would otherwise hold many large buffers.
const COPY_BELOW: usize = 64 * 1024;

/// An immutable sequence of bytes in pieces, none of them empty. Clones share the bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rope {
    pieces: Arc<[Bytes]>,
    /// Offset of each piece's end; `ends.last()` is the length.
    ends: Arc<[u64]>,
}

impl Rope {
    pub(crate) fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: Arc<[Bytes]> = pieces
            .into_iter()
            .filter(|piece| !piece.is_empty())
            .collect();
        let mut end = 0;
        let ends = pieces.iter().map(|piece| {
            end += piece.len() as u64;
            end
        });
        Self {
            ends: ends.collect(),
            pieces: Arc::clone(&pieces),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    pub(crate) fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    pub(crate) fn md5(&self) -> [u8; 16] {
        let mut md5 = Md5::new();
        self.pieces.iter().for_each(|piece| md5.update(piece));
        md5.finalize().into()
    }

    /// A reader of `range`, which is clipped to the rope.
    pub(crate) fn reader(&self, range: Range<u64>) -> RopeReader {
        let end = range.end.min(self.len());
        RopeReader {
            rope: self.clone(),
            next: self
                .ends
                .partition_point(|&piece_end| piece_end <= range.start),
            at: range.start.min(end),
            end,
        }
    }
}

/// Hands out a range of a rope piece by piece, without copying.
#[derive(Clone, Debug)]
pub(crate) struct RopeReader {
    rope: Rope,
    /// Index of the piece that holds `at`.
    next: usize,
    at: u64,
    end: u64,
}

impl RopeReader {
    pub(crate) fn remaining(&self) -> u64 {
        self.end - self.at
    }

    /// The next bytes, at most `limit` of them; `None` at the end.
    pub(crate) fn take(&mut self, limit: usize) -> Option<Bytes> {
        if self.at == self.end || limit == 0 {
            return None;
        }
        let piece = &self.rope.pieces[self.next];
        let piece_end = self.rope.ends[self.next];
        let left = (piece_end - self.at).min(self.end - self.at);
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(limit);
        let start = piece.len() - usize::try_from(piece_end - self.at).unwrap_or(piece.len());
        self.at += count as u64;
        if self.at == piece_end {
            self.next += 1;
        }
        Some(piece.slice(start..start + count))
    }
}

impl std::io::Read for RopeReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let piece = self.take(buffer.len()).unwrap_or_default();
        buffer[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

/// Where the next content's number comes from.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The bytes of one object version and what is known of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Content {
    /// By which a journal knows it: clones have the same, others another.
    pub(crate) id: u64,
    pub(crate) rope: Rope,
    pub(crate) crc32c: u32,
    /// Absent from composed objects.
    pub(crate) md5: Option<[u8; 16]>,
    /// How many objects it was composed of, for composed objects.
    pub(crate) components: Option<u32>,
}

impl Content {
    /// Content from bytes that are in memory already.
    pub(crate) fn from_bytes(data: Bytes, with_md5: bool) -> Self {
        let mut builder = ContentBuilder::new(with_md5);
        builder.push(data);
        builder.finish()
    }

    /// Takes the number of a content that came from a journal, so that no other gets it.
    pub(crate) fn claim_id(&self) {
        NEXT_ID.fetch_max(self.id + 1, Ordering::Relaxed);
    }

    fn next_id() -> u64 {
        NEXT_ID.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts contents behind one another, sharing their bytes; the checksum is combined from theirs.
    pub(crate) fn concatenate<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut pieces = Vec::new();
        let mut crc32c = 0;
        let mut components = 0;
        for part in parts {
            pieces.extend_from_slice(part.rope.pieces());
            let length = usize::try_from(part.rope.len()).unwrap_or(usize::MAX);
            crc32c = crc32c::crc32c_combine(crc32c, part.crc32c, length);
            components += part.components.unwrap_or(1);
        }
        Self {
            id: Self::next_id(),
            rope: Rope::new(pieces),
            crc32c,
            md5: None,
            components: Some(components),
        }
    }
}

/// Collects content as it arrives, with its checksums.
#[derive(Clone)]
pub(crate) struct ContentBuilder {
    pieces: Vec<Bytes>,
    small: BytesMut,
    length: u64,
    crc32c: u32,
    md5: Option<Md5>,
}

impl ContentBuilder {
    pub(crate) fn new(with_md5: bool) -> Self {
        Self {
            pieces: Vec::new(),
            small: BytesMut::new(),
            length: 0,
            crc32c: 0,
            md5: with_md5.then(Md5::new),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    pub(crate) fn push(&mut self, piece: Bytes) {
        self.crc32c = crc32c::crc32c_append(self.crc32c, &piece);
        if let Some(md5) = &mut self.md5 {
            md5.update(&piece);
        }
        self.length += piece.len() as u64;
        if piece.len() < COPY_BELOW {
            self.small.extend_from_slice(&piece);
            if self.small.len() >= 16 * COPY_BELOW {
                self.settle();
            }
        } else {
            self.settle();
            self.pieces.push(piece);
        }
    }

    fn settle(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(Bytes::copy_from_slice(&self.small));
            self.small.clear();
        }
    }

    pub(crate) fn finish(mut self) -> Content {
        self.settle();
        Content {
            id: Content::next_id(),
            rope: Rope::new(self.pieces),
            crc32c: self.crc32c,
            md5: self.md5.map(|md5| md5.finalize().into()),
            components: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(mut reader: RopeReader, limit: usize) -> Vec<u8> {
        std::iter::from_fn(|| reader.take(limit))
            .flatten()
            .collect()
    }

    #[test]
    fn every_range_of_a_rope_reads_as_of_a_slice() {
        let flat: Vec<u8> = (0..23).collect();
        let rope =
            Rope::new([&flat[..5], &[], &flat[5..6], &flat[6..23]].map(Bytes::copy_from_slice));
        assert_eq!(rope.len(), 23);
        for start in 0..=23_usize {
            for end in start..=23 {
                for limit in [1, 4, 100] {
                    let reader = rope.reader(start as u64..end as u64);
                    assert_eq!(reader.remaining(), (end - start) as u64);
                    assert_eq!(
                        collect(reader, limit),
                        flat[start..end],
                        "{start}..{end} by {limit}"
                    );
                }
            }
        }
    }

    #[test]
    fn builder_joins_small_frames_and_keeps_large_ones() {
        let mut builder = ContentBuilder::new(true);
        let large = Bytes::from(vec![7; COPY_BELOW]);
        for piece in [
            Bytes::from_static(b"a"),
            Bytes::from_static(b"b"),
            large.clone(),
        ] {
            builder.push(piece);
        }
        let content = builder.finish();
        assert_eq!(content.rope.pieces().len(), 2);
        assert_eq!(content.rope.pieces()[1].as_ptr(), large.as_ptr());
        assert_eq!(content.rope.len(), 2 + COPY_BELOW as u64);
    }

    #[test]
    fn checksums_are_those_of_the_whole() {
        let content = Content::from_bytes(Bytes::from_static(b"123456789"), true);
        assert_eq!(content.crc32c, 0xe306_9283);
        let hex: String = content
            .md5
            .unwrap()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hex, "25f9e794323b453885f5181f1b624d0b");
    }

    #[test]
    fn concatenation_combines_checksums_and_counts_components() {
        let [a, b] = [&b"1234"[..], b"56789"]
            .map(|data| Content::from_bytes(Bytes::from_static(data), true));
        let joined = Content::concatenate([&a, &b]);
        assert_eq!((joined.crc32c, joined.components), (0xe306_9283, Some(2)));
        assert!(joined.md5.is_none());
        assert_eq!(Content::concatenate([&joined, &a]).components, Some(3));
    }
}
