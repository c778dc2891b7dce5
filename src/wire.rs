//! How the parts are put together; to be read as the architecture.
//!
//! ```text
//! Identity -> Broker -> Credentials -> JsonStore -> Fs over BlockCache and Budget -> Session
//! ```

use std::error::Error as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use gcsmount_auth::broker::Key;
use gcsmount_auth::{
    Broker, BrokerConfig, CredentialFile, CredentialFileConfig, EveryTime, Exchange, FileSource,
    FromUrl, Identities, Metadata, Timeouts, Tuning,
};
use gcsmount_cache::{BlockCache, Budget, CacheConfig, Lease, Priority};
use gcsmount_fuse::{Fs, FsConfig};
use gcsmount_gcs::Store;
use gcsmount_gcs::client::json;
use gcsmount_k8s_contract::layout::{TOKEN_FILE, TOKEN_VOLUME};
use google_cloud_auth::credentials::Credentials;
use google_cloud_auth::errors::CredentialsError;
use md5::{Digest, Md5};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::config::{MountConfig, Transport};
use crate::exit::{Exit, Failure};
use crate::explain::{self, Explanation};
use crate::identity::{Identity, Reason, Source};
use crate::metrics::{Meter, Sources};

/// By how much the file system waits longer than the store's client for the same call.
const SLACK: Duration = Duration::from_secs(10);

/// Attempts of one call, with pauses that double up to 30 s: more than fit in the usual two minutes.
const ATTEMPTS: u32 = 24;

/// The longest that one attempt to reach a service may take before the mount stands.
pub const ATTEMPT: Duration = Duration::from_secs(8);

/// What the identity amounts to: how requests get their headers.
#[derive(Debug, Clone)]
pub struct Access {
    /// What was chosen.
    pub identity: Identity,
    /// Our own broker, where the identity is one that it keeps.
    pub broker: Option<Broker>,
    credentials: Option<Credentials>,
}

impl Access {
    /// The identity as the bucket sees it, for a person who is to grant it something.
    #[must_use]
    pub fn who(&self) -> String {
        match (self.principal(), &self.identity.source) {
            (Some(principal), _) => principal,
            (None, Source::Anonymous) => "an anonymous caller".into(),
            (None, Source::Projected { path, .. } | Source::CredentialFile(path)) => {
                format!("the identity of {}", path.display())
            }
            (None, Source::TokenUrl { url, .. }) => format!("the identity of {url}"),
            (None, Source::Metadata { host, .. }) => {
                format!("the identity of the metadata server {host}")
            }
        }
    }

    /// The IAM member that the tokens stand for, once that is known.
    #[must_use]
    pub fn principal(&self) -> Option<String> {
        self.broker.as_ref()?.status().identity.principal
    }

    /// Whether requests carry a token at all.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.credentials.is_some()
    }

    /// Gets a token, to find out whether there is one.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn prove(&self) -> Result<(), gcsmount_auth::Error> {
        match (&self.broker, &self.credentials) {
            (Some(broker), _) => broker.token().await.map(drop),
            // Asked anew for each request: nobody but the credentials can tell.
            (None, Some(credentials)) => match credentials.headers(http::Extensions::new()).await {
                Ok(_) => Ok(()),
                Err(error) => Err(own_error(&error)),
            },
            (None, None) => Ok(()),
        }
    }

    /// Why the bucket cannot be used, and what to do about it.
    #[must_use]
    pub fn explain_bucket(&self, error: &gcsmount_gcs::Error, config: &MountConfig) -> Explanation {
        self.as_case(config, |case| explain::bucket(error, case))
    }

    /// What to grant, in words and as a command.
    #[must_use]
    pub fn grant(&self, config: &MountConfig) -> (String, String) {
        self.as_case(config, |case| explain::grant(case, ""))
    }

    fn as_case<T>(&self, config: &MountConfig, then: impl FnOnce(&explain::Case<'_>) -> T) -> T {
        let (who, principal) = (self.who(), self.principal());
        then(&explain::Case {
            bucket: &config.bucket,
            endpoint: &config.endpoint,
            who: &who,
            principal: principal.as_deref(),
            identity: &self.identity,
            payer: config.billing_project.as_deref(),
        })
    }

    /// Who gives the token; empty where there is none.
    #[must_use]
    pub fn giver(&self) -> String {
        match &self.identity.source {
            Source::Projected { .. } => format!("the token service at {}", self.identity.steps.sts),
            Source::CredentialFile(path) => format!("the service that {} names", path.display()),
            Source::TokenUrl { url, .. } => url.to_string(),
            Source::Metadata { host, .. } => format!("the metadata server {host}"),
            Source::Anonymous => String::new(),
        }
    }

    /// Why there is no token, and what to do about it.
    #[must_use]
    pub fn explain(&self, error: &gcsmount_auth::Error) -> Failure {
        let failure = explain::identity(error);
        // Nobody asked for a metadata server: that it does not serve means that nobody has said who this is.
        let (Source::Metadata { whose, .. }, Reason::NothingElse) =
            (&self.identity.source, self.identity.why)
        else {
            return failure;
        };
        let sentence = match whose {
            None => format!(
                "there is no identity: no flag, no GOOGLE_APPLICATION_CREDENTIALS, no projected volume and no gcloud login; run \
                 `gcloud auth application-default login`, or give --token-file, --key-file or --anonymous-access \
                 (asked last: {})",
                failure.sentence
            ),
            Some(_) => format!(
                "there is no identity of this pod: the volume {TOKEN_VOLUME} is not mounted at {TOKEN_FILE}, which a pod on the \
                 host's network needs (a projected serviceAccountToken with the audience PROJECT.svc.id.goog; asked last: {})",
                failure.sentence
            ),
        };
        Failure::new(Exit::NoToken, sentence)
    }

    /// Whether the tokens are for the universe that the services are asked in, once there is a token.
    ///
    /// # Errors
    /// [`Exit::Usage`] where they are not: the services would be sent tokens that mean nothing to them.
    pub fn check_universe(&self) -> Result<(), Failure> {
        let Some(broker) = &self.broker else {
            return Ok(());
        };
        let (theirs, ours) = (broker.universe_domain(), self.identity.universe.unusual());
        if theirs == ours {
            return Ok(());
        }
        let theirs = theirs.unwrap_or_else(|| "googleapis.com".into());
        Err(Failure::new(
            Exit::Usage,
            format!(
                "the tokens of {} are for the universe {theirs}, and the services are those of {}: give --universe-domain {theirs}",
                self.who(),
                self.identity.universe
            ),
        ))
    }
}

/// The error of ours that Google's type is wrapped around, without its words about later attempts.
fn own_error(error: &CredentialsError) -> gcsmount_auth::Error {
    let inner = error.source().and_then(|source| source.downcast_ref());
    inner.cloned().unwrap_or_else(|| {
        gcsmount_auth::Error::new(gcsmount_auth::Kind::Internal, error.to_string())
    })
}

/// What all that this process mounts or serves has in common.
#[derive(Debug)]
pub struct Shared {
    /// The memory for file data.
    budget: Budget,
    /// How many threads may have memory out of it.
    threads: Arc<Semaphore>,
    /// What connections are like.
    pool: json::Pool,
    /// Those of all that have no limits of their own.
    http: json::Http,
    /// The brokers: who has an identity that is known shares its tokens.
    identities: Identities,
}

/// Connections where so much memory is for file data. What they buffer is beside it, so that they are fewer and have less
/// where it is scarce.
fn pool(memory: usize) -> json::Pool {
    let usual = json::Pool::default();
    if memory >= 128 << 20 {
        return usual;
    }
    json::Pool {
        read_buffer: (memory / 256).clamp(64 << 10, usual.read_buffer),
        idle: usual.idle.min(16),
        ..usual
    }
}

/// Bytes that a thread takes requests of the kernel into, as far as it touches them: one of the largest.
const PER_THREAD: usize = 1 << 20;

/// Memory that the threads of a volume have, for as long as they run.
#[derive(Debug)]
pub struct ForThreads {
    _lease: Lease,
    _permit: OwnedSemaphorePermit,
}

/// The most identities that one process keeps tokens for.
const IDENTITIES: usize = 1024;

impl Shared {
    /// With so many bytes of memory for file data.
    #[must_use]
    pub fn new(memory: usize) -> Self {
        // Google's library leaves the choice of a TLS provider to the process. A second installation says that one is there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            budget: Budget::new(memory),
            threads: Arc::new(Semaphore::new(memory / 2 / PER_THREAD)),
            pool: pool(memory),
            http: json::Http::new(&pool(memory)),
            identities: Identities::new(IDENTITIES),
        }
    }

    /// The connections to use: limits count for one mount, and so does a protocol of its own.
    fn http(&self, transport: &Transport) -> json::Http {
        let pool = json::Pool {
            protocol: transport.protocol,
            byte_rate: transport.byte_rate,
            request_rate: transport.request_rate,
            ..self.pool
        };
        match pool == self.pool {
            true => self.http.clone(),
            false => json::Http::new(&pool),
        }
    }

    /// Takes the memory of the threads that serve a volume out of that for file data, so that many volumes need no more than
    /// few. Half of it stays for file data: beyond that there is nothing to take, and `None` is no reason not to serve.
    #[must_use]
    pub fn for_threads(&self, threads: usize) -> Option<ForThreads> {
        let permits = u32::try_from(threads).ok()?;
        let half = Arc::clone(&self.threads);
        let permit = half.try_acquire_many_owned(permits).ok()?;
        let lease = self
            .budget
            .try_acquire(threads * PER_THREAD, Priority::Prefetch)?;
        Some(ForThreads {
            _lease: lease,
            _permit: permit,
        })
    }

    /// What the figures of a volume are asked of.
    #[must_use]
    pub fn sources(&self, fs: &Arc<Fs>, access: &Access) -> Sources {
        Sources {
            fs: Arc::clone(fs),
            budget: self.budget.clone(),
            broker: access.broker.clone(),
        }
    }

    /// Starts what keeps the identity's tokens fresh, unless somebody has.
    ///
    /// # Errors
    /// [`Exit::NoToken`] for credentials that cannot be used.
    pub fn access(&self, identity: &Identity) -> Result<Access, Failure> {
        let (broker, credentials) = self
            .start(identity)
            .map_err(|error| explain::identity(&error))?;
        Ok(Access {
            identity: identity.clone(),
            broker,
            credentials,
        })
    }

    fn start(
        &self,
        identity: &Identity,
    ) -> Result<(Option<Broker>, Option<Credentials>), gcsmount_auth::Error> {
        let steps = &identity.steps;
        let timeouts = Timeouts::default();
        let broker = match &identity.source {
            Source::Anonymous => return Ok((None, None)),
            Source::Projected { path, audience } => self.identities.broker(&BrokerConfig {
                audience: audience.clone(),
                sts: steps.sts.clone(),
                scope: steps.scope.clone(),
                impersonate: steps.impersonate.clone(),
                boundary: steps.boundary.clone(),
                universe: identity.universe.clone(),
                ..BrokerConfig::new(Arc::new(FileSource::new(path)))
            })?,
            Source::CredentialFile(path) => {
                let config = CredentialFileConfig {
                    universe: identity.universe.clone(),
                    allowed_hosts: identity.trusted_hosts.clone(),
                    ..CredentialFileConfig::new(path)
                };
                let config = config.before(steps);
                let tuning = config.tuning();
                self.kept(identity, Arc::new(CredentialFile::new(config)), tuning)?
            }
            Source::Metadata { host, whose } => {
                let scope = steps.needed_scope().to_owned();
                let server = Metadata::new(host, *whose, scope, timeouts)?;
                let server = server.in_universe(identity.universe.clone());
                self.kept(identity, Arc::new(server), Tuning::default())?
            }
            Source::TokenUrl { url, reuse: true } => {
                let from = FromUrl::new(url.clone(), timeouts)?;
                self.kept(identity, Arc::new(from), Tuning::default())?
            }
            Source::TokenUrl { url, reuse: false } => {
                let from = FromUrl::new(url.clone(), timeouts)?;
                let each = steps.clone().after(Arc::new(from))?;
                let wait = steps.tuning(Tuning::default()).wait;
                return Ok((None, Some(EveryTime::new(each, wait).into())));
            }
        };
        let credentials = broker.credentials();
        Ok((Some(broker), Some(credentials)))
    }

    /// The broker that keeps what `first` and then the steps give.
    fn kept(
        &self,
        identity: &Identity,
        first: Arc<dyn Exchange>,
        base: Tuning,
    ) -> Result<Broker, gcsmount_auth::Error> {
        let steps = &identity.steps;
        self.identities
            .get_or_start(key(identity), steps.tuning(base), || {
                steps.clone().after(first)
            })
    }
}

/// What makes an identity another one. Its text leaves the secrets of a URL out, which is why the hash is there.
fn key(identity: &Identity) -> Key {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    Key::named(format!("{identity:?} {:x}", hasher.finish()))
}

/// The bucket as this identity sees it, over one pool of connections.
#[derive(Debug)]
pub struct Stores {
    /// Repeats nothing and gives up after [`ATTEMPT`]: what the mount asks before it stands, so that it learns the cause.
    pub probe: Arc<dyn Store>,
    /// The one to work with.
    pub store: Arc<dyn Store>,
}

/// Sets up the clients, whose requests `meter` counts. No request is sent yet.
///
/// # Errors
/// [`Exit::Usage`] for an endpoint that is none.
pub fn stores(
    config: &MountConfig,
    access: &Access,
    shared: &Shared,
    meter: Option<&Arc<Meter>>,
) -> Result<Stores, Failure> {
    let usage = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("--custom-endpoint: {error}"))
    };
    let endpoint = config
        .endpoint
        .parse()
        .map_err(|error: json::InvalidEndpoint| usage(&error))?;
    let mut patient = json::Config {
        endpoint,
        credentials: access.credentials.clone(),
        billing_project: config.billing_project.clone(),
        upload_chunk: upload_chunk(config.memory),
        hedge: config.transport.hedge_after.map(|after| json::Hedge {
            after,
            ..json::Hedge::default()
        }),
        observer: meter.map(|meter| Arc::clone(meter) as _),
        ..json::Config::default()
    };
    let http = shared.http(&config.transport);
    patient.timeouts = timeouts(config.transport.operation);
    // It is time that ends it: an outage of half a minute must not cost what a program has just closed.
    patient.retry.attempts = ATTEMPTS;
    let mut hasty = patient.clone();
    hasty.retry.attempts = 1;
    hasty.observer = None;
    hasty.timeouts.operation = ATTEMPT;
    let store = |settings| -> Result<Arc<dyn Store>, Failure> {
        let store = json::JsonStore::new(&http, config.bucket.clone(), settings)
            .map_err(|error| usage(&error))?;
        Ok(Arc::new(store))
    };
    Ok(Stores {
        probe: store(hasty)?,
        store: store(patient)?,
    })
}

/// The client's deadlines where a call may take `operation`: enough of it is left to ask once more after one that had no
/// answer.
fn timeouts(operation: Duration) -> json::Timeouts {
    let usual = json::Timeouts::default();
    json::Timeouts {
        first_byte: usual.first_byte.min(operation / 3),
        idle: usual.idle.min(operation / 3),
        silent: usual.silent.min(operation),
        token: usual.token.min(operation),
        operation,
    }
}

/// Bytes that an upload sends as one request: a share of the memory, so that several uploads fit in it. Below 1 MiB the
/// requests cost more than the memory; above 8 MiB they are no faster.
fn upload_chunk(memory: usize) -> u64 {
    (memory as u64 / 16).clamp(1 << 20, 8 << 20)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Begins to finish what an earlier run of the same mount has left staged; what becomes of it is logged. Ends when the set is
/// dropped.
#[must_use]
pub fn recover(fs: &Arc<Fs>) -> JoinSet<()> {
    let fs = Arc::clone(fs);
    let mut recovery = JoinSet::new();
    recovery.spawn(async move {
        fs.recover().await;
    });
    recovery
}

/// Where this mount's staged files are found again after a crash. Another mount's, or another identity's, are none of its
/// business.
fn staging_name(config: &MountConfig) -> String {
    let MountConfig {
        bucket,
        dir,
        only_dir,
        identity,
        ..
    } = config;
    let (source, who) = (&identity.source, &identity.steps.impersonate);
    let mount = format!("{dir:?} {only_dir:?} {source:?} {who:?}");
    let digest = Md5::digest(mount);
    format!("gcsmount-{bucket}-{}", hex(&digest))
}

/// The file system over the bucket, in the memory that all share. `meter` counts what it does.
#[must_use]
pub fn file_system(
    config: &MountConfig,
    store: Arc<dyn Store>,
    shared: &Shared,
    meter: Option<&Arc<Meter>>,
    runtime: Handle,
) -> Arc<Fs> {
    let cache = BlockCache::new(&shared.budget, CacheConfig::default());
    let defaults = FsConfig::default();
    let fs_config = FsConfig {
        uid: config.uid.unwrap_or(defaults.uid),
        gid: config.gid.unwrap_or(defaults.gid),
        file_mode: config.file_mode,
        dir_mode: config.dir_mode,
        ttl: config.ttl,
        only_dir: config.only_dir.clone(),
        temp_dir: config.temp_dir.clone(),
        // The store's own deadline comes first, with its better error, and what became of a lost answer is looked for.
        deadline: config.transport.operation + SLACK,
        posix_attributes: config.posix_attributes,
        xattrs: config.xattrs,
        staging_name: Some(staging_name(config)),
        observer: meter.map(|meter| Arc::clone(meter) as _),
        parts: defaults.parts.filter(|_| config.parallel_uploads),
        ..defaults
    };
    Fs::new(fs_config, store, cache, runtime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Invocation, parse};

    /// A later version has to find what this one has left: another name is an old directory that nobody looks into.
    #[test]
    fn the_name_of_the_staging_directory_stays() {
        let name = |line: &str| {
            let words = format!("gcsmount mount {line}");
            match parse(words.split_whitespace().map(Into::into), |_| None).unwrap() {
                Invocation::Run(_, settings) => {
                    staging_name(&MountConfig::read(&settings).unwrap())
                }
                Invocation::Print(text) => panic!("{text}"),
            }
        };
        let usual = name("my-bucket /mnt --token-file /token");
        assert_eq!(usual, "gcsmount-my-bucket-cf7b5a1c7459be8fd2862dbf0d456594");
        for other in [
            "my-bucket /mnt2 --token-file /token",
            "my-bucket /mnt --token-file /token2",
            "my-bucket /mnt --token-file /token --only-dir a",
            "my-bucket /mnt --token-file /token --impersonate-service-account a@b.c",
        ] {
            assert_ne!(name(other), usual, "{other}");
        }
    }

    #[tokio::test]
    async fn threads_of_many_volumes_leave_half_of_the_memory_to_files() {
        let shared = Shared::new(16 << 20);
        let held: Vec<_> = (0..6).map(|_| shared.for_threads(2)).collect();
        let granted = held.iter().flatten().count();
        assert_eq!((granted, shared.budget.used()), (4, 8 << 20));
        drop(held);
        assert_eq!(shared.budget.used(), 0);
        assert!(shared.for_threads(2).is_some());
    }
}
