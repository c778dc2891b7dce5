//! The metadata server's paths, answering as a *node*, which is a trap, or as GKE's server answers for a pod.
//!
//! The identity that the node's give away is its service account, which every bucket here refuses. Each call is
//! counted, so that a test can show that nobody asked.

mod flavor;

use std::net::SocketAddr;

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::body::ReplyBody;
use crate::oauth::SCOPE;
use crate::principal::PROJECT_NUMBER;
use crate::query::Query;
use crate::state::State;

pub(crate) use flavor::Flavors;
pub use flavor::MetadataFlavor;

/// Answers one call that came in at an address, as the server there does.
pub(crate) fn answer(state: &State, local: SocketAddr, parts: &Parts) -> Response<ReplyBody> {
    let flavor = state.metadata.at(local);
    let mut reply = ask(state, &flavor, parts);
    let server = HeaderValue::from_static(flavor.server());
    reply.headers_mut().insert(header::SERVER, server);
    reply
}

fn ask(state: &State, flavor: &MetadataFlavor, parts: &Parts) -> Response<ReplyBody> {
    let asked_properly = parts
        .headers
        .get("metadata-flavor")
        .is_some_and(|flavor| flavor.as_bytes() == b"Google");
    if !asked_properly {
        return reply(
            StatusCode::FORBIDDEN,
            "text/html",
            "Missing Metadata-Flavor:Google header.".to_owned(),
        );
    }
    let query = Query::parse(parts.uri.query());
    let path = parts.uri.path().trim_end_matches('/');
    let Some(path) = path.strip_prefix("/computeMetadata/v1") else {
        return text("computeMetadata/\n");
    };
    match path.trim_start_matches('/') {
        "" => text("instance/\noslogin/\nproject/\n"),
        "project/project-id" => text("demo"),
        "project/numeric-project-id" => text(PROJECT_NUMBER),
        "universe/universe_domain" | "universe/universe-domain" => text("googleapis.com"),
        "instance/zone" => text(&format!("projects/{PROJECT_NUMBER}/zones/local-a")),
        "instance/id" => text("1000000000000000001"),
        "instance/name" | "instance/hostname" => text("node"),
        "instance/attributes/cluster-name" => text("demo"),
        "instance/attributes/cluster-location" => text("local"),
        "instance" => text("attributes/\nhostname\nid\nname\nservice-accounts/\nzone\n"),
        "instance/service-accounts" => text(&format!("default/\n{}/\n", flavor.email())),
        path => match path.strip_prefix("instance/service-accounts/") {
            Some(account) => service_account(state, flavor, &query, account),
            None => not_found(),
        },
    }
}

fn service_account(
    state: &State,
    flavor: &MetadataFlavor,
    query: &Query,
    path: &str,
) -> Response<ReplyBody> {
    let email = flavor.email();
    let (account, attribute) = path.split_once('/').unwrap_or((path, ""));
    if account != "default" && account != email {
        return not_found();
    }
    match attribute {
        "" if query.flag("recursive") => {
            let account = json!({"aliases": ["default"], "email": email, "scopes": [SCOPE]});
            reply(StatusCode::OK, "application/json", account.to_string())
        }
        "" => text("aliases\nemail\nidentity\nscopes\ntoken\n"),
        "email" => text(email),
        "aliases" => text("default\n"),
        "scopes" => text(&format!("{SCOPE}\n")),
        "token" => token(state, flavor),
        "identity" => identity(state, flavor, query),
        _ => not_found(),
    }
}

fn token(state: &State, flavor: &MetadataFlavor) -> Response<ReplyBody> {
    let token = format!("ya29.c.{}", state.signer.nonce());
    let ttl = state.access.token_ttl();
    state.access.issue(&token, flavor.principal(), ttl);
    match flavor {
        MetadataFlavor::Node => state.tally.gave_node_token(),
        MetadataFlavor::Pod { .. } => state.tally.gave_pod_token(),
    }
    let body = json!({"access_token": token, "expires_in": ttl.as_secs(), "token_type": "Bearer"});
    reply(StatusCode::OK, "application/json", body.to_string())
}

/// An identity token of the node: well signed, by an issuer that no provider trusts. A pod that is no service account
/// of Google's gets none.
fn identity(state: &State, flavor: &MetadataFlavor, query: &Query) -> Response<ReplyBody> {
    if *flavor != MetadataFlavor::Node {
        return not_found();
    }
    let Some(audience) = query.filled("audience") else {
        let message = "non-empty audience parameter required";
        return reply(StatusCode::BAD_REQUEST, "text/html", message.to_owned());
    };
    let now = state.clock.now().as_secs();
    let claims = json!({
        "iss": "https://accounts.google.com",
        "sub": PROJECT_NUMBER,
        "email": flavor.email(),
        "email_verified": true,
        "aud": audience,
        "iat": now,
        "exp": now + 3600,
    });
    text(&state.signer.sign(&claims))
}

fn text(body: &str) -> Response<ReplyBody> {
    reply(StatusCode::OK, "application/text", body.to_owned())
}

fn not_found() -> Response<ReplyBody> {
    reply(StatusCode::NOT_FOUND, "text/html", "not found".to_owned())
}

fn reply(status: StatusCode, content_type: &'static str, body: String) -> Response<ReplyBody> {
    let mut reply = Response::new(ReplyBody::full(body));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert("metadata-flavor", HeaderValue::from_static("Google"));
    reply
}
