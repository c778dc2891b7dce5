//! Every setting, in one table.
//!
//! The command line, the environment and `-o` options are read through [`PARAMS`], and the help is printed from it;
//! adding a setting is adding a row. Names follow gcsfuse where it has the setting. What a row's text means is decided
//! here once, by its [`Kind`]; what its value does is decided where it is used.

use std::path::PathBuf;
use std::time::Duration;

use gcsmount_gcs::client::json::Rate;

/// What the text of a setting must look like, and what it becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`; a flag without a value is `true`.
    Switch,
    /// Any text.
    Text,
    /// A path, made absolute when it is read.
    Path,
    /// An `http` or `https` URL.
    Url,
    /// A URL, or `HOST:PORT` alone, which means plain HTTP, as `STORAGE_EMULATOR_HOST` has it.
    Endpoint,
    /// `90s`, `1m30s`, `500ms`; a bare number is seconds, and `-1` is for ever.
    Duration,
    /// Permission bits in octal.
    Mode,
    /// A user or group id; `-1` stands for the process's own.
    Id,
    /// A size in MiB.
    Mebibytes,
    /// So many a second; `-1` is no limit.
    Rate,
    /// `IP:PORT`.
    Address,
    /// One of the words, in whatever case; it becomes the one of the table.
    Word(&'static [&'static str]),
}

/// A setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Of a [`Kind::Switch`].
    Switch(bool),
    /// Of a [`Kind::Text`], [`Kind::Url`], [`Kind::Endpoint`], [`Kind::Address`] or [`Kind::Word`].
    Text(String),
    /// Of a [`Kind::Path`].
    Path(PathBuf),
    /// Of a [`Kind::Duration`].
    Duration(Duration),
    /// Of a [`Kind::Mode`], [`Kind::Id`] or [`Kind::Mebibytes`].
    Number(i64),
    /// Of a [`Kind::Rate`]; `None`: no limit.
    Rate(Option<Rate>),
}

impl Kind {
    /// Reads `text`.
    ///
    /// # Errors
    /// The accepted form, in words that complete "expected ...".
    pub fn parse(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Switch => match text {
                "true" | "" => Ok(Value::Switch(true)),
                "false" => Ok(Value::Switch(false)),
                _ => Err("true or false".into()),
            },
            Self::Text if text.is_empty() => Err("some text".into()),
            Self::Text => Ok(Value::Text(text.into())),
            Self::Path => std::path::absolute(text)
                .map(Value::Path)
                .map_err(|_| "a path".into()),
            Self::Url => match text.parse::<http::Uri>() {
                Ok(uri) if matches!(uri.scheme_str(), Some("http" | "https")) => {
                    Ok(Value::Text(text.into()))
                }
                _ => Err("a URL that begins with https:// or http://".into()),
            },
            Self::Endpoint if text.contains("://") => Self::Url.parse(text),
            Self::Endpoint => match text.parse::<http::uri::Authority>() {
                Ok(authority) if authority.port().is_some() => Ok(Value::Text(text.into())),
                _ => Err("a URL such as http://127.0.0.1:9000, or HOST:PORT".into()),
            },
            Self::Duration => parse_duration(text)
                .map(Value::Duration)
                .ok_or_else(|| "a duration such as 500ms, 90s or 1m30s".into()),
            Self::Mode => match i64::from_str_radix(text, 8) {
                Ok(mode @ 0..=0o777) => Ok(Value::Number(mode)),
                _ => Err("permission bits in octal, such as 644".into()),
            },
            Self::Id => match text.parse::<i64>() {
                Ok(id) if (-1..=i64::from(u32::MAX) - 1).contains(&id) => Ok(Value::Number(id)),
                _ => Err("a numeric id, or -1 for the mounting process's own".into()),
            },
            Self::Mebibytes => match text.parse::<i64>() {
                Ok(size @ 16..=1_048_576) => Ok(Value::Number(size)),
                _ => Err("a whole number of MiB from 16 to 1048576".into()),
            },
            Self::Rate if matches!(text.parse::<f64>(), Ok(rate) if rate < 0.0) => {
                Ok(Value::Rate(None))
            }
            Self::Rate => match text.parse().ok().and_then(Rate::per_second) {
                Some(rate) => Ok(Value::Rate(Some(rate))),
                None => Err("a number above zero, or -1 for no limit".into()),
            },
            Self::Address => text
                .parse::<std::net::SocketAddr>()
                .map(|_| Value::Text(text.into()))
                .map_err(|_| {
                    "an address and port such as 127.0.0.1:9000 (port 0 takes a free one)".into()
                }),
            Self::Word(words) => {
                let meant = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                match meant {
                    Some(&word) => Ok(Value::Text(word.into())),
                    None => Err(format!("one of {}", words.join(", "))),
                }
            }
        }
    }

    /// What stands for the value in the help.
    #[must_use]
    pub fn value_name(self) -> &'static str {
        match self {
            Self::Switch => "BOOL",
            Self::Text => "TEXT",
            Self::Path => "PATH",
            Self::Url | Self::Endpoint => "URL",
            Self::Duration => "DURATION",
            Self::Mode => "OCTAL",
            Self::Id => "ID",
            Self::Mebibytes => "MIB",
            Self::Rate => "N",
            Self::Address => "ADDR:PORT",
            Self::Word(_) => "WORD",
        }
    }
}

/// What `-1` is as a duration.
pub const FOR_EVER: Duration = Duration::from_secs(u32::MAX as u64);

/// A duration written as Go writes it, since that is what gcsfuse's users have in their files; `None` where it is not one.
fn parse_duration(text: &str) -> Option<Duration> {
    if text == "-1" {
        return Some(FOR_EVER);
    }
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u32 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit_end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let unit = match &rest[..unit_end] {
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return None,
        };
        total = total.checked_add(unit.checked_mul(number)?)?;
        rest = &rest[unit_end..];
    }
    (!text.is_empty()).then_some(total)
}

/// A command that takes settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `gcsmount mount`.
    Mount,
    /// `gcsmount demo`.
    Demo,
    /// `gcsmount emulator`.
    Emulator,
    /// `gcsmount token serve`.
    TokenServe,
    /// `gcsmount token show`.
    TokenShow,
    /// `gcsmount doctor`.
    Doctor,
    /// `gcsmount sidecar`.
    Sidecar,
}

impl Role {
    /// Whether the role finds out why a mount fails: it takes the mount's whole command line, so that a command that
    /// failed is repeated with one word changed.
    #[must_use]
    pub fn looks_into_a_mount(self) -> bool {
        matches!(self, Self::Doctor | Self::TokenShow)
    }
}

/// The roles that have an identity.
const IDENTIFIED: &[Role] = &[
    Role::Mount,
    Role::TokenServe,
    Role::TokenShow,
    Role::Doctor,
    Role::Sidecar,
];
/// The roles that talk to a bucket.
const CONNECTED: &[Role] = &[Role::Mount, Role::Doctor, Role::Sidecar];
/// The roles that serve files.
const SERVING: &[Role] = &[Role::Mount, Role::Sidecar];
/// The roles that run on and log.
const LASTING: &[Role] = &[Role::Mount, Role::TokenServe, Role::Sidecar];

/// Where a setting stands in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Who asks.
    Identity,
    /// Whom it asks, and how patiently.
    Connection,
    /// How the files look.
    Files,
    /// How the process runs.
    Process,
    /// What the command itself does.
    Command,
}

impl Group {
    /// The heading in the help; `None`: the one that every command has.
    #[must_use]
    pub fn title(self) -> Option<&'static str> {
        match self {
            Self::Identity => Some("Identity"),
            Self::Connection => Some("Connection"),
            Self::Files => Some("Files"),
            Self::Process => Some("Process"),
            Self::Command => None,
        }
    }
}

/// One setting.
#[derive(Debug)]
pub struct Param {
    /// Name on the command line, without dashes.
    pub flag: &'static str,
    /// Form of its text.
    pub kind: Kind,
    /// Text of its value where nobody gives one; `None`: it has none then.
    pub default: Option<&'static str>,
    /// Environment variable that is read where no flag is given.
    pub env: Option<&'static str>,
    /// The commands that take it.
    pub roles: &'static [Role],
    /// Where it stands in the help.
    pub group: Group,
    /// Whether it may be given more than once.
    pub repeatable: bool,
    /// Whether it is for few: `--help` leaves it to `--help-all`.
    pub rare: bool,
    /// What stands for the value in the help, where the kind's own word says too little.
    pub value: Option<&'static str>,
    /// Whether a pod may set it for a volume of its own. What chooses where the identity comes from is the operator's.
    pub volume: bool,
    /// One line for the help.
    pub help: &'static str,
}

const ROW: Param = Param {
    flag: "",
    kind: Kind::Text,
    default: None,
    env: None,
    roles: &[Role::Mount],
    group: Group::Command,
    repeatable: false,
    rare: false,
    value: None,
    volume: false,
    help: "",
};

impl Param {
    /// Whether it is one of the role's own, to be shown in its help.
    #[must_use]
    pub fn belongs_to(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// What stands for its value in the help.
    #[must_use]
    pub fn value_name(&self) -> String {
        match (self.value, self.kind) {
            (Some(name), _) => name.to_owned(),
            (None, Kind::Word(words)) if words.len() == 2 => words.join("|"),
            (None, kind) => kind.value_name().to_owned(),
        }
    }
}

/// The table. Rows stand in the order of the help.
pub const PARAMS: &[Param] = &[
    Param {
        flag: "token-file",
        roles: IDENTIFIED,
        kind: Kind::Path,
        group: Group::Identity,
        help: "Service-account token, as kubelet projects it",
        ..ROW
    },
    Param {
        flag: "key-file",
        kind: Kind::Path,
        roles: IDENTIFIED,
        group: Group::Identity,
        help: "Service account, user or external account file",
        ..ROW
    },
    Param {
        flag: "token-url",
        roles: IDENTIFIED,
        group: Group::Identity,
        help: "Access tokens from unix:///SOCKET or http://HOST",
        value: Some("URL"),
        ..ROW
    },
    Param {
        flag: "reuse-token-from-url",
        rare: true,
        kind: Kind::Switch,
        default: Some("true"),
        roles: IDENTIFIED,
        group: Group::Identity,
        help: "Keep a token from --token-url until it expires",
        ..ROW
    },
    Param {
        flag: "metadata-server",
        kind: Kind::Word(&["pod", "node"]),
        roles: IDENTIFIED,
        group: Group::Identity,
        help: "A metadata server, if it answers for this",
        ..ROW
    },
    Param {
        flag: "impersonate-service-account",
        roles: IDENTIFIED,
        group: Group::Identity,
        help: "Google service account to act as",
        volume: true,
        value: Some("EMAIL"),
        ..ROW
    },
    Param {
        flag: "access-boundary",
        roles: IDENTIFIED,
        group: Group::Identity,
        repeatable: true,
        help: "Limit tokens to it",
        value: Some("BUCKET[/PREFIX][:ro]"),
        ..ROW
    },
    Param {
        flag: "identity-pool",
        roles: IDENTIFIED,
        group: Group::Identity,
        help: "Workload identity pool [default: the token's]",
        volume: true,
        value: Some("POOL"),
        ..ROW
    },
    Param {
        flag: "identity-provider",
        roles: IDENTIFIED,
        group: Group::Identity,
        help: "Its identity provider [default: the token's]",
        volume: true,
        value: Some("PROVIDER"),
        ..ROW
    },
    Param {
        flag: "sts-endpoint",
        roles: IDENTIFIED,
        kind: Kind::Url,
        group: Group::Identity,
        help: "Token service [default: Google's]",
        ..ROW
    },
    Param {
        flag: "iam-endpoint",
        rare: true,
        roles: IDENTIFIED,
        kind: Kind::Url,
        group: Group::Identity,
        help: "IAM Credentials API [default: Google's]",
        ..ROW
    },
    Param {
        flag: "universe-domain",
        roles: IDENTIFIED,
        env: Some("GOOGLE_CLOUD_UNIVERSE_DOMAIN"),
        default: Some("googleapis.com"),
        group: Group::Identity,
        rare: true,
        help: "Domain of Google's services, in a cloud of its own",
        value: Some("DOMAIN"),
        ..ROW
    },
    Param {
        flag: "anonymous-access",
        roles: CONNECTED,
        kind: Kind::Switch,
        default: Some("false"),
        group: Group::Identity,
        help: "Send no identity at all",
        ..ROW
    },
    Param {
        flag: "custom-endpoint",
        roles: CONNECTED,
        kind: Kind::Endpoint,
        env: Some("STORAGE_EMULATOR_HOST"),
        group: Group::Connection,
        help: "Storage service [default: https://storage.googleapis.com]",
        volume: true,
        ..ROW
    },
    Param {
        flag: "billing-project",
        roles: CONNECTED,
        group: Group::Connection,
        help: "Project that pays where the requester pays",
        volume: true,
        value: Some("PROJECT"),
        ..ROW
    },
    Param {
        flag: "client-protocol",
        kind: Kind::Word(&["http1", "http2", "grpc"]),
        default: Some("http1"),
        group: Group::Connection,
        rare: true,
        help: "What is spoken with the service; grpc is taken for http1",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "limit-bytes-per-sec",
        kind: Kind::Rate,
        default: Some("-1"),
        group: Group::Connection,
        rare: true,
        help: "The most bytes of files moved in a second, both ways; -1: no limit",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "limit-ops-per-sec",
        kind: Kind::Rate,
        default: Some("-1"),
        group: Group::Connection,
        rare: true,
        help: "The most requests in a second; -1: no limit",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "operation-timeout",
        kind: Kind::Duration,
        default: Some("120s"),
        group: Group::Connection,
        rare: true,
        help: "How long a call may wait for an answer, repetitions included",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "hedge-reads-after",
        kind: Kind::Duration,
        default: Some("-1"),
        group: Group::Connection,
        rare: true,
        help: "Ask a second time for what has not begun by then; -1: never",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "mount-retry-timeout",
        kind: Kind::Duration,
        default: Some("60s"),
        group: Group::Connection,
        help: "How long to try at the start",
        ..ROW
    },
    Param {
        flag: "only-dir",
        roles: CONNECTED,
        group: Group::Files,
        volume: true,
        help: "Mount this directory of the bucket alone",
        value: Some("DIR"),
        ..ROW
    },
    Param {
        flag: "uid",
        kind: Kind::Id,
        default: Some("-1"),
        group: Group::Files,
        help: "Owner of every file; -1: whoever mounts",
        roles: SERVING,
        volume: true,
        value: Some("UID"),
        ..ROW
    },
    Param {
        flag: "gid",
        kind: Kind::Id,
        default: Some("-1"),
        group: Group::Files,
        help: "Group of every file; -1: that of whoever mounts",
        roles: SERVING,
        volume: true,
        value: Some("GID"),
        ..ROW
    },
    Param {
        flag: "file-mode",
        kind: Kind::Mode,
        default: Some("644"),
        group: Group::Files,
        help: "Permission bits of files",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "dir-mode",
        kind: Kind::Mode,
        default: Some("755"),
        group: Group::Files,
        help: "Permission bits of directories",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "posix-attributes",
        kind: Kind::Switch,
        default: Some("false"),
        group: Group::Files,
        rare: true,
        help: "Keep modes, owners and times of access with the objects",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "xattrs",
        kind: Kind::Switch,
        default: Some("true"),
        group: Group::Files,
        rare: true,
        help: "Extended attributes: user.* and the object's own in user.gcs.*",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "metadata-cache-ttl",
        kind: Kind::Duration,
        default: Some("60s"),
        group: Group::Files,
        help: "How long names and sizes are believed",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "parallel-uploads",
        kind: Kind::Switch,
        default: Some("true"),
        group: Group::Files,
        rare: true,
        help: "Upload large files in parts side by side, where the bucket allows it",
        roles: SERVING,
        volume: true,
        ..ROW
    },
    Param {
        flag: "temp-dir",
        kind: Kind::Path,
        env: Some("TMPDIR"),
        default: Some("/tmp"),
        group: Group::Files,
        help: "Where random writes are staged",
        roles: SERVING,
        ..ROW
    },
    Param {
        flag: "memory-limit",
        kind: Kind::Mebibytes,
        default: Some("128"),
        group: Group::Process,
        help: "Memory for cache, readahead, uploads",
        roles: SERVING,
        ..ROW
    },
    Param {
        flag: "foreground",
        kind: Kind::Switch,
        default: Some("false"),
        group: Group::Process,
        help: "Stay in the foreground and log to standard error",
        ..ROW
    },
    Param {
        flag: "shutdown-timeout",
        kind: Kind::Duration,
        default: Some("30s"),
        group: Group::Process,
        help: "How long to save when told to stop",
        roles: SERVING,
        ..ROW
    },
    Param {
        flag: "log-file",
        roles: LASTING,
        kind: Kind::Path,
        group: Group::Process,
        help: "Where to log [default: standard error while in the foreground]",
        ..ROW
    },
    Param {
        flag: "log-severity",
        roles: LASTING,
        kind: Kind::Word(&["trace", "debug", "info", "warning", "error", "off"]),
        default: Some("info"),
        group: Group::Process,
        help: "The least severity that is logged",
        ..ROW
    },
    Param {
        flag: "die-with-parent",
        kind: Kind::Switch,
        default: Some("false"),
        group: Group::Process,
        rare: true,
        help: "Unmount and end when the process that started this one ends",
        ..ROW
    },
    Param {
        flag: "volume-base-path",
        kind: Kind::Path,
        default: Some("/gcsfuse-tmp/.volumes"),
        roles: &[Role::Sidecar],
        help: "Where the node driver leaves its sockets",
        ..ROW
    },
    Param {
        flag: "gcsfuse-path",
        kind: Kind::Path,
        roles: &[Role::Sidecar],
        help: "A stock gcsfuse to serve with; tokens stay ours",
        ..ROW
    },
    Param {
        flag: "socket",
        kind: Kind::Path,
        roles: &[Role::TokenServe],
        help: "Where the socket appears",
        ..ROW
    },
    Param {
        flag: "route",
        roles: &[Role::TokenServe],
        repeatable: true,
        help: "An identity for a path",
        value: Some("/PATH:FLAG=VALUE,..."),
        ..ROW
    },
    Param {
        flag: "allow-uid",
        kind: Kind::Id,
        default: Some("-1"),
        roles: &[Role::TokenServe],
        repeatable: true,
        help: "Who may ask, besides root; -1: this process's own user",
        value: Some("UID"),
        ..ROW
    },
    Param {
        flag: "socket-mode",
        kind: Kind::Mode,
        default: Some("600"),
        roles: &[Role::TokenServe],
        help: "Permission bits; other users need to write",
        ..ROW
    },
    Param {
        flag: "json",
        kind: Kind::Switch,
        default: Some("false"),
        roles: &[Role::TokenShow, Role::Doctor],
        help: "Print JSON",
        ..ROW
    },
    Param {
        flag: "keep",
        kind: Kind::Switch,
        default: Some("false"),
        roles: &[Role::Demo],
        help: "Leave it mounted after the tour, until Ctrl-C",
        ..ROW
    },
    Param {
        flag: "soak",
        kind: Kind::Duration,
        default: Some("12s"),
        roles: &[Role::Demo],
        help: "How long to read and write across token expiries",
        ..ROW
    },
    Param {
        flag: "long",
        kind: Kind::Switch,
        default: Some("false"),
        roles: &[Role::Demo],
        help: "Read and write across token expiries for ten minutes",
        ..ROW
    },
    Param {
        flag: "listen",
        kind: Kind::Address,
        default: Some("127.0.0.1:9000"),
        roles: &[Role::Emulator],
        repeatable: true,
        help: "Where to listen",
        ..ROW
    },
    Param {
        flag: "auth",
        kind: Kind::Word(&["required", "off"]),
        default: Some("required"),
        roles: &[Role::Emulator],
        help: "Whether requests need a token",
        ..ROW
    },
    Param {
        flag: "bucket",
        roles: &[Role::Emulator],
        repeatable: true,
        help: "A bucket to begin with",
        value: Some("NAME"),
        ..ROW
    },
    Param {
        flag: "data-dir",
        kind: Kind::Path,
        roles: &[Role::Emulator],
        help: "Keep buckets across restarts, not tokens [default: in memory]",
        ..ROW
    },
    Param {
        flag: "mutation-limit",
        default: Some("1/s:5"),
        roles: &[Role::Emulator],
        help: "The most changes of one object",
        value: Some("N/s:BURST|off"),
        ..ROW
    },
    Param {
        flag: "latency",
        kind: Kind::Duration,
        default: Some("0s"),
        roles: &[Role::Emulator],
        help: "Time before each answer begins",
        ..ROW
    },
    Param {
        flag: "stream-rate",
        kind: Kind::Mebibytes,
        roles: &[Role::Emulator],
        help: "The most that one stream carries in a second",
        ..ROW
    },
];

/// The rows that `role` takes: its own, and all of a mount's where it [looks into one](Role::looks_into_a_mount).
pub fn of(role: Role) -> impl Iterator<Item = &'static Param> {
    let mounts = role.looks_into_a_mount();
    PARAMS
        .iter()
        .filter(move |p| p.belongs_to(role) || mounts && p.belongs_to(Role::Mount))
}

/// Name and value of an option written `name=value` or `name`.
#[must_use]
pub fn split(option: &str) -> (&str, Option<&str>) {
    match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    }
}

/// The row of `flag` for `role`; `_` may stand for `-`, as in fstab lines.
#[must_use]
pub fn find(role: Role, flag: &str) -> Option<&'static Param> {
    let flag = flag.replace('_', "-");
    of(role).find(|p| p.flag == flag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_whole() {
        let mut seen = HashSet::new();
        for p in PARAMS {
            assert!(seen.insert(p.flag), "{} stands twice", p.flag);
            assert!(
                !p.help.is_empty() && p.help.len() <= 76,
                "help of {}",
                p.flag
            );
            if let Some(default) = p.default {
                assert!(p.kind.parse(default).is_ok(), "default of {}", p.flag);
            }
        }
    }

    #[test]
    fn texts_become_values() {
        let d = |ms| Some(Value::Duration(Duration::from_millis(ms)));
        let n = |n| Some(Value::Number(n));
        let t = |s: &str| Some(Value::Text(s.into()));
        let table = [
            (Kind::Switch, "true", Some(Value::Switch(true))),
            (Kind::Switch, "yes", None),
            (Kind::Duration, "90", d(90_000)),
            (Kind::Duration, "1m30s", d(90_000)),
            (Kind::Duration, "500ms", d(500)),
            (Kind::Duration, "", None),
            (Kind::Duration, "5 s", None),
            (Kind::Duration, "s", None),
            (Kind::Duration, "-1s", None),
            (Kind::Duration, "-1", d(u64::from(u32::MAX) * 1000)),
            (Kind::Mode, "644", n(0o644)),
            (Kind::Mode, "1000", None),
            (Kind::Mode, "u+x", None),
            (Kind::Id, "-1", n(-1)),
            (Kind::Id, "-2", None),
            (Kind::Id, "4294967295", None),
            (Kind::Mebibytes, "15", None),
            (Kind::Rate, "-1", Some(Value::Rate(None))),
            (Kind::Rate, "1.5", Some(Value::Rate(Rate::per_second(1.5)))),
            (Kind::Word(&["info", "off"]), "INFO", t("info")),
            (Kind::Word(&["info", "off"]), "loud", None),
            (Kind::Rate, "0", None),
            (Kind::Rate, "fast", None),
            (Kind::Mebibytes, "128", n(128)),
            (
                Kind::Url,
                "http://127.0.0.1:9000/storage/v1/",
                t("http://127.0.0.1:9000/storage/v1/"),
            ),
            (Kind::Url, "127.0.0.1:9000", None),
            (Kind::Url, "ftp://x", None),
            (Kind::Endpoint, "127.0.0.1:9000", t("127.0.0.1:9000")),
            (Kind::Endpoint, "http://h/", t("http://h/")),
            (Kind::Endpoint, "ftp://h:1", None),
            (Kind::Endpoint, "host", None),
            (Kind::Address, "127.0.0.1:0", t("127.0.0.1:0")),
            (Kind::Address, "localhost", None),
            (Kind::Word(&["on", "off"]), "off", t("off")),
            (Kind::Word(&["on", "off"]), "of", None),
            (Kind::Path, "/x", Some(Value::Path("/x".into()))),
            (Kind::Text, "", None),
        ];
        for (kind, text, value) in table {
            assert_eq!(kind.parse(text).ok(), value, "{kind:?} {text:?}");
        }
    }

    #[test]
    fn an_underscore_is_a_dash() {
        assert_eq!(
            find(Role::Mount, "token_file").map(|p| p.flag),
            Some("token-file")
        );
        assert!(find(Role::Emulator, "token-file").is_none());
    }

    #[test]
    fn who_looks_into_a_mount_takes_its_flags() {
        for flag in PARAMS.iter().filter(|p| p.belongs_to(Role::Mount)) {
            for role in [Role::Doctor, Role::TokenShow] {
                assert!(find(role, flag.flag).is_some(), "{}", flag.flag);
            }
        }
        assert!(find(Role::TokenServe, "mount-retry-timeout").is_none());
    }
}
