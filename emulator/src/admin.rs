//! The hands on the emulator from outside: what a test or an operator sets up, breaks and counts.

pub(crate) mod http;
mod identities;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::cluster::{self, MintRequest};
use crate::config::{BucketSettings, Provider};
use crate::content::Content;
use crate::counters::Counters;
use crate::error::{ApiError, Kind};
use crate::fault::FaultRule;
use crate::history::Usage;
use crate::name::{BucketName, ObjectName};
use crate::object::Attributes;
use crate::principal::{member, pool_member};
use crate::role::Role;
use crate::state::State;
use crate::store::{Draft, NewBucket};

/// What was wrong with an administrative call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A name, or another text, that is refused.
    InvalidName,
    /// What is named does not exist.
    NotFound,
    /// What is to be created exists already.
    Exists,
    /// The data directory cannot be written: the change holds until the emulator ends, and is not kept.
    NotKept,
}

/// A refused administrative call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {message}")]
pub struct Error {
    kind: ErrorKind,
    subject: String,
    message: String,
}

impl Error {
    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    fn new(subject: &str, error: &ApiError) -> Self {
        let kind = match error.kind {
            Kind::Conflict => ErrorKind::Exists,
            Kind::BucketNotFound | Kind::ObjectNotFound | Kind::NothingHere => ErrorKind::NotFound,
            Kind::Unavailable => ErrorKind::NotKept,
            _ => ErrorKind::InvalidName,
        };
        Self {
            kind,
            subject: subject.to_owned(),
            message: error.to_string(),
        }
    }
}

/// A handle to the state of an emulator. Clones are the same handle; it outlives the listeners.
#[derive(Clone)]
pub struct Admin {
    state: Arc<State>,
}

/// The state holds access tokens and upload sessions, so nothing of it is shown.
impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

impl Admin {
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state }
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    /// Waits until what was changed about `subject` is kept, where anything is. That is one write to a disk.
    fn keep<T>(&self, subject: &str, outcome: T) -> Result<T, Error> {
        let settled = self.state.journal.as_ref().map_or(Ok(()), |j| j.settle());
        settled
            .map(|()| outcome)
            .map_err(|error| Error::new(subject, &error))
    }

    /// Creates a bucket that every identity of the built-in pool administers the objects of.
    ///
    /// # Errors
    /// The name is refused, or taken.
    pub fn create_bucket(&self, name: &str) -> Result<(), Error> {
        self.create(name, false)
    }

    /// As [`Self::create_bucket`], with a hierarchical namespace: it has folders, and renames one with everything in
    /// it at once.
    ///
    /// # Errors
    /// The name is refused, or taken.
    pub fn create_hierarchical_bucket(&self, name: &str) -> Result<(), Error> {
        self.create(name, true)
    }

    fn create(&self, name: &str, hierarchical: bool) -> Result<(), Error> {
        let created = BucketName::parse(name)
            .map_err(ApiError::from)
            .and_then(|name| {
                let new = NewBucket {
                    name,
                    hierarchical,
                    storage_class: "STANDARD".to_owned(),
                    settings: BucketSettings::default(),
                    labels: BTreeMap::new(),
                };
                self.state.store.create_bucket(new)
            });
        let info = created.map_err(|error| Error::new(name, &error))?;
        self.state
            .access
            .grant(&info.name, &pool_member(cluster::POOL), Role::ObjectAdmin);
        self.keep(name, ())
    }

    /// Sets what a bucket is like.
    ///
    /// # Errors
    /// The bucket does not exist, or a hierarchical namespace does not go with what it is to be.
    pub fn set_bucket(&self, bucket: &str, settings: BucketSettings) -> Result<(), Error> {
        let set = self.state.store.set_bucket(bucket, |info| {
            info.settings = settings;
            Ok(())
        });
        set.map(|_| ()).map_err(|error| Error::new(bucket, &error))
    }

    /// What a bucket holds in live, noncurrent and soft-deleted versions.
    ///
    /// # Errors
    /// The bucket does not exist.
    pub fn usage(&self, bucket: &str) -> Result<Usage, Error> {
        let usage = self.state.store.usage(&self.bucket(bucket)?);
        usage.map_err(|error| Error::new(bucket, &error))
    }

    /// Binds a member to a role on a bucket. Members are `principal://…`, `principalSet://…/*`,
    /// `principalSet://…/namespace/NS`, `serviceAccount:EMAIL`, GKE's `serviceAccount:POOL[NS/SA]`, `user:EMAIL`,
    /// `allUsers` and `allAuthenticatedUsers`.
    ///
    /// # Errors
    /// The bucket does not exist.
    pub fn grant(&self, bucket: &str, member: &str, role: Role) -> Result<(), Error> {
        self.state.access.grant(&self.bucket(bucket)?, member, role);
        self.keep(bucket, ())
    }

    /// Takes every role on a bucket from a member.
    ///
    /// # Errors
    /// The bucket does not exist.
    pub fn revoke(&self, bucket: &str, member: &str) -> Result<(), Error> {
        self.state.access.revoke(&self.bucket(bucket)?, member);
        self.keep(bucket, ())
    }

    /// Replaces all bindings of a bucket.
    ///
    /// # Errors
    /// The bucket does not exist.
    pub fn replace_grants(&self, bucket: &str, bindings: &[(String, Role)]) -> Result<(), Error> {
        self.state
            .access
            .replace(&self.bucket(bucket)?, bindings.to_vec());
        self.keep(bucket, ())
    }

    fn bucket(&self, name: &str) -> Result<BucketName, Error> {
        let info = self
            .state
            .store
            .bucket(name)
            .map_err(|error| Error::new(name, &error))?;
        Ok(info.name.clone())
    }

    /// The policy member that a service account of the built-in cluster is.
    pub fn member(&self, namespace: &str, service_account: &str) -> String {
        member(
            cluster::POOL,
            &format!("ns/{namespace}/sa/{service_account}"),
        )
    }

    /// The policy member that every service account of the built-in cluster is.
    pub fn pool_member(&self) -> String {
        pool_member(cluster::POOL)
    }

    /// Signs a projected service-account token: ES256, with the claims that kubelet's tokens have.
    pub fn mint_token(&self, request: &MintRequest) -> String {
        self.mint(request).0
    }

    /// A token and its expiry in seconds since the Unix epoch.
    pub(crate) fn mint(&self, request: &MintRequest) -> (String, u64) {
        cluster::mint(&self.state.signer, &self.state.clock, request)
    }

    /// The audience of the built-in cluster's projected tokens: its workload identity pool.
    pub fn token_audience(&self) -> &'static str {
        cluster::POOL
    }

    /// The issuer of the built-in cluster, which is also its provider URL.
    pub fn issuer(&self) -> &'static str {
        cluster::ISSUER
    }

    /// What STS wants as `audience` for the built-in cluster: `identitynamespace:POOL:ISSUER`.
    pub fn sts_audience(&self) -> String {
        format!("identitynamespace:{}:{}", cluster::POOL, cluster::ISSUER)
    }

    /// The workload identity federation provider that exists from the start. It trusts [`Self::issuer`].
    pub fn provider(&self) -> &'static str {
        cluster::PROVIDER
    }

    /// Adds a federation provider, or replaces the one of its name.
    pub fn register_provider(&self, provider: Provider) {
        self.state.sts.register(provider);
    }

    /// Lifetime of the access tokens that are issued from now on. `generateAccessToken` gives less where less is
    /// asked, and a downscoped token keeps the end of the one it is made of.
    pub fn set_access_token_ttl(&self, ttl: Duration) {
        self.state.access.set_token_ttl(ttl);
    }

    /// Makes every access token that was issued so far worthless.
    pub fn revoke_access_tokens(&self) {
        self.state.access.revoke_all();
    }

    /// What was counted since the start or the last reset.
    pub fn counters(&self) -> Counters {
        self.state.tally.read()
    }

    /// Sets every counter to zero.
    pub fn reset_counters(&self) {
        self.state.tally.reset();
    }

    /// Puts an object in place, past authorization, preconditions and the mutation limit. Returns its generation.
    ///
    /// # Errors
    /// The bucket does not exist, or the name is refused.
    pub fn put_object(&self, bucket: &str, name: &str, data: Bytes) -> Result<u64, Error> {
        let bucket = self.bucket(bucket)?;
        let planted = ObjectName::parse(name)
            .map_err(ApiError::from)
            .and_then(|parsed| {
                let draft = Draft {
                    content: Content::from_bytes(data, self.state.limits.md5),
                    attributes: Attributes {
                        content_type: Some("application/octet-stream".to_owned()),
                        ..Attributes::default()
                    },
                };
                self.state.store.plant(&bucket, &parsed, draft)
            });
        let object = planted.map_err(|error| Error::new(name, &error))?;
        self.keep(name, object.generation)
    }

    /// Adds a fault rule after those in force. One for a method that does not exist never strikes; only over HTTP is it
    /// refused.
    pub fn add_fault(&self, rule: FaultRule) {
        self.state.faults.add(rule);
    }

    /// Removes every fault rule.
    pub fn clear_faults(&self) {
        self.state.faults.clear();
    }

    /// Sets the latency of methods, `*` standing for anything. The rule set last counts.
    pub fn set_latency(&self, method: &str, latency: Duration) {
        self.state.shape.set_latency(method, latency);
    }

    /// Sets the bytes a second of each body that starts from now on; `None` for no limit.
    pub fn set_stream_rate(&self, rate: Option<u64>) {
        self.state.shape.set_stream_rate(rate);
    }

    /// Makes the `Date` of every answer differ by so many seconds from the emulator's clock, ahead of it or, negative,
    /// behind it; zero for none. Tokens, limits and sessions go by the clock itself.
    pub fn set_clock_skew(&self, seconds: i64) {
        self.state.clock.skew(seconds);
    }

    /// Moves the emulator's clock forward: tokens expire, mutation limits refill, upload sessions age, and `Date` says so.
    pub fn advance_clock(&self, by: Duration) {
        self.state.clock.advance(by);
    }
}
