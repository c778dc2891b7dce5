//! Scopes of tokens: whatever the roles, a token does no more than its scopes let it.

use gcsmount_emulator::{Config, MintRequest, Role, ServiceAccount};
use serde_json::{Value, json};

use crate::client::{Ask, BUCKET, Bench, ask, exchange_form, form, object_path, upload_path};
use crate::impersonation::{ROBOT, generate};
use crate::oauth::{assertion, key, statement};

const READ: &str = "https://www.googleapis.com/auth/devstorage.read_only";
const WRITE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
const FULL: &str = "https://www.googleapis.com/auth/devstorage.full_control";
const PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

/// The pod `ns/sa` and [`ROBOT`], as which it may act, have every role on the bucket.
async fn bench() -> Bench {
    let robot = ServiceAccount {
        email: ROBOT.to_owned(),
        impersonators: vec!["serviceAccount:demo.svc.id.goog[ns/sa]".to_owned()],
    };
    let config = Config {
        service_accounts: vec![robot],
        mutation_limit: None,
        ..Config::default()
    };
    let bench = Bench::with(config).await;
    let admin = bench.admin();
    let pod = admin.member("ns", "sa");
    for member in [pod, format!("serviceAccount:{ROBOT}")] {
        admin.grant(BUCKET, &member, Role::Admin).unwrap();
    }
    admin.put_object(BUCKET, "a", "data".into()).unwrap();
    bench
}

/// What reads, what writes, and what changes metadata.
fn requests() -> [(&'static str, Ask); 6] {
    let text = |method, path: &str| ask(method, path).body("x");
    [
        ("read", ask("GET", object_path("a", "alt=media"))),
        ("read", ask("GET", format!("/{BUCKET}/a"))),
        ("write", text("POST", &upload_path("b", "uploadType=media"))),
        ("write", text("PUT", &format!("/{BUCKET}/b"))),
        (
            "change",
            ask("PATCH", object_path("a", "")).json(&json!({"metadata": {"k": "v"}})),
        ),
        (
            "change",
            ask("PATCH", format!("/storage/v1/b/{BUCKET}")).json(&json!({})),
        ),
    ]
}

/// What of [`requests`] a token may do.
async fn opened(bench: &Bench, token: &str) -> Vec<&'static str> {
    let mut opened = Vec::new();
    for (kind, request) in requests() {
        let answer = bench.answer(request.bearer(token)).await;
        if answer.code() == 200 {
            opened.push(kind);
            continue;
        }
        let message = answer.expect(403).text();
        let known = ["Provided scope(s) are not authorized", "<Code>AccessDenied"];
        assert!(known.iter().any(|text| message.contains(text)), "{message}");
    }
    opened
}

fn told(answer: &Value, field: &str) -> String {
    answer[field].as_str().unwrap().to_owned()
}

async fn federated(bench: &Bench, scope: &str) -> String {
    let admin = bench.admin();
    let request = MintRequest {
        namespace: "ns".to_owned(),
        service_account: "sa".to_owned(),
        ..MintRequest::default()
    };
    let (audience, subject) = (admin.sts_audience(), admin.mint_token(&request));
    let mut fields = exchange_form(&audience, &subject);
    fields.insert("scope", scope);
    let answer = bench.answer(form(&fields)).await.expect(200);
    told(&answer.json(), "access_token")
}

#[tokio::test]
async fn a_token_of_any_source_does_what_its_scopes_let_it() {
    let bench = bench().await;
    let file = key(&bench);
    let own = federated(&bench, PLATFORM).await;
    for (scope, kinds) in [
        (READ, &["read", "read"][..]),
        (WRITE, &["read", "read", "write", "write"]),
        (
            FULL,
            &["read", "read", "write", "write", "change", "change"],
        ),
        (
            PLATFORM,
            &["read", "read", "write", "write", "change", "change"],
        ),
    ] {
        let asked = generate(ROBOT, &json!({"scope": [scope]})).bearer(&own);
        let impersonated = bench.answer(asked).await.expect(200).json();
        let stated = statement(&file, &json!({"scope": scope}));
        let granted = bench.answer(assertion(&stated)).await.expect(200).json();
        for token in [
            federated(&bench, scope).await,
            told(&impersonated, "accessToken"),
            told(&granted, "access_token"),
            statement(&file, &json!({"sub": ROBOT, "aud": null, "scope": scope})),
        ] {
            assert_eq!(opened(&bench, &token).await, kinds, "{scope}");
        }
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn the_refusal_is_that_of_the_storage_api() {
    let bench = bench().await;
    let token = federated(&bench, READ).await;
    let delete = ask("DELETE", object_path("a", "")).bearer(&token);
    let error = bench.answer(delete).await.expect(403).json();
    let message = "Provided scope(s) are not authorized";
    let detail = json!({"message": message, "domain": "global", "reason": "forbidden"});
    assert_eq!(
        error,
        json!({"error": {"code": 403, "message": message, "errors": [detail]}})
    );
    bench
        .answer(ask("GET", object_path("a", "")).bearer(&token))
        .await
        .expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn scopes_of_storage_alone_do_not_impersonate() {
    let bench = bench().await;
    let token = federated(&bench, FULL).await;
    let asked = generate(ROBOT, &json!({"scope": [READ]})).bearer(&token);
    let error = bench.answer(asked).await.expect(403).json();
    assert_eq!(error["error"]["status"], "PERMISSION_DENIED");
    assert_eq!(
        error["error"]["details"][0]["reason"],
        "ACCESS_TOKEN_SCOPE_INSUFFICIENT"
    );
    assert_eq!(bench.admin().counters().impersonations, 0);
    bench.emulator.shutdown().await;
}
