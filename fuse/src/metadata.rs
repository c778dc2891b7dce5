//! What of a file's attributes is kept in an object's custom metadata, in the keys that gcsfuse and gsutil use.

mod edits;
pub mod posix;
pub mod xattr;

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use gcsmount_gcs::Object;
use gcsmount_gcs::object::Attributes;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

pub use edits::Edits;
pub use posix::Posix;

/// Modification time as gcsfuse writes it: RFC 3339 in UTC with nanoseconds.
const GCSFUSE_MTIME: &str = "gcsfuse_mtime";
/// Modification time as gsutil and `gcloud storage` write it: whole seconds since 1970.
const RESERVED_MTIME: &str = "goog-reserved-file-mtime";
/// The most bytes of all keys and values of an object's custom metadata.
/// Source: <https://cloud.google.com/storage/docs/reference/rpc/google.storage.v1>, `ServiceConstants`.
const METADATA_LIMIT: usize = 8 << 10;

/// Target of a symbolic link as gcsfuse writes it.
const GCSFUSE_SYMLINK: &str = "gcsfuse_symlink_target";
/// Set to `true` on an object whose content is the target of a symbolic link, by `gcloud storage` and newer gcsfuse.
const RESERVED_SYMLINK: &str = "goog-reserved-file-is-symlink";

/// When the content was last modified: as somebody recorded it, else when the object last changed.
#[must_use]
pub fn mtime(object: &Object) -> SystemTime {
    recorded_mtime(object).unwrap_or(object.updated)
}

/// The time of modification that somebody recorded.
#[must_use]
pub fn recorded_mtime(object: &Object) -> Option<SystemTime> {
    let metadata = &object.attributes.metadata;
    let exact = metadata.get(GCSFUSE_MTIME).and_then(|text| parse(text));
    exact.or_else(|| from_seconds(metadata.get(RESERVED_MTIME)?.parse().ok()?))
}

/// The keys that record `mtime`. A time outside the years 1 to 9999 has no form there, and no keys.
#[must_use]
pub fn mtime_keys(mtime: SystemTime) -> Vec<(String, String)> {
    let Some(at) =
        since_epoch(mtime).and_then(|nanos| OffsetDateTime::from_unix_timestamp_nanos(nanos).ok())
    else {
        return Vec::new();
    };
    let Ok(exact) = at.format(&Rfc3339) else {
        return Vec::new();
    };
    vec![
        (GCSFUSE_MTIME.to_owned(), exact),
        (RESERVED_MTIME.to_owned(), at.unix_timestamp().to_string()),
    ]
}

/// The attributes of the next generation of a file: those of the base with `edits`, the new time, and no symbolic link
/// any more.
#[must_use]
pub fn next_attributes(base: Option<&Object>, edits: &Edits, mtime: SystemTime) -> Attributes {
    let none = Attributes::default();
    let mut attributes = edits.applied(base.map_or(&none, |base| &base.attributes));
    for stale in [
        GCSFUSE_MTIME,
        RESERVED_MTIME,
        GCSFUSE_SYMLINK,
        RESERVED_SYMLINK,
    ] {
        attributes.metadata.remove(stale);
    }
    let left = METADATA_LIMIT.checked_sub(size(&attributes.metadata));
    let keys = fitting(mtime_keys(mtime), left.unwrap_or_default());
    attributes.metadata.extend(keys);
    attributes
}

/// Of `keys`, those for which there is room: a file can be written even if others have left none for its time.
fn fitting(keys: Vec<(String, String)>, mut room: usize) -> Vec<(String, String)> {
    let mut fitting = keys;
    fitting.retain(|(key, value)| {
        let left = room.checked_sub(key.len() + value.len());
        room = left.unwrap_or(room);
        left.is_some()
    });
    fitting
}

/// Bytes of custom metadata, as the service counts them.
fn size(metadata: &BTreeMap<String, String>) -> usize {
    let sizes = metadata.iter().map(|(key, value)| key.len() + value.len());
    sizes.sum()
}

/// The attributes of a symbolic link to `target`, whose content is the target too.
#[must_use]
pub fn symlink_attributes(target: &str, mtime: SystemTime) -> Attributes {
    let mut attributes = next_attributes(None, &Edits::default(), mtime);
    let keys = [(GCSFUSE_SYMLINK, target), (RESERVED_SYMLINK, "true")];
    attributes
        .metadata
        .extend(keys.map(|(key, value)| (key.to_owned(), value.to_owned())));
    attributes
}

/// Whether the object is a symbolic link.
#[must_use]
pub fn is_symlink(object: &Object) -> bool {
    let metadata = &object.attributes.metadata;
    metadata.contains_key(GCSFUSE_SYMLINK)
        || metadata.get(RESERVED_SYMLINK).is_some_and(|v| v == "true")
}

/// The target of a symbolic link, where the metadata has it; else it is the content.
#[must_use]
pub fn symlink_target(object: &Object) -> Option<&str> {
    let target = object.attributes.metadata.get(GCSFUSE_SYMLINK)?;
    Some(target.as_str())
}

fn parse(text: &str) -> Option<SystemTime> {
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    from_epoch(at.unix_timestamp_nanos())
}

/// The time so many nanoseconds after the beginning of 1970.
pub(crate) fn from_epoch(nanos: i128) -> Option<SystemTime> {
    let whole = from_seconds(i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?)?;
    let rest = u32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?;
    whole.checked_add(Duration::from_nanos(u64::from(rest)))
}

fn from_seconds(seconds: i64) -> Option<SystemTime> {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    }
}

/// Nanoseconds from the beginning of 1970.
pub(crate) fn since_epoch(at: SystemTime) -> Option<i128> {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i128::try_from(after.as_nanos()).ok(),
        Err(before) => i128::try_from(before.duration().as_nanos())
            .ok()
            .map(|n| -n),
    }
}

#[cfg(test)]
mod tests {
    use gcsmount_gcs::{Generation, Metageneration, ObjectName};

    use super::*;

    fn object(keys: &[(&str, &str)]) -> Object {
        Object {
            name: ObjectName::parse("o").unwrap(),
            generation: Generation(1),
            metageneration: Metageneration(1),
            size: 0,
            crc32c: None,
            md5: None,
            created: SystemTime::UNIX_EPOCH,
            updated: SystemTime::UNIX_EPOCH + Duration::from_secs(7),
            component_count: None,
            attributes: Attributes {
                metadata: keys
                    .iter()
                    .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                    .collect::<BTreeMap<_, _>>(),
                ..Attributes::default()
            },
        }
    }

    fn at(nanos: i64) -> SystemTime {
        let distance = Duration::from_nanos(nanos.unsigned_abs());
        if nanos < 0 {
            SystemTime::UNIX_EPOCH - distance
        } else {
            SystemTime::UNIX_EPOCH + distance
        }
    }

    #[test]
    fn the_most_exact_record_of_the_time_counts() {
        let table = [
            (object(&[]), at(7_000_000_000)),
            (object(&[(RESERVED_MTIME, "12")]), at(12_000_000_000)),
            (object(&[(RESERVED_MTIME, "-12")]), at(-12_000_000_000)),
            (object(&[(RESERVED_MTIME, "x")]), at(7_000_000_000)),
            (
                object(&[
                    (RESERVED_MTIME, "12"),
                    (GCSFUSE_MTIME, "1970-01-01T00:00:01.000000002Z"),
                ]),
                at(1_000_000_002),
            ),
            (
                object(&[(GCSFUSE_MTIME, "1969-12-31T23:59:59.5Z")]),
                at(-500_000_000),
            ),
        ];
        for (object, expected) in table {
            assert_eq!(mtime(&object), expected, "{:?}", object.attributes.metadata);
        }
    }

    #[test]
    fn a_recorded_time_reads_back_to_the_nanosecond() {
        for nanos in [0, 1, -1, 1_700_000_000_123_456_789, -62_000_000_000_000_001] {
            let mut written = object(&[]);
            written.attributes = next_attributes(None, &Edits::default(), at(nanos));
            assert_eq!(mtime(&written), at(nanos), "{nanos}");
        }
    }

    #[test]
    fn a_time_beyond_the_calendar_is_not_recorded() {
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 40);
        assert!(mtime_keys(far).is_empty());
    }

    #[test]
    fn new_content_keeps_foreign_keys_and_stops_being_a_link() {
        let mut base = object(&[("mine", "kept")]);
        base.attributes
            .metadata
            .extend(symlink_attributes("t", at(0)).metadata);
        assert!(is_symlink(&base));
        assert_eq!(symlink_target(&base), Some("t"));
        base.attributes.content_type = Some("text/plain".into());
        let next = Object {
            attributes: next_attributes(Some(&base), &Edits::default(), at(5)),
            ..base
        };
        assert!(!is_symlink(&next));
        assert_eq!(next.attributes.metadata["mine"], "kept");
        assert_eq!(next.attributes.content_type.as_deref(), Some("text/plain"));
        assert_eq!(mtime(&next), at(5));
    }

    #[test]
    fn a_file_whose_metadata_is_full_goes_without_its_time() {
        // The two keys of a time take 13 + 20 and 24 + 1 bytes.
        for (left, expected) in [(58, 2), (57, 1), (33, 1), (32, 1), (24, 0), (0, 0)] {
            let mut base = object(&[]);
            let full = "x".repeat(METADATA_LIMIT - left - 1);
            base.attributes.metadata.insert("k".to_owned(), full);
            let next = next_attributes(Some(&base), &Edits::default(), at(0));
            assert_eq!(next.metadata.len(), 1 + expected, "{left}");
            assert!(size(&next.metadata) <= METADATA_LIMIT, "{left}");
        }
    }

    #[test]
    fn a_link_in_the_standard_form_has_its_target_as_content() {
        let link = object(&[(RESERVED_SYMLINK, "true")]);
        assert!(is_symlink(&link));
        assert_eq!(symlink_target(&link), None);
        assert!(!is_symlink(&object(&[(RESERVED_SYMLINK, "false")])));
    }
}
