//! Everything that the listeners of one emulator share.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, header};

use crate::access::{Access, Bearer, Caller};
use crate::accounts::Accounts;
use crate::assertion::Statement;
use crate::clock::Clock;
use crate::config::{Auth, Config};
use crate::counters::Tally;
use crate::error::ApiError;
use crate::fault::Faults;
use crate::journal::{Journal, Mirror};
use crate::jwt::Signer;
use crate::metadata::Flavors;
use crate::oauth::login::Logins;
use crate::principal::Principal;
use crate::shape::Shape;
use crate::store::Store;
use crate::sts::Sts;
use crate::upload::session::Sessions;

/// Bounds on what a caller may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_body: u64,
    pub(crate) max_connections: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) md5: bool,
}

/// The parts. No two of their locks are held at once, but for an upload session's, which is taken before the
/// store's.
pub(crate) struct State {
    pub(crate) clock: Clock,
    pub(crate) store: Store,
    pub(crate) sessions: Sessions,
    pub(crate) access: Access,
    pub(crate) sts: Sts,
    pub(crate) accounts: Accounts,
    pub(crate) logins: Logins,
    pub(crate) metadata: Flavors,
    pub(crate) signer: Signer,
    pub(crate) shape: Shape,
    pub(crate) faults: Faults,
    pub(crate) tally: Arc<Tally>,
    pub(crate) limits: Limits,
    pub(crate) journal: Option<Arc<Journal>>,
}

impl State {
    /// With what the data directory holds, where there is one.
    pub(crate) fn new(config: &Config) -> io::Result<Self> {
        let clock = Clock::default();
        let opened = config.data_dir.as_deref().map(Journal::open).transpose()?;
        let (journal, kept) = opened.map_or_else(
            || (None, Mirror::default()),
            |(journal, kept)| (Some(Arc::new(journal)), kept),
        );
        Ok(Self {
            store: Store::new(clock.clone(), config.mutation_limit, journal.clone(), &kept),
            sessions: Sessions::new(config.max_sessions),
            access: Access::new(
                clock.clone(),
                (config.auth == Auth::Required, config.access_token_ttl),
                journal.clone(),
                &kept,
            ),
            sts: Sts::new(&config.providers),
            accounts: Accounts::default(),
            logins: Logins::default(),
            metadata: Flavors::new(config.metadata.clone()),
            signer: Signer::generate(),
            shape: Shape::new(config.latency, config.stream_rate),
            faults: Faults::default(),
            tally: Arc::default(),
            limits: Limits {
                max_body: config.max_body,
                max_connections: config.max_connections.max(1),
                idle_timeout: config.idle_timeout,
                md5: config.md5,
            },
            journal,
            clock,
        })
    }

    /// Waits until all that was done so far is kept, where anything is.
    pub(crate) async fn settled(&self) -> Result<(), ApiError> {
        match &self.journal {
            Some(journal) => journal.settled().await,
            None => Ok(()),
        }
    }

    /// Who the `Authorization` header says is calling.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        self.access
            .caller(headers, |token| self.self_signed(token, headers))
    }

    /// The service account whose own signature a token is.
    fn self_signed(&self, token: &str, headers: &HeaderMap) -> Option<Bearer> {
        let host = headers.get(header::HOST)?.to_str().ok()?;
        let statement = Statement::verify(token, &self.accounts, self.clock.now()).ok()?;
        Some(Bearer {
            scopes: statement.storage_scopes(host)?,
            ..Principal::ServiceAccount(statement.iss).into()
        })
    }
}
