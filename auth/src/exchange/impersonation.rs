//! Tokens of a service account for an identity that may impersonate it: the second step of many
//! setups, which a pod cannot see from inside. See "Method: serviceAccounts.generateAccessToken" in
//! the IAM Credentials API.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::uri::Authority;
use http::{Method, Uri};
use serde::Deserialize;
use serde_json::json;

use super::trouble::{Advice, explain};
use super::{Exchange, Grant, Identity, Timeouts};
use crate::error::{Error, Kind};
use crate::secret::{AccessSecret, bearer};
use crate::sts::answer::{Useless, instant, lasting, until};
use crate::transport::{self, Answer, Peer, Transport, target};

const ACCOUNT: &str = "--impersonate-service-account";

/// What names the API where an operator chose it, and where a credential file did.
const BY_FLAG: &str = "--iam-endpoint";
const BY_FILE: &str = "service_account_impersonation_url";

/// What the API grants unless an organisation policy allows more.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Which service account to impersonate, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Impersonate {
    url: Uri,
    account: String,
    lifetime: Duration,
    /// What an operator would look at if the URL is wrong.
    setting: &'static str,
}

impl Impersonate {
    /// The service account with this address, at an IAM Credentials API such as
    /// [`Universe::iam_credentials`](crate::Universe::iam_credentials).
    ///
    /// # Errors
    /// [`Kind::Config`] for what is no address or no URL.
    pub fn account(address: &str, api: &str) -> Result<Self, Error> {
        if !is_account(address) {
            return Err(no_account(ACCOUNT));
        }
        let path = format!("/v1/projects/-/serviceAccounts/{address}:generateAccessToken");
        let url = format!("{}{path}", api.trim_end_matches('/'));
        Self::named_by(BY_FLAG, &url, "https://iamcredentials.googleapis.com")
    }

    /// The service account that a `service_account_impersonation_url` names.
    ///
    /// # Errors
    /// [`Kind::Config`] for another URL.
    pub fn at(url: &str) -> Result<Self, Error> {
        let example = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/\
                       NAME@PROJECT.iam.gserviceaccount.com:generateAccessToken";
        Self::named_by(BY_FILE, url, example)
    }

    fn named_by(setting: &'static str, url: &str, example: &str) -> Result<Self, Error> {
        let url = target::parse(url, setting, example, "/")?;
        let account = url
            .path()
            .rsplit_once("/serviceAccounts/")
            .and_then(|(_, method)| method.strip_suffix(":generateAccessToken"))
            .filter(|account| is_account(account))
            .ok_or_else(|| no_account(setting))?
            .to_owned();
        Ok(Self {
            url,
            account,
            lifetime: LIFETIME,
            setting,
        })
    }

    /// The same for another lifetime. More than an hour takes an organisation policy.
    #[must_use]
    pub fn lasting(self, lifetime: Duration) -> Self {
        Self { lifetime, ..self }
    }

    /// The address of the service account.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.account
    }
}

impl fmt::Debug for Impersonate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Impersonate")
            .field("url", &target::shown(&self.url))
            .field("lifetime", &self.lifetime)
            .finish_non_exhaustive()
    }
}

fn no_account(setting: &str) -> Error {
    let message = format!(
        "{setting} names no service account; it takes one such as NAME@PROJECT.iam.gserviceaccount.com"
    );
    Error::new(Kind::Config, message)
}

/// An address or a numeric id: nothing that means something in a URL.
fn is_account(account: &str) -> bool {
    !account.is_empty()
        && account
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'@' | b'.' | b'-' | b'_'))
}

/// Impersonates a service account with the tokens of another exchange.
#[derive(Debug)]
pub struct Impersonation {
    inner: Arc<dyn Exchange>,
    whom: Impersonate,
    scope: String,
    transport: Transport,
}

impl Impersonation {
    /// Tokens of `whom` that may do `scope`, for the tokens of `inner`, which need the
    /// cloud-platform scope.
    ///
    /// # Errors
    /// [`Kind::Config`] if the API needs TLS and the system trusts no certificate, or the
    /// environment names a proxy of a kind that is not spoken here.
    pub fn new(
        inner: Arc<dyn Exchange>,
        whom: Impersonate,
        scope: String,
        timeouts: Timeouts,
    ) -> Result<Self, Error> {
        let transport = Transport::new(&whom.url, timeouts.connect, timeouts.exchange)?;
        Ok(Self {
            inner,
            whom,
            scope,
            transport,
        })
    }

    async fn ask(&self, authority: &Grant, peer: Peer<'_>) -> Result<Answer, Error> {
        let scopes: Vec<&str> = self.scope.split_whitespace().collect();
        let lifetime = format!("{}s", self.whom.lifetime.as_secs());
        let body = json!({"scope": scopes, "lifetime": lifetime}).to_string();
        let mut request =
            transport::request(Method::POST, self.whom.url.clone(), Bytes::from(body));
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(AUTHORIZATION, bearer(&authority.token)?);
        self.transport.call(request, peer).await
    }

    fn explain(&self, answer: &Answer, peer: Peer<'_>, authority: &Grant) -> Error {
        let account = &self.whom.account;
        let Identity {
            principal, source, ..
        } = self.inner.identity();
        let role = needed_role(principal.as_deref());
        let who = principal.unwrap_or_else(|| format!("the identity of {source}"));
        let denied = format!("grant {role} on {account} to {who}, or check {ACCOUNT}");
        let refused = format!(
            "does that service account exist, and is its lifetime allowed? check {ACCOUNT} and {}",
            self.whom.setting
        );
        let advice = Advice {
            denied: &denied,
            refused: &refused,
        };
        let mut secrets = target::secrets(self.whom.url.query());
        secrets.push(authority.token.expose());
        explain(answer, peer, advice, &secrets)
    }
}

/// The role that holds `iam.serviceAccounts.getAccessToken` and is meant for this principal: that of
/// workloads for a federated one, and for any other that of creators of tokens.
fn needed_role(principal: Option<&str>) -> &'static str {
    match principal.is_some_and(|principal| principal.starts_with("principal://")) {
        true => "roles/iam.workloadIdentityUser",
        false => "roles/iam.serviceAccountTokenCreator",
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Generated {
    access_token: AccessSecret,
    expire_time: Option<String>,
}

/// Reads the answer: the token, and how long it lives by the server's own clock.
fn generated(answer: &Answer, asked: Duration, now: SystemTime) -> Result<Grant, Useless> {
    let generated: Generated = serde_json::from_slice(&answer.body)
        .map_err(|_| Useless("gives an answer that is not the JSON of a token"))?;
    if generated.access_token.expose().is_empty() {
        return Err(Useless("gives an empty token"));
    }
    let lifetime = match generated.expire_time.as_deref().and_then(instant) {
        Some(then) => until(then, &answer.headers, now).min(asked),
        None => return Err(Useless("does not tell when its token ends")),
    };
    Ok(Grant {
        token: generated.access_token,
        lifetime: lasting(lifetime)?,
    })
}

#[async_trait]
impl Exchange for Impersonation {
    async fn exchange(&self) -> Result<Grant, Error> {
        let authority = self.inner.exchange().await?;
        let host = self.whom.url.authority().map_or("", Authority::as_str);
        let name = format!(
            "the IAM Credentials API at {host} for {}",
            self.whom.account
        );
        let peer = Peer {
            name: &name,
            setting: self.whom.setting,
        };
        let answer = self.ask(&authority, peer).await?;
        if !answer.status.is_success() {
            return Err(self.explain(&answer, peer, &authority));
        }
        generated(&answer, self.whom.lifetime, SystemTime::now()).map_err(|Useless(what)| {
            let message = format!("{name} {what}: is {} right?", self.whom.setting);
            Error::new(Kind::BadAnswer, message)
        })
    }

    fn identity(&self) -> Identity {
        Identity {
            principal: Some(format!("serviceAccount:{}", self.whom.account)),
            ..self.inner.identity()
        }
    }

    fn universe_domain(&self) -> Option<String> {
        self.inner.universe_domain()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_url_name_the_same_account() {
        let api = crate::Universe::default().iam_credentials();
        let by_address = Impersonate::account("gsa@p.iam.gserviceaccount.com", &api).unwrap();
        let url = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/gsa@p.iam.gserviceaccount.com:generateAccessToken";
        assert_eq!(by_address.url, Impersonate::at(url).unwrap().url);
        assert_eq!(by_address.address(), "gsa@p.iam.gserviceaccount.com");
    }

    #[test]
    fn what_names_no_account_is_refused() {
        for address in ["", "a/b", "a?b", "a b", "../x", "a%2fb"] {
            let refused = Impersonate::account(address, "https://iam.example").unwrap_err();
            assert_eq!(refused.kind(), Kind::Config, "{address}");
            assert!(refused.message().starts_with(ACCOUNT), "{refused}");
        }
        let refused = Impersonate::account("gsa@p", "iam.example").unwrap_err();
        assert!(refused.message().starts_with(BY_FLAG), "{refused}");
        for url in [
            "https://h/v1/x",
            "ftp://h/serviceAccounts/a:generateAccessToken",
        ] {
            assert_eq!(
                Impersonate::at(url).unwrap_err().kind(),
                Kind::Config,
                "{url}"
            );
        }
    }
}
