//! Who we are at the bucket: chosen once from what the user said and what is present, printed, and never changed.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::cli::{Origin, Settings};
use crate::exit::{Exit, Failure};

/// Where the GCS FUSE CSI driver's webhook projects the token of a pod with `hostNetwork: true`.
pub const PROJECTED_TOKEN: &str = "/gcsfuse-sa-token/token";

/// The source of identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// None: requests carry no token.
    Anonymous(Reason),
    /// A projected service-account token, exchanged at STS.
    Projected(Projected, Reason),
    /// Application default credentials, through Google's library.
    ApplicationDefault(Reason),
}

/// A projected token and how to exchange it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projected {
    /// The file.
    pub path: PathBuf,
    /// Base URL of STS.
    pub sts: String,
    /// Pool, where the user named it; else it is read from the token.
    pub pool: Option<String>,
    /// Provider, where the user named it; else it is read from the token.
    pub provider: Option<String>,
}

/// Why this source and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// A flag said so.
    Flag(&'static str),
    /// This environment variable is set.
    Environment(&'static str),
    /// The volume is there.
    VolumePresent,
    /// Nothing else was named or found.
    NothingElse,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag} is given"),
            Self::Environment(name) => write!(f, "{name} is set"),
            Self::VolumePresent => f.write_str("the projected volume is present"),
            Self::NothingElse => {
                f.write_str("no identity was named and no projected volume is present")
            }
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anonymous(why) => write!(f, "anonymous, since {why}"),
            Self::Projected(token, why) => {
                write!(
                    f,
                    "projected token {} through {}, since {why}",
                    token.path.display(),
                    token.sts
                )
            }
            Self::ApplicationDefault(why) => {
                write!(f, "application default credentials, since {why}")
            }
        }
    }
}

/// Chooses the source. `present` tells whether a path exists, `variable` looks up the environment.
///
/// An explicit flag wins; else a credential file named by `GOOGLE_APPLICATION_CREDENTIALS`; else the projected token
/// where its volume is present; else application default credentials. An endpoint taken from `STORAGE_EMULATOR_HOST`
/// gets no identity unless a flag names one, as with Google's own clients: real credentials must not reach an emulator.
///
/// # Errors
/// [`Exit::Usage`] where flags contradict each other.
pub fn choose(
    settings: &Settings,
    present: impl Fn(&Path) -> bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Identity, Failure> {
    let projected = |path: PathBuf| Projected {
        path,
        sts: settings.text("sts-endpoint").unwrap_or_default().to_owned(),
        pool: settings.text("identity-pool").map(Into::into),
        provider: settings.text("identity-provider").map(Into::into),
    };
    let anonymous = settings.switch("anonymous-access");
    let pool = ["identity-pool", "identity-provider"]
        .into_iter()
        .find(|flag| settings.text(flag).is_some());
    if let (true, Some(flag)) = (anonymous, pool) {
        return Err(Failure::new(
            Exit::Usage,
            format!("--{flag} and --anonymous-access exclude each other: leave one of them out"),
        ));
    }
    match (settings.path("token-file"), anonymous) {
        (Some(_), true) => Err(Failure::new(
            Exit::Usage,
            "--token-file and --anonymous-access exclude each other: leave one of them out",
        )),
        (Some(path), false) => Ok(Identity::Projected(
            projected(path.into()),
            Reason::Flag("token-file"),
        )),
        (None, true) => Ok(Identity::Anonymous(Reason::Flag("anonymous-access"))),
        (None, false) => {
            if let Origin::Environment(name) = settings.origin("custom-endpoint") {
                return Ok(Identity::Anonymous(Reason::Environment(name)));
            }
            const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
            if variable(FILE).is_some_and(|v| !v.is_empty()) {
                return Ok(Identity::ApplicationDefault(Reason::Environment(FILE)));
            }
            let path = Path::new(PROJECTED_TOKEN);
            if path.parent().is_some_and(&present) {
                return Ok(Identity::Projected(
                    projected(path.into()),
                    Reason::VolumePresent,
                ));
            }
            Ok(Identity::ApplicationDefault(Reason::NothingElse))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Invocation, parse};

    fn chosen(line: &str, volume: bool, env: &[(&str, &str)]) -> Result<Identity, Failure> {
        let variable = |name: &str| {
            env.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        };
        let args = format!("gcsmount mount b /m {line}");
        match parse(args.split_whitespace().map(Into::into), variable)? {
            Invocation::Run(_, settings) => choose(&settings, |_| volume, variable),
            Invocation::Print(text) => panic!("printed {text}"),
        }
    }

    #[test]
    fn the_order_is_fixed() {
        let key = [("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")];
        let emulator = [("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")];
        type Case<'a> = (&'a str, bool, &'a [(&'a str, &'a str)], &'a str);
        let table: [Case; 9] = [
            (
                "--token-file /t",
                true,
                &key,
                "projected token /t through https://sts.googleapis.com, since --token-file is given",
            ),
            (
                "--token-file /t",
                false,
                &emulator,
                "projected token /t through https://sts.googleapis.com, since --token-file is given",
            ),
            (
                "--anonymous-access",
                true,
                &key,
                "anonymous, since --anonymous-access is given",
            ),
            (
                "",
                true,
                &emulator,
                "anonymous, since STORAGE_EMULATOR_HOST is set",
            ),
            (
                "--custom-endpoint http://127.0.0.1:8",
                false,
                &emulator,
                "application default credentials, since no identity was named and no projected volume is present",
            ),
            (
                "",
                true,
                &key,
                "application default credentials, since GOOGLE_APPLICATION_CREDENTIALS is set",
            ),
            (
                "",
                true,
                &[("GOOGLE_APPLICATION_CREDENTIALS", "")],
                "projected token /gcsfuse-sa-token/token through https://sts.googleapis.com, since the projected volume is present",
            ),
            (
                "",
                false,
                &[],
                "application default credentials, since no identity was named and no projected volume is present",
            ),
            (
                "--sts-endpoint http://s",
                true,
                &[],
                "projected token /gcsfuse-sa-token/token through http://s, since the projected volume is present",
            ),
        ];
        for (line, volume, env, want) in table {
            assert_eq!(
                chosen(line, volume, env).unwrap().to_string(),
                want,
                "{line} {volume} {env:?}"
            );
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            "--token-file /t --anonymous-access",
            "--identity-pool p --anonymous-access",
        ] {
            let failure = chosen(line, false, &[]).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{line}");
        }
    }
}
