//! `gcsmount token serve`: the broker alone, for other processes.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use gcsmount_auth::{Broker, Routes, SocketConfig, TokenSocket};
use nix::unistd::{AccessFlags, access};

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::identity::{self, Identity, Place};
use crate::lifecycle::StopSignals;
use crate::params::{self, Group, Param, Role};
use crate::wire::{Access, Shared};
use crate::{lifecycle, telemetry};

/// Serves tokens until it is told to stop.
///
/// # Errors
/// [`Exit::Usage`] without a socket, with routes that contradict each other or with an identity that has no token to
/// serve; whatever keeps the socket from coming about, or every first token for good.
pub fn serve(settings: &Settings) -> Result<(), Failure> {
    telemetry::start(
        settings.text("log-severity").unwrap_or("info"),
        settings.path("log-file"),
    )?;
    let Some(path) = settings.path("socket") else {
        return Err(usage(
            "--socket is missing: say where the token socket is to appear",
        ));
    };
    let identities = identities(settings)?;
    // Before anybody is asked for a token.
    prepare_directory(path)?;
    for (route, identity) in &identities {
        tracing::info!(route = route.as_deref().unwrap_or("any"), %identity, "identity chosen");
    }
    lifecycle::runtime()?.block_on(async {
        let mut signals = StopSignals::listen()?;
        let served = brokers(identities)?;
        let waiting = tokio::select! {
            waiting = first_tokens(&served) => waiting?,
            () = signals.next() => return Ok(()),
        };
        let mut config = SocketConfig::new(path, routes(&served));
        let narrow = |number: i64| u32::try_from(number).ok();
        config.mode = settings
            .number("socket-mode")
            .and_then(narrow)
            .unwrap_or(config.mode);
        config
            .uids
            .extend(settings.numbers("allow-uid").filter_map(narrow));
        let socket = TokenSocket::bind(config)
            .await
            .map_err(|error| usage(format!("--socket: {error}")))?;
        for (one, waits) in served.iter().zip(waiting) {
            // Whoever closed the output wants to know no more.
            let _ = writeln!(io::stdout(), "{}", one.greeting(socket.path(), waits));
        }
        signals.next().await;
        socket.stop().await;
        Ok(())
    })
}

/// One identity for every path, or one for each `--route`.
fn identities(settings: &Settings) -> Result<Vec<(Option<String>, Identity)>, Failure> {
    let choose = |settings: &Settings| identity::choose_here(settings, Place::Machine);
    let routes: Vec<&str> = settings.texts("route").collect();
    if routes.is_empty() {
        return Ok(vec![(None, choose(settings)?)]);
    }
    if let Some(flag) = identity::SOURCES
        .into_iter()
        .find(|flag| settings.names_something(flag))
    {
        return Err(usage(format!(
            "--{flag} and --route exclude each other: say --route /PATH:{flag}=VALUE"
        )));
    }
    let mut chosen: Vec<(Option<String>, Identity)> = Vec::new();
    for route in routes {
        let (path, options) = route
            .split_once(':')
            .filter(|(path, options)| is_route(path) && !options.is_empty())
            .ok_or_else(|| {
                usage(format!(
                    "--route is {route:?}, expected /PATH:FLAG=VALUE,... such as /train:token-file=/run/train/token"
                ))
            })?;
        if chosen
            .iter()
            .any(|(known, _)| known.as_deref() == Some(path))
        {
            return Err(usage(format!(
                "--route names {path} twice: leave one of them out"
            )));
        }
        let at = format!("--route {path}");
        let words = options.split(',').filter(|word| !word.is_empty());
        let others = words.map(params::split);
        let of_identity = |param: &Param| param.group == Group::Identity;
        let own = settings.with(Role::TokenServe, others, of_identity, &at)?;
        let identity = choose(&own)
            .map_err(|failure| Failure::new(failure.exit, format!("{at}: {}", failure.sentence)))?;
        chosen.push((Some(path.to_owned()), identity));
    }
    Ok(chosen)
}

/// Whether a request can ask for this path as it stands.
fn is_route(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= LONGEST_ROUTE
        && path
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"?#%\"".contains(&byte))
}

/// Far below what a server takes as the first line of a request.
const LONGEST_ROUTE: usize = 1024;

/// Makes the socket's directory where it alone is missing, for this user only, and finds out whether a socket can be made.
fn prepare_directory(socket: &Path) -> Result<(), Failure> {
    let Some(dir) = socket.parent() else {
        return Err(usage(format!(
            "--socket {} names no file in a directory",
            socket.display()
        )));
    };
    let refused = |what: &str, why: &dyn std::fmt::Display| {
        usage(format!(
            "--socket: the directory {} {what}: {why}; make one that this user may write to, or name another path",
            dir.display()
        ))
    };
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => tracing::info!(dir = %dir.display(), "directory made, for this user only"),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused("cannot be made", &error)),
    }
    access(dir, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|errno| refused("takes no socket", &errno.desc()))
}

/// What one path gets.
struct Served {
    route: Option<String>,
    access: Access,
    broker: Broker,
}

impl Served {
    fn name(&self) -> &str {
        self.route.as_deref().unwrap_or("any")
    }

    /// The line about it once the socket is there; `waits`: its first token is still to come.
    fn greeting(&self, socket: &Path, waits: bool) -> String {
        let (who, socket) = (self.access.who(), socket.display());
        let at = match &self.route {
            Some(route) => format!(" at {route}"),
            None => String::new(),
        };
        match waits {
            false => format!("tokens of {who} are served on {socket}{at}"),
            true => format!("no token of {who} yet: errors are served on {socket}{at}"),
        }
    }
}

/// Starts a broker for each identity, the same one for paths that have the same.
fn brokers(identities: Vec<(Option<String>, Identity)>) -> Result<Vec<Served>, Failure> {
    // No file data is handled here.
    let shared = Shared::new(0);
    let mut served: Vec<Served> = Vec::new();
    for (route, identity) in identities {
        let access = shared.access(&identity)?;
        let Some(broker) = access.broker.clone() else {
            return Err(usage(format!(
                "there is no token to serve for {identity}: name a service-account token with --token-file"
            )));
        };
        served.push(Served {
            route,
            access,
            broker,
        });
    }
    Ok(served)
}

/// Waits for the first tokens: a socket that appears can be relied on, unless the fault is one that time mends, or
/// another identity's. Tells of each whether its token is still to come.
async fn first_tokens(served: &[Served]) -> Result<Vec<bool>, Failure> {
    let mut missing = Vec::new();
    // All of them ask already.
    for one in served {
        missing.push(one.broker.token().await.err());
    }
    let lost: Vec<(&Served, Failure)> = served
        .iter()
        .zip(&missing)
        .filter_map(|(one, error)| {
            let error = error.as_ref().filter(|e| e.is_permanent_for_mount())?;
            Some((one, one.access.explain(error)))
        })
        .collect();
    if let Some((_, first)) = lost.first()
        && lost.len() == served.len()
    {
        return Err(Failure::new(first.exit, all_lost(&lost)));
    }
    for (one, error) in served.iter().zip(&missing) {
        if let Some(error) = error {
            tracing::warn!(route = one.name(), %error, "no token yet; serving all the same");
        }
    }
    Ok(missing.iter().map(Option::is_some).collect())
}

/// Why there is nothing to serve, by route where there are several.
fn all_lost(lost: &[(&Served, Failure)]) -> String {
    let sentences = lost.iter().map(|(one, failure)| match &one.route {
        Some(route) => format!("--route {route}: {failure}"),
        None => failure.to_string(),
    });
    sentences.collect::<Vec<_>>().join("; ")
}

fn routes(served: &[Served]) -> Routes {
    let named: Option<BTreeMap<String, Broker>> = served
        .iter()
        .map(|one| Some((one.route.clone()?, one.broker.clone())))
        .collect();
    match (named, served) {
        (None, [only, ..]) => Routes::Any(only.broker.clone()),
        (named, _) => Routes::ByPath(named.unwrap_or_default()),
    }
}

fn usage(sentence: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, sentence)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_missing_level_of_the_sockets_directory_is_made() {
        let scratch = tempfile::tempdir().unwrap();
        let socket = |name: &str| scratch.path().join(name);
        for _ in 0..2 {
            prepare_directory(&socket("new/token.sock")).unwrap();
        }
        let mode = fs::metadata(socket("new")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::write(socket("file"), "").unwrap();
        for wrong in ["a/b/token.sock", "file/token.sock"] {
            let failure = prepare_directory(&socket(wrong)).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            let dir = socket(wrong);
            let dir = dir.parent().unwrap().to_str().unwrap();
            assert!(failure.sentence.contains(dir), "{failure}");
        }
        assert!(!socket("a").exists());
    }
}
