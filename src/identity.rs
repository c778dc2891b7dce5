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
    /// A credential file: service account, user or external account.
    CredentialFile(PathBuf, Reason),
    /// Access tokens from somebody else's broker; whether they are kept until they expire.
    TokenUrl {
        /// Where to ask.
        url: String,
        /// Whether a token is kept until it expires.
        reuse: bool,
    },
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
    /// Google service account to act as.
    pub impersonate: Option<String>,
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
                    "projected token {} through {}",
                    token.path.display(),
                    token.sts
                )?;
                if let Some(account) = &token.impersonate {
                    write!(f, ", acting as {account}")?;
                }
                write!(f, ", since {why}")
            }
            Self::CredentialFile(path, why) => {
                write!(f, "credential file {}, since {why}", path.display())
            }
            // A URL's query may hold a secret.
            Self::TokenUrl { .. } => write!(
                f,
                "access tokens of a token URL, since {}",
                Reason::Flag("token-url")
            ),
            Self::ApplicationDefault(why) => {
                write!(f, "application default credentials, since {why}")
            }
        }
    }
}

/// The flags that name a source; at most one of them may be given.
const SOURCES: [&str; 4] = ["token-file", "key-file", "token-url", "anonymous-access"];
/// The flags that only go with a service-account token.
const OF_A_TOKEN: [&str; 3] = [
    "identity-pool",
    "identity-provider",
    "impersonate-service-account",
];

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
    let identity = source(settings, present, variable)?;
    let needless = OF_A_TOKEN
        .into_iter()
        .find(|flag| settings.text(flag).is_some());
    match (&identity, needless) {
        (Identity::Projected(..), _) | (_, None) => Ok(identity),
        (_, Some(flag)) => Err(Failure::new(
            Exit::Usage,
            format!(
                "--{flag} goes with a service-account token, and the identity is {identity}: leave it out, or give --token-file"
            ),
        )),
    }
}

fn source(
    settings: &Settings,
    present: impl Fn(&Path) -> bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Identity, Failure> {
    const FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
    let named: Vec<&'static str> = SOURCES
        .into_iter()
        .filter(|flag| settings.names_something(flag))
        .collect();
    if let [first, second, ..] = named.as_slice() {
        return Err(Failure::new(
            Exit::Usage,
            format!("--{first} and --{second} exclude each other: leave one of them out"),
        ));
    }
    if let Some(path) = settings.path("token-file") {
        return Ok(projected(settings, path, Reason::Flag("token-file")));
    }
    if let Some(path) = settings.path("key-file") {
        return Ok(Identity::CredentialFile(
            path.into(),
            Reason::Flag("key-file"),
        ));
    }
    if let Some(url) = settings.text("token-url") {
        let reuse = settings.switch("reuse-token-from-url");
        return Ok(Identity::TokenUrl {
            url: url.into(),
            reuse,
        });
    }
    if settings.switch("anonymous-access") {
        return Ok(Identity::Anonymous(Reason::Flag("anonymous-access")));
    }
    if let Origin::Environment(name) = settings.origin("custom-endpoint") {
        return Ok(Identity::Anonymous(Reason::Environment(name)));
    }
    if let Some(path) = variable(FILE).filter(|v| !v.is_empty()) {
        return Ok(Identity::CredentialFile(
            path.into(),
            Reason::Environment(FILE),
        ));
    }
    let path = Path::new(PROJECTED_TOKEN);
    if path.parent().is_some_and(present) {
        return Ok(projected(settings, path, Reason::VolumePresent));
    }
    Ok(Identity::ApplicationDefault(Reason::NothingElse))
}

fn projected(settings: &Settings, path: &Path, why: Reason) -> Identity {
    let text = |flag| settings.text(flag).map(Into::into);
    let token = Projected {
        path: path.into(),
        sts: text("sts-endpoint").unwrap_or_default(),
        pool: text("identity-pool"),
        provider: text("identity-provider"),
        impersonate: text("impersonate-service-account"),
    };
    Identity::Projected(token, why)
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
        let table: [Case; 12] = [
            (
                "--key-file /k",
                true,
                &emulator,
                "credential file /k, since --key-file is given",
            ),
            (
                "--token-url http://h/?key=secret",
                true,
                &key,
                "access tokens of a token URL, since --token-url is given",
            ),
            (
                "--token-file /t --impersonate-service-account a@b",
                false,
                &[],
                "projected token /t through https://sts.googleapis.com, acting as a@b, since --token-file is given",
            ),
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
                "credential file /key.json, since GOOGLE_APPLICATION_CREDENTIALS is set",
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
            "--key-file /k --token-url http://h",
            "--impersonate-service-account a@b --key-file /k",
        ] {
            let failure = chosen(line, false, &[]).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{line}");
        }
    }
}
