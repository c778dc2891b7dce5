//! The Security Token Service: `POST /v1/token` exchanges a projected token for an access token (RFC 8693).
//!
//! Takes the RFC's form encoding and Google's JSON in camel case. The grant type, the token types, the audience,
//! the issuer, the signature and the times of the subject token are all checked; nothing of the token is echoed.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::RwLock;
use serde_json::{Value, json};

use crate::access::{Access, Principal};
use crate::body::ReplyBody;
use crate::clock::Clock;
use crate::cluster;
use crate::config::Provider;
use crate::jwt::{Claims, Signer};

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// An error of RFC 6749 section 5.2 or RFC 8693 section 2.2.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    error: &'static str,
    description: String,
}

impl Refusal {
    fn new(error: &'static str, description: impl Into<String>) -> Self {
        Self {
            error,
            description: description.into(),
        }
    }

    fn request(description: impl Into<String>) -> Self {
        Self::new("invalid_request", description)
    }

    fn grant(description: impl Into<String>) -> Self {
        Self::new("invalid_grant", description)
    }

    fn target() -> Self {
        Self::new(
            "invalid_target",
            "The target service indicated by the \"audience\" parameters is invalid. This might either be because \
             the pool or provider is disabled or deleted or because it doesn't exist.",
        )
    }

    pub(crate) fn reply(&self) -> Response<ReplyBody> {
        let body = json!({"error": self.error, "error_description": self.description});
        json_reply(StatusCode::BAD_REQUEST, &body)
    }
}

/// The parameters of an exchange under their RFC names.
struct Exchange(Vec<(String, String)>);

impl Exchange {
    fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Self, Refusal> {
        let content_type = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match essence {
            "application/x-www-form-urlencoded" => {
                Ok(Self(form_urlencoded::parse(body).into_owned().collect()))
            }
            "application/json" => Self::parse_json(body),
            _ => Err(Refusal::request("The content type must be a form or JSON.")),
        }
    }

    /// Google's discovery client sends `grantType` for `grant_type`.
    fn parse_json(body: &[u8]) -> Result<Self, Refusal> {
        let Ok(Value::Object(entries)) = serde_json::from_slice(body) else {
            return Err(Refusal::request("The body is not a JSON object."));
        };
        let pairs = entries.into_iter().filter_map(|(key, value)| match value {
            Value::String(text) => Some((snake_case(&key), text)),
            _ => None,
        });
        Ok(Self(pairs.collect()))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name)
            .ok_or_else(|| Refusal::request(format!("Missing required parameter: {name}")))
    }

    fn check_types(&self) -> Result<(), Refusal> {
        if self.required("grant_type")? != EXCHANGE {
            return Err(Refusal::new(
                "unsupported_grant_type",
                "The grant type must be token-exchange.",
            ));
        }
        if self.required("requested_token_type")? != ACCESS_TOKEN {
            return Err(Refusal::request(
                "The requested token type must be access_token.",
            ));
        }
        if ![JWT, ID_TOKEN].contains(&self.required("subject_token_type")?) {
            return Err(Refusal::request(
                "The subject token type must be jwt or id_token.",
            ));
        }
        Ok(())
    }
}

fn snake_case(camel: &str) -> String {
    let mut snake = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// Whom the audience of an exchange leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// `identitynamespace:POOL:ISSUER`, GKE's form.
    Cluster {
        pool: String,
        issuer: String,
    },
    Provider(Provider),
}

impl Target {
    fn issuer(&self) -> &str {
        match self {
            Self::Cluster { issuer, .. } => issuer,
            Self::Provider(provider) => &provider.issuer,
        }
    }

    fn takes_audience(&self, audience: &str) -> bool {
        match self {
            Self::Cluster { pool, .. } => audience == pool,
            Self::Provider(provider) if provider.allowed_audiences.is_empty() => {
                audience.strip_prefix("https:").unwrap_or(audience) == provider.name
            }
            Self::Provider(provider) => provider
                .allowed_audiences
                .iter()
                .any(|known| known == audience),
        }
    }

    fn principal(&self, claims: &Claims) -> Result<Principal, Refusal> {
        match self {
            Self::Cluster { pool, .. } => Ok(Principal::Workload {
                pool: pool.clone(),
                subject: kubernetes_subject(&claims.sub)?,
            }),
            Self::Provider(provider) => Ok(Principal::Workload {
                pool: pool_of(&provider.name)
                    .ok_or_else(Refusal::target)?
                    .to_owned(),
                subject: claims.sub.clone(),
            }),
        }
    }
}

/// `system:serviceaccount:NS:SA` as a GKE pool maps it.
fn kubernetes_subject(sub: &str) -> Result<String, Refusal> {
    sub.strip_prefix("system:serviceaccount:")
        .and_then(|rest| rest.split_once(':'))
        .map(|(namespace, account)| format!("ns/{namespace}/sa/{account}"))
        .ok_or_else(|| {
            Refusal::grant("The subject of the token is not a Kubernetes service account.")
        })
}

fn pool_of(provider: &str) -> Option<&str> {
    let (_, rest) = provider.split_once("/workloadIdentityPools/")?;
    rest.split_once("/providers/").map(|(pool, _)| pool)
}

/// Whom STS trusts.
#[derive(Debug)]
pub(crate) struct Sts {
    providers: RwLock<Vec<Provider>>,
}

impl Sts {
    pub(crate) fn new(configured: &[Provider]) -> Self {
        let sts = Self {
            providers: RwLock::default(),
        };
        sts.register(Provider {
            name: cluster::PROVIDER.to_owned(),
            issuer: cluster::ISSUER.to_owned(),
            allowed_audiences: Vec::new(),
        });
        configured
            .iter()
            .cloned()
            .for_each(|provider| sts.register(provider));
        sts
    }

    /// Adds a provider, or replaces the one of its name.
    pub(crate) fn register(&self, provider: Provider) {
        let mut providers = self.providers.write();
        providers.retain(|known| known.name != provider.name);
        providers.push(provider);
    }

    fn target(&self, audience: &str) -> Result<Target, Refusal> {
        if let Some(namespace) = audience.strip_prefix("identitynamespace:") {
            let (pool, issuer) = namespace.split_once(':').ok_or_else(malformed_audience)?;
            let known = pool == cluster::POOL && issuer == cluster::ISSUER;
            let target = Target::Cluster {
                pool: pool.to_owned(),
                issuer: issuer.to_owned(),
            };
            return known.then_some(target).ok_or_else(Refusal::target);
        }
        if !audience.starts_with("//iam.googleapis.com/") {
            return Err(malformed_audience());
        }
        let providers = self.providers.read();
        let found = providers.iter().find(|provider| provider.name == audience);
        found
            .cloned()
            .map(Target::Provider)
            .ok_or_else(Refusal::target)
    }

    /// The identity that an exchange proves.
    pub(crate) fn prove(
        &self,
        signer: &Signer,
        clock: &Clock,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Principal, Refusal> {
        let exchange = Exchange::parse(headers, body)?;
        exchange.check_types()?;
        let target = self.target(exchange.required("audience")?)?;
        let subject_token = exchange.required("subject_token")?;
        let claims = signer
            .verify(subject_token)
            .map_err(|error| Refusal::grant(error.to_string()))?;
        check_claims(&claims, &target, clock.now().as_secs())?;
        target.principal(&claims)
    }
}

fn malformed_audience() -> Refusal {
    Refusal::request(
        "Invalid value for \"audience\". This value should be the full resource name of the Identity Provider.",
    )
}

fn check_claims(claims: &Claims, target: &Target, now: u64) -> Result<(), Refusal> {
    if claims.iss != target.issuer() {
        let message = "The issuer of the subject token does not match the issuer of the provider.";
        return Err(Refusal::grant(message));
    }
    if !claims
        .aud
        .iter()
        .any(|audience| target.takes_audience(audience))
    {
        let message = "The audience in the subject token does not match the expected audience.";
        return Err(Refusal::grant(message));
    }
    if claims.exp <= now {
        return Err(Refusal::grant(format!(
            "The subject token expired at {}.",
            claims.exp
        )));
    }
    if claims.nbf > now {
        return Err(Refusal::grant(format!(
            "The subject token is not valid before {}.",
            claims.nbf
        )));
    }
    Ok(())
}

/// Issues an access token for what was proved.
pub(crate) fn grant(access: &Access, signer: &Signer, principal: Principal) -> Response<ReplyBody> {
    let token = format!("ya29.d.{}", signer.nonce());
    let ttl = access.token_ttl();
    access.issue(&token, principal, ttl);
    let body = json!({
        "access_token": token,
        "issued_token_type": ACCESS_TOKEN,
        "token_type": "Bearer",
        "expires_in": ttl.as_secs(),
    });
    json_reply(StatusCode::OK, &body)
}

fn json_reply(status: StatusCode, body: &Value) -> Response<ReplyBody> {
    let mut reply = Response::new(ReplyBody::full(body.to_string()));
    *reply.status_mut() = status;
    let content_type = HeaderValue::from_static("application/json; charset=UTF-8");
    reply
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    reply
        .headers_mut()
        .insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_names_are_the_rfcs() {
        for (camel, snake) in [
            ("grantType", "grant_type"),
            ("subjectTokenType", "subject_token_type"),
            ("scope", "scope"),
        ] {
            assert_eq!(snake_case(camel), snake);
        }
    }

    #[test]
    fn subjects_of_service_accounts_only() {
        assert_eq!(
            kubernetes_subject("system:serviceaccount:a:b").unwrap(),
            "ns/a/sa/b"
        );
        assert!(kubernetes_subject("system:node:x").is_err());
    }

    #[test]
    fn a_provider_takes_its_own_name_or_what_it_lists() {
        let mut provider = Provider {
            name: cluster::PROVIDER.to_owned(),
            issuer: "i".to_owned(),
            allowed_audiences: Vec::new(),
        };
        let target = Target::Provider(provider.clone());
        assert!(target.takes_audience(cluster::PROVIDER));
        assert!(target.takes_audience(&format!("https:{}", cluster::PROVIDER)));
        assert!(!target.takes_audience("x"));
        provider.allowed_audiences = vec!["x".to_owned()];
        let target = Target::Provider(provider);
        assert!(target.takes_audience("x") && !target.takes_audience(cluster::PROVIDER));
    }
}
