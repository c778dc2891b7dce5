//! Credential files, as `GOOGLE_APPLICATION_CREDENTIALS` or `--key-file` name one: a key of a service
//! account, a person's login, an external account. The file is read for each exchange, so that a
//! renewed one counts from the next exchange on, with no restart; only its path is fixed.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use zeroize::Zeroizing;

use crate::broker::{CLOUD_PLATFORM, Tuning};
use crate::error::{Error, Kind, SourceFault};
use crate::exchange::{Exchange, Grant, Identity, Steps, Timeouts};
use crate::source::file::unreadable;
use crate::source::text_file::TextFile;
use crate::universe::Universe;

mod contents;
mod external;
mod hosts;
mod key;
mod login;

use contents::Contents;
pub(crate) use contents::is_credential_file;
use hosts::Hosts;

/// What opens external accounts to programs, in Google's own libraries too.
const ALLOW_EXECUTABLES: &str = "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES";

/// The longest that a program of an external account may be given (AIP-4117).
const LONGEST_PROGRAM: Duration = Duration::from_secs(120);

/// Which file, and what it may do.
#[derive(Clone, Debug)]
pub struct CredentialFileConfig {
    /// The file.
    pub path: PathBuf,
    /// What the access tokens may be used for.
    pub scope: String,
    /// How long each part of an exchange may take.
    pub timeouts: Timeouts,
    /// The operator's universe. Subject tokens of external accounts are sent to its servers and to
    /// those of `googleapis.com`; what a file says about itself opens nothing.
    pub universe: Universe,
    /// Further hosts that subject tokens may be sent to, such as a private endpoint.
    pub allowed_hosts: Vec<String>,
    /// Whether an external account may name a program to run.
    pub executables: bool,
    /// Whether the signature of a service account's key may be the access token itself (AIP-4111),
    /// which saves asking anybody. Google's APIs take it, the token service does not: a token that
    /// is downscoped next has to be one that Google issued.
    pub self_signed: bool,
}

impl CredentialFileConfig {
    /// The usual configuration: cloud-platform scope, Google's servers only, programs if
    /// `GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES` is 1.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            scope: CLOUD_PLATFORM.to_owned(),
            timeouts: Timeouts::default(),
            universe: Universe::default(),
            allowed_hosts: Vec::new(),
            executables: std::env::var(ALLOW_EXECUTABLES).is_ok_and(|value| value == "1"),
            self_signed: true,
        }
    }

    /// The same for tokens that go through `steps` next: of the scope and the kind that these need.
    #[must_use]
    pub fn before(self, steps: &Steps) -> Self {
        Self {
            scope: steps.needed_scope().to_owned(),
            self_signed: self.self_signed && steps.take_a_self_signed_token(),
            ..self
        }
    }

    /// Deadlines that leave the exchange all the time that its steps may take, a program's included.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        let longest = match self.executables {
            true => LONGEST_PROGRAM,
            false => self.timeouts.source,
        };
        Tuning {
            exchange_limit: longest + 3 * self.timeouts.exchange,
            ..Tuning::default()
        }
    }

    fn hosts(&self) -> Hosts<'_> {
        Hosts {
            universe: &self.universe,
            allowed: &self.allowed_hosts,
        }
    }
}

/// Gets access tokens with a credential file.
pub struct CredentialFile {
    config: CredentialFileConfig,
    file: TextFile,
    /// Held to look and to swap, never across I/O.
    current: Mutex<Option<Current>>,
}

/// What the file said last, and what that came to.
struct Current {
    text: Zeroizing<String>,
    exchange: Arc<dyn Exchange>,
}

impl CredentialFile {
    /// An exchange with the file, which need not exist yet.
    #[must_use]
    pub fn new(config: CredentialFileConfig) -> Self {
        // The choice of a TLS provider is the process's, for the library that some files need. A
        // second installation says that one is there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            file: TextFile::new(config.path.clone()),
            config,
            current: Mutex::default(),
        }
    }

    async fn read(&self) -> Result<Zeroizing<String>, Error> {
        let timeout = self.config.timeouts.source;
        let path = self.config.path.display();
        let text = tokio::time::timeout(timeout, self.file.read())
            .await
            .map_err(|_| {
                let within = timeout.as_secs_f32();
                let message =
                    format!("the credential file {path} could not be read within {within} s");
                Error::new(Kind::Timeout, message)
            })?
            .map_err(|unread| unreadable(&self.file, "credential", unread))?;
        match text.trim().is_empty() {
            false => Ok(text),
            true => Err(Error::new(
                Kind::Source(SourceFault::Empty),
                format!("the credential file {path} is empty: is it being written?"),
            )),
        }
    }

    fn exchange_of(&self, text: Zeroizing<String>) -> Result<Arc<dyn Exchange>, Error> {
        if let Some(current) = self.lock().as_ref().filter(|current| current.text == text) {
            return Ok(Arc::clone(&current.exchange));
        }
        let exchange = Contents::parse(&text, &self.config)
            .and_then(|contents| contents.exchange(&self.config))
            .map_err(|error| self.naming_the_file(&error))?;
        let current = Current {
            text,
            exchange: Arc::clone(&exchange),
        };
        *self.lock() = Some(current);
        Ok(exchange)
    }

    /// The error with the path of the file, which those who read a field of it do not know.
    fn naming_the_file(&self, error: &Error) -> Error {
        let path = self.config.path.display().to_string();
        match error.message().contains(&path) {
            true => error.clone(),
            false => Error::new(error.kind(), format!("credential file {path}: {error}")),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        // What is inside is swapped whole, so a panic elsewhere leaves it whole.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Exchange for CredentialFile {
    async fn exchange(&self) -> Result<Grant, Error> {
        let text = self.read().await?;
        self.exchange_of(text)?.exchange().await
    }

    fn identity(&self) -> Identity {
        let source = self.config.path.display().to_string();
        match &*self.lock() {
            Some(current) => Identity {
                source,
                ..current.exchange.identity()
            },
            None => Identity {
                source,
                ..Identity::default()
            },
        }
    }

    fn universe_domain(&self) -> Option<String> {
        match &*self.lock() {
            Some(current) => current.exchange.universe_domain(),
            None => self.config.universe.unusual(),
        }
    }
}

impl fmt::Debug for CredentialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialFile")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
