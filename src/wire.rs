//! How the parts are put together; to be read as the architecture.
//!
//! ```text
//! Identity -> Broker -> Credentials -> JsonStore -> Fs over BlockCache and Budget -> Session
//! ```

use std::sync::Arc;
use std::time::Duration;

use gcsmount_auth::{
    Audience, Broker, BrokerConfig, CredentialFile, CredentialFileConfig, EveryTime, Exchange,
    FileSource, FromUrl, Impersonate, Timeouts, TokenUrl, Tuning, Universe,
};
use gcsmount_cache::{BlockCache, Budget, CacheConfig};
use gcsmount_fuse::{Fs, FsConfig};
use gcsmount_gcs::Store;
use gcsmount_gcs::client::json;
use google_cloud_auth::credentials::{self, Credentials};
use tokio::runtime::Handle;

use crate::config::MountConfig;
use crate::exit::{Exit, Failure};
use crate::explain;
use crate::identity::{Identity, Projected};

/// The longest that one attempt to reach a service may take before the mount stands.
pub const ATTEMPT: Duration = Duration::from_secs(8);

/// What the identity amounts to: how requests get their headers.
#[derive(Debug)]
pub struct Access {
    identity: Identity,
    /// Our own broker, where the identity is one that it keeps.
    pub broker: Option<Broker>,
    credentials: Option<Credentials>,
}

impl Access {
    /// The identity as the bucket sees it, for a person who is to grant it something.
    #[must_use]
    pub fn who(&self) -> String {
        let principal = self
            .broker
            .as_ref()
            .and_then(|b| b.status().identity.principal);
        match (principal, &self.identity) {
            (Some(principal), _) => principal,
            (None, Identity::Anonymous(_)) => "an anonymous caller".into(),
            (None, Identity::Projected(token, _)) => {
                format!("the identity of {}", token.path.display())
            }
            (None, Identity::CredentialFile(path, _)) => {
                format!("the identity of {}", path.display())
            }
            (None, Identity::TokenUrl { .. }) => "the identity of the token URL".into(),
            (None, Identity::ApplicationDefault(_)) => "the application default credentials".into(),
        }
    }

    /// The token service that this identity is exchanged at; empty where it is not.
    #[must_use]
    pub fn sts(&self) -> &str {
        match &self.identity {
            Identity::Projected(token, _) => &token.sts,
            Identity::CredentialFile(..) => "the address in the credential file",
            Identity::TokenUrl { .. } => "the token URL",
            Identity::Anonymous(_) | Identity::ApplicationDefault(_) => "",
        }
    }
}

/// Starts what keeps the identity's tokens fresh.
///
/// # Errors
/// [`Exit::NoToken`] for credentials that cannot be used, [`Exit::Usage`] for contradictory settings.
pub fn access(identity: &Identity) -> Result<Access, Failure> {
    let refuse = |error: gcsmount_auth::Error| explain::identity(&error);
    // Google's library leaves the choice of a TLS provider to the process. A second installation says that one is there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let broker = match identity {
        Identity::Anonymous(_) | Identity::ApplicationDefault(_) => None,
        Identity::Projected(token, _) => {
            Some(Broker::spawn(broker_config(token)?).map_err(refuse)?)
        }
        Identity::CredentialFile(path, _) => {
            let file = CredentialFileConfig::new(path);
            let tuning = file.tuning();
            Some(Broker::with_exchange(
                Arc::new(CredentialFile::new(file)),
                tuning,
            ))
        }
        Identity::TokenUrl { reuse: false, .. } => None,
        Identity::TokenUrl { url, reuse: true } => {
            Some(Broker::with_exchange(token_url(url)?, Tuning::default()))
        }
    };
    let credentials = match (identity, &broker) {
        (_, Some(broker)) => Some(broker.credentials()),
        (Identity::TokenUrl { url, .. }, None) => {
            Some(EveryTime::new(token_url(url)?, Tuning::default().wait).into())
        }
        (Identity::ApplicationDefault(_), None) => Some(application_default()?),
        (_, None) => None,
    };
    Ok(Access {
        identity: identity.clone(),
        broker,
        credentials,
    })
}

fn token_url(url: &str) -> Result<Arc<dyn Exchange>, Failure> {
    let refuse = |error: gcsmount_auth::Error| Failure::new(Exit::Usage, error.message());
    let url = TokenUrl::parse(url).map_err(refuse)?;
    Ok(Arc::new(
        FromUrl::new(url, Timeouts::default()).map_err(refuse)?,
    ))
}

fn broker_config(token: &Projected) -> Result<BrokerConfig, Failure> {
    let audience = match (&token.pool, &token.provider) {
        (None, None) => Audience::FromToken,
        (Some(pool), Some(provider)) => Audience::PoolAndProvider {
            pool: pool.clone(),
            provider: provider.clone(),
        },
        (Some(_), None) | (None, Some(_)) => {
            return Err(Failure::new(
                Exit::Usage,
                "--identity-pool and --identity-provider go together: give both, or neither to read them from the token",
            ));
        }
    };
    let sts = gcsmount_auth::Endpoint::parse(&token.sts)
        .map_err(|error| Failure::new(Exit::Usage, error.message()))?;
    let impersonate = token.impersonate.as_ref().map(|account| {
        Impersonate::account(account, &Universe::default().iam_credentials())
            .map_err(|error| Failure::new(Exit::Usage, error.message()))
    });
    Ok(BrokerConfig {
        audience,
        sts,
        impersonate: impersonate.transpose()?,
        ..BrokerConfig::new(Arc::new(FileSource::new(&token.path)))
    })
}

fn application_default() -> Result<Credentials, Failure> {
    credentials::Builder::default()
        .with_scopes([gcsmount_auth::broker::CLOUD_PLATFORM])
        .build()
        .map_err(|error| {
            Failure::new(
                Exit::NoToken,
                format!("application default credentials: {error}; name an identity with --token-file, or run `gcloud auth application-default login`"),
            )
        })
}

/// The bucket as this identity sees it, over one pool of connections.
#[derive(Debug)]
pub struct Stores {
    /// Repeats nothing and gives up after [`ATTEMPT`]: what the mount asks before it stands, so that it learns the cause.
    pub probe: Arc<dyn Store>,
    /// The one to work with.
    pub store: Arc<dyn Store>,
}

/// Sets up the clients. No request is sent yet.
///
/// # Errors
/// [`Exit::Usage`] for an endpoint that is none.
pub fn stores(config: &MountConfig, access: &Access) -> Result<Stores, Failure> {
    let usage = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Usage, format!("--custom-endpoint: {error}"))
    };
    let endpoint = config
        .endpoint
        .parse()
        .map_err(|error: json::InvalidEndpoint| usage(&error))?;
    let patient = json::Config {
        endpoint,
        credentials: access.credentials.clone(),
        billing_project: config.billing_project.clone(),
        upload_chunk: upload_chunk(config.memory),
        ..json::Config::default()
    };
    let mut hasty = patient.clone();
    hasty.retry.attempts = 1;
    hasty.timeouts.operation = ATTEMPT;
    let http = json::Http::new(&json::Pool::default());
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

/// Bytes that an upload sends as one request: a share of the memory, so that several uploads fit in it. Below 1 MiB the
/// requests cost more than the memory; above 8 MiB they are no faster.
fn upload_chunk(memory: usize) -> u64 {
    (memory as u64 / 16).clamp(1 << 20, 8 << 20)
}

/// The file system over the bucket, with its memory.
#[must_use]
pub fn file_system(config: &MountConfig, store: Arc<dyn Store>, runtime: Handle) -> Arc<Fs> {
    let cache = BlockCache::new(&Budget::new(config.memory), CacheConfig::default());
    let defaults = FsConfig::default();
    let fs_config = FsConfig {
        uid: config.uid.unwrap_or(defaults.uid),
        gid: config.gid.unwrap_or(defaults.gid),
        file_mode: config.file_mode,
        dir_mode: config.dir_mode,
        ttl: config.ttl,
        temp_dir: config.temp_dir.clone(),
        ..defaults
    };
    Fs::new(fs_config, store, cache, runtime)
}
