//! `gcsmount token serve`: the broker alone, for other processes.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use gcsmount_auth::{Broker, Routes, SocketConfig, TokenSocket};

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::identity::{self, Identity, Place};
use crate::lifecycle::StopSignals;
use crate::params::{Group, Param, Role};
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
    for (route, identity) in &identities {
        tracing::info!(route = route.as_deref().unwrap_or("any"), %identity, "identity chosen");
    }
    lifecycle::runtime()?.block_on(async {
        let mut signals = StopSignals::listen()?;
        let served = brokers(identities)?;
        first_tokens(&served).await?;
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
        for one in &served {
            let at = one
                .route
                .as_ref()
                .map_or_else(String::new, |route| format!(" at {route}"));
            let (who, path) = (one.access.who(), socket.path().display());
            // Whoever closed the output wants to know no more.
            let _ = writeln!(io::stdout(), "tokens of {who} are served on {path}{at}");
        }
        signals.next().await;
        socket.stop().await;
        Ok(())
    })
}

/// One identity for every path, or one for each `--route`.
fn identities(settings: &Settings) -> Result<Vec<(Option<String>, Identity)>, Failure> {
    let choose = |settings: &Settings| {
        identity::choose(settings, Place::Machine, Path::exists, |name| {
            std::env::var(name).ok()
        })
    };
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
            .filter(|(path, _)| path.starts_with('/') && !path.contains(['?', '#', ' ']))
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
        let others = words.map(|word| word.split_once('=').unwrap_or((word, "true")));
        let of_identity = |param: &Param| param.group == Group::Identity;
        let own = settings.with(Role::TokenServe, others, of_identity, &at)?;
        let identity = choose(&own)
            .map_err(|failure| Failure::new(failure.exit, format!("{at}: {}", failure.sentence)))?;
        chosen.push((Some(path.to_owned()), identity));
    }
    Ok(chosen)
}

/// What one path gets.
struct Served {
    route: Option<String>,
    access: Access,
    broker: Broker,
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
/// another identity's.
async fn first_tokens(served: &[Served]) -> Result<(), Failure> {
    let mut lost = Vec::new();
    // All of them ask already.
    for one in served {
        let Err(error) = one.broker.token().await else {
            continue;
        };
        let route = one.route.as_deref().unwrap_or("any");
        if error.is_permanent_for_mount() {
            lost.push(one.access.explain(&error));
        }
        tracing::warn!(route, %error, "no token yet; serving all the same");
    }
    if lost.len() < served.len() {
        return Ok(());
    }
    Err(lost.swap_remove(0))
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
