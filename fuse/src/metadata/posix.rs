//! Mode, owner, group and time of access in the keys of `gsutil` and `gcloud storage` (`--preserve-posix`).
//!
//! They write the permission bits as octal digits and everything else in decimal, times in whole seconds since 1970. What
//! cannot be made out counts as not there: it is somebody else's, and a stat is no place to complain about it.
//! Source: <https://cloud.google.com/sdk/gcloud/reference/storage/cp>, `--preserve-posix`.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::{from_seconds, since_epoch};

const MODE: &str = "goog-reserved-posix-mode";
const UID: &str = "goog-reserved-posix-uid";
const GID: &str = "goog-reserved-posix-gid";
const ATIME: &str = "goog-reserved-file-atime";

/// Permission bits, set-user-id, set-group-id and sticky.
const BITS: u32 = 0o7777;
const SET_UID: u16 = 0o4000;
const SET_GID: u16 = 0o2000;
const GROUP_EXECUTES: u16 = 0o0010;

/// What an object says of a file, or what is to be said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Posix {
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last access that somebody set.
    pub atime: Option<SystemTime>,
}

impl Posix {
    /// What custom metadata says.
    #[must_use]
    pub fn read(metadata: &BTreeMap<String, String>) -> Self {
        Self::from_keys(|key| metadata.get(key).map(String::as_str))
    }

    /// What is said by whatever tells the value of a key.
    pub fn from_keys<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Self {
        let atime = || from_seconds(get(ATIME)?.parse().ok()?);
        Self {
            mode: get(MODE).and_then(mode),
            uid: get(UID).and_then(id),
            gid: get(GID).and_then(id),
            atime: atime(),
        }
    }

    /// The keys that say it.
    #[must_use]
    pub fn keys(self) -> Vec<(String, String)> {
        let seconds = |at| since_epoch(at).map(|nanos| nanos.div_euclid(1_000_000_000));
        [
            // Three digits where they do: older readers know no others.
            (MODE, self.mode.map(|mode| format!("{mode:03o}"))),
            (UID, self.uid.map(|uid| uid.to_string())),
            (GID, self.gid.map(|gid| gid.to_string())),
            (ATIME, self.atime.and_then(seconds).map(|s| s.to_string())),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }

    /// This where it says something, else `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            mode: self.mode.or(other.mode),
            uid: self.uid.or(other.uid),
            gid: self.gid.or(other.gid),
            atime: self.atime.or(other.atime),
        }
    }
}

/// A mode of whom a file's owner or content has changed: as in Linux, set-user-id goes, and set-group-id where the group
/// may execute it; without that it is no privilege.
#[must_use]
pub fn without_privileges(mode: u16) -> u16 {
    let group = if mode & GROUP_EXECUTES == 0 {
        0
    } else {
        SET_GID
    };
    mode & !(SET_UID | group)
}

/// What is new in a directory of `parent_mode` and `parent_gid`: with set-group-id there, the group is the directory's,
/// and directories pass that on.
#[must_use]
pub fn inherit(new: Posix, is_dir: bool, parent_mode: u16, parent_gid: u32) -> Posix {
    if parent_mode & SET_GID == 0 {
        return new;
    }
    Posix {
        gid: Some(parent_gid),
        mode: new
            .mode
            .map(|mode| if is_dir { mode | SET_GID } else { mode }),
        ..new
    }
}

/// Octal digits. Some tools write the type of the file too, which the object itself tells.
fn mode(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let mode = u32::from_str_radix(digits, 8).ok()?;
    u16::try_from(mode & BITS).ok()
}

/// A number that can be somebody's: the largest one says "nobody in particular" to chown(2).
fn id(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn modes_are_read_as_tools_write_them() {
        for (text, expected) in [
            ("755", Some(0o755)),
            ("0755", Some(0o755)),
            ("0o755", Some(0o755)),
            ("4755", Some(0o4755)),
            ("1777", Some(0o1777)),
            ("100644", Some(0o644)),
            ("000", Some(0)),
            ("", None),
            ("0o", None),
            ("9", None),
            ("rwx", None),
            ("-1", None),
            ("+7", None),
            (" 755", None),
            ("7777777777777777", None),
        ] {
            assert_eq!(mode(text), expected, "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_made_out_is_not_there() {
        for (key, text) in [
            (MODE, "x"),
            (UID, "-1"),
            (UID, "4294967295"),
            (UID, "root"),
            (GID, "99999999999"),
            (GID, ""),
            (ATIME, "now"),
        ] {
            let said = Posix::from_keys(|asked| (asked == key).then_some(text));
            assert_eq!(said, Posix::default(), "{key} {text}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let said = Posix {
            mode: Some(0o7),
            uid: Some(0),
            gid: Some(65_534),
            atime: Some(SystemTime::UNIX_EPOCH - Duration::from_secs(1)),
        };
        let keys: BTreeMap<_, _> = said.keys().into_iter().collect();
        assert_eq!(keys[MODE], "007");
        assert_eq!(keys[ATIME], "-1");
        assert_eq!(Posix::read(&keys), said);
        assert!(Posix::default().keys().is_empty());
    }

    #[test]
    fn privileges_go_and_mandatory_locking_stays() {
        for (mode, expected) in [
            (0o644, 0o644),
            (0o4755, 0o755),
            (0o6755, 0o755),
            (0o2744, 0o2744),
            (0o1777, 0o1777),
        ] {
            assert_eq!(without_privileges(mode), expected, "{mode:o}");
        }
    }

    #[test]
    fn a_directory_with_set_group_id_passes_its_group_on() {
        let new = Posix {
            mode: Some(0o755),
            uid: Some(1),
            gid: Some(2),
            atime: None,
        };
        assert_eq!(inherit(new, true, 0o755, 9), new);
        let file = inherit(new, false, 0o2755, 9);
        assert_eq!((file.mode, file.gid), (Some(0o755), Some(9)));
        let dir = inherit(new, true, 0o2755, 9);
        assert_eq!((dir.mode, dir.gid), (Some(0o2755), Some(9)));
    }
}
