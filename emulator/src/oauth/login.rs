//! `POST /token`: access tokens for a person's refresh token (RFC 6749 section 6) and for what a service account
//! states with its key (RFC 7523). See "Using OAuth 2.0 for Server to Server Applications" in Google's documentation.

use std::collections::HashMap;

use http::request::Parts;
use http::{HeaderMap, Response, StatusCode, header};
use parking_lot::Mutex;
use serde_json::json;

use super::parameters::Parameters;
use super::{Refusal, SCOPE};
use crate::access::Bearer;
use crate::assertion::Statement;
use crate::body::ReplyBody;
use crate::call::Outcome;
use crate::inbound::Inbound;
use crate::principal::Principal;
use crate::scope::Scopes;
use crate::state::State;

const REFRESH: &str = "refresh_token";
const ASSERTION: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// The audiences that mean Google's own token endpoint; the emulator's is another.
const GOOGLE: [&str; 2] = [
    "https://oauth2.googleapis.com/token",
    "https://www.googleapis.com/oauth2/v4/token",
];

/// A person's consent, in the hands of a client.
#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) client_id: String,
    pub(crate) client_secret: String,
    pub(crate) principal: Principal,
}

/// The logins that were minted and not revoked, by refresh token.
#[derive(Default)]
pub(crate) struct Logins(Mutex<HashMap<String, Login>>);

impl Logins {
    pub(crate) fn add(&self, refresh_token: String, login: Login) {
        self.0.lock().insert(refresh_token, login);
    }

    /// Whether there was one.
    pub(crate) fn revoke(&self, refresh_token: &str) -> bool {
        self.0.lock().remove(refresh_token).is_some()
    }

    fn find(&self, refresh_token: &str) -> Option<Login> {
        self.0.lock().get(refresh_token).cloned()
    }
}

pub(crate) async fn answer(state: &State, parts: &Parts, inbound: &mut Inbound) -> Outcome {
    let body = inbound.collect_small().await?;
    let granted = grant(state, &parts.headers, &body);
    Ok(granted.unwrap_or_else(|refusal| refusal.reply()))
}

fn grant(state: &State, headers: &HeaderMap, body: &[u8]) -> Result<Response<ReplyBody>, Refusal> {
    let parameters = Parameters::parse(headers, body)?;
    let (bearer, scope) = match parameters.required("grant_type")? {
        REFRESH => (refresh(state, &parameters)?.into(), Some(SCOPE)),
        ASSERTION => (assert(state, headers, &parameters)?, None),
        _ => {
            let message = format!("The grant type must be {REFRESH} or {ASSERTION}.");
            return Err(Refusal::new("unsupported_grant_type", message));
        }
    };
    let token = format!("ya29.a0.{}", state.signer.nonce());
    let life = state.access.token_ttl();
    state.access.issue(&token, bearer, life);
    state.tally.logged_in();
    let mut body = json!({
        "access_token": token,
        "expires_in": life.as_secs(),
        "token_type": "Bearer",
    });
    if let Some(scope) = scope {
        body["scope"] = scope.into();
    }
    Ok(super::reply(StatusCode::OK, &body))
}

fn refresh(state: &State, parameters: &Parameters) -> Result<Principal, Refusal> {
    let refresh_token = parameters.required("refresh_token")?;
    let client_id = parameters.required("client_id")?;
    let client_secret = parameters.required("client_secret")?;
    let login = state
        .logins
        .find(refresh_token)
        .ok_or_else(|| Refusal::grant("Token has been expired or revoked."))?;
    if login.client_id != client_id {
        return Err(Refusal::new(
            "invalid_client",
            "The OAuth client was not found.",
        ));
    }
    if login.client_secret != client_secret {
        return Err(Refusal::new("invalid_client", "Unauthorized"));
    }
    Ok(login.principal)
}

fn assert(state: &State, headers: &HeaderMap, parameters: &Parameters) -> Result<Bearer, Refusal> {
    let assertion = parameters.required("assertion")?;
    let statement = Statement::verify(assertion, &state.accounts, state.clock.now())
        .map_err(|error| Refusal::grant(error.to_string()))?;
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let here = token_uri(&format!("http://{}", host.unwrap_or_default()));
    let audience = statement.aud.as_deref().unwrap_or_default();
    if audience != here && !GOOGLE.contains(&audience) {
        return Err(Refusal::grant(format!(
            "Invalid JWT: Failed audience check. The right audience is {here}"
        )));
    }
    let other = statement.sub.as_ref().filter(|sub| **sub != statement.iss);
    if other.is_some() {
        return Err(Refusal::new(
            "unauthorized_client",
            "Client is unauthorized to retrieve access tokens using this method, or client not authorized for any \
             of the scopes requested.",
        ));
    }
    let scope = statement.scope.as_deref().unwrap_or_default();
    if scope.trim().is_empty() {
        return Err(Refusal::new(
            "invalid_scope",
            "Invalid OAuth scope or ID token audience provided.",
        ));
    }
    Ok(Bearer {
        scopes: Scopes::of([scope]),
        ..Principal::ServiceAccount(statement.iss).into()
    })
}

/// The `token_uri` of the credential files for an emulator at `endpoint`.
pub(crate) fn token_uri(endpoint: &str) -> String {
    format!("{}/token", endpoint.trim_end_matches('/'))
}
