//! The kernel's list of mounts in this namespace, read from `/proc/self/mountinfo`.
//!
//! Reading it touches no mount, so it cannot hang on a dead one as `stat(2)` can.
//! The format is proc_pid_mountinfo(5).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Unique among the mounts that exist now; reused later.
    pub(super) id: u32,
    /// `major:minor` of the super block.
    pub(super) device: String,
    /// Where it is.
    pub(super) point: PathBuf,
    /// Such as `fuse.gcsmount`.
    pub(super) kind: String,
    /// What stands in the first column of `mount`.
    pub(super) source: String,
}

/// All mounts of this namespace, a later one covering an earlier one at the same place.
pub(super) fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The mount that a path walk ending exactly at `point` would meet.
pub(super) fn topmost<'a>(mounts: &'a [Mount], point: &Path) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.point == point)
}

fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|b| *b == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    // A variable number of optional fields ends with a lone dash.
    let dash = fields.iter().skip(6).position(|f| *f == b"-")? + 6;
    Some(Mount {
        id: str(fields.first()?).parse().ok()?,
        device: str(fields.get(2)?),
        point: PathBuf::from(unescape(fields.get(4)?)),
        kind: str(fields.get(dash + 1)?),
        source: unescape(fields.get(dash + 2)?)
            .to_string_lossy()
            .into_owned(),
    })
}

fn str(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Undoes the octal escapes that the kernel writes for space, tab, line feed and backslash.
fn unescape(bytes: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|d| first == b'\\' && d.iter().all(|b| (b'0'..=b'7').contains(b)))
            .and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out)
}

/// `path` made absolute without asking the file system, with the components `.` and `..` and double slashes resolved as text.
pub(super) fn lexical(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let mut out = PathBuf::new();
    for component in absolute.components() {
        if component.as_os_str().as_bytes() == b".." {
            out.pop();
        } else {
            out.push(component);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
80 22 0:50 / /mnt/a\\040b rw,nosuid,nodev - fuse.gcsmount my\\134bucket rw,user_id=0
81 22 0:51 / /mnt/a\\040b rw master:3 propagate_from:2 - tmpfs tmpfs rw
not a line
";

    #[test]
    fn fields_are_found_behind_any_number_of_optional_ones() {
        let mounts = parse(TEXT);
        assert_eq!(mounts.len(), 3);
        assert_eq!(
            mounts[1],
            Mount {
                id: 80,
                device: "0:50".into(),
                point: "/mnt/a b".into(),
                kind: "fuse.gcsmount".into(),
                source: "my\\bucket".into(),
            }
        );
    }

    #[test]
    fn the_last_mount_at_a_place_is_the_one_that_is_seen() {
        let mounts = parse(TEXT);
        assert_eq!(
            topmost(&mounts, Path::new("/mnt/a b")).map(|m| m.id),
            Some(81)
        );
        assert_eq!(topmost(&mounts, Path::new("/mnt")), None);
    }

    #[test]
    fn the_list_of_this_process_has_a_root() {
        assert!(topmost(&read().unwrap(), Path::new("/")).is_some());
    }

    #[test]
    fn lexical_paths_need_no_file_system() {
        assert_eq!(
            lexical(Path::new("/no//such/../dir/.")).unwrap(),
            Path::new("/no/dir")
        );
    }
}
