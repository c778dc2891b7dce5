//! The metadata trap: the metadata server's paths, answering as a *node*.
//!
//! The identity that they give away is the node's service account, which every bucket here refuses. Each call is
//! counted, so that a test can show that nobody asked.

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use crate::access::{NODE_EMAIL, PROJECT_NUMBER, Principal};
use crate::body::ReplyBody;
use crate::query::Query;
use crate::state::State;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Answers one call as a Compute Engine metadata server does.
pub(crate) fn answer(state: &State, parts: &Parts) -> Response<ReplyBody> {
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
        "instance/service-accounts" => text(&format!("default/\n{NODE_EMAIL}/\n")),
        path => match path.strip_prefix("instance/service-accounts/") {
            Some(account) => service_account(state, &query, account),
            None => not_found(),
        },
    }
}

fn service_account(state: &State, query: &Query, path: &str) -> Response<ReplyBody> {
    let (account, attribute) = path.split_once('/').unwrap_or((path, ""));
    if account != "default" && account != NODE_EMAIL {
        return not_found();
    }
    match attribute {
        "" if query.flag("recursive") => {
            let account = json!({"aliases": ["default"], "email": NODE_EMAIL, "scopes": [SCOPE]});
            reply(StatusCode::OK, "application/json", account.to_string())
        }
        "" => text("aliases\nemail\nidentity\nscopes\ntoken\n"),
        "email" => text(NODE_EMAIL),
        "aliases" => text("default\n"),
        "scopes" => text(&format!("{SCOPE}\n")),
        "token" => token(state),
        "identity" => identity(state, query),
        _ => not_found(),
    }
}

fn token(state: &State) -> Response<ReplyBody> {
    let token = format!("ya29.c.{}", state.signer.nonce());
    let ttl = state.access.token_ttl();
    state.access.issue(&token, Principal::Node, ttl);
    let body = json!({"access_token": token, "expires_in": ttl.as_secs(), "token_type": "Bearer"});
    reply(StatusCode::OK, "application/json", body.to_string())
}

/// An identity token of the node: well signed, by an issuer that no provider trusts.
fn identity(state: &State, query: &Query) -> Response<ReplyBody> {
    let Some(audience) = query.filled("audience") else {
        let message = "non-empty audience parameter required";
        return reply(StatusCode::BAD_REQUEST, "text/html", message.to_owned());
    };
    let now = state.clock.now().as_secs();
    let claims = json!({
        "iss": "https://accounts.google.com",
        "sub": PROJECT_NUMBER,
        "email": NODE_EMAIL,
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
    headers.insert(
        header::SERVER,
        HeaderValue::from_static("Metadata Server for VM"),
    );
    reply
}
