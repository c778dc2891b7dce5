use std::time::Duration;

use gcsmount_emulator::{MintRequest, Provider};
use serde_json::json;

use crate::client::{Bench, ask, exchange, exchange_form, form};

async fn bench() -> Bench {
    Bench::with(gcsmount_emulator::Config::default()).await
}

#[tokio::test]
async fn a_form_and_googles_json_get_a_token() {
    let bench = bench().await;
    let admin = bench.admin();
    let (audience, subject_token) = (
        admin.sts_audience(),
        admin.mint_token(&MintRequest::default()),
    );
    let json = json!({
        "grantType": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requestedTokenType": "urn:ietf:params:oauth:token-type:access_token",
        "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
        "scope": "https://www.googleapis.com/auth/cloud-platform",
        "audience": audience,
        "subjectToken": subject_token,
    });
    let google = ask("POST", "/v1/token?alt=json&prettyPrint=false").json(&json);
    for ask in [exchange(&audience, &subject_token), google] {
        let answer = bench.answer(ask).await.expect(200).json();
        assert_eq!(
            (&answer["token_type"], &answer["expires_in"]),
            (&json!("Bearer"), &json!(3600))
        );
        assert_eq!(
            answer["issued_token_type"],
            "urn:ietf:params:oauth:token-type:access_token"
        );
        assert!(
            answer["access_token"]
                .as_str()
                .is_some_and(|token| token.len() > 20)
        );
    }
    let counters = admin.counters();
    assert_eq!((counters.exchanges, counters.of("sts.token")), (2, 2));
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn each_refusal_is_named_and_echoes_no_token() {
    let bench = bench().await;
    let admin = bench.admin();
    let good = admin.mint_token(&MintRequest::default());
    let mint = |request: MintRequest| admin.mint_token(&request);
    let expired = mint(MintRequest {
        ttl: Duration::ZERO,
        ..MintRequest::default()
    });
    let early = mint(MintRequest {
        not_before: Duration::from_secs(600),
        ..MintRequest::default()
    });
    let astray = mint(MintRequest {
        audience: Some("other".into()),
        ..MintRequest::default()
    });
    let foreign = mint(MintRequest {
        issuer: Some("https://elsewhere.example".into()),
        ..MintRequest::default()
    });
    let (head, signature) = good.rsplit_once('.').unwrap();
    let tampered = format!("{head}.{}", signature.chars().rev().collect::<String>());
    let stranger = Bench::with(gcsmount_emulator::Config::default()).await;
    let strange = stranger.admin().mint_token(&MintRequest::default());
    let audience = admin.sts_audience();
    let unknown = format!("{audience}x");
    for (field, value, error) in [
        ("subject_token", expired.as_str(), "invalid_grant"),
        ("subject_token", early.as_str(), "invalid_grant"),
        ("subject_token", astray.as_str(), "invalid_grant"),
        ("subject_token", foreign.as_str(), "invalid_grant"),
        ("subject_token", tampered.as_str(), "invalid_grant"),
        ("subject_token", strange.as_str(), "invalid_grant"),
        ("subject_token", "not a jwt", "invalid_grant"),
        ("subject_token", "", "invalid_request"),
        ("audience", "", "invalid_request"),
        ("audience", "demo.svc.id.goog", "invalid_request"),
        ("audience", "identitynamespace:demo", "invalid_request"),
        ("audience", unknown.as_str(), "invalid_target"),
        (
            "audience",
            "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/v",
            "invalid_target",
        ),
        (
            "audience",
            "//iam.googleapis.com/projects/demo/locations/global/workloadIdentityPools/demo-pool/providers/demo-cluster",
            "invalid_target",
        ),
        ("grant_type", "password", "unsupported_grant_type"),
        ("requested_token_type", "x", "invalid_request"),
        ("subject_token_type", "x", "invalid_request"),
    ] {
        let mut fields = exchange_form(&audience, &good);
        fields.insert(field, value);
        let answer = bench.answer(form(&fields)).await.expect(400);
        assert_eq!(
            answer.json()["error"],
            error,
            "{field}={value}: {}",
            answer.text()
        );
        assert!(
            !answer.text().contains(&good) && (value.len() < 200 || !answer.text().contains(value))
        );
    }
    let body = ask("POST", "/v1/token")
        .header("content-type", "text/plain")
        .body("x");
    assert_eq!(
        bench.answer(body).await.expect(400).json()["error"],
        "invalid_request"
    );
    let body = ask("POST", "/v1/token")
        .header("content-type", "application/json")
        .body("[");
    assert_eq!(
        bench.answer(body).await.expect(400).json()["error"],
        "invalid_request"
    );
    assert_eq!(admin.counters().exchanges, 0);
    stranger.emulator.shutdown().await;
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn federation_providers_have_issuers_and_audiences_of_their_own() {
    let bench = bench().await;
    let admin = bench.admin();
    let builtin = admin.provider().to_owned();
    let mint = |audience: &str, issuer: Option<&str>| {
        admin.mint_token(&MintRequest {
            audience: Some(audience.to_owned()),
            issuer: issuer.map(str::to_owned),
            ..MintRequest::default()
        })
    };
    for audience in [builtin.clone(), format!("https:{builtin}")] {
        bench
            .answer(exchange(&builtin, &mint(&audience, None)))
            .await
            .expect(200);
    }
    bench
        .answer(exchange(&builtin, &mint(admin.token_audience(), None)))
        .await
        .expect(400);
    let own =
        "//iam.googleapis.com/projects/7/locations/global/workloadIdentityPools/own/providers/v";
    admin.register_provider(Provider {
        name: own.to_owned(),
        issuer: "https://issuer.example".to_owned(),
        allowed_audiences: vec!["sts".to_owned()],
    });
    bench
        .answer(exchange(own, &mint("sts", Some("https://issuer.example"))))
        .await
        .expect(200);
    bench
        .answer(exchange(own, &mint("sts", None)))
        .await
        .expect(400);
    bench
        .answer(exchange(own, &mint(own, Some("https://issuer.example"))))
        .await
        .expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_subject_token_expires_by_the_clock() {
    let bench = bench().await;
    let admin = bench.admin();
    let token = admin.mint_token(&MintRequest {
        ttl: Duration::from_secs(600),
        ..MintRequest::default()
    });
    let audience = admin.sts_audience();
    bench.answer(exchange(&audience, &token)).await.expect(200);
    admin.advance_clock(Duration::from_secs(600));
    bench.answer(exchange(&audience, &token)).await.expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_life_without_end_is_no_panic() {
    let bench = bench().await;
    let endless = json!({"ttl_seconds": u64::MAX});
    let minted = ask("POST", "/_emulator/tokens").json(&endless);
    let minted = bench.answer(minted).await.expect(200).json();
    let ttl = ask("PUT", "/_emulator/access_tokens").json(&endless);
    bench.answer(ttl).await.expect(200);
    let audience = bench.admin().sts_audience();
    let subject_token = minted["token"].as_str().unwrap();
    let granted = bench.answer(exchange(&audience, subject_token)).await;
    assert_eq!(granted.expect(200).json()["expires_in"], u64::MAX);
    bench.emulator.shutdown().await;
}
