//! A subject token from a program, as external-account files name one with
//! `credential_source.executable` (AIP-4117). It runs without a shell, with a deadline, and what it
//! writes is bounded.

use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use zeroize::Zeroizing;

use super::Source;
use super::text_file::TextFile;
use crate::error::{Error, Kind, SourceFault};
use crate::secret::{AccessSecret, SubjectToken, quotable};

/// Longer than any answer.
const LARGEST: usize = 1 << 20;

/// How long the rest of the output is waited for once the program has ended. What it wrote itself is
/// there by then; this is for what it started.
const REST: Duration = Duration::from_millis(100);

/// Runs a program for the subject token.
pub struct ExecutableSource {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    timeout: Duration,
    /// Where the program keeps its last answer, which is used as long as it is good.
    output: Option<TextFile>,
}

/// What the program is told about its task.
#[derive(Clone, Debug)]
pub struct Task {
    /// The audience of the exchange.
    pub audience: String,
    /// The type of token that is wanted.
    pub token_type: String,
    /// The service account that is impersonated with it.
    pub impersonated: Option<String>,
    /// Where the program may keep its answer.
    pub output_file: Option<PathBuf>,
}

impl ExecutableSource {
    /// A source that runs `command`, a program and its arguments with spaces between.
    ///
    /// # Errors
    /// [`Kind::Config`] for an empty command.
    pub fn new(command: &str, task: Task, timeout: Duration) -> Result<Self, Error> {
        let mut words = command.split_whitespace().map(str::to_owned);
        let Some(program) = words.next() else {
            let message = "credential_source.executable.command names no program";
            return Err(Error::new(Kind::Config, message));
        };
        let mut environment = vec![
            ("GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE", task.audience),
            ("GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE", task.token_type),
            ("GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE", "0".to_owned()),
        ];
        if let Some(account) = task.impersonated {
            environment.push(("GOOGLE_EXTERNAL_ACCOUNT_IMPERSONATED_EMAIL", account));
        }
        if let Some(path) = &task.output_file {
            let path = path.display().to_string();
            environment.push(("GOOGLE_EXTERNAL_ACCOUNT_OUTPUT_FILE", path));
        }
        Ok(Self {
            program,
            arguments: words.collect(),
            environment,
            timeout,
            output: task.output_file.map(TextFile::new),
        })
    }

    /// What the program wrote last time, if it is still good.
    async fn kept(&self) -> Option<SubjectToken> {
        let text = self.output.as_ref()?.read().await.ok()?;
        let response: Response = serde_json::from_str(&text).ok()?;
        response.expires_after(SystemTime::now())?;
        response.token().ok()
    }

    async fn run(&self) -> Result<SubjectToken, Error> {
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.fault(SourceFault::Missing, &format!("cannot run: {error}")))?;
        let group = Group::led_by(&child);
        let mut written = Zeroizing::new(Vec::with_capacity(64 << 10));
        let (status, all) = self.finish(&mut child, &mut written).await?;
        // What it leaves running is its own affair, unless it still writes to us.
        if all {
            group.spare();
        } else {
            drop(group);
        }
        let response: Response = serde_json::from_slice(&written).map_err(|_| {
            let what = format!("ended with {status} and gave an answer that is not its JSON");
            self.fault(SourceFault::Malformed, &what)
        })?;
        response
            .outcome(status, SystemTime::now())
            .map_err(|(fault, what)| self.fault(fault, &what))
    }

    /// Reads what the program writes until its end, and whether that is all: something that it
    /// started may hold its output for longer.
    async fn finish(
        &self,
        child: &mut Child,
        written: &mut Vec<u8>,
    ) -> Result<(ExitStatus, bool), Error> {
        let output = child.stdout.take().expect("it was made a pipe");
        let unreadable = |error: std::io::Error| {
            self.fault(SourceFault::Unreadable, &format!("cannot be read: {error}"))
        };
        let endless = |error: std::io::Error| {
            self.fault(SourceFault::Unreadable, &format!("has no end: {error}"))
        };
        let ended = {
            let mut reading = pin!(fill(output, written));
            tokio::select! {
                biased;
                read = reading.as_mut() => read.map(|()| None).map_err(unreadable)?,
                ended = child.wait() => {
                    let status = ended.map_err(endless)?;
                    let all = match tokio::time::timeout(REST, reading).await {
                        Ok(read) => read.map(|()| true).map_err(unreadable)?,
                        Err(_) => false,
                    };
                    Some((status, all))
                }
            }
        };
        if written.len() > LARGEST {
            return Err(self.fault(SourceFault::TooLarge, "writes without end"));
        }
        match ended {
            Some(ended) => Ok(ended),
            None => {
                let status = child.wait().await.map_err(endless)?;
                Ok((status, true))
            }
        }
    }

    fn fault(&self, fault: SourceFault, what: &str) -> Error {
        let message = format!("the program {} {what}", self.program);
        Error::new(Kind::Source(fault), message)
    }
}

/// Reads to the end, or to more than is taken. What was read is kept if this is given up.
async fn fill(mut output: impl AsyncRead + Unpin, written: &mut Vec<u8>) -> std::io::Result<()> {
    while written.len() <= LARGEST && output.read_buf(written).await? > 0 {}
    Ok(())
}

/// A program and what it started, ended with this unless spared. A shell that is killed alone
/// leaves behind what it runs.
struct Group(Option<Pid>);

impl Group {
    /// The group of a program that was started as the first of one.
    fn led_by(child: &Child) -> Self {
        let leader = child.id().and_then(|id| id.try_into().ok());
        Self(leader.map(Pid::from_raw))
    }

    fn spare(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The number is that of its group as long as the leader was not waited for, or something
        // of the group lives; else it was free for no longer than the rest was waited for.
        if let Some(group) = self.0 {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl fmt::Debug for ExecutableSource {
    /// Without the arguments, of which one may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableSource")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for ExecutableSource {
    async fn subject_token(&self) -> Result<SubjectToken, Error> {
        if let Some(token) = self.kept().await {
            return Ok(token);
        }
        tokio::time::timeout(self.timeout, self.run())
            .await
            .unwrap_or_else(|_| {
                let within = self.timeout.as_secs_f32();
                let message = format!("the program {} had no end within {within} s", self.program);
                Err(Error::new(Kind::Timeout, message))
            })
    }

    fn describe(&self) -> String {
        format!("program {}", self.program)
    }

    fn key(&self) -> String {
        format!(
            "program {} {:?} {:?}",
            self.program, self.arguments, self.environment
        )
    }
}

/// What a program answers (AIP-4117, "Response format").
#[derive(Deserialize)]
struct Response {
    version: u32,
    success: bool,
    id_token: Option<AccessSecret>,
    saml_response: Option<AccessSecret>,
    expiration_time: Option<u64>,
    code: Option<String>,
    message: Option<String>,
}

impl Response {
    /// The answer, if it tells an expiry and that is still to come.
    fn expires_after(&self, now: SystemTime) -> Option<()> {
        let ends =
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(self.expiration_time?))?;
        (ends > now).then_some(())
    }

    /// The token of a program that ended so.
    fn outcome(
        self,
        status: ExitStatus,
        now: SystemTime,
    ) -> Result<SubjectToken, (SourceFault, String)> {
        let expired = self.expiration_time.is_some() && self.expires_after(now).is_none();
        let token = self.token()?;
        if !status.success() {
            let what = format!("gives a token, and yet ended with {status}");
            return Err((SourceFault::Unreadable, what));
        }
        match expired {
            false => Ok(token),
            true => Err((
                SourceFault::Expired,
                "gives a token that has expired".to_owned(),
            )),
        }
    }

    fn token(self) -> Result<SubjectToken, (SourceFault, String)> {
        if self.version != 1 {
            let what = format!("answers in version {} of its format", self.version);
            return Err((SourceFault::Malformed, what));
        }
        if !self.success {
            let said = |part: Option<String>| quotable(&part.unwrap_or_default(), "");
            let what = format!("refuses: {} {}", said(self.code), said(self.message));
            return Err((SourceFault::Unreadable, what));
        }
        self.id_token
            .or(self.saml_response)
            .and_then(|token| SubjectToken::new(token.expose().to_owned()))
            .ok_or_else(|| (SourceFault::Empty, "gives no token".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::path::Path;
    use std::sync::mpsc;
    use std::thread;

    use tempfile::tempdir;
    use tokio::task::spawn_blocking;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn task(output_file: Option<PathBuf>) -> Task {
        Task {
            audience: "the-audience".to_owned(),
            token_type: "urn:ietf:params:oauth:token-type:id_token".to_owned(),
            impersonated: Some("gsa@p".to_owned()),
            output_file,
        }
    }

    /// Read by a shell, not run itself: a file that was just written is busy for as long as a
    /// program that another test starts meanwhile holds a copy of its descriptor.
    fn script(dir: &Path, body: &str) -> String {
        let path = dir.join("program");
        fs::write(&path, format!("{body}\n")).unwrap();
        format!("sh {} with arguments", path.display())
    }

    async fn run(body: &str, seconds: u64) -> Result<SubjectToken, Error> {
        let dir = tempdir().unwrap();
        let command = script(dir.path(), body);
        ExecutableSource::new(&command, task(None), Duration::from_secs(seconds))
            .unwrap()
            .subject_token()
            .await
    }

    #[tokio::test]
    async fn a_program_is_told_its_task_and_gives_a_token() {
        let body = r#"echo "{\"version\":1,\"success\":true,\"id_token\":\"$GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE.$2.$GOOGLE_EXTERNAL_ACCOUNT_IMPERSONATED_EMAIL$GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE\"}""#;
        let token = run(body, 30).await.unwrap();
        assert_eq!(token.expose(), "the-audience.arguments.gsa@p0");
    }

    #[tokio::test]
    async fn what_a_program_does_wrong_has_its_name() {
        let source = |fault| Kind::Source(fault);
        for (body, kind) in [
            (
                r#"echo '{"version":1,"success":false,"code":"401","message":"no"}'; exit 1"#,
                source(SourceFault::Unreadable),
            ),
            (
                r#"echo '{"version":2,"success":true,"id_token":"a"}'"#,
                source(SourceFault::Malformed),
            ),
            (
                r#"echo '{"version":1,"success":true}'"#,
                source(SourceFault::Empty),
            ),
            (
                r#"echo '{"version":1,"success":true,"id_token":"a"}'; exit 4"#,
                source(SourceFault::Unreadable),
            ),
            (
                r#"echo '{"version":1,"success":true,"id_token":"a","expiration_time":7}'"#,
                source(SourceFault::Expired),
            ),
            ("echo hidden-text", source(SourceFault::Malformed)),
            ("exit 3", source(SourceFault::Malformed)),
            ("exec yes", source(SourceFault::TooLarge)),
        ] {
            let error = run(body, 30).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{body}: {error}");
            assert!(!error.message().contains("hidden-text"));
        }
        let hung = run("exec tail -f /dev/null", 0).await.unwrap_err();
        assert_eq!(hung.kind(), Kind::Timeout);
        let none = ExecutableSource::new("/no/such/program", task(None), Duration::from_secs(5));
        let error = none.unwrap().subject_token().await.unwrap_err();
        assert_eq!(error.kind(), source(SourceFault::Missing));
        let empty = ExecutableSource::new("  ", task(None), Duration::from_secs(5));
        assert_eq!(empty.unwrap_err().kind(), Kind::Config);
    }

    #[tokio::test]
    async fn a_program_that_is_given_up_ends_with_all_that_it_started() {
        let dir = tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let body = format!(
            "(echo ready; exec tail -f /dev/null) > {} & wait",
            pipe.display()
        );
        let command = script(dir.path(), &body);
        let source = ExecutableSource::new(&command, task(None), LONG).unwrap();
        let begun = spawn_blocking(move || {
            let mut pipe = fs::File::open(pipe).unwrap();
            let mut ready = [0; 6];
            pipe.read_exact(&mut ready).unwrap();
            pipe
        });
        let mut pipe = tokio::select! {
            ended = source.subject_token() => panic!("{ended:?}"),
            pipe = begun => pipe.unwrap(),
        };
        // The pipe ends with the last program that could write to it.
        let (ended, end) = mpsc::channel();
        thread::spawn(move || ended.send(pipe.read_to_end(&mut Vec::new()).unwrap()));
        assert_eq!(end.recv_timeout(LONG), Ok(0), "something still runs");
    }

    #[tokio::test]
    async fn an_answer_counts_once_its_program_has_ended_and_what_holds_the_output_is_ended() {
        let dir = tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let body = format!(
            r#"exec 3> {}
tail -f /dev/null &
echo '{{"version":1,"success":true,"id_token":"valid"}}'"#,
            pipe.display()
        );
        let command = script(dir.path(), &body);
        let source = ExecutableSource::new(&command, task(None), LONG).unwrap();
        // The pipe ends with the last program that could write to it.
        let (ended, end) = mpsc::channel();
        thread::spawn(move || {
            let mut pipe = fs::File::open(pipe).unwrap();
            ended.send(pipe.read_to_end(&mut Vec::new()).unwrap())
        });
        assert_eq!(source.subject_token().await.unwrap().expose(), "valid");
        assert_eq!(end.recv_timeout(LONG), Ok(0), "something still runs");
    }

    #[test]
    fn the_arguments_of_a_program_are_not_shown() {
        let source = ExecutableSource::new("prog --key hidden", task(None), Duration::ZERO);
        let source = source.unwrap();
        assert!(!format!("{source:?} {}", source.describe()).contains("hidden"));
        assert!(source.key().contains("hidden"), "it is another source");
    }

    #[tokio::test]
    async fn a_kept_answer_is_used_until_it_expires() {
        let dir = tempdir().unwrap();
        let kept = dir.path().join("kept");
        let body = r#"echo '{"version":1,"success":true,"id_token":"fresh"}'"#;
        let command = script(dir.path(), body);
        let source =
            ExecutableSource::new(&command, task(Some(kept.clone())), Duration::from_secs(30))
                .unwrap();
        for (expires, token) in [(4_000_000_000_u64, "kept"), (1, "fresh")] {
            let response = format!(
                r#"{{"version":1,"success":true,"id_token":"kept","expiration_time":{expires}}}"#
            );
            fs::write(&kept, response).unwrap();
            assert_eq!(source.subject_token().await.unwrap().expose(), token);
        }
        fs::write(&kept, "half").unwrap();
        assert_eq!(source.subject_token().await.unwrap().expose(), "fresh");
    }
}
