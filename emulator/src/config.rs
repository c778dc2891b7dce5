//! What an emulator is started with.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::metadata::MetadataFlavor;

/// How an [`Emulator`](crate::Emulator) listens, whom it lets in and how it behaves.
///
/// ```
/// use gcsmount_emulator::{Auth, Config};
/// let config = Config { auth: Auth::Off, buckets: vec!["demo".into()], ..Config::default() };
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen on, sharing all state. The first is the endpoint. Port 0 picks a free port.
    pub listen: Vec<SocketAddr>,
    /// Whether the object API asks for a token.
    pub auth: Auth,
    /// Buckets that exist from the start, each open to every identity of the built-in pool as
    /// [`Role::ObjectAdmin`](crate::Role::ObjectAdmin).
    pub buckets: Vec<String>,
    /// How often one object may change; `None` for no limit. GCS allows about one mutation a second of one name.
    pub mutation_limit: Option<MutationLimit>,
    /// Added before the first byte of each reply, other than the admin interface's.
    pub latency: Duration,
    /// Bytes a second of each object body, in either direction.
    pub stream_rate: Option<u64>,
    /// Lifetime of the access tokens that are issued, as in
    /// [`Admin::set_access_token_ttl`](crate::Admin::set_access_token_ttl).
    pub access_token_ttl: Duration,
    /// Workload identity federation providers that STS knows beside the built-in cluster.
    pub providers: Vec<Provider>,
    /// Service accounts that exist from the start.
    pub service_accounts: Vec<ServiceAccount>,
    /// Whom the metadata server's paths answer for, at every address that is listened on.
    pub metadata: MetadataFlavor,
    /// Largest request body that carries object data, in bytes.
    pub max_body: u64,
    /// Upload sessions that may be open at a time.
    pub max_sessions: usize,
    /// Connections served at a time; further ones wait in the listen queue.
    pub max_connections: usize,
    /// How long a peer may be silent inside a request before it is given up.
    pub idle_timeout: Duration,
    /// Whether uploads get an `md5Hash`, which costs about two seconds of CPU a GiB. Without it objects look as composed ones do.
    pub md5: bool,
    /// Where buckets, policies, folders and all versions of objects are kept over restarts; `None` for in memory alone.
    /// What was acknowledged is on the disk, whenever the process ends. Contents stay in memory all the same. One emulator
    /// at a time has the directory, from its start until the last [`Admin`](crate::Admin) handle of it is dropped; of
    /// [`Self::buckets`] only those are created that it lacks. A journal of another version is set aside, not read.
    pub data_dir: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            auth: Auth::Required,
            buckets: Vec::new(),
            mutation_limit: Some(MutationLimit::default()),
            latency: Duration::ZERO,
            stream_rate: None,
            access_token_ttl: Duration::from_secs(3600),
            providers: Vec::new(),
            service_accounts: Vec::new(),
            metadata: MetadataFlavor::default(),
            max_body: 8 << 30,
            max_sessions: 10_000,
            max_connections: 4_096,
            idle_timeout: Duration::from_secs(60),
            md5: true,
            data_dir: None,
        }
    }
}

/// Whether the object API asks who is calling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// A bearer token that STS here issued, for a principal that the bucket has a binding for.
    Required,
    /// Everybody may do everything, as with anonymous access to an ordinary emulator.
    Off,
}

/// A word that is neither `required` nor `off`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an auth mode: `required` or `off`")]
pub struct ParseAuthError(String);

impl FromStr for Auth {
    type Err = ParseAuthError;

    fn from_str(text: &str) -> Result<Self, ParseAuthError> {
        match text {
            "required" => Ok(Self::Required),
            "off" => Ok(Self::Off),
            other => Err(ParseAuthError(other.to_owned())),
        }
    }
}

/// A token bucket for the mutations of one object name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MutationLimit {
    /// Mutations a second that one name sustains; above zero.
    pub per_second: f64,
    /// Mutations that a name which was left alone takes at once; at least one.
    pub burst: u32,
}

impl Default for MutationLimit {
    fn default() -> Self {
        Self {
            per_second: 1.0,
            burst: 5,
        }
    }
}

impl MutationLimit {
    /// Reads `RATE/s:BURST`, or `off` for no limit.
    ///
    /// # Errors
    /// When the text has neither form.
    pub fn parse(text: &str) -> Result<Option<Self>, ParseLimitError> {
        match text {
            "off" => Ok(None),
            limit => limit.parse().map(Some),
        }
    }
}

/// A text that is no mutation limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a mutation limit: `RATE/s:BURST` such as `1/s:5`, or `off`")]
pub struct ParseLimitError(String);

impl FromStr for MutationLimit {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, ParseLimitError> {
        let parsed = text.split_once("/s:").and_then(|(rate, burst)| {
            let per_second = rate.parse::<f64>().ok()?;
            let burst = burst.parse::<u32>().ok()?;
            let sane = per_second.is_finite() && per_second > 0.0 && burst > 0;
            sane.then_some(Self { per_second, burst })
        });
        parsed.ok_or_else(|| ParseLimitError(text.to_owned()))
    }
}

impl fmt::Display for MutationLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s:{}", self.per_second, self.burst)
    }
}

/// What a bucket is set to, beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BucketSettings {
    /// Uniform bucket-level access. Without it a federated principal, and whoever comes with a credential access
    /// boundary, is refused with 412.
    pub uniform_access: bool,
    /// Whether each request must name the project that pays for it, by `userProject` or `x-goog-user-project`.
    pub requester_pays: bool,
    /// How long an object is kept from being replaced or deleted; `None` for no retention policy.
    #[serde(rename = "retention_seconds", with = "seconds")]
    pub retention: Option<Duration>,
    /// Whether a version that is replaced or deleted stays as a noncurrent one.
    pub versioning: bool,
    /// Whether every new version is under an event-based hold, until that is released.
    pub default_event_based_hold: bool,
    /// How long a version that would be gone is kept to be restored; `None` for no soft delete policy. New buckets have
    /// none, where GCS gives them one of seven days.
    #[serde(rename = "soft_delete_seconds", with = "seconds")]
    pub soft_delete: Option<Duration>,
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(
        period: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        period.map(|period| period.as_secs()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let seconds = Option::<u64>::deserialize(deserializer)?;
        Ok(seconds.map(Duration::from_secs))
    }
}

impl Default for BucketSettings {
    fn default() -> Self {
        Self {
            uniform_access: true,
            requester_pays: false,
            retention: None,
            versioning: false,
            default_event_based_hold: false,
            soft_delete: None,
        }
    }
}

/// A workload identity federation provider: whose tokens STS takes for an audience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// `//iam.googleapis.com/projects/N/locations/global/workloadIdentityPools/POOL/providers/PROVIDER`.
    pub name: String,
    /// The `iss` its subject tokens must carry.
    pub issuer: String,
    /// The `aud` values it takes; empty for the provider's own name, with or without `https:` in front.
    pub allowed_audiences: Vec<String>,
}

/// A service account and who may act as it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// `NAME@PROJECT.iam.gserviceaccount.com`. Buckets know it as the member `serviceAccount:EMAIL`.
    pub email: String,
    /// Members that may impersonate it.
    pub impersonators: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutation_limit_reads_rate_and_burst() {
        let limit: MutationLimit = "0.5/s:2".parse().unwrap();
        assert_eq!((limit.per_second, limit.burst), (0.5, 2));
        assert_eq!(MutationLimit::parse("off"), Ok(None));
        assert_eq!(MutationLimit::default().to_string(), "1/s:5");
    }

    #[test]
    fn mutation_limit_refuses_nonsense() {
        for text in [
            "", "1", "1/s", "0/s:5", "1/s:0", "-1/s:5", "inf/s:1", "a/s:b",
        ] {
            assert!(text.parse::<MutationLimit>().is_err(), "{text}");
        }
    }

    #[test]
    fn auth_reads_its_two_words() {
        assert_eq!("required".parse(), Ok(Auth::Required));
        assert_eq!("off".parse(), Ok(Auth::Off));
        assert!("on".parse::<Auth>().is_err());
    }
}
