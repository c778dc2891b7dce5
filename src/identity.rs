//! Who we are at the bucket: chosen once from what the user said and what is present, printed, and never changed.

use std::fmt;
use std::path::{Path, PathBuf};

use gcsmount_auth::application_default::{ApplicationDefault, VARIABLE};
use gcsmount_auth::{
    Audience, Boundary, Endpoint, Impersonate, Metadata, Steps, TokenUrl, Universe, Whose,
};

use crate::cli::{Origin, Settings};
use crate::exit::{Exit, Failure};
use crate::limits::Limit;

/// Where the GCS FUSE CSI driver's webhook projects the token of a pod with `hostNetwork: true`.
pub const PROJECTED_TOKEN: &str = gcsmount_k8s_contract::layout::TOKEN_FILE;

/// Who we are, and what becomes of the token before it is used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Where the identity comes from.
    pub source: Source,
    /// Why from there.
    pub why: Reason,
    /// The domain that Google's services are below.
    pub universe: Universe,
    /// What follows an exchange, and the token service.
    pub steps: Steps,
    /// The boundary of the steps, as it was named.
    pub limits: Vec<Limit>,
    /// Hosts outside the universe that a credential file may have tokens sent to: those that flags name.
    pub trusted_hosts: Vec<String>,
}

/// The source of identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// None: requests carry no token.
    Anonymous,
    /// A projected service-account token, exchanged at the token service.
    Projected {
        /// The file.
        path: PathBuf,
        /// How the audience of the exchange is found.
        audience: Audience,
    },
    /// A credential file: service account, user or external account.
    CredentialFile(PathBuf),
    /// Access tokens from somebody else's broker.
    TokenUrl {
        /// Where to ask.
        url: TokenUrl,
        /// Whether a token is kept until it expires.
        reuse: bool,
    },
    /// A metadata server.
    Metadata {
        /// `HOST` or `HOST:PORT`.
        host: String,
        /// Whom it must answer for; `None`: whomever its first token is for.
        whose: Option<Whose>,
    },
}

/// Why this source and no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A flag said so.
    Flag(&'static str),
    /// This environment variable is set.
    Environment(&'static str),
    /// The volume is there.
    VolumePresent,
    /// Somebody has logged in with gcloud.
    Login,
    /// Nothing else was named or found.
    NothingElse,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag} is given"),
            Self::Environment(name) => write!(f, "{name} is set"),
            Self::VolumePresent => f.write_str("the projected volume is present"),
            Self::Login => f.write_str("it is gcloud's application default login"),
            Self::NothingElse => {
                f.write_str("no identity was named and no projected volume or login is present")
            }
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Anonymous => f.write_str("anonymous"),
            Source::Projected { path, .. } => {
                let path = path.display();
                write!(f, "projected token {path} through {}", self.steps.sts)
            }
            Source::CredentialFile(path) => write!(f, "credential file {}", path.display()),
            // A URL's query may hold a secret, and its `Display` leaves it out.
            Source::TokenUrl { url, .. } => write!(f, "access tokens of {url}"),
            Source::Metadata { host, whose } => {
                let whose = match whose {
                    Some(Whose::Pod) => "this pod",
                    Some(Whose::Node) => "this machine",
                    None => "this pod or machine",
                };
                write!(f, "metadata server {host}, for {whose}")
            }
        }?;
        if let Some(account) = &self.steps.impersonate {
            write!(f, ", acting as {}", account.address())?;
        }
        if let Some(boundary) = &self.steps.boundary {
            write!(f, ", limited to {boundary}")?;
        }
        if let Some(universe) = self.universe.unusual() {
            write!(f, ", in the universe {universe}")?;
        }
        write!(f, ", since {}", self.why)
    }
}

/// Where the process runs, which decides what is looked for where nothing is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A shell, a boot script, a container that is its own: application default credentials.
    Machine,
    /// Beside a pod's containers: the pod's own identity, and never that of the node or of a person.
    Sidecar,
}

/// The flags that name a source; at most one of them may be given.
pub const SOURCES: [&str; 5] = [
    "token-file",
    "key-file",
    "token-url",
    "metadata-server",
    "anonymous-access",
];
/// The flags that only go with a service-account token.
const OF_A_TOKEN: [&str; 2] = ["identity-pool", "identity-provider"];
/// The flags that need some token to work on.
const OF_ANY_TOKEN: [&str; 2] = ["impersonate-service-account", "access-boundary"];

/// Chooses the source. `present` tells whether a path exists, `variable` looks up the environment.
///
/// An explicit flag wins; else a credential file named by `GOOGLE_APPLICATION_CREDENTIALS`; else the projected token
/// where its volume is present; else what [`Place`] says. An endpoint taken from `STORAGE_EMULATOR_HOST`
/// gets no identity unless a flag names one, as with Google's own clients: real credentials must not reach an emulator.
///
/// # Errors
/// [`Exit::Usage`] where flags contradict each other or are wrong.
pub fn choose<V: Into<PathBuf>>(
    settings: &Settings,
    place: Place,
    present: impl Fn(&Path) -> bool,
    variable: impl Fn(&str) -> Option<V>,
) -> Result<Identity, Failure> {
    let (source, why) = source(settings, place, present, variable)?;
    let universe = Universe::parse(settings.text("universe-domain").unwrap_or_default())
        .map_err(|error| misused("universe-domain", &error))?;
    let limits: Vec<_> = settings
        .texts("access-boundary")
        .map(Limit::parse)
        .collect();
    let identity = Identity {
        source,
        why,
        steps: steps(settings, &universe, &limits)?,
        limits,
        universe,
        trusted_hosts: trusted_hosts(settings),
    };
    let given = |flags: &[&'static str]| {
        flags
            .iter()
            .copied()
            .find(|flag| settings.text(flag).is_some())
    };
    let is_projected = matches!(identity.source, Source::Projected { .. });
    match given(&OF_A_TOKEN).filter(|_| !is_projected) {
        Some(flag) => Err(usage(format!(
            "--{flag} goes with a service-account token, and the identity is {identity}: leave it out, or give --token-file"
        ))),
        None => match given(&OF_ANY_TOKEN).filter(|_| identity.source == Source::Anonymous) {
            Some(flag) => Err(usage(format!(
                "--{flag} needs an identity, and the identity is {identity}: leave it out, or name one with --token-file or --key-file"
            ))),
            None => Ok(identity),
        },
    }
}

/// [`choose`] by the files and the environment of this process. A path that is not UTF-8 names its file all the same: to
/// pass over it would choose somebody else.
///
/// # Errors
/// As [`choose`].
pub fn choose_here(settings: &Settings, place: Place) -> Result<Identity, Failure> {
    choose(settings, place, Path::exists, |name| std::env::var_os(name))
}

fn source<V: Into<PathBuf>>(
    settings: &Settings,
    place: Place,
    present: impl Fn(&Path) -> bool,
    variable: impl Fn(&str) -> Option<V>,
) -> Result<(Source, Reason), Failure> {
    let named: Vec<&'static str> = SOURCES
        .into_iter()
        .filter(|flag| settings.names_something(flag))
        .collect();
    match named.as_slice() {
        [first, second, ..] => {
            return Err(usage(format!(
                "--{first} and --{second} exclude each other: leave one of them out"
            )));
        }
        [flag] => return Ok((named_source(settings, flag)?, Reason::Flag(flag))),
        [] => {}
    }
    if let Origin::Environment(name) = settings.origin("custom-endpoint") {
        return Ok((Source::Anonymous, Reason::Environment(name)));
    }
    let home: Option<PathBuf> = variable("HOME").map(Into::into);
    let defaults = ApplicationDefault::locate(variable, home.as_deref(), &present);
    if let ApplicationDefault::Named(path) = defaults {
        return Ok((Source::CredentialFile(path), Reason::Environment(VARIABLE)));
    }
    let path = Path::new(PROJECTED_TOKEN);
    if path.parent().is_some_and(present) {
        return Ok((projected(settings, path)?, Reason::VolumePresent));
    }
    if place == Place::Sidecar {
        return Ok((metadata(Some(Whose::Pod)), Reason::NothingElse));
    }
    Ok(match defaults {
        ApplicationDefault::Named(path) | ApplicationDefault::WellKnown(path) => {
            (Source::CredentialFile(path), Reason::Login)
        }
        ApplicationDefault::MetadataServer => (metadata(None), Reason::NothingElse),
    })
}

fn named_source(settings: &Settings, flag: &str) -> Result<Source, Failure> {
    let path = || settings.path(flag).unwrap_or(Path::new(""));
    Ok(match flag {
        "token-file" => projected(settings, path())?,
        "key-file" => Source::CredentialFile(path().into()),
        "token-url" => {
            let url = settings.text(flag).unwrap_or_default();
            Source::TokenUrl {
                url: TokenUrl::parse(url).map_err(|error| usage(error.message().to_owned()))?,
                reuse: settings.switch("reuse-token-from-url"),
            }
        }
        "metadata-server" => metadata(match settings.text(flag) {
            Some("pod") => Some(Whose::Pod),
            _ => Some(Whose::Node),
        }),
        _ => Source::Anonymous,
    })
}

fn metadata(whose: Option<Whose>) -> Source {
    Source::Metadata {
        host: Metadata::usual_host(),
        whose,
    }
}

fn projected(settings: &Settings, path: &Path) -> Result<Source, Failure> {
    let audience = match OF_A_TOKEN.map(|flag| settings.text(flag)) {
        [None, None] => Audience::FromToken,
        [Some(pool), Some(provider)] => Audience::PoolAndProvider {
            pool: pool.into(),
            provider: provider.into(),
        },
        _ => {
            return Err(usage(
                "--identity-pool and --identity-provider go together: give both, or neither to read them from the token",
            ));
        }
    };
    Ok(Source::Projected {
        path: path.into(),
        audience,
    })
}

fn steps(settings: &Settings, universe: &Universe, limits: &[Limit]) -> Result<Steps, Failure> {
    let sts = settings.text("sts-endpoint").map(Endpoint::parse);
    let sts = sts
        .transpose()
        .map_err(|error| usage(error.message().to_owned()))?;
    let iam = match settings.text("iam-endpoint") {
        Some(url) => url.to_owned(),
        None => universe.iam_credentials(),
    };
    let account = settings.text("impersonate-service-account");
    let impersonate = account.map(|account| Impersonate::account(account, &iam));
    let mut boundary = None;
    for limit in limits {
        boundary =
            Some(and_within(boundary, limit).map_err(|error| misused("access-boundary", &error))?);
    }
    Ok(Steps {
        impersonate: impersonate
            .transpose()
            .map_err(|error| usage(error.message().to_owned()))?,
        boundary,
        sts: sts.unwrap_or_else(|| universe.sts()),
        ..Steps::default()
    })
}

/// `boundary` and what `limit` names.
fn and_within(boundary: Option<Boundary>, limit: &Limit) -> Result<Boundary, gcsmount_auth::Error> {
    let (bucket, prefix) = (limit.bucket.as_str(), limit.prefix.as_str());
    match boundary {
        Some(boundary) => boundary.and(bucket, prefix, limit.access),
        None => Boundary::around(bucket, prefix, limit.access),
    }
}

/// Who names a service by a flag means it.
fn trusted_hosts(settings: &Settings) -> Vec<String> {
    ["sts-endpoint", "iam-endpoint"]
        .into_iter()
        .filter_map(|flag| {
            settings
                .text(flag)?
                .parse::<http::Uri>()
                .ok()?
                .host()
                .map(Into::into)
        })
        .collect()
}

fn misused(flag: &str, error: &gcsmount_auth::Error) -> Failure {
    usage(format!("--{flag}: {}", error.message()))
}

fn usage(sentence: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, sentence.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Invocation, parse};

    fn chosen(line: &str, present: &[&str], env: &[(&str, &str)]) -> Result<Identity, Failure> {
        chosen_at(Place::Machine, line, present, env)
    }

    fn chosen_at(
        place: Place,
        line: &str,
        present: &[&str],
        env: &[(&str, &str)],
    ) -> Result<Identity, Failure> {
        let variable = |name: &str| {
            env.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        };
        let args = format!("gcsmount mount b /m {line}");
        match parse(args.split_whitespace().map(Into::into), variable)? {
            Invocation::Run(_, settings) => choose(
                &settings,
                place,
                |path| present.iter().any(|p| Path::new(p) == path),
                variable,
            ),
            Invocation::Print(text) => panic!("printed {text}"),
        }
    }

    #[test]
    fn the_order_is_fixed() {
        let key = [("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")];
        let emulator = [("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")];
        type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
        let volume: &[&str] = &["/gcsfuse-sa-token"];
        let login = "/home/u/.config/gcloud/application_default_credentials.json";
        let both: &[&str] = &["/gcsfuse-sa-token", login];
        let home = [("HOME", "/home/u")];
        const STS: &str = "through https://sts.googleapis.com/v1/token";
        let table: &[Case] = &[
            (
                "--key-file /k",
                volume,
                &emulator,
                "credential file /k, since --key-file is given",
            ),
            (
                "--token-url http://h/?key=secret",
                volume,
                &key,
                "access tokens of http://h/, since --token-url is given",
            ),
            (
                "--token-file /t --impersonate-service-account a@b",
                &[],
                &[],
                "projected token /t STS, acting as a@b, since --token-file is given",
            ),
            (
                "--key-file /k --impersonate-service-account a@b --access-boundary gs://bkt/a/:ro --access-boundary other",
                &[],
                &[],
                "credential file /k, acting as a@b, limited to gs://bkt/a/ (read-only), gs://other/, since --key-file is given",
            ),
            (
                "--token-file /t",
                volume,
                &key,
                "projected token /t STS, since --token-file is given",
            ),
            (
                "--token-file /t",
                &[],
                &emulator,
                "projected token /t STS, since --token-file is given",
            ),
            (
                "--metadata-server pod",
                volume,
                &key,
                "metadata server metadata.google.internal, for this pod, since --metadata-server is given",
            ),
            (
                "--metadata-server node --universe-domain s.example",
                volume,
                &key,
                "metadata server metadata.google.internal, for this machine, in the universe s.example, since --metadata-server is given",
            ),
            (
                "--anonymous-access",
                volume,
                &key,
                "anonymous, since --anonymous-access is given",
            ),
            (
                "",
                volume,
                &emulator,
                "anonymous, since STORAGE_EMULATOR_HOST is set",
            ),
            (
                "",
                volume,
                &key,
                "credential file /key.json, since GOOGLE_APPLICATION_CREDENTIALS is set",
            ),
            (
                "",
                both,
                &[("GOOGLE_APPLICATION_CREDENTIALS", ""), home[0]],
                "projected token /gcsfuse-sa-token/token STS, since the projected volume is present",
            ),
            (
                "--sts-endpoint http://s",
                volume,
                &[],
                "projected token /gcsfuse-sa-token/token through http://s/v1/token, since the projected volume is present",
            ),
            (
                "",
                volume,
                &[("GOOGLE_CLOUD_UNIVERSE_DOMAIN", "s.example")],
                "projected token /gcsfuse-sa-token/token through https://sts.s.example/v1/token, in the universe s.example, since the projected volume is present",
            ),
            (
                "--custom-endpoint http://127.0.0.1:8",
                &[login],
                &[emulator[0], home[0]],
                "credential file /home/u/.config/gcloud/application_default_credentials.json, since it is gcloud's application default login",
            ),
            (
                "",
                &[login],
                &[],
                "metadata server metadata.google.internal, for this pod or machine, since no identity was named and no projected volume or login is present",
            ),
        ];
        for (line, present, env, want) in table {
            assert_eq!(
                chosen(line, present, env).unwrap().to_string(),
                want.replace("STS", STS),
                "{line} {present:?} {env:?}"
            );
        }
    }

    #[test]
    fn beside_a_pod_nobody_but_the_pod_is_meant() {
        let home = "/home/u/.config/gcloud/application_default_credentials.json";
        let env = [("HOME", "/home/u")];
        let alone = chosen_at(Place::Sidecar, "", &[home], &env).unwrap();
        let pod = Some(Whose::Pod);
        assert!(
            matches!(alone.source, Source::Metadata { whose, .. } if whose == pod),
            "{alone}"
        );
        let volume = ["/gcsfuse-sa-token", home];
        let projected = chosen_at(Place::Sidecar, "", &volume, &env).unwrap();
        assert_eq!(projected.why, Reason::VolumePresent);
    }

    #[test]
    fn contradictions_are_refused() {
        for line in [
            "--token-file /t --anonymous-access",
            "--metadata-server pod --key-file /k",
            "--identity-pool p --identity-provider q --anonymous-access",
            "--identity-pool p --token-file /t",
            "--identity-pool p --identity-provider q --key-file /k",
            "--key-file /k --token-url http://h",
            "--token-url ftp://h",
            "--impersonate-service-account a@b --anonymous-access",
            "--impersonate-service-account a/b --key-file /k",
            "--access-boundary bucket --anonymous-access",
            "--access-boundary gs:// --key-file /k",
            "--universe-domain nodots --key-file /k",
        ] {
            let failure = chosen(line, &[], &[]).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{line}");
        }
    }
}
