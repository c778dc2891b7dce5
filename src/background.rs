//! Going to the background: the command runs again in a session of its own, and the shell's process waits for the real
//! outcome, so that a script or a boot system that goes on can rely on the mount.
//!
//! Forking a process that has threads is no way to get there; starting the program anew is. The child tells its outcome
//! as one line of JSON on its standard output and then lets go of the terminal.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// Set in the environment of the background process, to the id of the one that waits for it.
const MARK: &str = "GCSMOUNT_BACKGROUND";

/// Variables whose values are paths. What is relative in them is meant from where the command was given, and the
/// background process is at `/` by the time that it or a library opens the file.
const PATHS: &[&str] = &[
    "GOOGLE_APPLICATION_CREDENTIALS",
    "CLOUDSDK_CONFIG",
    "HOME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "TMPDIR",
];

/// What the background process tells the one that waits.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Mounted(String),
    Failed { exit: Exit, sentence: String },
}

/// Whether this is the background process.
#[must_use]
pub fn is_background() -> bool {
    env::var_os(MARK).is_some()
}

/// Runs the same command line in the background and waits until it is mounted; returns what it has to say then.
///
/// # Errors
/// The background process's own failure, or [`Exit::Other`] where it ended without a word.
pub fn launch() -> Result<String, Failure> {
    let other =
        |what: &str, error: io::Error| Failure::new(Exit::Other, format!("{what}: {error}"));
    let mut child = env::current_exe()
        .and_then(|exe| {
            Command::new(exe)
                .args(env::args_os().skip(1))
                .envs(absolute_paths(env::var_os))
                .env(MARK, std::process::id().to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
        })
        .map_err(|error| other("starting the background process", error))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(|error| other("waiting for the background process", error))?;
    }
    match serde_json::from_str(&line) {
        Ok(Outcome::Mounted(sentence)) => Ok(sentence),
        Ok(Outcome::Failed { exit, sentence }) => Err(Failure { exit, sentence }),
        Err(_) => {
            let status = child
                .wait()
                .map_err(|error| other("waiting for the background process", error))?;
            Err(Failure::new(
                Exit::Other,
                format!(
                    "the background process ended before it mounted ({status}); run it with --foreground to see why"
                ),
            ))
        }
    }
}

/// The [`PATHS`] that are set, made absolute. `SSL_CERT_DIR` alone may hold several, with colons between.
fn absolute_paths(
    variable: impl Fn(&'static str) -> Option<OsString>,
) -> impl Iterator<Item = (&'static str, OsString)> {
    PATHS.iter().filter_map(move |name| {
        let value = variable(name).filter(|value| !value.is_empty())?;
        let value = match *name {
            "SSL_CERT_DIR" => env::join_paths(env::split_paths(&value).map(absolute)).ok()?,
            _ => absolute(value),
        };
        Some((*name, value))
    })
}

/// A path that cannot be made absolute stays as it is, and its reader says what is wrong with it.
fn absolute(path: impl AsRef<OsStr>) -> OsString {
    let path = path.as_ref();
    std::path::absolute(path).map_or_else(|_| path.to_owned(), Into::into)
}

/// In the background process: leaves the shell's session, so that its hang-up and Ctrl-C do not reach the mount, and its
/// working directory, so that no file system is kept busy.
///
/// # Errors
/// [`Exit::Other`].
pub fn detach() -> Result<(), Failure> {
    let other = |error: io::Error| {
        Failure::new(Exit::Other, format!("leaving the shell's session: {error}"))
    };
    // EPERM: the leader of a session already, which is as good.
    let _ = nix::unistd::setsid();
    // Until the mount stands, whoever interrupts the waiting process means this one.
    prctl::set_pdeathsig(Signal::SIGTERM).map_err(|errno| other(errno.into()))?;
    let waiting = env::var(MARK).ok().and_then(|id| id.parse().ok());
    if waiting != Some(nix::unistd::getppid().as_raw()) {
        return Err(Failure::new(
            Exit::Other,
            "the command that waits for the mount has ended",
        ));
    }
    env::set_current_dir("/").map_err(other)
}

/// In the background process: tells that the mount stands and lets go of the terminal.
///
/// # Errors
/// [`Exit::Other`] where the waiting process is gone or `/dev/null` cannot be opened.
pub fn announce(sentence: &str) -> Result<(), Failure> {
    let other = |error: io::Error| {
        Failure::new(Exit::Other, format!("letting go of the terminal: {error}"))
    };
    prctl::set_pdeathsig(None).map_err(|errno| other(errno.into()))?;
    tell(&Outcome::Mounted(sentence.to_owned())).map_err(other)?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open(Path::new("/dev/null"))
        .map_err(other)?;
    redirect(&null).map_err(|errno| other(errno.into()))
}

fn redirect(null: &File) -> nix::Result<()> {
    nix::unistd::dup2_stdout(null)?;
    nix::unistd::dup2_stderr(null)
}

/// In the background process: tells why there will be no mount. Best effort, since the process ends anyway.
pub fn fail(failure: &Failure) {
    let _ = tell(&Outcome::Failed {
        exit: failure.exit,
        sentence: failure.sentence.clone(),
    });
}

fn tell(outcome: &Outcome) -> io::Result<()> {
    let mut line = serde_json::to_vec(outcome)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_of_the_environment_are_meant_from_here() {
        let here = env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        for (name, value, want) in [
            (
                "GOOGLE_APPLICATION_CREDENTIALS",
                "key.json",
                "HERE/key.json",
            ),
            ("GOOGLE_APPLICATION_CREDENTIALS", "a:b", "HERE/a:b"),
            ("CLOUDSDK_CONFIG", "./gcloud", "HERE/gcloud"),
            ("HOME", "/root", "/root"),
            ("SSL_CERT_FILE", "ca.pem", "HERE/ca.pem"),
            ("SSL_CERT_DIR", "/etc/ssl:certs", "/etc/ssl:HERE/certs"),
            ("TMPDIR", "tmp", "HERE/tmp"),
        ] {
            let set = |asked: &'static str| (asked == name).then(|| value.into());
            let paths: Vec<_> = absolute_paths(set).collect();
            let want = want.replace("HERE", here).into();
            assert_eq!(paths, [(name, want)], "{name}={value}");
        }
        assert_eq!(absolute_paths(|_| Some(OsString::new())).count(), 0);
    }

    #[test]
    fn outcomes_survive_the_pipe() {
        let failed = Outcome::Failed {
            exit: Exit::NoBucket,
            sentence: "no \"such\"\nbucket".into(),
        };
        let line = serde_json::to_string(&failed).unwrap();
        assert_eq!(line.lines().count(), 1);
        match serde_json::from_str(&line).unwrap() {
            Outcome::Failed { exit, sentence } => {
                assert_eq!(
                    (exit, sentence.as_str()),
                    (Exit::NoBucket, "no \"such\"\nbucket")
                );
            }
            Outcome::Mounted(_) => panic!("mounted"),
        }
    }
}
