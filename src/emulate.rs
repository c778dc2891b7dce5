//! `gcsmount emulator`: the emulator in the foreground until it is told to stop.

use std::io::{self, Write};

use gcsmount_emulator::{Auth, Config, Emulator, MutationLimit};

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::lifecycle;

/// Runs the role.
///
/// # Errors
/// [`Exit::Usage`] for values that the emulator does not take, [`Exit::Other`] where it cannot listen.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    let config = config(settings)?;
    lifecycle::runtime()?.block_on(async {
        let addresses = config.listen.clone();
        let emulator = Emulator::start(config).await.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Failure::new(Exit::Usage, format!("--bucket: {error}")),
            _ => Failure::new(
                Exit::Other,
                format!("cannot listen on {addresses:?}: {error}; name a free port with --listen, or port 0"),
            ),
        })?;
        // The first line is the endpoint, for scripts; the rest is for people.
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{}", emulator.endpoint());
        let _ = writeln!(out, "admin interface below {}/_emulator/; stop with Ctrl-C", emulator.endpoint());
        drop(out);
        lifecycle::stop_signal().await;
        emulator.shutdown().await;
        Ok(())
    })
}

fn config(settings: &Settings) -> Result<Config, Failure> {
    let usage = |sentence: String| Failure::new(Exit::Usage, sentence);
    let listen = settings
        .texts("listen")
        .filter_map(|text| text.parse().ok())
        .collect();
    let auth = match settings.text("auth") {
        Some("off") => Auth::Off,
        _ => Auth::Required,
    };
    let limit = settings.text("mutation-limit").unwrap_or("off");
    Ok(Config {
        listen,
        auth,
        buckets: settings.texts("bucket").map(Into::into).collect(),
        mutation_limit: MutationLimit::parse(limit)
            .map_err(|error| usage(format!("--mutation-limit: {error}")))?,
        latency: settings.duration("latency"),
        stream_rate: settings
            .number("stream-rate")
            .and_then(|mib| u64::try_from(mib << 20).ok()),
        ..Config::default()
    })
}
