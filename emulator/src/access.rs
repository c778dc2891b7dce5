//! Who may do what: the access tokens that were issued, the principals behind them and the bindings of buckets.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use http::{HeaderMap, header};
use parking_lot::Mutex;

use crate::clock::{Clock, Timestamp};
use crate::error::{ApiError, Kind};
use crate::name::BucketName;

/// The number of the built-in project.
pub(crate) const PROJECT_NUMBER: &str = "123456789012";

/// Tokens kept at most; the ones nearest to their end go first.
const MAX_TOKENS: usize = 100_000;

/// Roles that bind principals to a bucket, under the names of the predefined roles of Cloud Storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `roles/storage.objectAdmin`: everything with objects, nothing with the bucket itself.
    ObjectAdmin,
    /// `roles/storage.objectViewer`: reads and lists objects.
    ObjectViewer,
    /// `roles/storage.legacyBucketReader`: reads the bucket's own metadata and lists objects.
    BucketReader,
}

impl Role {
    /// The role's name in an IAM policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::ObjectAdmin => "roles/storage.objectAdmin",
            Self::ObjectViewer => "roles/storage.objectViewer",
            Self::BucketReader => "roles/storage.legacyBucketReader",
        }
    }

    /// The role of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::ObjectAdmin, Self::ObjectViewer, Self::BucketReader];
        all.into_iter().find(|role| role.name() == name)
    }

    fn grants(self, permission: Permission) -> bool {
        use Permission::{BucketGet, Create, Delete, Get, List, Update};
        match permission {
            Get => matches!(self, Self::ObjectAdmin | Self::ObjectViewer),
            List => true,
            Create | Delete | Update => matches!(self, Self::ObjectAdmin),
            BucketGet => matches!(self, Self::BucketReader),
        }
    }
}

/// What an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    Get,
    List,
    Create,
    Update,
    Delete,
    BucketGet,
}

impl Permission {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "storage.objects.get",
            Self::List => "storage.objects.list",
            Self::Create => "storage.objects.create",
            Self::Update => "storage.objects.update",
            Self::Delete => "storage.objects.delete",
            Self::BucketGet => "storage.buckets.get",
        }
    }

    /// The permission of that name, where it is one that roles here grant.
    fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::Get,
            Self::List,
            Self::Create,
            Self::Update,
            Self::Delete,
            Self::BucketGet,
        ];
        all.into_iter().find(|permission| permission.name() == name)
    }

    fn resource(self) -> &'static str {
        match self {
            Self::Get | Self::Update | Self::Delete => "object",
            Self::List | Self::Create | Self::BucketGet => "bucket",
        }
    }
}

/// The identity behind an access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// A workload: a pool, and a subject in it.
    Workload { pool: String, subject: String },
    /// The node's own service account, which no bucket lets in.
    Node,
}

impl Principal {
    /// The members of a policy that this principal is.
    fn is_member(&self, member: &str) -> bool {
        let Self::Workload { pool, subject } = self else {
            return false;
        };
        let pools = format!(
            "iam.googleapis.com/projects/{PROJECT_NUMBER}/locations/global/workloadIdentityPools/{pool}"
        );
        let namespace = subject
            .strip_prefix("ns/")
            .and_then(|rest| rest.split('/').next());
        member == "allUsers"
            || member == "allAuthenticatedUsers"
            || member == format!("principal://{pools}/subject/{subject}")
            || member == format!("principalSet://{pools}/*")
            || namespace
                .is_some_and(|ns| member == format!("principalSet://{pools}/namespace/{ns}"))
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload { pool, subject } => f.write_str(&member(pool, subject)),
            Self::Node => f.write_str(NODE_EMAIL),
        }
    }
}

/// The service account that the metadata server speaks for.
pub(crate) const NODE_EMAIL: &str = "123456789012-compute@developer.gserviceaccount.com";

/// The policy member for one subject of a pool.
pub(crate) fn member(pool: &str, subject: &str) -> String {
    format!(
        "principal://iam.googleapis.com/projects/{PROJECT_NUMBER}/locations/global/workloadIdentityPools/{pool}/subject/{subject}"
    )
}

/// The policy member for all subjects of a pool.
pub(crate) fn pool_member(pool: &str) -> String {
    format!(
        "principalSet://iam.googleapis.com/projects/{PROJECT_NUMBER}/locations/global/workloadIdentityPools/{pool}/*"
    )
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Nobody asks.
    Unchecked,
    Anonymous,
    Known(Principal),
}

struct Issued {
    principal: Principal,
    expires: Timestamp,
}

/// Tokens and bindings. The two locks are never held together.
pub(crate) struct Access {
    clock: Clock,
    enforced: bool,
    tokens: Mutex<HashMap<String, Issued>>,
    /// By bucket.
    bindings: Mutex<HashMap<BucketName, Vec<(String, Role)>>>,
    token_ttl: Mutex<Duration>,
}

impl Access {
    pub(crate) fn new(clock: Clock, enforced: bool, token_ttl: Duration) -> Self {
        Self {
            clock,
            enforced,
            tokens: Mutex::default(),
            bindings: Mutex::default(),
            token_ttl: Mutex::new(token_ttl),
        }
    }

    pub(crate) fn token_ttl(&self) -> Duration {
        *self.token_ttl.lock()
    }

    pub(crate) fn set_token_ttl(&self, ttl: Duration) {
        *self.token_ttl.lock() = ttl;
    }

    /// Makes `token` stand for `principal` for `ttl` from now.
    pub(crate) fn issue(&self, token: &str, principal: Principal, ttl: Duration) {
        let now = self.clock.now();
        let expires = now + ttl;
        let mut tokens = self.tokens.lock();
        if tokens.len() >= MAX_TOKENS {
            make_room(&mut tokens, now);
        }
        tokens.insert(token.to_owned(), Issued { principal, expires });
    }

    /// Forgets every token.
    pub(crate) fn revoke_all(&self) {
        self.tokens.lock().clear();
    }

    /// Who the `Authorization` header says is calling.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        if !self.enforced {
            return Ok(Caller::Unchecked);
        }
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Ok(Caller::Anonymous);
        };
        let refused = || ApiError::new(Kind::BadCredentials, "Invalid Credentials");
        let token = value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .ok_or_else(refused)?;
        let tokens = self.tokens.lock();
        let issued = tokens
            .get(token)
            .filter(|issued| issued.expires > self.clock.now());
        Ok(Caller::Known(issued.ok_or_else(refused)?.principal.clone()))
    }

    /// Refuses a caller without `permission` on the bucket.
    pub(crate) fn permit(
        &self,
        caller: &Caller,
        bucket: &BucketName,
        permission: Permission,
    ) -> Result<(), ApiError> {
        if self.allows(caller, bucket, |role| role.grants(permission)) {
            return Ok(());
        }
        let (kind, who) = match caller {
            Caller::Known(principal) => (Kind::Forbidden, principal.to_string()),
            Caller::Anonymous | Caller::Unchecked => {
                (Kind::Anonymous, "Anonymous caller".to_owned())
            }
        };
        let (permission, resource) = (permission.name(), permission.resource());
        Err(ApiError::new(
            kind,
            format!(
                "{who} does not have {permission} access to the Google Cloud Storage {resource}. Permission \
                 '{permission}' denied on resource (or it may not exist)."
            ),
        ))
    }

    /// Whether the caller has the permission of this name on the bucket. Where nobody asks who calls, every one.
    pub(crate) fn holds(&self, caller: &Caller, bucket: &BucketName, permission: &str) -> bool {
        *caller == Caller::Unchecked
            || Permission::from_name(permission).is_some_and(|permission| {
                self.allows(caller, bucket, |role| role.grants(permission))
            })
    }

    /// Whether the caller has any role on the bucket.
    pub(crate) fn sees(&self, caller: &Caller, bucket: &BucketName) -> bool {
        self.allows(caller, bucket, |_| true)
    }

    fn allows(
        &self,
        caller: &Caller,
        bucket: &BucketName,
        suffices: impl Fn(Role) -> bool,
    ) -> bool {
        let is_member = |member: &str| match caller {
            Caller::Unchecked => true,
            Caller::Anonymous => member == "allUsers",
            Caller::Known(principal) => principal.is_member(member),
        };
        if *caller == Caller::Unchecked {
            return true;
        }
        let bindings = self.bindings.lock();
        let of_bucket = bindings.get(bucket).map(Vec::as_slice).unwrap_or_default();
        of_bucket
            .iter()
            .any(|(member, role)| is_member(member) && suffices(*role))
    }

    pub(crate) fn grant(&self, bucket: &BucketName, member: &str, role: Role) {
        let mut bindings = self.bindings.lock();
        let of_bucket = bindings.entry(bucket.clone()).or_default();
        let binding = (member.to_owned(), role);
        if !of_bucket.contains(&binding) {
            of_bucket.push(binding);
        }
    }

    /// Takes every role on the bucket from a member.
    pub(crate) fn revoke(&self, bucket: &BucketName, member: &str) {
        if let Some(of_bucket) = self.bindings.lock().get_mut(bucket) {
            of_bucket.retain(|(known, _)| known != member);
        }
    }

    pub(crate) fn replace(&self, bucket: &BucketName, bindings: Vec<(String, Role)>) {
        self.bindings.lock().insert(bucket.clone(), bindings);
    }

    pub(crate) fn forget(&self, bucket: &BucketName) {
        self.bindings.lock().remove(bucket);
    }
}

fn make_room(tokens: &mut HashMap<String, Issued>, now: Timestamp) {
    tokens.retain(|_, issued| issued.expires > now);
    let mut expiries: Vec<Timestamp> = tokens.values().map(|issued| issued.expires).collect();
    expiries.sort_unstable();
    if let Some(&median) = expiries.get(MAX_TOKENS / 2) {
        tokens.retain(|_, issued| issued.expires > median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "demo.svc.id.goog";

    fn workload(subject: &str) -> Principal {
        Principal::Workload {
            pool: POOL.into(),
            subject: subject.into(),
        }
    }

    #[test]
    fn members_of_a_workload() {
        let principal = workload("ns/a/sa/b");
        let namespace = pool_member(POOL).replace("/*", "/namespace/a");
        for member in [
            &member(POOL, "ns/a/sa/b"),
            &pool_member(POOL),
            &namespace,
            "allUsers",
        ] {
            assert!(principal.is_member(member), "{member}");
            assert!(!Principal::Node.is_member(member), "{member}");
        }
        for member in [
            &member(POOL, "ns/a/sa/c"),
            &pool_member("other"),
            &namespace.replace("/a", "/b"),
        ] {
            assert!(!principal.is_member(member), "{member}");
        }
    }

    #[test]
    fn roles_grant_as_the_predefined_ones_do() {
        let all = [Role::ObjectAdmin, Role::ObjectViewer, Role::BucketReader];
        let who = |permission| all.map(|role| role.grants(permission));
        assert_eq!(who(Permission::Get), [true, true, false]);
        assert_eq!(who(Permission::List), [true, true, true]);
        assert_eq!(who(Permission::Create), [true, false, false]);
        assert_eq!(who(Permission::Update), [true, false, false]);
        assert_eq!(who(Permission::Delete), [true, false, false]);
        assert_eq!(who(Permission::BucketGet), [false, false, true]);
        assert!(
            all.iter()
                .all(|role| Role::from_name(role.name()) == Some(*role))
        );
    }

    #[test]
    fn room_is_made_by_dropping_what_ends_first() {
        let mut tokens = HashMap::new();
        for index in 0..MAX_TOKENS {
            let issued = Issued {
                principal: Principal::Node,
                expires: Duration::from_secs(index as u64),
            };
            tokens.insert(index.to_string(), issued);
        }
        make_room(&mut tokens, Duration::from_secs(10));
        assert!(tokens.len() < MAX_TOKENS);
        assert!(tokens.contains_key(&(MAX_TOKENS - 1).to_string()));
    }
}
