//! `flags-for-defaulting`: what the driver knows of the machine, as lines `name:value`. It stands in for settings that
//! nobody made.

use std::io;

use crate::layout::{Base, read_file};

/// The longest file that is read, in bytes; the driver writes two lines.
const MAX_FILE: usize = 4 << 10;

/// What the driver says of the machine. Lines of other names are passed over: other containers of the pod may be able
/// to write the file, and it must not become a way to set anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaulting {
    /// `machine-type`: such as `a3-highgpu-8g`.
    pub machine_type: Option<String>,
    /// `disable-autoconfig`: whether defaults by machine type are off.
    pub disable_autoconfig: Option<bool>,
}

impl Defaulting {
    /// Reads the lines of `text`. The last of several lines counts; one that has no value, or none that makes sense,
    /// says nothing.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut said = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            match name {
                "machine-type" if is_machine_type(value) => {
                    said.machine_type = Some(value.to_owned());
                }
                "disable-autoconfig" => said.disable_autoconfig = crate::options::parse_bool(value),
                _ => {}
            }
        }
        said
    }

    /// Reads the file of `base`; one that is not there says nothing.
    ///
    /// # Errors
    /// It cannot be read, is longer than a driver's, or is not a regular file; links are not followed.
    pub fn read(base: &Base) -> io::Result<Self> {
        match read_file(&base.flags_for_defaulting(), MAX_FILE) {
            Ok(bytes) => Ok(Self::parse(&String::from_utf8_lossy(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// The settings as keys and values of gcsfuse's configuration file.
    pub(crate) fn settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        let machine_type = self
            .machine_type
            .clone()
            .map(|value| ("machine-type", value));
        let disabled = self
            .disable_autoconfig
            .map(|value| ("disable-autoconfig", value.to_string()));
        machine_type.into_iter().chain(disabled)
    }
}

fn is_machine_type(value: &str) -> bool {
    !value.is_empty()
        && value.len() <= 63
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_lines_of_section_2_3_of_the_publish_order_are_read() {
        let said = Defaulting::parse("machine-type:a3-highgpu-8g\ndisable-autoconfig:false\n");
        assert_eq!(said.machine_type.as_deref(), Some("a3-highgpu-8g"));
        assert_eq!(said.disable_autoconfig, Some(false));
        let settings: Vec<_> = said.settings().collect();
        assert_eq!(
            settings,
            [
                ("machine-type", "a3-highgpu-8g".to_owned()),
                ("disable-autoconfig", "false".to_owned())
            ]
        );
    }

    #[test]
    fn lines_that_say_nothing_or_something_else_are_passed_over() {
        for text in [
            "",
            "\n:\nmachine-type\n",
            "machine-type:\n",
            "machine-type:n2 --key-file=/x",
            "machine-type:\u{1}",
            "disable-autoconfig:perhaps\n",
            "gcs-auth:key-file:/tmp/key\n",
            " machine-type:n2-standard-4\n",
        ] {
            assert_eq!(Defaulting::parse(text), Defaulting::default(), "{text:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_says_nothing_and_a_link_or_a_long_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let base = Base(dir.path().to_owned());
        assert_eq!(Defaulting::read(&base).unwrap(), Defaulting::default());
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, "machine-type:n2-standard-4\n").unwrap();
        std::os::unix::fs::symlink(&elsewhere, base.flags_for_defaulting()).unwrap();
        assert!(Defaulting::read(&base).is_err());
        std::fs::rename(&elsewhere, base.flags_for_defaulting()).unwrap();
        let said = Defaulting::read(&base).unwrap();
        assert_eq!(said.machine_type.as_deref(), Some("n2-standard-4"));
        std::fs::write(base.flags_for_defaulting(), " ".repeat(MAX_FILE + 1)).unwrap();
        assert!(Defaulting::read(&base).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(machine-type:|disable-autoconfig:|[a-z:\n]|.){0,60}") {
            let _ = Defaulting::parse(&text);
        }
    }
}
