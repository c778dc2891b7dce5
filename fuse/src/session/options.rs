//! Mount options as mount(2) and `fusermount3` want them.

use nix::mount::MsFlags;

use super::{Error, MountOptions};

/// Options sorted by where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prepared {
    /// Flags of mount(2).
    pub(super) flags: MsFlags,
    /// Words of the same meaning, for `fusermount3`.
    pub(super) words: Vec<String>,
    /// What goes to the FUSE kernel module as text, in either case.
    pub(super) data: Vec<String>,
    /// First column of `mount`.
    pub(super) source: String,
}

/// Checks and sorts `options`. Devices and set-user-id are off unless asked for.
pub(super) fn prepare(options: &MountOptions) -> Result<Prepared, Error> {
    refuse_text("fsname", &options.fs_name)?;
    let mut prepared = Prepared {
        flags: MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        words: vec!["nosuid".into(), "nodev".into()],
        data: vec!["default_permissions".into()],
        source: options.fs_name.clone(),
    };
    if options.allow_other {
        prepared.data.push("allow_other".into());
    }
    if options.read_only {
        prepared.flag("ro");
    }
    for option in &options.extra {
        refuse_text(option, option)?;
        prepared.add(option)?;
    }
    Ok(prepared)
}

impl Prepared {
    fn add(&mut self, option: &str) -> Result<(), Error> {
        let key = option.split_once('=').map_or(option, |(key, _)| key);
        match key {
            "fd" | "rootmode" | "user_id" | "group_id" | "fsname" | "subtype" => {
                return Err(invalid(option, "gcsmount sets this option itself"));
            }
            _ if self.flag(option) => {}
            _ if self.data.iter().any(|have| have == option) => {}
            _ => self.data.push(option.to_owned()),
        }
        Ok(())
    }

    /// Applies `word` if it is a flag of mount(2).
    fn flag(&mut self, word: &str) -> bool {
        let Some((flag, on)) = flag_of(word) else {
            return false;
        };
        self.flags.set(flag, on);
        if !self.words.iter().any(|have| have == word) {
            self.words.push(word.to_owned());
        }
        true
    }
}

fn flag_of(word: &str) -> Option<(MsFlags, bool)> {
    Some(match word {
        "ro" => (MsFlags::MS_RDONLY, true),
        "rw" => (MsFlags::MS_RDONLY, false),
        "nosuid" => (MsFlags::MS_NOSUID, true),
        "suid" => (MsFlags::MS_NOSUID, false),
        "nodev" => (MsFlags::MS_NODEV, true),
        "dev" => (MsFlags::MS_NODEV, false),
        "noexec" => (MsFlags::MS_NOEXEC, true),
        "exec" => (MsFlags::MS_NOEXEC, false),
        "noatime" => (MsFlags::MS_NOATIME, true),
        "atime" => (MsFlags::MS_NOATIME, false),
        "sync" => (MsFlags::MS_SYNCHRONOUS, true),
        "async" => (MsFlags::MS_SYNCHRONOUS, false),
        "dirsync" => (MsFlags::MS_DIRSYNC, true),
        _ => return None,
    })
}

/// A comma inside a value would begin another option: fusermount3 and the kernel split at it.
fn refuse_text(option: &str, text: &str) -> Result<(), Error> {
    if text.is_empty() {
        return Err(invalid(option, "it is empty"));
    }
    if text.contains([',', '\\']) || text.contains(char::is_control) {
        return Err(invalid(
            option,
            "a comma, a backslash or a control character cannot be passed to mount",
        ));
    }
    Ok(())
}

fn invalid(option: &str, why: &'static str) -> Error {
    Error::Option {
        option: option.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(extra: &[&str]) -> MountOptions {
        MountOptions {
            fs_name: "bucket".into(),
            extra: extra.iter().map(|o| (*o).to_owned()).collect(),
            ..MountOptions::default()
        }
    }

    #[test]
    fn flags_and_text_are_told_apart() {
        let prepared = prepare(&options(&["noexec", "max_read=131072", "rw", "suid"])).unwrap();
        assert_eq!(prepared.flags, MsFlags::MS_NODEV | MsFlags::MS_NOEXEC);
        assert_eq!(prepared.data, ["default_permissions", "max_read=131072"]);
    }

    #[test]
    fn read_only_and_allow_other_reach_mount() {
        let prepared = prepare(&MountOptions {
            allow_other: true,
            read_only: true,
            ..options(&["allow_other"])
        })
        .unwrap();
        assert!(prepared.flags.contains(MsFlags::MS_RDONLY));
        assert_eq!(prepared.data, ["default_permissions", "allow_other"]);
        assert_eq!(prepared.words, ["nosuid", "nodev", "ro"]);
    }

    #[test]
    fn an_option_cannot_smuggle_in_another() {
        for extra in ["a,allow_other", "a\\b", "a\nb", "", "fd=3", "fsname=x"] {
            let refused = prepare(&options(&[extra]));
            assert!(matches!(refused, Err(Error::Option { .. })), "{extra}");
        }
        let named = MountOptions {
            fs_name: "a,dev".into(),
            ..MountOptions::default()
        };
        assert!(matches!(prepare(&named), Err(Error::Option { .. })));
    }
}
