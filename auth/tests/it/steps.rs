//! The steps after the exchange: impersonation and downscoping, over real sockets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gcsmount_auth::boundary::Access;
use gcsmount_auth::broker::CLOUD_PLATFORM;
use gcsmount_auth::error::Refusal;
use gcsmount_auth::{
    Boundary, Broker, BrokerConfig, Endpoint, Error, FileSource, Grant, Impersonate, Kind, Universe,
};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::sts::{gke_claims, jwt};
use crate::web::{Seen, Web, says};

const ACCOUNT: &str = "gsa@p.iam.gserviceaccount.com";

fn token_file() -> (TempDir, PathBuf) {
    let dir = tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, jwt(&gke_claims())).unwrap();
    (dir, path)
}

/// The moment so many seconds from now.
fn in_seconds(seconds: u64) -> String {
    let at = OffsetDateTime::from(SystemTime::now() + Duration::from_secs(seconds));
    at.format(&Rfc3339).unwrap()
}

/// A token service that tells the kinds of its exchanges apart.
fn sts(seen: &Seen) -> Value {
    match seen.field("options").is_empty() {
        true => json!({"access_token": "federated", "token_type": "Bearer", "expires_in": 3000}),
        false => json!({"access_token": format!("part-of-{}", seen.field("subject_token"))}),
    }
}

/// Tokens by way of a web that is token service and IAM in one.
async fn exchanged(web: &Web, boundary: Option<Boundary>) -> Result<Grant, Error> {
    let (_dir, path) = token_file();
    let config = BrokerConfig {
        sts: Endpoint::parse(&web.url("")).unwrap(),
        scope: "scope-of-gcs other-scope".to_owned(),
        impersonate: Some(Impersonate::account(ACCOUNT, &web.url("")).unwrap()),
        boundary,
        ..BrokerConfig::new(Arc::new(FileSource::new(path)))
    };
    config.exchange().unwrap().exchange().await
}

fn generated(seconds: u64) -> Value {
    json!({"accessToken": "impersonated", "expireTime": in_seconds(seconds)})
}

#[tokio::test]
async fn a_service_account_is_impersonated_with_the_federated_token() {
    let web = Web::start(|seen| match &*seen.target {
        "/v1/token" => says(200, &sts(seen)),
        _ => says(200, &generated(1800)),
    })
    .await;
    let grant = exchanged(&web, None).await.unwrap();
    assert_eq!(grant.token.expose(), "impersonated");
    assert!(
        (1795..=1800).contains(&grant.lifetime.as_secs()),
        "{grant:?}"
    );
    let seen = web.seen();
    assert_eq!(seen[0].field("scope"), CLOUD_PLATFORM);
    assert_eq!(
        seen[1].target,
        format!("/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken")
    );
    assert_eq!(seen[1].headers["authorization"], "Bearer federated");
    let body: Value = serde_json::from_str(&seen[1].body).unwrap();
    let asked = json!({"scope": ["scope-of-gcs", "other-scope"], "lifetime": "3600s"});
    assert_eq!(body, asked);
}

#[tokio::test]
async fn a_token_is_limited_to_a_boundary_and_lives_no_longer_than_the_whole() {
    let web = Web::start(|seen| match &*seen.target {
        "/v1/token" => says(200, &sts(seen)),
        _ => says(200, &generated(1800)),
    })
    .await;
    let boundary = Boundary::around("bucket", "dir/", Access::Read).unwrap();
    let grant = exchanged(&web, Some(boundary)).await.unwrap();
    assert_eq!(grant.token.expose(), "part-of-impersonated");
    assert!(
        (1795..=1800).contains(&grant.lifetime.as_secs()),
        "{grant:?}"
    );
    let form = &web.seen()[2];
    assert_eq!(
        form.field("subject_token_type"),
        "urn:ietf:params:oauth:token-type:access_token"
    );
    let options: Value = serde_json::from_str(&form.field("options")).unwrap();
    let rule = &options["accessBoundary"]["accessBoundaryRules"][0];
    assert_eq!(
        rule["availableResource"],
        "//storage.googleapis.com/projects/_/buckets/bucket"
    );
}

#[tokio::test]
async fn a_refusal_to_impersonate_says_whom_to_grant_what() {
    let body =
        json!({"error": {"code": 403, "message": "no federated", "status": "PERMISSION_DENIED"}});
    let web = Web::start(move |seen| match &*seen.target {
        "/v1/token" => says(200, &sts(seen)),
        _ => says(403, &body),
    })
    .await;
    let error = exchanged(&web, None).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Refused(Refusal::Denied));
    let sentence = error.message();
    assert!(
        sentence.contains("roles/iam.workloadIdentityUser"),
        "{sentence}"
    );
    assert!(sentence.contains(ACCOUNT), "{sentence}");
    assert!(sentence.contains("/subject/ns/ns/sa/ksa"), "{sentence}");
    assert!(!sentence.contains("federated"), "{sentence}");
}

#[tokio::test]
async fn what_the_second_service_answers_has_its_kind() {
    for (status, body, kind) in [
        (429, String::new(), Kind::Throttled),
        (503, String::new(), Kind::Unavailable),
        (404, String::new(), Kind::Refused(Refusal::Request)),
        (200, "<html>".to_owned(), Kind::BadAnswer),
        (
            200,
            json!({"accessToken": "t"}).to_string(),
            Kind::BadAnswer,
        ),
        (
            200,
            json!({"accessToken": "", "expireTime": in_seconds(9)}).to_string(),
            Kind::BadAnswer,
        ),
        (200, generated(0).to_string(), Kind::BadAnswer),
        (
            200,
            json!({"accessToken": "a\nb", "expireTime": in_seconds(9)}).to_string(),
            Kind::BadAnswer,
        ),
    ] {
        let told = body.clone();
        let web = Web::start(move |seen| match &*seen.target {
            "/v1/token" if seen.field("options").is_empty() => says(200, &sts(seen)),
            _ => says(status, &told),
        })
        .await;
        let boundary = Boundary::around("bucket", "", Access::Read).unwrap();
        let error = exchanged(&web, Some(boundary)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status} {body}: {error}");
        assert!(
            error.message().contains("127.0.0.1") || body.contains("a\\nb"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_refusal_to_limit_a_token_is_told() {
    let web = Web::start(|seen| match &*seen.target {
        "/v1/token" if seen.field("options").is_empty() => says(200, &sts(seen)),
        "/v1/token" => says(
            400,
            r#"{"error":"invalid_request","error_description":"bad impersonated"}"#,
        ),
        _ => says(200, &generated(60)),
    })
    .await;
    let boundary = Boundary::around("bucket", "", Access::Write).unwrap();
    let error = exchanged(&web, Some(boundary)).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Refused(Refusal::Request));
    assert!(
        error.message().contains("boundary") && !error.message().contains("impersonated"),
        "{error}"
    );
}

#[tokio::test]
async fn a_broker_tells_whom_it_stands_for_and_in_which_universe() {
    let web = Web::start(|seen| match &*seen.target {
        "/v1/token" => says(200, &sts(seen)),
        _ => says(200, &generated(1800)),
    })
    .await;
    let (_dir, path) = token_file();
    let config = BrokerConfig {
        sts: Endpoint::parse(&web.url("")).unwrap(),
        impersonate: Some(Impersonate::account(ACCOUNT, &web.url("")).unwrap()),
        boundary: Some(Boundary::around("bucket", "", Access::Read).unwrap()),
        universe: Universe::parse("other.example").unwrap(),
        ..BrokerConfig::new(Arc::new(FileSource::new(path)))
    };
    let broker = Broker::spawn(config).unwrap();
    assert_eq!(
        broker.token().await.unwrap().expose(),
        "part-of-impersonated"
    );
    let identity = broker.status().identity;
    assert_eq!(
        identity.principal,
        Some(format!("serviceAccount:{ACCOUNT}"))
    );
    assert_eq!(
        identity.subject.as_deref(),
        Some("system:serviceaccount:ns:ksa")
    );
    let universe = broker.credentials().universe_domain().await;
    assert_eq!(universe.as_deref(), Some("other.example"));
}
