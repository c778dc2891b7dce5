use gcsmount_emulator::{Config, Role};
use serde_json::json;

use crate::client::{Ask, BUCKET, Bench, ask};

/// Asks for the permissions of objects and bucket, in the order of this list.
fn test_permissions() -> Ask {
    let wanted = [
        "storage.objects.get",
        "storage.objects.list",
        "storage.objects.create",
        "storage.objects.delete",
        "storage.objects.update",
        "storage.buckets.get",
        "storage.buckets.setIamPolicy",
    ];
    let query = wanted.map(|permission| format!("permissions={permission}"));
    let path = format!(
        "/storage/v1/b/{BUCKET}/iam/testPermissions?{}",
        query.join("&")
    );
    ask("GET", path)
}

#[tokio::test]
async fn permissions_follow_the_role() {
    let bench = Bench::with(Config::default()).await;
    let admin = bench.admin();
    let token = bench.access_token("ns", "sa").await;
    let member = admin.member("ns", "sa");
    for (roles, held) in [
        (
            vec![Role::ObjectAdmin],
            vec![
                "storage.objects.get",
                "storage.objects.list",
                "storage.objects.create",
                "storage.objects.delete",
                "storage.objects.update",
            ],
        ),
        (
            vec![Role::ObjectViewer],
            vec!["storage.objects.get", "storage.objects.list"],
        ),
        (
            vec![Role::BucketReader, Role::ObjectViewer],
            vec![
                "storage.objects.get",
                "storage.objects.list",
                "storage.buckets.get",
            ],
        ),
    ] {
        let bindings: Vec<_> = roles.iter().map(|role| (member.clone(), *role)).collect();
        admin.replace_grants(BUCKET, &bindings).unwrap();
        let answer = bench.answer(test_permissions().bearer(&token)).await;
        assert_eq!(
            answer.expect(200).json(),
            json!({"kind": "storage#testIamPermissionsResponse", "permissions": held}),
            "{roles:?}"
        );
    }
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn whoever_is_known_may_test_permissions() {
    let bench = Bench::with(Config::default()).await;
    let admin = bench.admin();
    let bindings = [(admin.member("ns", "sa"), Role::ObjectAdmin)];
    admin.replace_grants(BUCKET, &bindings).unwrap();
    let node = ask(
        "GET",
        "/computeMetadata/v1/instance/service-accounts/default/token",
    )
    .header("metadata-flavor", "Google");
    let node = bench.answer(node).await.expect(200).json();
    let stranger = bench.access_token("ns", "stranger").await;
    for token in [node["access_token"].as_str().unwrap(), &stranger] {
        let answer = bench.answer(test_permissions().bearer(token)).await;
        assert_eq!(
            answer.expect(200).json(),
            json!({"kind": "storage#testIamPermissionsResponse"})
        );
    }
    let anonymous = bench.answer(test_permissions()).await.expect(401);
    assert_eq!(anonymous.reason(), "required");
    bench
        .answer(test_permissions().bearer("nonsense"))
        .await
        .expect(401);
    admin.grant(BUCKET, "allUsers", Role::ObjectViewer).unwrap();
    let public = bench.answer(test_permissions()).await.expect(200).json();
    assert_eq!(
        public["permissions"],
        json!(["storage.objects.get", "storage.objects.list"])
    );
    let counters = admin.counters();
    assert_eq!(counters.of("storage.buckets.testIamPermissions"), 5);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn permissions_are_tested_by_name_on_a_bucket_that_exists() {
    let bench = Bench::open().await;
    let everything = bench.answer(test_permissions()).await.expect(200).json();
    assert_eq!(everything["permissions"].as_array().unwrap().len(), 7);
    let none = format!("/storage/v1/b/{BUCKET}/iam/testPermissions");
    let refused = bench.answer(ask("GET", none)).await.expect(400);
    assert_eq!(refused.reason(), "required");
    let elsewhere = "/storage/v1/b/nobucket/iam/testPermissions?permissions=storage.objects.get";
    let missing = bench.answer(ask("GET", elsewhere)).await.expect(404);
    assert_eq!(missing.reason(), "notFound");
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_bucket_tells_that_its_access_is_uniform() {
    let bench = Bench::open().await;
    let fields = "fields=iamConfiguration/uniformBucketLevelAccess/enabled";
    let get = ask("GET", format!("/storage/v1/b/{BUCKET}?{fields}"));
    assert_eq!(
        bench.answer(get).await.expect(200).json(),
        json!({"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": true}}})
    );
    bench.emulator.shutdown().await;
}
