use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use gcsmount_emulator::{Config, ErrorKind, FaultAction, FaultRule, Role};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

use crate::client::{Answer, Ask, BUCKET, Bench, ask, object_path};
use crate::impersonation::ROBOT;

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
const ASSERTION: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// A person and a service account that may read.
async fn bench() -> Bench {
    let bench = Bench::with(Config::default()).await;
    let admin = bench.admin();
    admin.create_service_account(ROBOT).unwrap();
    admin.put_object(BUCKET, "a", "data".into()).unwrap();
    let bindings = [
        ("user:someone@example.com".to_owned(), Role::ObjectViewer),
        (format!("serviceAccount:{ROBOT}"), Role::ObjectViewer),
    ];
    admin.replace_grants(BUCKET, &bindings).unwrap();
    bench
}

fn token(fields: &[(&str, &str)]) -> Ask {
    let body = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    ask("POST", "/token")
        .header("content-type", "application/x-www-form-urlencoded")
        .body(body)
}

pub(crate) fn assertion(text: &str) -> Ask {
    token(&[("grant_type", ASSERTION), ("assertion", text)])
}

/// The request that a login's file leads to.
fn refresh(file: &Value, changed: Option<(&str, &str)>) -> Ask {
    let field = |name: &'static str| {
        let own = file[name].as_str().unwrap();
        let other = changed.filter(|(field, _)| *field == name);
        (name, other.map_or(own, |(_, value)| value))
    };
    token(&[
        ("grant_type", "refresh_token"),
        field("client_id"),
        field("client_secret"),
        field("refresh_token"),
    ])
}

fn stat() -> Ask {
    ask("GET", object_path("a", ""))
}

fn pair(file: &Value) -> RsaKeyPair {
    let pem = file["private_key"].as_str().unwrap();
    let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    RsaKeyPair::from_pkcs8(&STANDARD.decode(body).unwrap()).unwrap()
}

fn sign(pair: &RsaKeyPair, header: &Value, claims: &Value) -> String {
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", encode(header), encode(claims));
    let mut signature = vec![0; pair.public().modulus_len()];
    let rng = SystemRandom::new();
    pair.sign(&RSA_PKCS1_SHA256, &rng, message.as_bytes(), &mut signature)
        .unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// What the account states, with `changes` to what it usually says.
pub(crate) fn statement(file: &Value, changes: &Value) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mut claims = json!({
        "iss": file["client_email"],
        "aud": file["token_uri"],
        "scope": SCOPE,
        "iat": now,
        "exp": now + 3600,
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = match value.as_i64() {
            Some(offset) => (now.cast_signed() + offset).into(),
            None => value.clone(),
        };
    }
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": file["private_key_id"]});
    sign(&pair(file), &header, &claims)
}

pub(crate) fn key(bench: &Bench) -> Value {
    let endpoint = bench.emulator.endpoint();
    let file = bench.admin().mint_service_account_key(ROBOT, &endpoint);
    serde_json::from_str(&file.unwrap()).unwrap()
}

#[track_caller]
fn refused(answer: Answer, code: u16, error: &str) -> String {
    let body = answer.expect(code).json();
    assert_eq!(body["error"], error, "{body}");
    body["error_description"].as_str().unwrap().to_owned()
}

fn access_token(answer: Answer) -> String {
    let body = answer.expect(200).json();
    assert_eq!(
        (&body["token_type"], &body["expires_in"]),
        (&json!("Bearer"), &json!(3600))
    );
    body["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_login_is_good_until_it_is_revoked() {
    let bench = bench().await;
    let admin = bench.admin();
    let endpoint = bench.emulator.endpoint();
    let file = admin
        .mint_authorized_user("user:someone@example.com", &endpoint)
        .unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["type"], "authorized_user");
    assert_eq!(file["token_uri"], format!("{endpoint}/token"));
    let token = access_token(bench.answer(refresh(&file, None)).await);
    bench.answer(stat().bearer(&token)).await.expect(200);
    let delete = ask("DELETE", object_path("a", "")).bearer(&token);
    let message = bench.answer(delete).await.expect(403).text();
    assert!(
        message.contains("someone@example.com does not have"),
        "{message}"
    );
    for (field, code, error) in [
        ("refresh_token", 400, "invalid_grant"),
        ("client_id", 401, "invalid_client"),
        ("client_secret", 401, "invalid_client"),
    ] {
        refused(
            bench.answer(refresh(&file, Some((field, "other")))).await,
            code,
            error,
        );
        let missing = refused(
            bench.answer(refresh(&file, Some((field, "")))).await,
            400,
            "invalid_request",
        );
        assert!(missing.contains(field), "{missing}");
    }
    let counters = admin.counters();
    assert_eq!((counters.oauth_tokens, counters.of("oauth2.token")), (1, 7));
    let refresh_token = file["refresh_token"].as_str().unwrap();
    admin.revoke_refresh_token(refresh_token).unwrap();
    refused(
        bench.answer(refresh(&file, None)).await,
        400,
        "invalid_grant",
    );
    bench.answer(stat().bearer(&token)).await.expect(200);
    let again = admin.revoke_refresh_token(refresh_token).unwrap_err();
    assert!(again.kind() == ErrorKind::NotFound && !again.to_string().contains(refresh_token));
    let nobody = admin
        .mint_authorized_user("allUsers", &endpoint)
        .unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::InvalidName);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_key_signs_for_its_account() {
    let bench = bench().await;
    let admin = bench.admin();
    let file = key(&bench);
    assert_eq!(
        (&file["type"], &file["client_email"]),
        (&json!("service_account"), &json!(ROBOT))
    );
    let google = json!({"aud": "https://oauth2.googleapis.com/token", "sub": ROBOT});
    for changes in [json!({}), google, json!({"iat": -3000, "exp": 600})] {
        let token = access_token(bench.answer(assertion(&statement(&file, &changes))).await);
        bench.answer(stat().bearer(&token)).await.expect(200);
    }
    assert_eq!(admin.counters().oauth_tokens, 3);
    let id = file["private_key_id"].as_str().unwrap();
    admin.revoke_service_account_key(ROBOT, id).unwrap();
    refused(
        bench.answer(assertion(&statement(&file, &json!({})))).await,
        400,
        "invalid_grant",
    );
    let again = admin.revoke_service_account_key(ROBOT, id);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::NotFound);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn statements_that_are_wrong_say_what_is() {
    let bench = bench().await;
    let file = key(&bench);
    for (changes, error, part) in [
        (
            json!({"iss": "nobody@demo.example"}),
            "invalid_grant",
            "account not found",
        ),
        (
            json!({"aud": "https://elsewhere.example/token"}),
            "invalid_grant",
            "/token",
        ),
        (json!({"aud": null}), "invalid_grant", "audience"),
        (json!({"exp": 3601}), "invalid_grant", "60 minutes"),
        (
            json!({"iat": 400, "exp": 500}),
            "invalid_grant",
            "timeframe",
        ),
        (
            json!({"iat": -600, "exp": -300}),
            "invalid_grant",
            "expired at 20",
        ),
        (json!({"scope": ""}), "invalid_scope", "scope"),
        (
            json!({"sub": "someone@example.com"}),
            "unauthorized_client",
            "unauthorized",
        ),
    ] {
        let statement = statement(&file, &changes);
        let message = refused(bench.answer(assertion(&statement)).await, 400, error);
        assert!(
            message.contains(part) && !message.contains(&statement),
            "{changes}: {message}"
        );
    }
    let good = statement(&file, &json!({}));
    let (head, signature) = good.rsplit_once('.').unwrap();
    let reversed: String = signature.chars().rev().collect();
    for broken in [
        format!("{head}.{reversed}"),
        head.to_owned(),
        "x".to_owned(),
    ] {
        refused(bench.answer(assertion(&broken)).await, 400, "invalid_grant");
    }
    let claims = json!({"iss": ROBOT, "iat": 0, "exp": 1});
    let strange = sign(
        &pair(&file),
        &json!({"alg": "RS256", "kid": "unknown"}),
        &claims,
    );
    let message = refused(
        bench.answer(assertion(&strange)).await,
        400,
        "invalid_grant",
    );
    assert_eq!(message, "Invalid JWT Signature.");
    refused(
        bench.answer(token(&[("grant_type", "password")])).await,
        400,
        "unsupported_grant_type",
    );
    refused(bench.answer(token(&[])).await, 400, "invalid_request");
    bench.answer(ask("GET", "/token")).await.expect(404);
    assert_eq!(bench.admin().counters().oauth_tokens, 0);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn an_accounts_own_signature_is_a_token() {
    let bench = bench().await;
    let admin = bench.admin();
    let file = key(&bench);
    // A token of the kind has the account as its subject, and no audience where it has a scope (AIP-4111).
    let own = |changes: Value| {
        let mut all = json!({"sub": ROBOT, "aud": null});
        all.as_object_mut()
            .unwrap()
            .extend(changes.as_object().unwrap().clone());
        statement(&file, &all)
    };
    let put = ask("DELETE", object_path("a", ""));
    let good = own(json!({}));
    bench.answer(put.bearer(&good)).await.expect(403);
    for (changes, code) in [
        (json!({}), 200),
        (
            json!({"aud": "https://storage.googleapis.com/", "scope": null}),
            200,
        ),
        (
            json!({"aud": format!("{}/", bench.emulator.endpoint()), "scope": null}),
            200,
        ),
        (json!({"aud": "https://pubsub.googleapis.com/"}), 401),
        (
            json!({"scope": "https://www.googleapis.com/auth/pubsub"}),
            401,
        ),
        (json!({"sub": null}), 401),
        (json!({"sub": "someone@example.com"}), 401),
        (json!({"iat": -7200, "exp": -3600}), 401),
        (json!({"exp": 3700}), 401),
    ] {
        let answer = bench.answer(stat().bearer(&own(changes.clone()))).await;
        assert_eq!(answer.code(), code, "{changes}: {}", answer.text());
    }
    admin.advance_clock(Duration::from_secs(3600));
    assert_eq!(
        bench
            .answer(stat().bearer(&good))
            .await
            .expect(401)
            .reason(),
        "authError"
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_key_of_ones_own_is_registered_by_its_public_half() {
    let bench = bench().await;
    let admin = bench.admin();
    let file = key(&bench);
    let pair = pair(&file);
    // openssl's frame around the public key: an algorithm and a string of bits.
    let rsa = pair.public().as_ref();
    let mut der = vec![
        0x30, 0x82, 0x01, 0x22, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7,
    ];
    der.extend([
        0x0d, 0x01, 0x01, 0x01, 0x05, 0x00, 0x03, 0x82, 0x01, 0x0f, 0x00,
    ]);
    der.extend(rsa);
    let pem = format!(
        "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
        STANDARD.encode(der)
    );
    admin
        .revoke_service_account_key(ROBOT, file["private_key_id"].as_str().unwrap())
        .unwrap();
    let mut mine = file.clone();
    mine["private_key_id"] = json!("mine");
    refused(
        bench.answer(assertion(&statement(&mine, &json!({})))).await,
        400,
        "invalid_grant",
    );
    admin
        .register_service_account_key(ROBOT, "mine", &pem)
        .unwrap();
    access_token(bench.answer(assertion(&statement(&mine, &json!({})))).await);
    // A token that names no key may be signed with any.
    mine["private_key_id"] = Value::Null;
    access_token(bench.answer(assertion(&statement(&mine, &json!({})))).await);
    let nonsense = admin.register_service_account_key(ROBOT, "x", "nonsense");
    assert_eq!(nonsense.unwrap_err().kind(), ErrorKind::InvalidName);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn files_are_minted_and_revoked_over_http() {
    let bench = bench().await;
    let keys = format!("/_emulator/service_accounts/{ROBOT}/keys");
    let file = bench.answer(ask("POST", &*keys)).await.expect(200).json();
    assert_eq!(
        file["token_uri"],
        format!("{}/token", bench.emulator.endpoint())
    );
    access_token(bench.answer(assertion(&statement(&file, &json!({})))).await);
    let id = file["private_key_id"].as_str().unwrap();
    bench
        .answer(ask("DELETE", format!("{keys}/{id}")))
        .await
        .expect(200);
    bench
        .answer(assertion(&statement(&file, &json!({}))))
        .await
        .expect(400);
    let public = json!({"public": {"id": "x", "pem": "nonsense"}});
    bench
        .answer(ask("POST", &*keys).json(&public))
        .await
        .expect(400);
    let nobody = "/_emulator/service_accounts/nobody@demo.example/keys";
    bench.answer(ask("POST", nobody)).await.expect(404);
    let login =
        ask("POST", "/_emulator/logins").json(&json!({"member": "user:someone@example.com"}));
    let file = bench.answer(login).await.expect(200).json();
    access_token(bench.answer(refresh(&file, None)).await);
    let revoke = ask("POST", "/_emulator/logins/revoke");
    let revoke = revoke.json(&json!({"refresh_token": file["refresh_token"]}));
    bench.answer(revoke).await.expect(200);
    bench.answer(refresh(&file, None)).await.expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn faults_strike_in_the_words_of_the_endpoint() {
    let bench = bench().await;
    let file = key(&bench);
    let good = statement(&file, &json!({}));
    for (method, path) in [("oauth2.token", "/token"), ("sts.token", "/v1/token")] {
        for (code, reason, error) in [
            (503, None, "temporarily_unavailable"),
            (429, None, "quota_exceeded"),
            (500, None, "internal_failure"),
            (400, Some("invalid_grant"), "invalid_grant"),
        ] {
            let action = FaultAction::Status {
                code,
                reason: reason.map(str::to_owned),
                retry_after: Some(2),
            };
            bench.admin().add_fault(FaultRule::once(method, action));
            let answer = bench.answer(ask("POST", path).body("x=y")).await;
            assert_eq!(answer.header("retry-after"), Some("2"));
            refused(answer, code, error);
        }
    }
    bench
        .admin()
        .add_fault(FaultRule::once("oauth2.token", FaultAction::Reset));
    assert!(bench.send(assertion(&good)).await.is_err());
    let stall = FaultAction::Stall {
        duration: Duration::from_secs(3600),
    };
    bench
        .admin()
        .add_fault(FaultRule::once("oauth2.token", stall));
    bench.hang(assertion(&good), "oauth2.token").await;
    access_token(bench.answer(assertion(&good)).await);
    assert_eq!(bench.admin().counters().oauth_tokens, 1);
    bench.emulator.shutdown().await;
}
