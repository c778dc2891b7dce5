//! `gcsmount emulator`: the emulator in the foreground until it is told to stop.

use std::io::{self, Write};

use gcsmount_emulator::{Auth, Config, Emulator, MutationLimit};

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::lifecycle::{self, StopSignals};

/// Runs the role.
///
/// # Errors
/// [`Exit::Usage`] for values that the emulator does not take, [`Exit::Other`] where it cannot listen.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    if let Some(argument) = settings.arguments.first() {
        let sentence = format!(
            "expected no arguments, got {argument:?}: name a bucket with --bucket {argument}"
        );
        return Err(Failure::new(Exit::Usage, sentence));
    }
    let config = config(settings)?;
    lifecycle::runtime()?.block_on(async {
        let mut signals = StopSignals::listen()?;
        let addresses: Vec<_> = config.listen.iter().map(ToString::to_string).collect();
        let needs_token = config.auth == Auth::Required;
        let emulator = Emulator::start(config)
            .await
            .map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => {
                    Failure::new(Exit::Usage, format!("--bucket: {error}"))
                }
                io::ErrorKind::ResourceBusy | io::ErrorKind::InvalidData => {
                    Failure::new(Exit::Other, format!("--data-dir: {error}"))
                }
                _ => Failure::new(
                    Exit::Other,
                    format!(
                        "cannot listen on {}: {error}; name a free port with --listen, or port 0",
                        addresses.join(" and ")
                    ),
                ),
            })?;
        greet(&emulator, needs_token);
        signals.next().await;
        emulator.shutdown().await;
        Ok(())
    })
}

/// Says where it is and how to use it. The first line is the endpoint alone, for scripts; the rest is for people.
fn greet(emulator: &Emulator, needs_token: bool) {
    let endpoint = emulator.endpoint();
    let use_it = if needs_token {
        format!(
            "mint a token:  curl -s {endpoint}/_emulator/tokens -d '{{\"namespace\": \"ns\", \"service_account\": \"sa\"}}'\n\
             mount with it: gcsmount --custom-endpoint {endpoint} --sts-endpoint {endpoint} --token-file FILE BUCKET DIR"
        )
    } else {
        format!("mount: STORAGE_EMULATOR_HOST={endpoint} gcsmount BUCKET DIR")
    };
    // A closed pipe is the reader's wish.
    let _ = writeln!(io::stdout(), "{endpoint}\n{use_it}\nstop with Ctrl-C");
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
        data_dir: settings.path("data-dir").map(Into::into),
        latency: settings.duration("latency"),
        stream_rate: settings
            .number("stream-rate")
            .and_then(|mib| u64::try_from(mib << 20).ok()),
        ..Config::default()
    })
}
