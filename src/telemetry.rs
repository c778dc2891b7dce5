//! Where log lines go.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::exit::{Exit, Failure};

/// Logs lines of `severity` and above to `file`, or to standard error.
///
/// # Errors
/// [`Exit::Usage`] where the file cannot be opened for appending.
pub fn start(severity: &str, file: Option<&Path>) -> Result<(), Failure> {
    let level = match severity {
        "trace" => LevelFilter::TRACE,
        "debug" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        "error" => LevelFilter::ERROR,
        "off" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_timer(SystemTime)
        .with_target(false);
    let started = match file {
        None => builder
            .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
            .with_writer(io::stderr)
            .try_init(),
        Some(path) => {
            let file = OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
                Failure::new(
                    Exit::Usage,
                    format!("--log-file {} cannot be opened for appending: {error}; name a file in a directory that is writable", path.display()),
                )
            })?;
            builder
                .with_ansi(false)
                .with_writer(Mutex::new(file))
                .try_init()
        }
    };
    started.map_err(|error| Failure::new(Exit::Other, format!("logging cannot start: {error}")))
}
