use std::time::Duration;

use gcsmount_emulator::{Config, ErrorKind, MintRequest, Role};
use serde_json::json;

use crate::client::{Ask, BUCKET, Bench, ask, exchange, object_path, upload_path};

async fn bench() -> Bench {
    let bench = Bench::with(Config::default()).await;
    bench
        .admin()
        .put_object(BUCKET, "a", "data".into())
        .unwrap();
    bench
}

fn list() -> Ask {
    ask("GET", format!("/storage/v1/b/{BUCKET}/o"))
}

fn get() -> Ask {
    ask("GET", object_path("a", ""))
}

fn put() -> Ask {
    ask("POST", upload_path("b", "uploadType=media")).body("x")
}

#[tokio::test]
async fn no_token_a_bad_one_and_a_good_one() {
    let bench = bench().await;
    let anonymous = bench.answer(get()).await.expect(401);
    assert_eq!(anonymous.reason(), "required");
    assert!(anonymous.header("www-authenticate").is_some());
    assert_eq!(
        bench
            .answer(get().bearer("nonsense"))
            .await
            .expect(401)
            .reason(),
        "authError"
    );
    let basic = get().header("authorization", "Basic eDp5");
    assert_eq!(bench.answer(basic).await.expect(401).reason(), "authError");
    let token = bench.access_token("ns", "sa").await;
    for ask in [get(), put(), list()] {
        bench.answer(ask.bearer(&token)).await.expect(200);
    }
    let xml = bench
        .answer(ask("GET", format!("/{BUCKET}/a")))
        .await
        .expect(401);
    assert!(xml.text().contains("<Code>AuthenticationRequired</Code>"));
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn bindings_are_per_bucket_and_principal() {
    let bench = bench().await;
    let admin = bench.admin();
    admin.create_bucket("other").unwrap();
    let (one, two) = (
        bench.access_token("ns", "one").await,
        bench.access_token("ns", "two").await,
    );
    let bindings = [(admin.member("ns", "one"), Role::ObjectViewer)];
    admin.replace_grants(BUCKET, &bindings).unwrap();
    bench.answer(get().bearer(&one)).await.expect(200);
    let refused = bench.answer(put().bearer(&one)).await.expect(403);
    assert_eq!(refused.reason(), "forbidden");
    let message = refused.json()["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("/subject/ns/ns/sa/one does not have storage.objects.create access"),
        "{message}"
    );
    for ask in [get(), list(), put(), ask("DELETE", object_path("a", ""))] {
        bench.answer(ask.bearer(&two)).await.expect(403);
    }
    bench
        .answer(ask("GET", "/storage/v1/b/other/o").bearer(&two))
        .await
        .expect(200);
    admin
        .grant(BUCKET, &admin.member("ns", "two"), Role::ObjectAdmin)
        .unwrap();
    bench.answer(put().bearer(&two)).await.expect(200);
    admin.revoke(BUCKET, &admin.member("ns", "two")).unwrap();
    bench.answer(get().bearer(&two)).await.expect(403);
    admin.grant(BUCKET, "allUsers", Role::ObjectViewer).unwrap();
    bench.answer(get()).await.expect(200);
    bench.answer(put()).await.expect(401);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn object_roles_do_not_read_the_bucket() {
    let bench = bench().await;
    let token = bench.access_token("ns", "sa").await;
    let bucket = || ask("GET", format!("/storage/v1/b/{BUCKET}")).bearer(&token);
    bench.answer(bucket()).await.expect(403);
    let layout = ask("GET", format!("/storage/v1/b/{BUCKET}/storageLayout")).bearer(&token);
    bench.answer(layout).await.expect(200);
    bench
        .admin()
        .grant(BUCKET, &bench.admin().pool_member(), Role::BucketReader)
        .unwrap();
    bench.answer(bucket()).await.expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_created_bucket_belongs_to_its_creator() {
    let bench = bench().await;
    let create = || ask("POST", "/storage/v1/b?project=demo").json(&json!({"name": "mine"}));
    bench.answer(create()).await.expect(401);
    let (one, two) = (
        bench.access_token("ns", "one").await,
        bench.access_token("ns", "two").await,
    );
    bench.answer(create().bearer(&one)).await.expect(200);
    let get = |token: &str| ask("GET", "/storage/v1/b/mine").bearer(token);
    bench.answer(get(&one)).await.expect(200);
    bench.answer(get(&two)).await.expect(403);
    let visible = |token: &str| ask("GET", "/storage/v1/b?project=demo").bearer(token);
    assert_eq!(
        bench.answer(visible(&one)).await.json()["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        bench.answer(visible(&two)).await.json()["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    bench
        .answer(ask("GET", "/storage/v1/b?project=demo"))
        .await
        .expect(401);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn federated_principals_need_a_binding_of_their_own() {
    let bench = bench().await;
    let admin = bench.admin();
    let provider = admin.provider().to_owned();
    let subject_token = admin.mint_token(&MintRequest {
        audience: Some(provider.clone()),
        ..MintRequest::default()
    });
    let answer = bench
        .answer(exchange(&provider, &subject_token))
        .await
        .expect(200)
        .json();
    let token = answer["access_token"].as_str().unwrap();
    bench.answer(get().bearer(token)).await.expect(403);
    let pool = provider
        .trim_start_matches("//")
        .split("/providers/")
        .next()
        .unwrap();
    let member = format!("principal://{pool}/subject/system:serviceaccount:default:default");
    admin.grant(BUCKET, &member, Role::ObjectViewer).unwrap();
    bench.answer(get().bearer(token)).await.expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn access_tokens_expire_and_are_revoked() {
    let bench = bench().await;
    let admin = bench.admin();
    let half = Duration::from_secs(1800);
    admin.set_access_token_ttl(2 * half);
    let token = bench.access_token("ns", "sa").await;
    admin.advance_clock(half);
    bench.answer(get().bearer(&token)).await.expect(200);
    admin.advance_clock(half);
    assert_eq!(
        bench
            .answer(get().bearer(&token))
            .await
            .expect(401)
            .reason(),
        "authError"
    );
    let token = bench.access_token("ns", "sa").await;
    bench.answer(get().bearer(&token)).await.expect(200);
    admin.revoke_access_tokens();
    bench.answer(get().bearer(&token)).await.expect(401);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn the_metadata_trap_counts_and_its_token_opens_nothing() {
    let bench = bench().await;
    let admin = bench.admin();
    admin
        .grant(BUCKET, "allAuthenticatedUsers", Role::ObjectAdmin)
        .unwrap();
    let metadata = |path: &str| ask("GET", path).header("metadata-flavor", "Google");
    for (path, body) in [
        ("/", "computeMetadata/\n"),
        ("/computeMetadata/v1/project/project-id", "demo"),
        (
            "/computeMetadata/v1/instance/service-accounts/default/email",
            "123456789012-compute@developer.gserviceaccount.com",
        ),
    ] {
        let answer = bench.answer(metadata(path)).await.expect(200);
        assert_eq!(
            (answer.text().as_str(), answer.header("metadata-flavor")),
            (body, Some("Google")),
            "{path}"
        );
    }
    let accounts = "/computeMetadata/v1/instance/service-accounts";
    let token = bench
        .answer(metadata(&format!("{accounts}/default/token")))
        .await
        .expect(200)
        .json();
    let token = token["access_token"].as_str().unwrap();
    for ask in [get(), list(), put()] {
        assert_eq!(
            bench.answer(ask.bearer(token)).await.expect(403).reason(),
            "forbidden"
        );
    }
    let identity = bench
        .answer(metadata(&format!(
            "{accounts}/default/identity?audience=demo.svc.id.goog"
        )))
        .await;
    let audience = admin.sts_audience();
    bench
        .answer(exchange(&audience, &identity.expect(200).text()))
        .await
        .expect(400);
    bench
        .answer(metadata(&format!("{accounts}/default/identity")))
        .await
        .expect(400);
    bench
        .answer(metadata(&format!("{accounts}/default/?recursive=true")))
        .await
        .expect(200)
        .json();
    bench
        .answer(metadata(&format!("{accounts}/other/token")))
        .await
        .expect(404);
    bench
        .answer(metadata("/computeMetadata/v1/nonsense"))
        .await
        .expect(404);
    bench
        .answer(ask("GET", "/computeMetadata/v1/project/project-id"))
        .await
        .expect(403);
    assert_eq!(admin.counters().metadata_calls, 10);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn administrative_calls_name_what_is_wrong() {
    let bench = bench().await;
    let admin = bench.admin();
    let kind = |result: Result<(), gcsmount_emulator::Error>| result.unwrap_err().kind();
    assert_eq!(kind(admin.create_bucket("No")), ErrorKind::InvalidName);
    assert_eq!(kind(admin.create_bucket(BUCKET)), ErrorKind::Exists);
    assert_eq!(
        kind(admin.grant("nobucket", "allUsers", Role::ObjectViewer)),
        ErrorKind::NotFound
    );
    assert_eq!(
        kind(admin.revoke("nobucket", "allUsers")),
        ErrorKind::NotFound
    );
    let planted = admin.put_object(BUCKET, "a\nb", "x".into());
    assert_eq!(planted.unwrap_err().kind(), ErrorKind::InvalidName);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn debug_output_shows_no_token() {
    let bench = bench().await;
    let token = bench.access_token("ns", "sa").await;
    let shown = format!("{:?} {:?}", bench.emulator, bench.admin());
    assert!(
        shown.contains("Admin") && !shown.contains(&token),
        "{shown}"
    );
    bench.emulator.shutdown().await;
}
