//! From the options of a volume to settings. Pure.

use gcsmount_k8s_contract::options::Options;

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::gcsfuse::{self, Meaning};
use crate::params::{self, Group, Param, Role};

/// The operator's settings with what a volume asks for. Options are gcsmount's own flags and gcsfuse's, by flag or by
/// path; those without effect are logged.
///
/// # Errors
/// [`Exit::Usage`], naming every option that cannot be obeyed.
pub(super) fn apply(operator: &Settings, options: &Options) -> Result<Settings, Failure> {
    let mut wrong = Vec::new();
    let mut chosen: Vec<(&str, Option<&str>)> = Vec::new();
    let flags = options.flags.iter().flat_map(|(name, values)| {
        let values = values.iter();
        values.map(move |value| (name.as_str(), value.as_deref(), meaning(name)))
    });
    let paths = options.config.iter();
    let paths =
        paths.map(|(path, value)| (path.as_str(), Some(value.as_str()), gcsfuse::config(path)));
    for (name, value, meaning) in flags.chain(paths) {
        match meaning {
            Some(Meaning::Flag(flag)) if is_a_volumes(flag) => chosen.push((flag, value)),
            Some(Meaning::Flag(flag)) if PROCESS_WIDE.contains(&flag) => match judge(flag, value) {
                Ok(()) => tracing::info!(option = name, "is the sidecar's, and has no effect"),
                Err(sentence) => wrong.push(sentence),
            },
            Some(Meaning::Flag(_)) => {
                wrong.push(format!(
                    "{name} is the operator's to set, and not a volume's"
                ));
            }
            Some(Meaning::NoEffect) => tracing::info!(option = name, "has no effect"),
            Some(Meaning::Refused(why)) => wrong.push(format!("{name} cannot be obeyed: {why}")),
            None => wrong.push(format!("{name} is not an option of gcsmount or of gcsfuse")),
        }
    }
    let audience = [
        ("identity-pool", &options.internal.identity_pool),
        ("identity-provider", &options.internal.identity_provider),
    ];
    for (flag, value) in audience {
        chosen.extend(value.as_deref().map(|value| (flag, Some(value))));
    }
    if !wrong.is_empty() {
        let sentence = format!("mount options: {}", wrong.join("; "));
        return Err(Failure::new(Exit::Usage, sentence));
    }
    operator.with(Role::Sidecar, chosen, |param| param.volume, "mount options")
}

/// The same for a volume that a stock gcsfuse serves: the operator's settings with the identity that the volume asks for,
/// and the options that remain for gcsfuse, which judges them itself.
///
/// # Errors
/// [`Exit::Usage`], as [`apply`].
pub(super) fn identity_of(
    operator: &Settings,
    options: &Options,
) -> Result<(Settings, Options), Failure> {
    let mut own = Options {
        internal: options.internal.clone(),
        ..Options::default()
    };
    let mut theirs = options.clone();
    for (name, values) in &options.flags {
        let of_identity = |param: &Param| param.group == Group::Identity;
        let is_ours = params::find(Role::Sidecar, name).is_some_and(of_identity);
        if is_ours && gcsfuse::flag(name).is_none() {
            theirs.flags.remove(name);
            own.flags.insert(name.clone(), values.clone());
        }
    }
    Ok((apply(operator, &own)?, theirs))
}

/// What pods set for a gcsfuse that serves one volume, and what is here the process's, for all its volumes. Not to obey
/// changes nothing that is mounted.
const PROCESS_WIDE: [&str; 2] = ["log-severity", "log-file"];

/// Whether a value is one, also where it has no effect.
fn judge(flag: &str, value: Option<&str>) -> Result<(), String> {
    let Some(param) = params::find(Role::Sidecar, flag) else {
        return Ok(());
    };
    let text = value.unwrap_or_default();
    let parsed = param.kind.parse(text);
    let said = |expected| format!("{flag}: expected {expected}, got {text:?}");
    parsed.map(drop).map_err(said)
}

/// A flag of our own, or what gcsfuse's means.
fn meaning(name: &str) -> Option<Meaning> {
    let ours: Option<&'static Param> = params::find(Role::Sidecar, name);
    ours.map(|param| Meaning::Flag(param.flag))
        .or_else(|| gcsfuse::flag(name))
}

fn is_a_volumes(flag: &str) -> bool {
    params::find(Role::Sidecar, flag).is_some_and(|param| param.volume)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::{Invocation, parse};

    fn operator() -> Settings {
        let args = ["gcsmount", "sidecar", "--uid", "1", "--key-file", "/k"];
        match parse(args.map(Into::into), |_| None).unwrap() {
            Invocation::Run(Role::Sidecar, settings) => settings,
            other => panic!("{other:?}"),
        }
    }

    fn options(flags: &[(&str, Option<&str>)], config: &[(&str, &str)]) -> Options {
        let mut options = Options::default();
        for (name, value) in flags {
            let values = options.flags.entry((*name).to_owned()).or_default();
            values.push(value.map(Into::into));
        }
        for (path, value) in config {
            options
                .config
                .insert((*path).to_owned(), (*value).to_owned());
        }
        options
    }

    #[test]
    fn a_volume_sets_what_is_its_own_to_set() {
        let asked = options(
            &[
                ("gid", Some("4321")),
                ("implicit-dirs", None),
                ("only_dir", Some("a/b")),
            ],
            &[
                ("metadata-cache:ttl-secs", "-1"),
                ("file-cache:max-size-mb", "10"),
                ("logging:severity", "INFO"),
                ("logging:file-path", "/tmp/log"),
            ],
        );
        let settings = apply(&operator(), &asked).unwrap();
        assert_eq!(settings.number("gid"), Some(4321));
        assert_eq!(settings.number("uid"), Some(1));
        assert_eq!(settings.text("only-dir"), Some("a/b"));
        assert!(settings.duration("metadata-cache-ttl") > Duration::from_secs(1 << 30));
        assert!(settings.names_something("key-file"), "the operator's");
    }

    #[test]
    fn a_stock_gcsfuse_gets_what_is_not_about_the_identity() {
        let asked = options(
            &[
                ("impersonate-service-account", Some("a@b")),
                ("uid", Some("7")),
                ("implicit-dirs", None),
            ],
            &[("file-cache:max-size-mb", "10")],
        );
        let (settings, theirs) = identity_of(&operator(), &asked).unwrap();
        assert_eq!(settings.text("impersonate-service-account"), Some("a@b"));
        assert_eq!(settings.number("uid"), Some(1), "gcsfuse's own business");
        let left: Vec<_> = theirs.flags.keys().map(String::as_str).collect();
        assert_eq!(left, ["implicit-dirs", "uid"]);
        assert_eq!(theirs.config, asked.config);
    }

    #[test]
    fn a_volume_does_not_choose_the_source_of_its_identity() {
        for (flags, config, named) in [
            (&[("key-file", Some("/k2"))][..], &[][..], "key-file"),
            (&[("token-file", Some("/t"))], &[], "token-file"),
            (&[("token-url", Some("http://h"))], &[], "token-url"),
            (&[("metadata-server", Some("node"))], &[], "metadata-server"),
            (&[("anonymous-access", None)], &[], "anonymous-access"),
            (&[("sts-endpoint", Some("https://s"))], &[], "sts-endpoint"),
            (&[("iam-endpoint", Some("https://s"))], &[], "iam-endpoint"),
            (&[("universe-domain", Some("a.b"))], &[], "universe-domain"),
            (
                &[("access-boundary", Some("other"))],
                &[],
                "access-boundary",
            ),
            (&[], &[("gcs-auth:key-file", "/k2")], "gcs-auth:key-file"),
            (
                &[],
                &[("gcs-auth:token-url", "unix:///s")],
                "gcs-auth:token-url",
            ),
            (&[("temp-dir", Some("/"))], &[], "temp-dir"),
            (&[("foreground", None)], &[], "foreground"),
            (&[("no-such-flag", Some("1"))], &[], "no-such-flag"),
            (&[], &[("no:such", "1")], "no:such"),
            (&[("enable-dummy-io", None)], &[], "enable-dummy-io"),
            (&[("gid", Some("x"))], &[], "gid"),
            (&[("log-severity", Some("loud"))], &[], "log-severity"),
            (&[("only-dir", None)], &[], "only-dir"),
        ] {
            let failure = apply(&operator(), &options(flags, config)).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{named}");
            assert!(failure.sentence.contains(named), "{named}: {failure}");
        }
    }
}
