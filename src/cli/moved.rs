//! A command line that was written for gcsfuse, as far as its flags have another name here or none.

use std::ffi::OsString;

use crate::exit::{Exit, Failure};
use crate::gcsfuse::{self, Meaning};
use crate::params::{self, Role};

/// The words for the parser, and what there is to say about those that are gone.
pub(super) struct Translated {
    pub(super) args: Vec<OsString>,
    pub(super) warnings: Vec<String>,
}

impl Translated {
    pub(super) fn unchanged(args: Vec<OsString>) -> Self {
        Self {
            args,
            warnings: Vec::new(),
        }
    }
}

/// Rewrites flags that only gcsfuse has: to the flag of ours that says the same, or to nothing.
///
/// # Errors
/// [`Exit::Usage`], naming every flag that cannot be obeyed.
pub(super) fn translate(role: Role, args: Vec<OsString>) -> Result<Translated, Failure> {
    let mut translated = Translated::unchanged(Vec::with_capacity(args.len()));
    let mut wrong = Vec::new();
    let mut words = args.into_iter();
    while let Some(word) = words.next() {
        if word == "--" {
            translated.args.push(word);
            translated.args.extend(words);
            break;
        }
        let text = word.to_string_lossy();
        let flag = text.strip_prefix("--").unwrap_or_default();
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        let ours = params::of(role).any(|param| param.flag == name);
        match gcsfuse::flag(name).filter(|_| !ours) {
            None => translated.args.push(word),
            Some(Meaning::Flag(ours)) => {
                let value = value.map_or_else(String::new, |value| format!("={value}"));
                translated.args.push(format!("--{ours}{value}").into());
            }
            Some(Meaning::NoEffect) => {
                translated.warnings.push(no_effect(&format!("--{name}")));
                if value.is_none() && !is_switch(name) {
                    words.next();
                }
            }
            Some(Meaning::Refused(why)) => wrong.push(refused(&format!("--{name}"), why)),
        }
    }
    match wrong.as_slice() {
        [] => Ok(translated),
        wrong => Err(Failure::new(Exit::Usage, wrong.join("; "))),
    }
}

/// The sentence about an option that does nothing.
pub(super) fn no_effect(option: &str) -> String {
    format!("{option} is gcsfuse's and has no effect here")
}

/// The sentence about one that cannot be obeyed.
pub(super) fn refused(option: &str, why: &str) -> String {
    format!("{option} is gcsfuse's and cannot be obeyed: {why}")
}

/// Whether a flag of gcsfuse takes no value from the word behind it.
fn is_switch(name: &str) -> bool {
    let name = name.replace('_', "-");
    let by_name = name
        .split('-')
        .any(|part| matches!(part, "enable" | "disable" | "debug"));
    by_name
        || matches!(
            name.as_str(),
            "implicit-dirs"
                | "create-empty-file"
                | "finalize-file-for-rapid"
                | "file-cache-cache-file-for-range-read"
                | "file-cache-experimental-parallel-downloads-default-on"
                | "ignore-interrupts"
                | "strong-consistency-on-open"
                | "experimental-o-direct"
                | "log-rotate-compress"
                | "cloud-profiler-cpu"
                | "cloud-profiler-heap"
                | "cloud-profiler-allocated-heap"
                | "cloud-profiler-goroutines"
                | "cloud-profiler-mutex"
                | "visualize-workload-insight"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_gcsfuse_are_renamed_dropped_or_refused() {
        let translated = |line: &str| {
            let args = line.split_whitespace().map(OsString::from).collect();
            translate(Role::Mount, args).map(|translated| {
                let words: Vec<_> = translated
                    .args
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect();
                (words.join(" "), translated.warnings.len())
            })
        };
        for (line, want, warnings) in [
            ("mount --implicit-dirs b /m", "mount b /m", 1),
            ("mount --implicit_dirs=true b /m", "mount b /m", 1),
            ("mount --max-conns-per-host 5 b /m", "mount b /m", 1),
            ("mount --max-conns-per-host=5 b /m", "mount b /m", 1),
            ("mount --debug_gcs --enable-hns b /m", "mount b /m", 2),
            (
                "mount --metadata-cache-ttl-secs 9 b /m",
                "mount --metadata-cache-ttl 9 b /m",
                0,
            ),
            (
                "mount --metadata-cache-ttl-secs=9 b /m",
                "mount --metadata-cache-ttl=9 b /m",
                0,
            ),
            ("mount --uid 5 b /m", "mount --uid 5 b /m", 0),
            (
                "mount b -- --implicit-dirs",
                "mount b -- --implicit-dirs",
                0,
            ),
            ("mount --no-such-flag b /m", "mount --no-such-flag b /m", 0),
        ] {
            assert_eq!(translated(line), Ok((want.to_owned(), warnings)), "{line}");
        }
        let failure = translated("mount --enable-dummy-io --config-file x b /m").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        for part in [
            "--enable-dummy-io",
            "--config-file",
            "no configuration file",
        ] {
            assert!(failure.sentence.contains(part), "{failure}");
        }
    }
}
