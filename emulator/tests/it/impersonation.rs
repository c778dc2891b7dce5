use std::time::Duration;

use gcsmount_emulator::{Config, ErrorKind, FaultAction, FaultRule, Role, ServiceAccount};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::client::{Answer, Ask, BUCKET, Bench, ask, object_path, upload_path};

pub(crate) const ROBOT: &str = "robot@demo.iam.gserviceaccount.com";
const OTHER: &str = "other@demo.iam.gserviceaccount.com";
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

pub(crate) fn generate(account: &str, body: &Value) -> Ask {
    let path = format!("/v1/projects/-/serviceAccounts/{account}:generateAccessToken");
    ask("POST", path).json(body)
}

fn request() -> Value {
    json!({"scope": [SCOPE], "lifetime": "3600s"})
}

/// [`ROBOT`] lets the pod `ns/sa` act as it, and [`OTHER`] lets [`ROBOT`].
async fn bench() -> Bench {
    let account = |email: &str, impersonator: String| ServiceAccount {
        email: email.to_owned(),
        impersonators: vec![impersonator],
    };
    let config = Config {
        service_accounts: vec![
            account(ROBOT, "serviceAccount:demo.svc.id.goog[ns/sa]".to_owned()),
            account(OTHER, format!("serviceAccount:{ROBOT}")),
        ],
        ..Config::default()
    };
    let bench = Bench::with(config).await;
    let admin = bench.admin();
    admin.put_object(BUCKET, "a", "data".into()).unwrap();
    let binding = (format!("serviceAccount:{ROBOT}"), Role::ObjectViewer);
    admin.replace_grants(BUCKET, &[binding]).unwrap();
    bench
}

#[track_caller]
fn refused(answer: Answer, code: u16, status: &str) -> String {
    let body = answer.expect(code).json();
    assert_eq!(
        (&body["error"]["code"], &body["error"]["status"]),
        (&json!(code), &json!(status))
    );
    body["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_token_stands_for_the_account_and_for_its_time() {
    let bench = bench().await;
    let admin = bench.admin();
    let own = bench.access_token("ns", "sa").await;
    let stat = |token: &str| ask("GET", object_path("a", "")).bearer(token);
    bench.answer(stat(&own)).await.expect(403);
    let before = OffsetDateTime::now_utc();
    let answer = bench
        .answer(generate(ROBOT, &json!({"scope": [SCOPE], "lifetime": "600s"})).bearer(&own))
        .await
        .expect(200)
        .json();
    let expires = answer["expireTime"].as_str().unwrap();
    let life = OffsetDateTime::parse(expires, &Rfc3339).unwrap() - before;
    // It is told in whole seconds.
    let latest = 600 + (OffsetDateTime::now_utc() - before).whole_seconds() + 1;
    let seconds = life.whole_seconds();
    assert!((599..=latest).contains(&seconds), "{expires}");
    let token = answer["accessToken"].as_str().unwrap();
    bench.answer(stat(token)).await.expect(200);
    let put = ask("POST", upload_path("b", "uploadType=media"))
        .body("x")
        .bearer(token);
    let message = bench.answer(put).await.expect(403).text();
    assert!(
        message.contains(&format!("{ROBOT} does not have storage.objects.create")),
        "{message}"
    );
    admin.advance_clock(Duration::from_secs(600));
    bench.answer(stat(token)).await.expect(401);
    let counters = admin.counters();
    let method = "iamcredentials.generateAccessToken";
    assert_eq!((counters.impersonations, counters.of(method)), (1, 1));
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn whoever_has_no_role_on_the_account_is_denied() {
    let bench = bench().await;
    let admin = bench.admin();
    let own = bench.access_token("ns", "sa").await;
    let stranger = bench.access_token("ns", "stranger").await;
    let metadata = ask(
        "GET",
        "/computeMetadata/v1/instance/service-accounts/default/token",
    )
    .header("metadata-flavor", "Google");
    let node = bench.answer(metadata).await.expect(200).json();
    let node = node["access_token"].as_str().unwrap();
    for token in [&*stranger, node] {
        let answer = bench
            .answer(generate(ROBOT, &request()).bearer(token))
            .await;
        let message = refused(answer, 403, "PERMISSION_DENIED");
        assert!(
            message.contains("iam.serviceAccounts.getAccessToken"),
            "{message}"
        );
    }
    refused(
        bench.answer(generate(ROBOT, &request())).await,
        401,
        "UNAUTHENTICATED",
    );
    let bad = generate(ROBOT, &request()).bearer("nonsense");
    refused(bench.answer(bad).await, 401, "UNAUTHENTICATED");
    let nobody = generate("nobody@demo.iam.gserviceaccount.com", &request()).bearer(&own);
    refused(bench.answer(nobody).await, 404, "NOT_FOUND");
    admin
        .grant_impersonation(ROBOT, &admin.member("ns", "stranger"))
        .unwrap();
    bench
        .answer(generate(ROBOT, &request()).bearer(&stranger))
        .await
        .expect(200);
    admin
        .revoke_impersonation(ROBOT, &admin.member("ns", "stranger"))
        .unwrap();
    bench
        .answer(generate(ROBOT, &request()).bearer(&stranger))
        .await
        .expect(403);
    assert_eq!(admin.counters().impersonations, 1);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn requests_are_checked() {
    let bench = bench().await;
    let own = bench.access_token("ns", "sa").await;
    for body in [
        json!({"scope": [SCOPE], "lifetime": "3601s"}),
        json!({"scope": [SCOPE], "lifetime": "0s"}),
        json!({"scope": [SCOPE], "lifetime": "1h"}),
        json!({"scope": []}),
        json!({"lifetime": "60s"}),
        json!({"scope": [SCOPE], "delegates": [OTHER]}),
    ] {
        let answer = bench.answer(generate(ROBOT, &body).bearer(&own)).await;
        refused(answer, 400, "INVALID_ARGUMENT");
    }
    let escaped = ROBOT.replace('@', "%40");
    bench
        .answer(generate(&escaped, &json!({"scope": [SCOPE]})).bearer(&own))
        .await
        .expect(200);
    let by_project = format!("/v1/projects/demo/serviceAccounts/{ROBOT}:generateAccessToken");
    let by_project = ask("POST", by_project).json(&request()).bearer(&own);
    bench.answer(by_project).await.expect(404);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn delegates_are_a_chain_without_a_gap() {
    let bench = bench().await;
    let own = bench.access_token("ns", "sa").await;
    let through = |delegates: &[&str]| {
        let names = delegates
            .iter()
            .map(|email| format!("projects/-/serviceAccounts/{email}"));
        let body = json!({"scope": [SCOPE], "delegates": names.collect::<Vec<_>>()});
        generate(OTHER, &body).bearer(&own)
    };
    bench.answer(through(&[])).await.expect(403);
    bench.answer(through(&[ROBOT])).await.expect(200);
    bench.answer(through(&[ROBOT, ROBOT])).await.expect(403);
    bench
        .answer(through(&["nobody@demo.example"]))
        .await
        .expect(404);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_token_in_a_boundary_impersonates_nobody_and_an_impersonated_one_is_downscoped() {
    let bench = bench().await;
    let own = bench.access_token("ns", "sa").await;
    let options = json!({"accessBoundary": {"accessBoundaryRules": [{
        "availableResource": format!("//storage.googleapis.com/projects/_/buckets/{BUCKET}"),
        "availablePermissions": ["inRole:roles/storage.objectViewer"],
    }]}});
    let options = options.to_string();
    let downscope = |token: &str| {
        let kind = "urn:ietf:params:oauth:token-type:access_token";
        crate::client::form(
            &[
                (
                    "grant_type",
                    "urn:ietf:params:oauth:grant-type:token-exchange",
                ),
                ("requested_token_type", kind),
                ("subject_token_type", kind),
                ("subject_token", token),
                ("options", &options),
            ]
            .into(),
        )
    };
    let part = bench.answer(downscope(&own)).await.expect(200).json();
    let part = part["access_token"].as_str().unwrap();
    bench
        .answer(generate(ROBOT, &request()).bearer(part))
        .await
        .expect(403);
    let request = json!({"scope": [SCOPE], "lifetime": "600s"});
    let robot = bench
        .answer(generate(ROBOT, &request).bearer(&own))
        .await
        .expect(200)
        .json();
    let robot = robot["accessToken"].as_str().unwrap();
    let part = bench.answer(downscope(robot)).await.expect(200).json();
    let left = part["expires_in"].as_u64().unwrap();
    assert!((1..=600).contains(&left), "{left}");
    let stat = ask("GET", object_path("a", "")).bearer(part["access_token"].as_str().unwrap());
    bench.answer(stat).await.expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn faults_strike_by_method_and_account() {
    let bench = bench().await;
    let own = bench.access_token("ns", "sa").await;
    let status = |code| FaultAction::Status {
        code,
        reason: None,
        retry_after: Some(1),
    };
    bench.admin().add_fault(FaultRule {
        name: Some("robot@*".to_owned()),
        ..FaultRule::once("iamcredentials.*", status(503))
    });
    let answer = bench.answer(generate(ROBOT, &request()).bearer(&own)).await;
    assert_eq!(answer.header("retry-after"), Some("1"));
    refused(answer, 503, "UNAVAILABLE");
    bench
        .admin()
        .add_fault(FaultRule::once("iamcredentials.*", FaultAction::Reset));
    assert!(
        bench
            .send(generate(ROBOT, &request()).bearer(&own))
            .await
            .is_err()
    );
    bench
        .answer(generate(ROBOT, &request()).bearer(&own))
        .await
        .expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn accounts_are_administered_over_http() {
    let bench = Bench::with(Config::default()).await;
    let accounts = "/_emulator/service_accounts";
    let create = || {
        ask("POST", accounts)
            .json(&json!({"email": ROBOT, "impersonators": ["allAuthenticatedUsers"]}))
    };
    bench.answer(create()).await.expect(200);
    bench.answer(create()).await.expect(409);
    let bad = ask("POST", accounts).json(&json!({"email": "no address"}));
    bench.answer(bad).await.expect(400);
    let own = bench.access_token("ns", "sa").await;
    let generate = || generate(ROBOT, &request()).bearer(&own);
    bench.answer(generate()).await.expect(200);
    let path = format!("{accounts}/{ROBOT}/impersonators");
    let everyone = json!({"member": "allAuthenticatedUsers"});
    bench
        .answer(ask("DELETE", &*path).json(&everyone))
        .await
        .expect(200);
    bench.answer(generate()).await.expect(403);
    let member = json!({"member": bench.admin().member("ns", "sa")});
    bench
        .answer(ask("POST", path.replace('@', "%40")).json(&member))
        .await
        .expect(200);
    bench.answer(generate()).await.expect(200);
    let nobody = format!("{accounts}/nobody@demo.example/impersonators");
    bench
        .answer(ask("POST", nobody).json(&member))
        .await
        .expect(404);
    bench
        .answer(ask("PUT", accounts).json(&member))
        .await
        .expect(404);
    let missing = bench
        .admin()
        .grant_impersonation("nobody@demo.example", "allUsers");
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn an_account_that_is_configured_twice_is_an_error_at_start() {
    let account = ServiceAccount {
        email: ROBOT.to_owned(),
        impersonators: Vec::new(),
    };
    let config = Config {
        service_accounts: vec![account.clone(), account],
        ..Config::default()
    };
    let error = gcsmount_emulator::Emulator::start(config)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
