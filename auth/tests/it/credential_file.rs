//! Credential files of every kind against servers on loopback ports.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gcsmount_auth::error::{Refusal, SourceFault};
use gcsmount_auth::{CredentialFile, CredentialFileConfig, Error, Exchange, Grant, Kind, Timeouts};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::sts::{gke_claims, jwt};
use crate::web::{Web, says};

/// A key that opens nothing.
const KEY: &str = include_str!("../data/test-only-key.pem");

struct File {
    _dir: TempDir,
    path: PathBuf,
}

impl File {
    fn of(content: &Value) -> Self {
        let dir = tempdir().unwrap();
        let path = dir.path().join("credential.json");
        let file = Self { _dir: dir, path };
        file.replace(&content.to_string());
        file
    }

    /// In one step, as a careful writer does.
    fn replace(&self, content: &str) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(&new, &self.path).unwrap();
    }

    fn config(&self) -> CredentialFileConfig {
        CredentialFileConfig {
            allowed_hosts: vec!["127.0.0.1".to_owned()],
            executables: false,
            scope: "the-scope".to_owned(),
            timeouts: Timeouts {
                exchange: Duration::from_secs(5),
                ..Timeouts::default()
            },
            ..CredentialFileConfig::new(&self.path)
        }
    }

    fn exchange(&self) -> CredentialFile {
        CredentialFile::new(self.config())
    }
}

async fn exchanged(content: &Value) -> Result<Grant, Error> {
    File::of(content).exchange().exchange().await
}

fn service_account(token_uri: &str) -> Value {
    json!({
        "type": "service_account",
        "client_email": "gsa@p.iam.gserviceaccount.com",
        "private_key_id": "the-key-id",
        "private_key": KEY,
        "token_uri": token_uri,
    })
}

/// Header and claims of a JWT whose signature is good.
fn verified(token: &str) -> (Value, Value) {
    let (statement, signature) = token.rsplit_once('.').unwrap();
    let key = PrivatePkcs8KeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public())
        .verify(statement.as_bytes(), &signature)
        .unwrap();
    let (header, claims) = statement.split_once('.').unwrap();
    let read = |part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    (read(header), read(claims))
}

#[tokio::test]
async fn a_service_account_with_google_s_token_url_signs_for_itself() {
    for token_uri in ["https://oauth2.googleapis.com/token", ""] {
        let file = File::of(&service_account(token_uri));
        let exchange = file.exchange();
        let grant = exchange.exchange().await.unwrap();
        assert_eq!(grant.lifetime, Duration::from_secs(3590));
        let (header, claims) = verified(grant.token.expose());
        assert_eq!(
            header,
            json!({"alg": "RS256", "typ": "JWT", "kid": "the-key-id"})
        );
        let account = "gsa@p.iam.gserviceaccount.com";
        assert_eq!(
            (&claims["iss"], &claims["sub"]),
            (&json!(account), &json!(account))
        );
        assert_eq!(claims["scope"], "the-scope");
        let life = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
        assert_eq!(life, 3600);
        let identity = exchange.identity();
        assert_eq!(identity.source, file.path.display().to_string());
        assert_eq!(
            identity.principal,
            Some(format!("serviceAccount:{account}"))
        );
    }
}

#[tokio::test]
async fn a_service_account_with_another_token_url_exchanges_its_signature_there() {
    let web = Web::start(|_| says(200, &json!({"access_token": "t", "expires_in": 77}))).await;
    let url = web.url("/token");
    let grant = exchanged(&service_account(&url)).await.unwrap();
    assert_eq!((grant.token.expose(), grant.lifetime.as_secs()), ("t", 77));
    let seen = &web.seen()[0];
    assert_eq!(
        seen.field("grant_type"),
        "urn:ietf:params:oauth:grant-type:jwt-bearer"
    );
    let (_, claims) = verified(&seen.field("assertion"));
    assert_eq!(claims["aud"], url);
    assert_eq!(claims["scope"], "the-scope");
}

fn login(token_uri: &str, refresh_token: &str) -> Value {
    json!({
        "type": "authorized_user",
        "client_id": "the-client",
        "client_secret": "the-secret",
        "refresh_token": refresh_token,
        "token_uri": token_uri,
    })
}

#[tokio::test]
async fn a_login_is_refreshed_at_its_token_url() {
    let web = Web::start(|_| says(200, &json!({"access_token": "t", "expires_in": 77}))).await;
    let grant = exchanged(&login(&web.url("/token"), "refresh"))
        .await
        .unwrap();
    assert_eq!(grant.token.expose(), "t");
    let seen = &web.seen()[0];
    for (field, value) in [
        ("grant_type", "refresh_token"),
        ("client_id", "the-client"),
        ("client_secret", "the-secret"),
        ("refresh_token", "refresh"),
    ] {
        assert_eq!(seen.field(field), value);
    }
}

#[tokio::test]
async fn a_renewed_credential_file_is_noticed_without_a_restart() {
    let web = Web::start(|seen| match &*seen.field("refresh_token") {
        "renewed" => says(200, &json!({"access_token": "good", "expires_in": 3600})),
        _ => says(
            400,
            r#"{"error":"invalid_grant","error_description":"revoked revoked-token"}"#,
        ),
    })
    .await;
    let url = web.url("/token");
    let file = File::of(&login(&url, "revoked-token"));
    let exchange = file.exchange();
    let error = exchange.exchange().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Refused(Refusal::Grant));
    assert!(error.message().contains("renew the file"), "{error}");
    assert!(!error.message().contains("revoked-token"), "{error}");
    file.replace(&login(&url, "renewed").to_string());
    assert_eq!(exchange.exchange().await.unwrap().token.expose(), "good");
}

#[tokio::test]
async fn a_file_that_is_missing_empty_or_half_written_is_told_and_read_again() {
    let file = File::of(&service_account(""));
    let exchange = file.exchange();
    let whole = std::fs::read_to_string(&file.path).unwrap();
    for (content, fault) in [
        (None, SourceFault::Missing),
        (Some("  \n"), SourceFault::Empty),
        (Some(&whole[..whole.len() / 2]), SourceFault::Malformed),
        (Some("not JSON"), SourceFault::Malformed),
    ] {
        match content {
            None => std::fs::remove_file(&file.path).unwrap(),
            Some(content) => file.replace(content),
        }
        let error = exchange.exchange().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Source(fault), "{error}");
        assert!(error.message().contains("credential"), "{error}");
        file.replace(&whole);
        exchange.exchange().await.unwrap();
    }
}

#[tokio::test]
async fn a_file_may_become_one_of_another_kind_while_it_is_used() {
    let web = cloud().await;
    let granting =
        Web::start(|_| says(200, &json!({"access_token": "of-login", "expires_in": 60})));
    let granting = granting.await;
    let dir = tempdir().unwrap();
    let subject = dir.path().join("subject");
    std::fs::write(&subject, jwt(&gke_claims())).unwrap();
    let file = File::of(&service_account(""));
    let exchange = file.exchange();
    exchange.exchange().await.unwrap();
    let account = exchange.identity().principal;
    assert!(account.unwrap().starts_with("serviceAccount:"));
    // As an editor on another system saves it.
    let login = login(&granting.url("/token"), "refresh").to_string();
    file.replace(&format!("\u{feff}{login}\r\n"));
    assert_eq!(
        exchange.exchange().await.unwrap().token.expose(),
        "of-login"
    );
    assert_eq!(
        exchange.identity().principal,
        None,
        "nobody is named any more"
    );
    file.replace(&external(&web, &json!({"file": subject})).to_string());
    assert_eq!(
        exchange.exchange().await.unwrap().token.expose(),
        "federated"
    );
    assert!(
        exchange
            .identity()
            .principal
            .unwrap()
            .contains("/workloadIdentityPools/p/")
    );
    let unknown = json!({"type": "unheard_of"}).to_string();
    file.replace(&unknown);
    assert_eq!(exchange.exchange().await.unwrap_err().kind(), Kind::Config);
    file.replace(&login);
    exchange.exchange().await.unwrap();
}

fn external(web: &Web, source: &Value) -> Value {
    json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/r",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": web.url("/v1/token"),
        "credential_source": source,
    })
}

/// Token service, IAM and server of subject tokens in one.
async fn cloud() -> Web {
    Web::start(|seen| match &*seen.target {
        "/v1/token" => says(
            200,
            &json!({"access_token": "federated", "expires_in": 3600}),
        ),
        "/subject?x=y" if seen.headers.contains_key("x-needed") => {
            says(200, &json!({"value": jwt(&gke_claims())}))
        }
        target if target.starts_with("/v1/projects/-/serviceAccounts/") => says(
            200,
            &json!({"accessToken": "impersonated", "expireTime": "2100-01-01T00:00:00Z"}),
        ),
        _ => says(404, ""),
    })
    .await
}

#[tokio::test]
async fn an_external_account_takes_its_token_from_a_file_in_text_and_in_json() {
    let web = cloud().await;
    let dir = tempdir().unwrap();
    let subject = jwt(&gke_claims());
    for (content, format) in [
        (format!(" {subject}\n"), json!({"type": "text"})),
        (subject.clone(), Value::Null),
        (
            json!({"token": subject}).to_string(),
            json!({"type": "json", "subject_token_field_name": "token"}),
        ),
    ] {
        let path = dir.path().join("subject");
        std::fs::write(&path, content).unwrap();
        let source = json!({"file": path, "format": format});
        let grant = exchanged(&external(&web, &source)).await.unwrap();
        assert_eq!(grant.token.expose(), "federated");
        let form = web.seen().pop().unwrap();
        assert_eq!(form.field("subject_token"), subject);
        assert_eq!(form.field("scope"), "the-scope");
        assert!(form.field("audience").ends_with("/providers/r"));
    }
}

#[tokio::test]
async fn an_external_account_takes_its_token_from_a_url_and_impersonates() {
    let web = cloud().await;
    let format = json!({"type": "json", "subject_token_field_name": "value"});
    let source =
        json!({"url": web.url("/subject?x=y"), "headers": {"X-Needed": "1"}, "format": format});
    let mut content = external(&web, &source);
    let account = "gsa@p.iam.gserviceaccount.com";
    let url = web.url(&format!(
        "/v1/projects/-/serviceAccounts/{account}:generateAccessToken"
    ));
    content["service_account_impersonation_url"] = json!(url);
    content["service_account_impersonation"] = json!({"token_lifetime_seconds": 1200});
    content["workforce_pool_user_project"] = json!("the-project");
    let file = File::of(&content);
    let exchange = file.exchange();
    let grant = exchange.exchange().await.unwrap();
    assert_eq!(
        (grant.token.expose(), grant.lifetime.as_secs()),
        ("impersonated", 1200)
    );
    assert_eq!(
        exchange.identity().principal,
        Some(format!("serviceAccount:{account}"))
    );
    let seen = web.seen();
    assert_eq!(seen[1].field("options"), r#"{"userProject":"the-project"}"#);
    let asked: Value = serde_json::from_str(&seen[2].body).unwrap();
    assert_eq!(asked, json!({"scope": ["the-scope"], "lifetime": "1200s"}));
    content["credential_source"]["headers"] = json!({});
    let refused = exchanged(&content).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Refused(Refusal::Request));
    assert!(!refused.message().contains("x=y"), "{refused}");
}

#[tokio::test]
async fn a_program_runs_only_where_it_is_allowed() {
    let web = cloud().await;
    let response = json!({"version": 1, "success": true, "id_token": jwt(&gke_claims())});
    let dir = tempdir().unwrap();
    let told = dir.path().join("told");
    std::fs::write(&told, response.to_string()).unwrap();
    let source = json!({"executable": {"command": format!("cat {}", told.display())}});
    let file = File::of(&external(&web, &source));
    let refused = file.exchange().exchange().await.unwrap_err();
    assert_eq!(refused.kind(), Kind::Config);
    assert!(
        refused
            .message()
            .contains("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES"),
        "{refused}"
    );
    assert!(web.seen().is_empty());
    let allowed = CredentialFileConfig {
        executables: true,
        ..file.config()
    };
    assert!(allowed.tuning().exchange_limit > Duration::from_secs(120));
    let grant = CredentialFile::new(allowed).exchange().await.unwrap();
    assert_eq!(grant.token.expose(), "federated");
}

#[tokio::test]
async fn a_subject_token_goes_nowhere_but_to_google_or_an_allowed_host() {
    let web = cloud().await;
    let dir = tempdir().unwrap();
    let path = dir.path().join("subject");
    std::fs::write(&path, jwt(&gke_claims())).unwrap();
    let mut content = external(&web, &json!({"file": path}));
    content["universe_domain"] = json!("0.0.1");
    let strict = CredentialFileConfig {
        allowed_hosts: Vec::new(),
        ..File::of(&content).config()
    };
    let file = File::of(&content);
    let strict = CredentialFile::new(CredentialFileConfig {
        path: file.path.clone(),
        ..strict
    });
    let error = strict.exchange().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.message().contains("127.0.0.1"), "{error}");
    assert!(web.seen().is_empty());
}

#[tokio::test]
async fn an_opaque_subject_token_needs_no_claims() {
    let web = cloud().await;
    let dir = tempdir().unwrap();
    let path = dir.path().join("subject");
    std::fs::write(&path, "opaque").unwrap();
    let mut content = external(&web, &json!({"file": path}));
    content["subject_token_type"] = json!("urn:ietf:params:oauth:token-type:saml2");
    content["universe_domain"] = json!("other.example");
    let file = File::of(&content);
    let exchange = file.exchange();
    exchange.exchange().await.unwrap();
    assert_eq!(exchange.universe_domain().as_deref(), Some("other.example"));
    let form = web.seen().pop().unwrap();
    assert_eq!(form.field("subject_token"), "opaque");
    assert!(form.field("subject_token_type").ends_with("saml2"));
}

#[tokio::test]
async fn what_google_s_library_knows_it_is_asked_for_and_asked_again_after_a_permanent_error() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static MENDED: AtomicBool = AtomicBool::new(false);
    let web = Web::start(
        |seen| match (&*seen.target, MENDED.load(Ordering::SeqCst)) {
            (_, false) => says(400, r#"{"error":"invalid_grant"}"#),
            ("/token", true) => says(
                200,
                &json!({"access_token": "by-library", "token_type": "Bearer", "expires_in": 3600}),
            ),
            _ => says(404, ""),
        },
    )
    .await;
    let content = json!({
        "type": "external_account_authorized_user",
        "audience": "//iam.googleapis.com/locations/global/workforcePools/p/providers/r",
        "client_id": "id",
        "client_secret": "secret",
        "refresh_token": "refresh",
        "token_url": web.url("/token"),
        "token_info_url": web.url("/info"),
    });
    let file = File::of(&content);
    let exchange = file.exchange();
    let error = exchange.exchange().await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Refused(_)), "{error}");
    MENDED.store(true, Ordering::SeqCst);
    let grant = exchange.exchange().await.unwrap();
    assert_eq!(grant.token.expose(), "by-library");
    let asked = web.seen().len();
    exchange.exchange().await.unwrap();
    assert_eq!(web.seen().len(), asked, "the library keeps what it has");
}
