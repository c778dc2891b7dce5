//! The Security Token Service: `POST /v1/token` exchanges a projected token for an access token, and an access token
//! for one that may do less (RFC 8693).
//!
//! Takes the RFC's form encoding and Google's JSON in camel case. The grant type, the token types, the audience,
//! the issuer, the signature and the times of the subject token are all checked; nothing of the token is echoed.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Response, StatusCode};
use parking_lot::RwLock;
use serde_json::json;

use crate::access::Bearer;
use crate::body::ReplyBody;
use crate::boundary::Boundary;
use crate::call::Outcome;
use crate::cluster;
use crate::config::Provider;
use crate::inbound::Inbound;
use crate::jwt::Claims;
use crate::oauth::parameters::Parameters;
use crate::oauth::{self, Refusal};
use crate::object::rfc3339_seconds;
use crate::principal::Principal;
use crate::scope::Scopes;
use crate::state::State;

const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";

/// Answers `POST /v1/token`.
pub(crate) async fn answer(state: &State, parts: &Parts, inbound: &mut Inbound) -> Outcome {
    let body = inbound.collect_small().await?;
    let granted = exchange(state, &parts.headers, &body);
    Ok(granted.unwrap_or_else(|refusal| refusal.reply()))
}

fn exchange(
    state: &State,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response<ReplyBody>, Refusal> {
    let parameters = Parameters::parse(headers, body)?;
    if parameters.required("grant_type")? != EXCHANGE {
        return Err(Refusal::new(
            "unsupported_grant_type",
            "The grant type must be token-exchange.",
        ));
    }
    if parameters.required("requested_token_type")? != ACCESS_TOKEN {
        return Err(Refusal::request(
            "The requested token type must be access_token.",
        ));
    }
    let granted = match parameters.required("subject_token_type")? {
        ACCESS_TOKEN => downscope(state, &parameters)?,
        JWT | ID_TOKEN => federate(state, &parameters)?,
        _ => {
            let message = "The subject token type must be jwt, id_token or access_token.";
            return Err(Refusal::request(message));
        }
    };
    Ok(granted.reply())
}

/// What was issued.
struct Granted {
    token: String,
    /// Told to the caller, where Google tells it.
    expires_in: Option<Duration>,
}

impl Granted {
    fn reply(&self) -> Response<ReplyBody> {
        let mut body = json!({
            "access_token": self.token,
            "issued_token_type": ACCESS_TOKEN,
            "token_type": "Bearer",
        });
        if let Some(life) = self.expires_in {
            body["expires_in"] = life.as_secs().into();
        }
        oauth::reply(StatusCode::OK, &body)
    }
}

fn boundary(parameters: &Parameters) -> Result<Option<Arc<Boundary>>, Refusal> {
    let Some(options) = parameters.get("options") else {
        return Ok(None);
    };
    let boundary = Boundary::parse(options).map_err(|error| Refusal::request(error.to_string()))?;
    Ok(boundary.map(Arc::new))
}

/// A subject token of an issuer that is trusted becomes an access token.
fn federate(state: &State, parameters: &Parameters) -> Result<Granted, Refusal> {
    let principal = prove(state, parameters)?;
    let scopes = parameters.get("scope");
    let bearer = Bearer {
        principal,
        scopes: scopes.map_or(Scopes::ALL, |names| Scopes::of([names])),
        boundary: boundary(parameters)?,
    };
    let token = format!("ya29.d.{}", state.signer.nonce());
    let life = state.access.token_ttl();
    state.access.issue(&token, bearer, life);
    state.tally.exchanged();
    Ok(Granted {
        token,
        expires_in: Some(life),
    })
}

/// An access token becomes one of the same principal and the same end, inside a boundary.
fn downscope(state: &State, parameters: &Parameters) -> Result<Granted, Refusal> {
    let subject_token = parameters.required("subject_token")?;
    let boundary = boundary(parameters)?.ok_or_else(|| {
        Refusal::request(
            "Missing required parameter: options. An access token is exchanged only for one inside the \
             `accessBoundary` that the options hold.",
        )
    })?;
    let (whole, expires) = state.access.issued(subject_token).ok_or_else(|| {
        Refusal::grant("The subject token is not an access token that is valid here.")
    })?;
    if whole.boundary.is_some() {
        let message = "The subject token has an access boundary already, and cannot get another.";
        return Err(Refusal::grant(message));
    }
    // Google tells the end only where the subject is a service account's token; others keep that of the subject.
    let is_account = matches!(
        whole.principal,
        Principal::ServiceAccount(_) | Principal::Node
    );
    let life = expires.saturating_sub(state.clock.now());
    let token = format!("ya29.dr.{}", state.signer.nonce());
    let bearer = Bearer {
        boundary: Some(boundary),
        ..whole
    };
    state.access.issue_until(&token, bearer, expires);
    state.tally.exchanged();
    state.tally.downscoped();
    Ok(Granted {
        token,
        expires_in: is_account.then_some(life),
    })
}

/// The identity that an exchange proves.
fn prove(state: &State, parameters: &Parameters) -> Result<Principal, Refusal> {
    let target = state.sts.target(parameters.required("audience")?)?;
    let subject_token = parameters.required("subject_token")?;
    let claims = state
        .signer
        .verify(subject_token)
        .map_err(|error| Refusal::grant(error.to_string()))?;
    check_claims(&claims, &target, state.clock.now().as_secs())?;
    target.principal(&claims)
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
                    .ok_or_else(unknown_target)?
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
            return known.then_some(target).ok_or_else(unknown_target);
        }
        if !audience.starts_with("//iam.googleapis.com/") {
            return Err(malformed_audience());
        }
        let providers = self.providers.read();
        let found = providers.iter().find(|provider| provider.name == audience);
        found
            .cloned()
            .map(Target::Provider)
            .ok_or_else(unknown_target)
    }
}

fn unknown_target() -> Refusal {
    Refusal::new(
        "invalid_target",
        "The target service indicated by the \"audience\" parameters is invalid. This might either be because \
         the pool or provider is disabled or deleted or because it doesn't exist.",
    )
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
            rfc3339_seconds(Duration::from_secs(claims.exp))
        )));
    }
    if claims.nbf > now {
        return Err(Refusal::grant(format!(
            "The subject token is not valid before {}.",
            rfc3339_seconds(Duration::from_secs(claims.nbf))
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;

    fn form(fields: &[(&str, &str)]) -> String {
        form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish()
    }

    #[test]
    fn no_request_is_a_panic_or_leads_to_a_token() {
        let state = State::new(&Config::default()).unwrap();
        let kinds = ["application/x-www-form-urlencoded", "application/json"];
        let token = "\\PC{0,60}|[a-zA-Z0-9_-]{0,9}(\\.[a-zA-Z0-9_-]{0,9}){2}";
        let json = "\\PC{0,60}|[{}\\[\\]\":,a-zA-Z%0-9]{0,60}";
        proptest!(|(raw in json, token in token, options in json, known in any::<bool>())| {
            let kind = if known { ACCESS_TOKEN } else { JWT };
            let body = form(&[
                ("grant_type", EXCHANGE),
                ("requested_token_type", ACCESS_TOKEN),
                ("subject_token_type", kind),
                ("audience", cluster::PROVIDER),
                ("subject_token", &token),
                ("options", &options),
            ]);
            for kind in kinds {
                let kind = HeaderValue::from_static(kind);
                let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]);
                for body in [&raw, &body] {
                    prop_assert!(exchange(&state, &headers, body.as_bytes()).is_err());
                }
            }
        });
        assert_eq!(state.tally.read().exchanges, 0);
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
