//! Names of contents, as they are known on the disk.
//!
//! The name of an object never becomes a path: a file is called after a hash of it. The record in the file has the
//! names in full and is compared, so that two objects of one hash take each other's place and never each other's bytes.

use gcsmount_gcs::{BucketName, Generation, ObjectName};
use md5::{Digest, Md5};

/// A bucket, as one identity sees it at one endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub(super) bucket: BucketName,
    pub(super) realm: String,
}

impl Scope {
    /// The longest realm in bytes.
    pub const MAX_REALM: usize = 1024;

    /// The contents of `bucket` in `realm`: whatever else tells whose they are, such as endpoint and identity. What was
    /// read in one realm is never handed out in another. It is written to the disk, so no secret. `None`: it is longer
    /// than [`Scope::MAX_REALM`].
    #[must_use]
    pub fn new(bucket: BucketName, realm: String) -> Option<Self> {
        (realm.len() <= Self::MAX_REALM).then_some(Self { bucket, realm })
    }
}

/// A generation of an object of some scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    /// Hash of scope and name.
    pub(super) object: u128,
    pub(super) generation: i64,
}

impl Key {
    pub(super) fn new(scope: &Scope, name: &ObjectName, generation: Generation) -> Self {
        let mut hash = Md5::new();
        for part in [scope.bucket.as_str(), &scope.realm, name.as_str()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Self {
            object: u128::from_be_bytes(hash.finalize().into()),
            generation: generation.0,
        }
    }

    /// The first generation of the object, in the order of keys.
    pub(super) fn first_of(object: u128) -> Self {
        Self {
            object,
            generation: i64::MIN,
        }
    }

    /// The name of the file with the bytes.
    pub(super) fn data(&self) -> String {
        format!("{}.data", self.stem())
    }

    /// The name of the file that tells which bytes are there.
    pub(super) fn index(&self) -> String {
        format!("{}.index", self.stem())
    }

    fn stem(&self) -> String {
        format!("{:032x}-{:016x}", self.object, self.generation)
    }
}

/// What a file in the directory is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Data(Key),
    Index(Key),
    /// Of a version that we do not know.
    Aside,
    /// Not one of ours.
    Other,
}

/// Added to the name of a file that is set aside.
pub(super) const ASIDE: &str = ".aside";

impl Role {
    pub(super) fn of(name: &str) -> Self {
        if let Some(name) = name.strip_suffix(ASIDE) {
            return match Self::of(name) {
                Self::Data(_) | Self::Index(_) => Self::Aside,
                Self::Aside | Self::Other => Self::Other,
            };
        }
        let role = match name.rsplit_once('.') {
            Some((stem, "data")) => parse(stem).map(Self::Data),
            Some((stem, "index")) => parse(stem).map(Self::Index),
            _ => None,
        };
        role.unwrap_or(Self::Other)
    }
}

fn parse(stem: &str) -> Option<Key> {
    let (object, generation) = stem.split_once('-')?;
    let key = Key {
        object: u128::from_str_radix(object, 16).ok()?,
        generation: i64::from_str_radix(generation, 16).ok()?,
    };
    // Only what we would write ourselves: no signs, no capitals, no missing zeros.
    (key.stem() == stem).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bucket: &str, realm: &str, name: &str, generation: i64) -> Key {
        let bucket = BucketName::parse(bucket).unwrap();
        let scope = Scope::new(bucket, realm.to_owned()).unwrap();
        let name = ObjectName::parse(name).unwrap();
        Key::new(&scope, &name, Generation(generation))
    }

    #[test]
    fn keys_differ_in_every_part() {
        let one = key("bucket", "realm", "name", 7);
        assert_eq!(one, key("bucket", "realm", "name", 7));
        for other in [
            key("bucket2", "realm", "name", 7),
            key("bucket", "realmn", "ame", 7),
            key("bucket", "real", "mname", 7),
            key("bucket", "realm", "name", 8),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn names_are_the_same_in_every_release() {
        let key = key("bucket", "realm", "../../etc/passwd", 1_700_000_000_000_001);
        // md5 of the parts, each after its length in eight bytes.
        assert_eq!(
            key.data(),
            "b84d4644de3f6d0bbc80804e62d8cde9-00060a24181e4001.data"
        );
    }

    #[test]
    fn names_are_parsed_as_they_are_written_and_in_no_other_way() {
        let key = key("bucket", "", "name", 7);
        let (data, index) = (key.data(), key.index());
        assert_eq!(Role::of(&data), Role::Data(key));
        assert_eq!(Role::of(&index), Role::Index(key));
        assert_eq!(Role::of(&format!("{index}.aside")), Role::Aside);
        for other in [
            "lock".to_owned(),
            ".data".to_owned(),
            data.to_uppercase(),
            format!("+{data}"),
            data[1..].to_owned(),
            format!("{data}.aside.aside"),
            "lock.aside".to_owned(),
        ] {
            assert_eq!(Role::of(&other), Role::Other, "{other}");
        }
    }
}
