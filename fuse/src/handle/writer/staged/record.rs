//! What is written down beside a staged file, so that another process can finish it.
//!
//! A record is lines of text. The first names the version; one of another version is not read. The last is a checksum of
//! all before, so that a record that was torn is not half a record. In between, a line is a key and its values, which
//! are escaped like those of a URL where they hold blanks, control characters or `%`.

use std::fmt::Write as _;
use std::str::FromStr;

use gcsmount_gcs::object::{Attributes, Digest};
use gcsmount_gcs::store::{Preconditions, WriteRequest};
use gcsmount_gcs::{Generation, ObjectName};

use crate::metadata;

const MAGIC: &str = "gcsmount-staged ";
const VERSION: &str = "1";
const END: &str = "end ";

/// A staged file that has what the bucket does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::handle::writer) struct Record {
    /// The object, bucket-relative.
    pub(in crate::handle::writer) name: ObjectName,
    /// The generation that it replaces; [`Generation::ABSENT`]: there must be none.
    pub(in crate::handle::writer) base: Generation,
    /// What is said of the object besides its bytes.
    pub(in crate::handle::writer) attributes: Attributes,
    /// The content, once it is sealed: complete, on the disk, and meant for the bucket.
    pub(in crate::handle::writer) sealed: Option<Digest>,
}

/// Why a record says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::handle::writer) enum Unreadable {
    /// Another version of this program wrote it.
    #[error("its record is in a form that this version does not know")]
    Version,
    /// It is torn, or no record.
    #[error("its record is damaged")]
    Damaged,
}

impl Record {
    /// Of content that is still written, and which `request` is to publish.
    pub(super) fn open(request: &WriteRequest) -> Self {
        Self {
            name: request.name.clone(),
            base: request
                .preconditions
                .generation
                .unwrap_or(Generation::ABSENT),
            attributes: request.attributes.clone(),
            sealed: None,
        }
    }

    /// What is asked of the store to publish it.
    pub(in crate::handle::writer) fn request(&self) -> WriteRequest {
        WriteRequest {
            name: self.name.clone(),
            attributes: self.attributes.clone(),
            preconditions: Preconditions::generation(self.base),
        }
    }

    pub(super) fn encode(&self) -> String {
        // Each field is named, so that a new one is not forgotten here.
        let Attributes {
            content_type,
            content_encoding,
            content_disposition,
            content_language,
            cache_control,
            storage_class,
            custom_time,
            metadata,
        } = &self.attributes;
        let mut lines = Lines(format!("{MAGIC}{VERSION}\n"));
        lines.put("name", &[self.name.as_str()]);
        lines.put("base", &[&self.base.to_string()]);
        for (key, value) in [
            ("content-type", content_type),
            ("content-encoding", content_encoding),
            ("content-disposition", content_disposition),
            ("content-language", content_language),
            ("cache-control", cache_control),
            ("storage-class", storage_class),
        ] {
            if let Some(value) = value {
                lines.put(key, &[value]);
            }
        }
        if let Some(nanos) = custom_time.and_then(metadata::since_epoch) {
            lines.put("custom-time", &[&nanos.to_string()]);
        }
        for (key, value) in metadata {
            lines.put("metadata", &[key, value]);
        }
        if let Some(Digest { size, crc32c }) = self.sealed {
            lines.put("sealed", &[&size.to_string(), &crc32c.to_string()]);
        }
        lines.end()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::Damaged)?;
        let (first, _) = text.split_once('\n').ok_or(Unreadable::Damaged)?;
        match first.strip_prefix(MAGIC) {
            Some(VERSION) => {}
            Some(_) => return Err(Unreadable::Version),
            None => return Err(Unreadable::Damaged),
        }
        Self::parse(text).ok_or(Unreadable::Damaged)
    }

    fn parse(text: &str) -> Option<Self> {
        let lines = text.strip_suffix('\n')?;
        let (lines, end) = lines.rsplit_once('\n')?;
        let checked = &text[..=lines.len()];
        if end.strip_prefix(END)? != checksum(checked) {
            return None;
        }
        let (mut name, mut base, mut sealed) = (None, None, None);
        let mut attributes = Attributes::default();
        for line in lines.lines().skip(1) {
            let mut words = line.split(' ').map(unescape);
            let key = words.next()??;
            let mut value = || words.next()?;
            match key.as_str() {
                "name" => name = Some(ObjectName::parse(value()?).ok()?),
                "base" => base = Some(Generation(number(&value()?)?)),
                "content-type" => attributes.content_type = Some(value()?),
                "content-encoding" => attributes.content_encoding = Some(value()?),
                "content-disposition" => attributes.content_disposition = Some(value()?),
                "content-language" => attributes.content_language = Some(value()?),
                "cache-control" => attributes.cache_control = Some(value()?),
                "storage-class" => attributes.storage_class = Some(value()?),
                "custom-time" => {
                    attributes.custom_time = Some(metadata::from_epoch(number(&value()?)?)?);
                }
                "metadata" => {
                    let (key, value) = (value()?, value()?);
                    attributes.metadata.insert(key, value);
                }
                "sealed" => {
                    sealed = Some(Digest {
                        size: number(&value()?)?,
                        crc32c: number(&value()?)?,
                    });
                }
                _ => return None,
            }
        }
        Some(Self {
            name: name?,
            base: base?,
            attributes,
            sealed,
        })
    }
}

/// A record that is being written.
struct Lines(String);

impl Lines {
    fn put(&mut self, key: &str, values: &[&str]) {
        self.0.push_str(key);
        for value in values {
            self.0.push(' ');
            escape(value, &mut self.0);
        }
        self.0.push('\n');
    }

    fn end(self) -> String {
        let checksum = checksum(&self.0);
        format!("{}{END}{checksum}\n", self.0)
    }
}

fn checksum(text: &str) -> String {
    format!("{:08x}", crc32c::crc32c(text.as_bytes()))
}

fn number<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn escape(value: &str, into: &mut String) {
    for char in value.chars() {
        if char == '%' || char == ' ' || char.is_ascii_control() {
            // Writing to a string does not fail.
            let _ = write!(into, "%{:02X}", u32::from(char));
        } else {
            into.push(char);
        }
    }
}

fn unescape(word: &str) -> Option<String> {
    let mut plain = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, escaped)) = rest.split_once('%') {
        plain.push_str(before);
        let (digits, behind) = escaped.split_at_checked(2)?;
        let byte = u8::from_str_radix(digits, 16).ok()?;
        plain.push(char::from(byte));
        rest = behind;
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        let attributes = Attributes {
            content_type: Some("text/plain; charset=utf-8".into()),
            content_encoding: Some(String::new()),
            content_disposition: Some("attachment; filename=\"50%.txt\"".into()),
            content_language: Some("de".into()),
            cache_control: Some("no-store".into()),
            storage_class: Some("NEARLINE".into()),
            custom_time: Some(SystemTime::UNIX_EPOCH - Duration::from_nanos(1)),
            metadata: [("a key", "two\nlines"), ("é", ""), ("", "x y")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        Record {
            name: ObjectName::parse("dir/with blank/ü%41.txt").unwrap(),
            base: Generation(1_700_000_000_000_001),
            attributes,
            sealed: Some(Digest {
                size: u64::MAX,
                crc32c: u32::MAX,
            }),
        }
    }

    #[test]
    fn a_record_reads_back() {
        let sealed = record();
        let open = Record {
            sealed: None,
            base: Generation::ABSENT,
            attributes: Attributes::default(),
            ..record()
        };
        for record in [sealed, open] {
            let text = record.encode();
            assert_eq!(Record::decode(text.as_bytes()), Ok(record), "{text}");
        }
    }

    #[test]
    fn the_form_is_this_one() {
        let record = Record {
            name: ObjectName::parse("a b").unwrap(),
            base: Generation(7),
            attributes: Attributes::default(),
            sealed: Some(Digest { size: 3, crc32c: 9 }),
        };
        let text = record.encode();
        let (body, end) = text.split_once("end ").unwrap();
        assert_eq!(body, "gcsmount-staged 1\nname a%20b\nbase 7\nsealed 3 9\n");
        assert_eq!(end, format!("{:08x}\n", crc32c::crc32c(body.as_bytes())));
    }

    #[test]
    fn a_torn_record_is_damaged_wherever_it_ends() {
        let text = record().encode();
        for len in 0..text.len() {
            let torn = Record::decode(&text.as_bytes()[..len]);
            assert_eq!(torn, Err(Unreadable::Damaged), "{len}");
        }
        let twice = text.repeat(2);
        assert_eq!(Record::decode(twice.as_bytes()), Err(Unreadable::Damaged));
    }

    #[test]
    fn another_version_is_not_read() {
        for text in ["gcsmount-staged 2\n{}", "gcsmount-staged 11\nname x\n"] {
            assert_eq!(Record::decode(text.as_bytes()), Err(Unreadable::Version));
        }
        for text in ["", "\n", "1\n", "gcsmount-stage 1\n"] {
            assert_eq!(Record::decode(text.as_bytes()), Err(Unreadable::Damaged));
        }
    }

    proptest! {
        #[test]
        fn one_wrong_byte_is_never_another_record(at: prop::sample::Index, flip in 1_u8..) {
            let record = record();
            let mut bytes = record.encode().into_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(Record::decode(&bytes).is_err());
        }

        #[test]
        fn any_text_is_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Record::decode(&bytes);
            let mut behind = b"gcsmount-staged 1\n".to_vec();
            behind.extend(bytes);
            let _ = Record::decode(&behind);
        }
    }
}
