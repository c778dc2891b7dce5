//! The steps after the exchange: impersonation and downscoping, over real sockets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gcsmount_auth::boundary::Access;
use gcsmount_auth::broker::CLOUD_PLATFORM;
use gcsmount_auth::error::Refusal;
use gcsmount_auth::{
    Boundary, Broker, BrokerConfig, CredentialFile, CredentialFileConfig, Endpoint, Error,
    Exchange, FileSource, FromUrl, Grant, Impersonate, Kind, Metadata, Steps, Timeouts, TokenUrl,
    Universe, Whose,
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

/// Both steps, at a web that is token service and IAM in one.
fn both(web: &Web) -> Steps {
    Steps {
        impersonate: Some(Impersonate::account(ACCOUNT, &web.url("")).unwrap()),
        boundary: Some(Boundary::around("bucket", "", Access::Read).unwrap()),
        sts: Endpoint::parse(&web.url("")).unwrap(),
        ..Steps::default()
    }
}

/// Grants `granted-to-REFRESH_TOKEN`, impersonates with any token, limits any token.
async fn world() -> Web {
    Web::start(|seen| match &*seen.target {
        "/v1/token" => says(200, &sts(seen)),
        "/token" => {
            let token = format!("granted-to-{}", seen.field("refresh_token"));
            says(200, &json!({"access_token": token, "expires_in": 3600}))
        }
        target if target.starts_with("/computeMetadata/") => {
            let mut told = says(200, &json!({"access_token": "of-node", "expires_in": 600}));
            let headers = told.headers_mut();
            headers.insert("metadata-flavor", "Google".parse().unwrap());
            told
        }
        _ => says(200, &generated(1800)),
    })
    .await
}

fn login(web: &Web, refresh_token: &str) -> String {
    json!({"type": "authorized_user", "client_id": "id", "client_secret": "secret",
           "refresh_token": refresh_token, "token_uri": web.url("/token")})
    .to_string()
}

/// The token that the service account was impersonated with last.
fn authority(web: &Web) -> String {
    let seen = web.seen();
    let asked = seen
        .iter()
        .rfind(|seen| seen.target.contains("generateAccessToken"));
    asked.unwrap().headers["authorization"]
        .to_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_credential_file_goes_on_as_it_does_alone_when_steps_follow_it() {
    let web = world().await;
    let dir = tempdir().unwrap();
    let path = dir.path().join("credential.json");
    std::fs::write(&path, login(&web, "one")).unwrap();
    let steps = both(&web);
    let file = CredentialFileConfig::new(&path).before(&steps);
    let tuning = steps.tuning(file.tuning());
    let exchange = steps.after(Arc::new(CredentialFile::new(file))).unwrap();
    let broker = Broker::with_exchange(exchange, tuning);
    let first = broker.token().await.unwrap();
    assert_eq!(first.expose(), "part-of-impersonated");
    assert_eq!(authority(&web), "Bearer granted-to-one");
    let identity = broker.status().identity;
    assert_eq!(identity.source, path.display().to_string());
    assert_eq!(
        identity.principal,
        Some(format!("serviceAccount:{ACCOUNT}"))
    );
    // A renewed file and a rejected token.
    std::fs::write(&path, login(&web, "two")).unwrap();
    broker.replacement(first.tag()).await.unwrap();
    assert_eq!(authority(&web), "Bearer granted-to-two");
    assert_eq!(broker.status().exchanges_granted, 2);
    // The life of the whole is the shortest of the three.
    let left = broker.status().expires_in.unwrap().as_secs();
    assert!((1790..=1800).contains(&left), "{left}");
}

#[tokio::test]
async fn a_file_of_another_universe_keeps_it_through_the_steps() {
    let web = world().await;
    let dir = tempdir().unwrap();
    let path = dir.path().join("credential.json");
    let key = include_str!("../data/test-only-key.pem");
    let file = json!({"type": "service_account", "client_email": "gsa@p", "private_key": key,
                      "universe_domain": "other.example"});
    std::fs::write(&path, file.to_string()).unwrap();
    let file = CredentialFileConfig {
        scope: "narrow".to_owned(),
        ..CredentialFileConfig::new(&path)
    };
    let file = file.before(&both(&web));
    assert_eq!((&*file.scope, file.self_signed), (CLOUD_PLATFORM, true));
    let exchange = both(&web)
        .after(Arc::new(CredentialFile::new(file)))
        .unwrap();
    exchange.exchange().await.unwrap();
    assert_eq!(exchange.universe_domain().as_deref(), Some("other.example"));
    let only_limited = Steps {
        impersonate: None,
        ..both(&web)
    };
    let file = CredentialFileConfig::new(&path).before(&only_limited);
    assert!(!file.self_signed, "the token service takes issued tokens");
}

#[tokio::test]
async fn steps_follow_a_token_url_and_a_metadata_server() {
    let web = world().await;
    let url = TokenUrl::parse(&web.url("/token")).unwrap();
    let from_url = FromUrl::new(url, Timeouts::default()).unwrap();
    let host = web.url("").replace("http://", "");
    let metadata = Metadata::new(&host, Whose::Node, "s".to_owned(), Timeouts::default()).unwrap();
    let ways: [(Arc<dyn Exchange>, _); 2] = [
        (Arc::new(from_url), "Bearer granted-to-"),
        (Arc::new(metadata), "Bearer of-node"),
    ];
    for (exchange, token) in ways {
        let grant = both(&web)
            .after(exchange)
            .unwrap()
            .exchange()
            .await
            .unwrap();
        assert_eq!(grant.token.expose(), "part-of-impersonated");
        assert_eq!(authority(&web), token);
    }
}

#[tokio::test]
async fn who_is_refused_to_impersonate_is_told_the_role_for_one_like_it() {
    let web = Web::start(|seen| match &*seen.target {
        "/token" => says(200, &json!({"access_token": "t", "expires_in": 3600})),
        _ => says(403, ""),
    })
    .await;
    let url = TokenUrl::parse(&web.url("/token")).unwrap();
    let exchange = FromUrl::new(url, Timeouts::default()).unwrap();
    let error = both(&web)
        .after(Arc::new(exchange))
        .unwrap()
        .exchange()
        .await
        .unwrap_err();
    assert!(
        error
            .message()
            .contains("roles/iam.serviceAccountTokenCreator"),
        "{error}"
    );
}
