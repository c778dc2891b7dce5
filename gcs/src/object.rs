//! An object as the store describes it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use crate::{FolderName, ObjectName};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub i64);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// Identifies one immutable content of an object name. A later content has a larger number; it says nothing more.
    Generation
}
number! {
    /// Counts the changes of one generation's metadata, from 1.
    Metageneration
}

impl Generation {
    /// As a precondition: the name holds no live object.
    pub const ABSENT: Self = Self(0);
}

/// The metadata of one generation of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Key in the bucket.
    pub name: ObjectName,
    /// Which content this is.
    pub generation: Generation,
    /// Which metadata of that content this is.
    pub metageneration: Metageneration,
    /// Stored length in bytes: of the compressed bytes where [`Attributes::content_encoding`] is gzip.
    pub size: u64,
    /// CRC32C (Castagnoli) of the stored bytes; absent only where the store withholds it.
    pub crc32c: Option<u32>,
    /// MD5 of the stored bytes; composed objects have none.
    pub md5: Option<[u8; 16]>,
    /// When this generation was made.
    pub created: SystemTime,
    /// When this generation or its metadata last changed.
    pub updated: SystemTime,
    /// How many objects were composed into this one; `None` for one that was uploaded whole.
    pub component_count: Option<u64>,
    /// The fields that a writer may set.
    pub attributes: Attributes,
}

/// What tells one content from another without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    /// Length in bytes.
    pub size: u64,
    /// CRC32C (Castagnoli).
    pub crc32c: u32,
}

impl Digest {
    /// Of no bytes.
    pub const EMPTY: Self = Self { size: 0, crc32c: 0 };

    /// Of the stored bytes of `object`, where the store tells their checksum.
    #[must_use]
    pub fn of(object: &Object) -> Option<Self> {
        let size = object.size;
        object.crc32c.map(|crc32c| Self { size, crc32c })
    }

    /// Of this content with `next` behind it; `None` where this machine cannot count that far.
    #[must_use]
    pub fn then(self, next: Self) -> Option<Self> {
        Some(Self {
            size: self.size.checked_add(next.size)?,
            crc32c: crc32c::crc32c_combine(
                self.crc32c,
                next.crc32c,
                usize::try_from(next.size).ok()?,
            ),
        })
    }
}

/// What a writer may say of an object besides its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Content-Encoding`; `gzip` means that the stored bytes are compressed.
    pub content_encoding: Option<String>,
    /// `Content-Disposition`.
    pub content_disposition: Option<String>,
    /// `Content-Language`.
    pub content_language: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// Storage class; `None` takes the bucket's default.
    pub storage_class: Option<String>,
    /// Custom time.
    pub custom_time: Option<SystemTime>,
    /// Custom metadata: keys of our choice, `gcsfuse_mtime` and the `goog-reserved-` ones among them.
    pub metadata: BTreeMap<String, String>,
}

/// What is known of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Region, dual-region or multi-region, in upper case; empty where the identity may not read it.
    pub location: String,
    /// Default storage class; empty where the identity may not read it.
    pub storage_class: String,
    /// Whether folders are resources of their own (hierarchical namespace).
    pub hierarchical: bool,
    /// Whether access goes by IAM alone (uniform bucket-level access), which federated identities depend on; `None`
    /// where the identity may not read it.
    pub uniform_access: Option<bool>,
}

/// A folder of a bucket with a hierarchical namespace: a resource of its own, which is there while it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Full name.
    pub name: FolderName,
    /// Counts the changes of the folder's metadata, from 1.
    pub metageneration: Metageneration,
    /// When it was made; a rename does not change it.
    pub created: SystemTime,
    /// When it last changed.
    pub updated: SystemTime,
}

/// How a bucket keeps its objects, which whoever may list them may know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Region, dual-region or multi-region, in upper case.
    pub location: String,
    /// `region`, `dual-region`, `multi-region` or `zone`.
    pub location_type: String,
    /// Whether folders are resources of their own (hierarchical namespace).
    pub hierarchical: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_join_as_their_contents_do() {
        let of = |bytes: &[u8]| Digest {
            size: bytes.len() as u64,
            crc32c: crc32c::crc32c(bytes),
        };
        let parts: [&[u8]; 4] = [b"one ", b"", b"two", &[0; 1000]];
        let joined = parts
            .iter()
            .try_fold(Digest::EMPTY, |joined, part| joined.then(of(part)));
        assert_eq!(joined, Some(of(&parts.concat())));
        let endless = Digest {
            size: u64::MAX,
            crc32c: 0,
        };
        assert_eq!(of(b"x").then(endless), None);
    }
}
