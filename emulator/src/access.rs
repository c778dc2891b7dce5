//! Who may do what: the access tokens that were issued, the principals behind them and the bindings of buckets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, header};
use parking_lot::Mutex;

use crate::boundary::Boundary;
use crate::clock::{Clock, Timestamp};
use crate::error::{ApiError, Kind};
use crate::journal::{Batch, Change, Journal, Mirror};
use crate::name::BucketName;
use crate::principal::Principal;
use crate::role::{Permission, Resource, Role};
use crate::scope::Scopes;

/// Tokens kept at most; the ones nearest to their end go first.
const MAX_TOKENS: usize = 100_000;

/// What a token stands for: a principal, and what it may do at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) principal: Principal,
    pub(crate) scopes: Scopes,
    /// A credential access boundary; absent for all that the principal may do.
    pub(crate) boundary: Option<Arc<Boundary>>,
}

/// With every scope, and no boundary.
impl From<Principal> for Bearer {
    fn from(principal: Principal) -> Self {
        Self {
            principal,
            scopes: Scopes::ALL,
            boundary: None,
        }
    }
}

impl Bearer {
    fn is_bounded_from(
        &self,
        bucket: &BucketName,
        permission: Permission,
        resource: Resource<'_>,
    ) -> bool {
        let boundary = self.boundary.as_deref();
        boundary.is_some_and(|boundary| !boundary.allows(bucket, permission, resource))
    }
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Nobody asks.
    Unchecked,
    Anonymous,
    Known(Bearer),
}

struct Issued {
    bearer: Bearer,
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
    journal: Option<Arc<Journal>>,
}

impl Access {
    /// With the bindings that a journal held, which is told of all changes of them.
    pub(crate) fn new(
        clock: Clock,
        (enforced, token_ttl): (bool, Duration),
        journal: Option<Arc<Journal>>,
        kept: &Mirror,
    ) -> Self {
        let bindings = kept.buckets.iter();
        let bindings = bindings.map(|(name, bucket)| (name.clone(), bucket.bindings.clone()));
        Self {
            clock,
            enforced,
            tokens: Mutex::default(),
            bindings: Mutex::new(bindings.collect()),
            token_ttl: Mutex::new(token_ttl),
            journal,
        }
    }

    /// Changes the bindings of a bucket.
    fn bind(&self, bucket: &BucketName, change: impl FnOnce(&mut Vec<(String, Role)>)) {
        let mut bindings = self.bindings.lock();
        let of_bucket = bindings.entry(bucket.clone()).or_default();
        change(of_bucket);
        if let Some(journal) = &self.journal {
            let change = Change::Grants {
                bucket: bucket.clone(),
                bindings: of_bucket.clone(),
            };
            journal.add(Batch {
                last_generation: 0,
                changes: vec![change],
            });
        }
    }

    pub(crate) fn token_ttl(&self) -> Duration {
        *self.token_ttl.lock()
    }

    pub(crate) fn set_token_ttl(&self, ttl: Duration) {
        *self.token_ttl.lock() = ttl;
    }

    /// Makes `token` stand for `bearer` for `ttl` from now.
    pub(crate) fn issue(&self, token: &str, bearer: impl Into<Bearer>, ttl: Duration) {
        let expires = self.clock.now().saturating_add(ttl);
        self.issue_until(token, bearer.into(), expires);
    }

    /// Makes `token` stand for `bearer` up to a time.
    pub(crate) fn issue_until(&self, token: &str, bearer: Bearer, expires: Timestamp) {
        let mut tokens = self.tokens.lock();
        if tokens.len() >= MAX_TOKENS {
            make_room(&mut tokens, self.clock.now());
        }
        tokens.insert(token.to_owned(), Issued { bearer, expires });
    }

    /// What a token that was issued here stands for, and until when; nothing once it has expired.
    pub(crate) fn issued(&self, token: &str) -> Option<(Bearer, Timestamp)> {
        let tokens = self.tokens.lock();
        let issued = tokens
            .get(token)
            .filter(|issued| issued.expires > self.clock.now())?;
        Some((issued.bearer.clone(), issued.expires))
    }

    /// Forgets every token.
    pub(crate) fn revoke_all(&self) {
        self.tokens.lock().clear();
    }

    /// Forgets the token of a request.
    pub(crate) fn revoke_token(&self, headers: &HeaderMap) {
        if let Some(token) = bearer_token(headers) {
            self.tokens.lock().remove(token);
        }
    }

    /// Who the `Authorization` header says is calling. A token that was not issued here is `believed` or not.
    pub(crate) fn caller(
        &self,
        headers: &HeaderMap,
        believed: impl FnOnce(&str) -> Option<Bearer>,
    ) -> Result<Caller, ApiError> {
        if !self.enforced {
            return Ok(Caller::Unchecked);
        }
        if !headers.contains_key(header::AUTHORIZATION) {
            return Ok(Caller::Anonymous);
        }
        let token = bearer_token(headers).ok_or_else(ApiError::bad_credentials)?;
        let bearer = match self.issued(token) {
            Some((bearer, _)) => Some(bearer),
            None => believed(token),
        };
        bearer
            .map(Caller::Known)
            .ok_or_else(ApiError::bad_credentials)
    }

    /// Refuses a caller without `permission` for something of the bucket.
    pub(crate) fn permit(
        &self,
        caller: &Caller,
        bucket: &BucketName,
        permission: Permission,
        resource: Resource<'_>,
    ) -> Result<(), ApiError> {
        if self.allows(caller, bucket, permission, resource) {
            return Ok(());
        }
        let (kind, who) = match caller {
            Caller::Known(bearer) => (Kind::Forbidden, bearer.principal.to_string()),
            Caller::Anonymous | Caller::Unchecked => {
                (Kind::Anonymous, "Anonymous caller".to_owned())
            }
        };
        let why = match caller {
            Caller::Known(bearer) if bearer.is_bounded_from(bucket, permission, resource) => {
                " The access boundary of the token leaves it out."
            }
            _ => "",
        };
        let (permission, resource) = (permission.name(), permission.resource());
        Err(ApiError::new(
            kind,
            format!(
                "{who} does not have {permission} access to the Google Cloud Storage {resource}. Permission \
                 '{permission}' denied on resource (or it may not exist).{why}"
            ),
        ))
    }

    /// Whether the caller has the permission of this name on the bucket. Where nobody asks who calls, every one.
    pub(crate) fn holds(&self, caller: &Caller, bucket: &BucketName, permission: &str) -> bool {
        *caller == Caller::Unchecked
            || Permission::from_name(permission)
                .is_some_and(|permission| self.allows(caller, bucket, permission, Resource::Bucket))
    }

    /// Whether the caller has any role on the bucket.
    pub(crate) fn sees(&self, caller: &Caller, bucket: &BucketName) -> bool {
        self.is_bound(caller, bucket, |_| true)
    }

    /// Both must allow it: a role of the principal, and the boundary of the token.
    fn allows(
        &self,
        caller: &Caller,
        bucket: &BucketName,
        permission: Permission,
        resource: Resource<'_>,
    ) -> bool {
        let inside = match caller {
            Caller::Known(bearer) => !bearer.is_bounded_from(bucket, permission, resource),
            Caller::Anonymous | Caller::Unchecked => true,
        };
        inside && self.is_bound(caller, bucket, |role| role.grants(permission))
    }

    fn is_bound(
        &self,
        caller: &Caller,
        bucket: &BucketName,
        suffices: impl Fn(Role) -> bool,
    ) -> bool {
        let is_member = |member: &str| match caller {
            Caller::Unchecked => true,
            Caller::Anonymous => member == "allUsers",
            Caller::Known(bearer) => bearer.principal.is_member(member),
        };
        if *caller == Caller::Unchecked {
            return true;
        }
        let bindings = self.bindings.lock();
        let of_bucket = bindings.get(bucket).map(Vec::as_slice).unwrap_or_default();
        of_bucket
            .iter()
            .any(|(member, role)| suffices(*role) && is_member(member))
    }

    pub(crate) fn grant(&self, bucket: &BucketName, member: &str, role: Role) {
        let binding = (member.to_owned(), role);
        self.bind(bucket, |bindings| {
            if !bindings.contains(&binding) {
                bindings.push(binding);
            }
        });
    }

    /// Takes every role on the bucket from a member.
    pub(crate) fn revoke(&self, bucket: &BucketName, member: &str) {
        self.bind(bucket, |bindings| {
            bindings.retain(|(known, _)| known != member);
        });
    }

    pub(crate) fn replace(&self, bucket: &BucketName, bindings: Vec<(String, Role)>) {
        self.bind(bucket, |old| *old = bindings);
    }

    /// Forgets the policy of a bucket that is gone.
    pub(crate) fn forget(&self, bucket: &BucketName) {
        self.bindings.lock().remove(bucket);
    }
}

/// The token of an `Authorization` header of the bearer scheme.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
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

    #[test]
    fn room_is_made_by_dropping_what_ends_first() {
        let mut tokens = HashMap::new();
        for index in 0..MAX_TOKENS {
            let issued = Issued {
                bearer: Principal::Node.into(),
                expires: Duration::from_secs(index as u64),
            };
            tokens.insert(index.to_string(), issued);
        }
        make_room(&mut tokens, Duration::from_secs(10));
        assert!(tokens.len() < MAX_TOKENS);
        assert!(tokens.contains_key(&(MAX_TOKENS - 1).to_string()));
    }
}
