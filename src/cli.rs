//! The command line: which role, which settings, and the help, all from the table in [`params`].

mod moved;
mod similar;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::exit::{Exit, Failure};
use crate::gcsfuse::{self, Meaning};
use gcsmount_gcs::client::json::Rate;

use crate::params::{self, Kind, Param, Role, Value};

/// What the user asked for.
#[derive(Debug)]
pub enum Invocation {
    /// Print this to standard output and end well.
    Print(String),
    /// Run a role.
    Run(Role, Settings),
}

/// The settings of one invocation, every one of the role's in its accepted form.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    values: HashMap<&'static str, (Vec<Value>, Origin)>,
    /// Arguments that are no flags.
    pub arguments: Vec<String>,
    /// What `-o` said to the kernel.
    pub mount_options: Vec<String>,
    /// What was accepted and does nothing, a sentence each.
    pub warnings: Vec<String>,
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// This environment variable.
    Environment(&'static str),
    /// The command line.
    Flag,
}

/// `-o` options that are the kernel's.
const KERNEL_OPTIONS: &[&str] = &[
    "ro",
    "rw",
    "allow_other",
    "default_permissions",
    "nosuid",
    "suid",
    "nodev",
    "dev",
    "noexec",
    "exec",
    "noatime",
    "atime",
    "sync",
    "async",
    "dirsync",
];

/// `-o` options that only the boot system reads, besides those that begin with `x-`.
const BOOT_OPTIONS: &[&str] = &["_netdev", "auto", "noauto", "user", "nofail", "defaults"];

const ABOUT: &str = "Mounts a Google Cloud Storage bucket as a directory.";

const TOKEN_OVERVIEW: &str = "\
Access tokens for Google Cloud Storage.

Usage:
  gcsmount token show [flags]           who am I: the identity, its token's life, no secret
  gcsmount token serve [flags]          access tokens on a unix socket, for a stock gcsfuse

  gcsmount token show --help            the flags of either
  gcsmount token serve --help
";

const OVERVIEW: &str = "\
Mounts a Google Cloud Storage bucket as a directory.

Usage:
  gcsmount [mount] [flags] BUCKET DIR   mount one bucket
  gcsmount demo [flags] [DIR]           everything on this machine, no account needed
  gcsmount emulator [flags]             Cloud Storage, STS and a metadata trap on one port
  gcsmount token show [flags]           who am I: the identity, its token's life, no secret
  gcsmount token serve [flags]          access tokens on a unix socket, for a stock gcsfuse
  gcsmount doctor [flags] BUCKET [DIR]  walk from token to bucket to FUSE and say what holds
  gcsmount sidecar [flags]              the volumes of a pod, as the GCS FUSE CSI driver hands them over

  gcsmount ROLE --help                  the flags of a role; --help-all has the rarely used ones too
  gcsmount --version

Unmount with `fusermount3 -u DIR` or by ending the process with SIGTERM.
A bucket named like a role needs the word `mount` before it.
";

/// Reads a command line; `variable` looks up the environment.
///
/// # Errors
/// [`Exit::Usage`], naming every flag and value that is wrong.
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Invocation, Failure> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|word| word == "help") {
        // `help ROLE` is `ROLE --help`.
        args.remove(1);
        args.push("--help".into());
    }
    match args.get(1).and_then(|a| a.to_str()) {
        None => return Err(nothing_said()),
        Some("-h" | "--help" | "--help-all") => return Ok(Invocation::Print(OVERVIEW.into())),
        Some("-V" | "--version" | "version") => return Ok(Invocation::Print(version())),
        Some("mount" | "demo" | "emulator" | "doctor" | "sidecar") => {}
        Some("token") if args.get(2).is_some_and(is_help) => {
            return Ok(Invocation::Print(TOKEN_OVERVIEW.into()));
        }
        Some("token") => join_token_role(&mut args)?,
        _ => args.insert(1, "mount".into()),
    }
    let name = args[1].to_string_lossy().into_owned();
    let role = match name.as_str() {
        "demo" => Role::Demo,
        "emulator" => Role::Emulator,
        TOKEN_SERVE => Role::TokenServe,
        TOKEN_SHOW => Role::TokenShow,
        "doctor" => Role::Doctor,
        "sidecar" => Role::Sidecar,
        _ => Role::Mount,
    };
    let moved = if takes_a_mount(role) {
        moved::translate(role, args)?
    } else {
        moved::Translated::unchanged(args)
    };
    let (args, all) = without_help_all(moved.args);
    let mut matches = match command(all).try_get_matches_from(args) {
        Ok(mut matches) => matches.remove_subcommand().unwrap_or_default().1,
        Err(error) if !error.use_stderr() => {
            return Ok(Invocation::Print(error.to_string().replace(GLUE, " ")));
        }
        Err(error) => return Err(Failure::new(Exit::Usage, usage_sentence(&error, &name))),
    };
    let mut settings = Settings::collect(role, &mut matches, variable)?;
    settings.warnings.splice(0..0, moved.warnings);
    Ok(Invocation::Run(role, settings))
}

/// Whether the role reads the command line of a mount: to mount, or to find out why that fails.
fn takes_a_mount(role: Role) -> bool {
    role == Role::Mount || role.looks_into_a_mount()
}

fn nothing_said() -> Failure {
    Failure::new(
        Exit::Usage,
        "expected BUCKET and DIR, or a role: gcsmount [mount] [flags] BUCKET DIR; see gcsmount --help",
    )
}

fn is_help(word: &OsString) -> bool {
    ["-h", "--help", "--help-all"]
        .iter()
        .any(|help| word == help)
}

/// `--help-all` is `--help`, and says that all is to be shown.
fn without_help_all(args: Vec<OsString>) -> (Vec<OsString>, bool) {
    let mut all = false;
    let args = args.into_iter().map(|word| {
        let asks = word == "--help-all";
        all |= asks;
        if asks { "--help".into() } else { word }
    });
    (args.collect(), all)
}

const TOKEN_SERVE: &str = "token serve";
const TOKEN_SHOW: &str = "token show";

/// Makes one word of `token serve` and `token show`.
fn join_token_role(args: &mut Vec<OsString>) -> Result<(), Failure> {
    let name = match args.get(2).and_then(|a| a.to_str()) {
        Some("serve") => TOKEN_SERVE,
        Some("show") => TOKEN_SHOW,
        _ => {
            return Err(Failure::new(
                Exit::Usage,
                "expected `gcsmount token show` or `gcsmount token serve`; a bucket named token needs the word `mount` before it",
            ));
        }
    };
    args.splice(1..3, [name.into()]);
    Ok(())
}

fn version() -> String {
    format!("gcsmount {}\n", env!("CARGO_PKG_VERSION"))
}

/// Clap's message without its usage block: one sentence, and where to look.
fn usage_sentence(error: &clap::Error, role: &str) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    let sentence = first.strip_prefix("error: ").unwrap_or(first);
    // Of clap's tips only the similar name helps; the others explain clap.
    let mut tips = text.lines().filter_map(|l| l.trim().strip_prefix("tip: "));
    let tip = tips.find(|tip| tip.contains("similar"));
    match tip {
        Some(tip) => format!("{sentence}; {tip}"),
        None => format!("{sentence}; see gcsmount {role} --help"),
    }
}

/// All roles; `all`: with the flags in their help that are for few.
fn command(all: bool) -> Command {
    let role = |name, role, about, usage: &'static str| {
        role_command(name, role, about, all).override_usage(usage)
    };
    Command::new("gcsmount")
        .about(ABOUT)
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommand(role(
            "mount",
            Role::Mount,
            "Mount a bucket on a directory.",
            "gcsmount [mount] [flags] BUCKET DIR",
        ))
        .subcommand(role(
            "demo",
            Role::Demo,
            "Emulator, token service, rotating token and mount on this machine, with a tour that checks each step.",
            "gcsmount demo [flags] [DIR]",
        ))
        .subcommand(role(
            "emulator",
            Role::Emulator,
            "Cloud Storage, the Security Token Service and a metadata server that nobody should ask, on one port.",
            "gcsmount emulator [flags]",
        ))
        .subcommand(role(
            TOKEN_SHOW,
            Role::TokenShow,
            "Show who this machine or pod is: source, claims, principal, the token's life. No secret. \
             The flags and arguments of a mount are accepted.",
            "gcsmount token show [flags]",
        ))
        .subcommand(role(
            TOKEN_SERVE,
            Role::TokenServe,
            "Serve access tokens on a unix socket, as gcsfuse --token-url reads them.",
            "gcsmount token serve --socket PATH [flags]",
        ))
        .subcommand(role(
            "doctor",
            Role::Doctor,
            "Walk from the token to the bucket to FUSE and say in a line each what holds. \
             All flags and arguments of a mount are accepted.",
            "gcsmount doctor [flags] BUCKET [DIR]",
        ))
        .subcommand(role(
            "sidecar",
            Role::Sidecar,
            "Serve the volumes of a pod, as the GCS FUSE CSI driver hands them over.",
            "gcsmount sidecar [flags]",
        ))
}

fn role_command(name: &'static str, role: Role, about: &'static str, all: bool) -> Command {
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .help("Print help; --help-all: with the rarely used flags");
    let command = Command::new(name)
        .about(about)
        .disable_help_flag(true)
        .arg(help)
        .arg(Arg::new("arguments").num_args(0..).hide(true));
    let command = params::of(role).fold(command, |command, param| {
        command.arg(arg(param).hide(!param.belongs_to(role) || param.rare && !all))
    });
    if !takes_a_mount(role) {
        return command;
    }
    command.arg(
        Arg::new("o")
            .short('o')
            .value_name("OPTIONS")
            .action(ArgAction::Append)
            .hide(role != Role::Mount)
            .help("Mount options (ro, allow_other) or flags as name=value")
            .help_heading(params::Group::Process.title()),
    )
}

/// Stands for a space at which the help must not break a line, until it is printed.
const GLUE: char = '\u{a0}';

/// What is true of a setting beside its purpose, in brackets.
fn remark(help: &mut String, remark: &str) {
    let _ = write!(help, " [{}]", remark.replace(' ', &GLUE.to_string()));
}

fn arg(param: &'static Param) -> Arg {
    let mut help = param.help.to_owned();
    if param.repeatable {
        help.push_str("; repeatable");
    }
    match param.default {
        Some(default) if param.kind != Kind::Switch => {
            remark(&mut help, &format!("default: {default}"));
        }
        _ => {}
    }
    match param.kind {
        // Two stand in the place of the value.
        Kind::Word(words) if words.len() > 2 => remark(&mut help, &words.join(", ")),
        _ => {}
    }
    if let Some(env) = param.env {
        remark(&mut help, &format!("env: {env}"));
    }
    let arg = Arg::new(param.flag)
        .long(param.flag)
        .value_name(param.value_name())
        .help(help)
        .help_heading(param.group.title())
        .action(ArgAction::Append)
        .allow_hyphen_values(matches!(param.kind, Kind::Id));
    match param.kind {
        Kind::Switch => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .hide_possible_values(true),
        _ => arg.num_args(1),
    }
}

/// Notes what an option says. One without a value turns a switch on, and says nothing of anything else.
fn give(
    param: &'static Param,
    value: Option<&str>,
    given: &mut HashMap<&'static str, Vec<String>>,
    wrong: &mut Vec<String>,
) {
    match (value, param.kind) {
        (Some(value), _) => given.entry(param.flag).or_default().push(value.to_owned()),
        (None, Kind::Switch) => given.entry(param.flag).or_default().push("true".to_owned()),
        (None, kind) => wrong.push(format!(
            "{flag} has no value: say {flag}={}",
            kind.value_name(),
            flag = param.flag
        )),
    }
}

impl Settings {
    fn collect(
        role: Role,
        matches: &mut ArgMatches,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        let mut given: HashMap<&'static str, Vec<String>> = HashMap::new();
        let mut settings = Self {
            arguments: matches
                .remove_many("arguments")
                .into_iter()
                .flatten()
                .collect(),
            ..Self::default()
        };
        let mut wrong = Vec::new();
        for param in params::of(role) {
            if let Some(texts) = matches.remove_many::<String>(param.flag) {
                given.insert(param.flag, texts.collect());
            }
        }
        if takes_a_mount(role) {
            let options: Vec<String> = matches.remove_many("o").into_iter().flatten().collect();
            settings.read_options(&options, &mut given, &mut wrong);
        }
        for param in params::of(role) {
            let (texts, origin) = match (given.remove(param.flag), param.env) {
                (Some(texts), _) => (texts, Origin::Flag),
                (None, Some(env)) if variable(env).is_some_and(|v| !v.is_empty()) => (
                    variable(env).into_iter().collect(),
                    Origin::Environment(env),
                ),
                (None, _) => (
                    param.default.map(Into::into).into_iter().collect(),
                    Origin::Default,
                ),
            };
            settings.store(param, &texts, origin, &mut wrong);
        }
        if wrong.is_empty() {
            Ok(settings)
        } else {
            Err(Failure::new(Exit::Usage, wrong.join("; ")))
        }
    }

    fn store(
        &mut self,
        param: &'static Param,
        texts: &[String],
        origin: Origin,
        wrong: &mut Vec<String>,
    ) {
        if texts.len() > 1 && !param.repeatable && texts.iter().any(|t| *t != texts[0]) {
            wrong.push(format!(
                "--{} is given twice with different values",
                param.flag
            ));
            return;
        }
        let mut values = Vec::new();
        for text in texts {
            match param.kind.parse(text) {
                Ok(value) => values.push(value),
                Err(expected) => {
                    let at = match origin {
                        Origin::Environment(name) => format!("{name} in the environment"),
                        Origin::Flag | Origin::Default => format!("--{}", param.flag),
                    };
                    wrong.push(format!("{at} is {text:?}, expected {expected}"));
                }
            }
        }
        if !values.is_empty() {
            self.values.insert(param.flag, (values, origin));
        }
    }

    /// Sorts `-o` words into settings, mount options and mistakes.
    fn read_options(
        &mut self,
        options: &[String],
        given: &mut HashMap<&'static str, Vec<String>>,
        wrong: &mut Vec<String>,
    ) {
        for word in options
            .iter()
            .flat_map(|o| o.split(','))
            .filter(|w| !w.is_empty())
        {
            let (name, value) = params::split(word);
            if BOOT_OPTIONS.contains(&name) || name.starts_with("x-") {
                // Whoever mounts at boot has read it.
            } else if KERNEL_OPTIONS.contains(&name) {
                self.mount_options.push(word.to_owned());
            } else if let Some(param) = params::find(Role::Mount, name) {
                give(param, value, given, wrong);
            } else {
                self.read_moved_option(name, value, given, wrong);
            }
        }
    }

    /// An `-o` word that is not one of ours: gcsfuse takes its flags there too.
    fn read_moved_option(
        &mut self,
        name: &str,
        value: Option<&str>,
        given: &mut HashMap<&'static str, Vec<String>>,
        wrong: &mut Vec<String>,
    ) {
        match gcsfuse::flag(name) {
            Some(Meaning::Flag(flag)) => {
                if let Some(param) = params::find(Role::Mount, flag) {
                    give(param, value, given, wrong);
                }
            }
            Some(Meaning::NoEffect) => self.warnings.push(moved::no_effect(&format!("-o {name}"))),
            Some(Meaning::Refused(why)) => {
                wrong.push(moved::refused(&format!("-o {name}"), why));
            }
            None => {
                let flags = params::of(Role::Mount).map(|param| param.flag);
                let known = KERNEL_OPTIONS.iter().chain(BOOT_OPTIONS).copied();
                let hint = similar::hint(name, known.chain(flags));
                wrong.push(format!(
                    "-o {name} is neither a mount option nor a flag{hint}"
                ));
            }
        }
    }

    /// These settings with others, by name, in place of the same ones here. `may` tells which settings may stand where
    /// they come from; `at` is where that is, for the sentence about a wrong one.
    ///
    /// # Errors
    /// [`Exit::Usage`], naming every name and value that is wrong.
    pub fn with<'a>(
        &self,
        role: Role,
        others: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
        may: impl Fn(&Param) -> bool,
        at: &str,
    ) -> Result<Self, Failure> {
        let mut given: HashMap<&'static str, Vec<String>> = HashMap::new();
        let mut wrong = Vec::new();
        for (name, value) in others {
            match params::find(role, name).filter(|param| may(param)) {
                Some(param) => give(param, value, &mut given, &mut wrong),
                None => {
                    let flags = params::of(role).filter(|param| may(param));
                    let hint = similar::hint(name, flags.map(|param| param.flag));
                    wrong.push(format!("{name} is not a flag that can stand there{hint}"));
                }
            }
        }
        let mut settings = self.clone();
        for param in params::of(role) {
            if let Some(texts) = given.remove(param.flag) {
                settings.store(param, &texts, Origin::Flag, &mut wrong);
            }
        }
        match wrong.as_slice() {
            [] => Ok(settings),
            wrong => Err(Failure::new(
                Exit::Usage,
                format!("{at}: {}", wrong.join("; ")),
            )),
        }
    }

    fn first(&self, flag: &str) -> Option<&Value> {
        self.values.get(flag).and_then(|(values, _)| values.first())
    }

    /// Where the value of `flag` came from.
    #[must_use]
    pub fn origin(&self, flag: &str) -> Origin {
        self.values
            .get(flag)
            .map_or(Origin::Default, |(_, origin)| *origin)
    }

    /// Whether a text or a path was given, or a switch is on.
    #[must_use]
    pub fn names_something(&self, flag: &str) -> bool {
        match self.first(flag) {
            Some(Value::Switch(on)) => *on,
            Some(_) => true,
            None => false,
        }
    }

    /// A [`Kind::Switch`].
    #[must_use]
    pub fn switch(&self, flag: &str) -> bool {
        matches!(self.first(flag), Some(Value::Switch(true)))
    }

    /// A text of any form.
    #[must_use]
    pub fn text(&self, flag: &str) -> Option<&str> {
        match self.first(flag) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Every text that was given for a repeatable setting.
    pub fn texts<'a>(&'a self, flag: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let values = self.values.get(flag).map(|(values, _)| values.as_slice());
        values.unwrap_or_default().iter().filter_map(|v| match v {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// A [`Kind::Path`].
    #[must_use]
    pub fn path(&self, flag: &str) -> Option<&Path> {
        match self.first(flag) {
            Some(Value::Path(path)) => Some(path.as_path()),
            _ => None,
        }
    }

    /// A [`Kind::Duration`]; zero where there is none.
    #[must_use]
    pub fn duration(&self, flag: &str) -> Duration {
        match self.first(flag) {
            Some(Value::Duration(duration)) => *duration,
            _ => Duration::ZERO,
        }
    }

    /// A [`Kind::Mode`], [`Kind::Id`] or [`Kind::Mebibytes`].
    #[must_use]
    pub fn number(&self, flag: &str) -> Option<i64> {
        match self.first(flag) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// Every number that was given for a repeatable setting.
    pub fn numbers(&self, flag: &str) -> impl Iterator<Item = i64> {
        let values = self.values.get(flag).map(|(values, _)| values.as_slice());
        values.unwrap_or_default().iter().filter_map(|v| match v {
            Value::Number(number) => Some(*number),
            _ => None,
        })
    }

    /// A [`Kind::Rate`]; `None`: no limit.
    #[must_use]
    pub fn rate(&self, flag: &str) -> Option<Rate> {
        match self.first(flag) {
            Some(Value::Rate(rate)) => *rate,
            _ => None,
        }
    }

    /// A path argument, made absolute.
    ///
    /// # Errors
    /// [`Exit::Usage`] where it is empty.
    pub fn path_argument(&self, index: usize) -> Result<Option<PathBuf>, Failure> {
        self.arguments
            .get(index)
            .map(|text| {
                std::path::absolute(text).map_err(|_| {
                    Failure::new(
                        Exit::Usage,
                        format!("{text:?} is not a path to a directory"),
                    )
                })
            })
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str, env: &[(&str, &str)]) -> Result<(Role, Settings), Failure> {
        let args = std::iter::once("gcsmount")
            .chain(line.split_whitespace())
            .map(OsString::from);
        let variable = |name: &str| {
            env.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        };
        match parse(args, variable)? {
            Invocation::Run(role, settings) => Ok((role, settings)),
            Invocation::Print(text) => panic!("printed {text}"),
        }
    }

    fn usage(line: &str, env: &[(&str, &str)]) -> String {
        let failure = run(line, env).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage);
        failure.sentence
    }

    #[test]
    fn the_word_mount_may_be_left_out() {
        for line in [
            "bkt /mnt --foreground",
            "mount bkt /mnt --foreground",
            "--foreground bkt /mnt",
        ] {
            let (role, settings) = run(line, &[]).unwrap();
            assert_eq!(role, Role::Mount);
            assert_eq!(settings.arguments, ["bkt", "/mnt"]);
            assert!(settings.switch("foreground"), "{line}");
        }
    }

    #[test]
    fn a_bucket_named_like_a_role_needs_the_word() {
        let (role, settings) = run("mount demo /mnt", &[]).unwrap();
        assert_eq!(
            (role, settings.arguments[0].as_str()),
            (Role::Mount, "demo")
        );
        assert_eq!(run("demo /mnt", &[]).unwrap().0, Role::Demo);
    }

    #[test]
    fn the_token_roles_are_two_words() {
        assert_eq!(run("token show --json", &[]).unwrap().0, Role::TokenShow);
        let (role, settings) =
            run("token serve --socket /s --allow-uid 5 --allow-uid=-1", &[]).unwrap();
        assert_eq!(role, Role::TokenServe);
        assert_eq!(settings.numbers("allow-uid").collect::<Vec<_>>(), [5, -1]);
        for wrong in ["token", "token shew", "token --json"] {
            assert!(usage(wrong, &[]).contains("token show"), "{wrong}");
        }
    }

    #[test]
    fn a_flag_beats_the_environment() {
        let env = [("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")];
        let (_, settings) = run("b /m", &env).unwrap();
        assert_eq!(settings.text("custom-endpoint"), Some("http://127.0.0.1:1"));
        assert_eq!(
            settings.origin("custom-endpoint"),
            Origin::Environment("STORAGE_EMULATOR_HOST")
        );
        let (_, settings) = run("b /m --custom-endpoint http://127.0.0.1:2", &env).unwrap();
        assert_eq!(settings.text("custom-endpoint"), Some("http://127.0.0.1:2"));
        assert_eq!(settings.origin("custom-endpoint"), Origin::Flag);
    }

    #[test]
    fn fstab_options_are_flags_too() {
        let (_, settings) = run(
            "b /m -o ro,token_file=/t,uid=5,_netdev,x-systemd.automount -o foreground",
            &[],
        )
        .unwrap();
        assert_eq!(
            settings.mount_options,
            ["ro"],
            "what the boot system has read is not passed on"
        );
        assert_eq!(settings.path("token-file"), Some(Path::new("/t")));
        assert_eq!(settings.number("uid"), Some(5));
        assert!(settings.switch("foreground"));
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        let text = usage(
            "b /m --uid=me --file-mode 9 -o nope",
            &[("STORAGE_EMULATOR_HOST", "x")],
        );
        for part in [
            "--uid is \"me\"",
            "--file-mode is \"9\"",
            "-o nope",
            "STORAGE_EMULATOR_HOST in the environment",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(usage("b /m --token-file /a --token-file /b", &[]).contains("twice"));
        assert!(run("b /m --token-file /a --token-file /a", &[]).is_ok());
    }

    #[test]
    fn an_unknown_flag_is_one_line() {
        assert!(usage("b /m -f", &[]).ends_with("see gcsmount mount --help"));
        assert!(usage("token show -f", &[]).ends_with("see gcsmount token show --help"));
        assert!(usage("", &[]).ends_with("see gcsmount --help"));
        let text = usage("b /m --token-fil /a", &[]);
        assert!(
            text.contains("--token-fil") && text.contains("'--token-file'"),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
    }

    fn printed(line: &str) -> String {
        let args = std::iter::once("gcsmount").chain(line.split_whitespace());
        match parse(args.map(OsString::from), |_| None).unwrap() {
            Invocation::Print(text) => text,
            Invocation::Run(..) => panic!("{line} ran"),
        }
    }

    const ROLES: [&str; 7] = [
        "mount",
        "demo",
        "emulator",
        "token show",
        "token serve",
        "doctor",
        "sidecar",
    ];

    #[test]
    fn help_fits_a_screen() {
        for role in ROLES {
            let text = printed(&format!("{role} --help"));
            assert!(text.lines().count() <= 50, "{text}");
            assert_eq!(text.matches("\nOptions:").count(), 1, "{text}");
            assert!(!text.contains(GLUE) && !text.contains("TEXT"), "{text}");
            // A flag and what it means stand on one line.
            let flags = text.lines().filter(|line| line.trim().starts_with("--"));
            for line in flags {
                assert!(line.trim().contains("  "), "{line} is alone in: {text}");
            }
            assert_eq!(printed(&format!("help {role}")), text);
        }
        for asks in ["help", "--help", "-h", "token --help", "help token"] {
            assert!(printed(asks).lines().count() <= 50, "{asks}");
        }
        assert!(printed("help token").contains("token serve"));
    }

    #[test]
    fn what_is_for_few_is_shown_to_whoever_asks_for_all() {
        for role in ROLES {
            let shown = |flag: &str, text: &str| text.contains(&format!("--{flag}"));
            let usual = printed(&format!("{role} --help"));
            let all = printed(&format!("{role} --help-all"));
            for rare in ["iam-endpoint", "universe-domain", "reuse-token-from-url"] {
                let takes = matches!(
                    role,
                    "mount" | "token show" | "token serve" | "doctor" | "sidecar"
                );
                assert!(!shown(rare, &usual), "{role} {rare}");
                assert_eq!(shown(rare, &all), takes, "{role} {rare}");
            }
        }
    }

    #[test]
    fn a_mounts_command_line_is_taken_by_who_looks_into_it() {
        let line = "--mount-retry-timeout 5s -o ro,uid=3 --implicit-dirs --custom-endpoint http://h my-bucket /mnt";
        for (word, role) in [
            ("mount", Role::Mount),
            ("doctor", Role::Doctor),
            ("token show", Role::TokenShow),
        ] {
            let (got, settings) = run(&format!("{word} {line}"), &[]).unwrap();
            assert_eq!(got, role);
            assert_eq!(settings.arguments, ["my-bucket", "/mnt"]);
            assert_eq!(settings.number("uid"), Some(3));
            assert_eq!(settings.warnings.len(), 1, "{:?}", settings.warnings);
        }
    }

    #[test]
    fn options_of_gcsfuse_may_stand_in_fstab_too() {
        let (_, settings) = run("b /m -o implicit_dirs,metadata_cache_ttl_secs=9", &[]).unwrap();
        assert_eq!(
            settings.duration("metadata-cache-ttl"),
            Duration::from_secs(9)
        );
        assert_eq!(
            settings.warnings,
            ["-o implicit_dirs is gcsfuse's and has no effect here"]
        );
        let text = usage("b /m -o enable_dummy_io,allow_othr", &[]);
        assert!(
            text.contains("cannot be obeyed") && text.contains("; allow_other is"),
            "{text}"
        );
    }
}
