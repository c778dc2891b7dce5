//! `gcsmount token serve`: the broker alone, for other processes.

use std::io::{self, Write};

use gcsmount_auth::{Routes, SocketConfig, TokenSocket};

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::lifecycle::StopSignals;
use crate::{explain, identity, lifecycle, telemetry, wire};

/// Serves tokens until it is told to stop.
///
/// # Errors
/// [`Exit::Usage`] without a socket or with an identity that has no token to serve; whatever keeps the socket or the
/// first token from coming about.
pub fn serve(settings: &Settings) -> Result<(), Failure> {
    telemetry::start(
        settings.text("log-severity").unwrap_or("info"),
        settings.path("log-file"),
    )?;
    let Some(path) = settings.path("socket") else {
        return Err(Failure::new(
            Exit::Usage,
            "--socket is missing: say where the token socket is to appear",
        ));
    };
    let identity = identity::choose(settings, std::path::Path::exists, |name| {
        std::env::var(name).ok()
    })?;
    tracing::info!(%identity, "identity chosen");
    lifecycle::runtime()?.block_on(async {
        let mut signals = StopSignals::listen()?;
        let access = wire::access(&identity)?;
        let Some(broker) = access.broker.clone() else {
            return Err(Failure::new(
                Exit::Usage,
                format!("there is no token to serve for {identity}: name a service-account token with --token-file"),
            ));
        };
        // A socket that appears can be relied on, unless the fault is one that time mends.
        if let Err(error) = broker.token().await {
            if error.is_permanent_for_mount() {
                return Err(explain::identity(&error));
            }
            tracing::warn!(%error, "no token yet; serving all the same");
        }
        let mut config = SocketConfig::new(path, Routes::Any(broker));
        config.mode = settings.number("socket-mode").and_then(|n| u32::try_from(n).ok()).unwrap_or(config.mode);
        config.uids.extend(settings.numbers("allow-uid").filter_map(|n| u32::try_from(n).ok()));
        let socket = TokenSocket::bind(config).await.map_err(|error| Failure::new(Exit::Usage, format!("--socket: {error}")))?;
        let _ = writeln!(io::stdout(), "tokens of {} are served on {}", access.who(), socket.path().display());
        signals.next().await;
        socket.stop().await;
        Ok(())
    })
}
