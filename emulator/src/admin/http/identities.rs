//! The administrative calls about service accounts, logins and the metadata server.

use std::borrow::Cow;
use std::net::SocketAddr;

use http::header;
use http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{no_such_call, parse, told};
use crate::admin::{Admin, Error};
use crate::config::ServiceAccount;
use crate::error::ApiError;
use crate::metadata::MetadataFlavor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AccountBody {
    email: String,
    #[serde(default)]
    impersonators: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberBody {
    member: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    #[serde(default)]
    public: Option<PublicKeyBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublicKeyBody {
    id: String,
    pem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefreshTokenBody {
    refresh_token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetadataBody {
    #[serde(default)]
    address: Option<SocketAddr>,
    #[serde(default)]
    pod: Option<PodBody>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodBody {
    namespace: String,
    service_account: String,
}

pub(super) fn act(
    admin: &Admin,
    parts: &Parts,
    segments: &[&str],
    body: &[u8],
) -> Result<Value, ApiError> {
    match (parts.method.as_str(), segments) {
        ("POST", ["service_accounts", email, "keys"]) => {
            return key(admin, parts, email, parse(body)?);
        }
        ("POST", ["logins"]) => {
            let member = parse::<MemberBody>(body)?.member;
            return file(admin.mint_authorized_user(&member, &endpoint(parts)));
        }
        ("POST", ["logins", "revoke"]) => {
            let body = parse::<RefreshTokenBody>(body)?;
            told(admin.revoke_refresh_token(&body.refresh_token))?;
        }
        ("PUT", ["metadata"]) => metadata(admin, parse(body)?),
        (method, ["service_accounts", rest @ ..]) => accounts(admin, method, rest, body)?,
        _ => return Err(no_such_call()),
    }
    Ok(json!({}))
}

/// The calls about service accounts that have nothing to answer.
fn accounts(admin: &Admin, method: &str, segments: &[&str], body: &[u8]) -> Result<(), ApiError> {
    let member = || parse::<MemberBody>(body).map(|body| body.member);
    told(match (method, segments) {
        ("POST", []) => {
            let AccountBody {
                email,
                impersonators,
            } = parse(body)?;
            admin.set_up(&ServiceAccount {
                email,
                impersonators,
            })
        }
        ("POST", [email, "impersonators"]) => admin.grant_impersonation(&decode(email), &member()?),
        ("DELETE", [email, "impersonators"]) => {
            admin.revoke_impersonation(&decode(email), &member()?)
        }
        ("DELETE", [email, "keys", id]) => admin.revoke_service_account_key(&decode(email), id),
        _ => return Err(no_such_call()),
    })
}

/// Registers a key of the caller's own, or makes one and answers its file.
fn key(admin: &Admin, parts: &Parts, email: &str, body: KeyBody) -> Result<Value, ApiError> {
    let email = decode(email);
    let Some(key) = body.public else {
        return file(admin.mint_service_account_key(&email, &endpoint(parts)));
    };
    told(admin.register_service_account_key(&email, &key.id, &key.pem))?;
    Ok(json!({}))
}

fn decode(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

/// Where the caller reached the emulator.
fn endpoint(parts: &Parts) -> String {
    let host = parts.headers.get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    format!("http://{}", host.unwrap_or("localhost"))
}

/// A credential file as the answer.
fn file(minted: Result<String, Error>) -> Result<Value, ApiError> {
    let text = told(minted)?;
    Ok(serde_json::from_str(&text).expect("the file was printed as JSON"))
}

fn metadata(admin: &Admin, body: MetadataBody) {
    let flavor = body
        .pod
        .map_or(MetadataFlavor::Node, |pod| MetadataFlavor::Pod {
            namespace: pod.namespace,
            service_account: pod.service_account,
        });
    match body.address {
        Some(address) => admin.set_metadata_at(address, flavor),
        None => admin.set_metadata(flavor),
    }
}
