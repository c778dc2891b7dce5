//! The bucket itself: what it is, what an identity may do in it, and its clock.

use std::time::SystemTime;

use gcsmount_emulator::{Config as EmulatorConfig, Emulator, MintRequest, Role};
use gcsmount_gcs::client::json::{Http, Pool};
use gcsmount_gcs::{Kind, Store};
use google_cloud_auth::credentials::{
    CacheableResource, Credentials, CredentialsProvider, EntityTag,
};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::emulator::store_as;
use crate::script::{Server, Step, json, name, object, refusal, refusal_with};

#[tokio::test(start_paused = true)]
async fn a_bucket_may_be_usable_and_yet_unreadable() {
    let bucket = json(
        r#"{"location":"eu","storageClass":"NEARLINE","hierarchicalNamespace":{"enabled":true}}"#,
    );
    let server = Server::new([
        bucket,
        refusal(403, "forbidden"),
        json("{}"),
        refusal(403, "forbidden"),
        refusal(403, "forbidden"),
        refusal(404, "notFound"),
    ]);
    let store = server.store();
    let known = store.bucket().await.unwrap();
    assert_eq!(
        (&*known.location, &*known.storage_class, known.hierarchical),
        ("EU", "NEARLINE", true)
    );
    let unreadable = store.bucket().await.unwrap();
    assert_eq!(
        (&*unreadable.location, unreadable.hierarchical),
        ("", false)
    );
    assert_eq!(store.bucket().await.unwrap_err().kind, Kind::Denied);
    assert_eq!(store.bucket().await.unwrap_err().kind, Kind::NotFound);
    assert!(server.seen()[2].target.ends_with("&maxResults=1"));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_says_how_it_is_accessed_to_whom_may_read_it() {
    let server = Server::new([
        json(r#"{"iamConfiguration":{"uniformBucketLevelAccess":{"enabled":false}}}"#),
        refusal(403, "forbidden"),
        json("{}"),
    ]);
    let store = server.store();
    assert_eq!(store.bucket().await.unwrap().uniform_access, Some(false));
    assert_eq!(store.bucket().await.unwrap().uniform_access, None);
    assert_eq!(
        server.seen()[0].target,
        "/storage/v1/b/bkt?fields=location%2CstorageClass%2ChierarchicalNamespace%2C\
         iamConfiguration%2FuniformBucketLevelAccess%2Fenabled"
    );
}

#[tokio::test(start_paused = true)]
async fn permissions_come_in_the_order_of_the_question() {
    let server = Server::new([json(
        r#"{"permissions":["storage.objects.list","storage.buckets.get","storage.objects.get"]}"#,
    )]);
    let wanted = [
        "storage.objects.get",
        "storage.objects.delete",
        "storage.objects.list",
    ];
    let held = server.store().permissions(&wanted).await.unwrap();
    assert_eq!(held, ["storage.objects.get", "storage.objects.list"]);
    let seen = server.seen();
    assert_eq!(seen[0].method, "GET");
    assert_eq!(
        seen[0].target,
        "/storage/v1/b/bkt/iam/testPermissions?permissions=storage.objects.get\
         &permissions=storage.objects.delete&permissions=storage.objects.list"
    );
}

#[tokio::test(start_paused = true)]
async fn permissions_that_are_none_and_answers_that_are_no_answer() {
    let server = Server::new([refusal(503, "backendError"), Step::Lost, json("{}")]);
    let store = server.store();
    let wanted = ["storage.objects.get"];
    assert!(store.permissions(&wanted).await.unwrap().is_empty());
    for (step, kind) in [
        (refusal(401, "required"), Kind::Unauthenticated),
        (refusal(404, "notFound"), Kind::NotFound),
        (refusal(400, "required"), Kind::Invalid),
        (json(r#"{"permissions":1}"#), Kind::Corrupt),
        (json("<html>"), Kind::Corrupt),
    ] {
        server.then([step]);
        let error = store.permissions(&wanted).await.unwrap_err();
        assert_eq!(
            (error.kind, error.operation, &*error.subject),
            (kind, "storage.buckets.testIamPermissions", "bkt")
        );
    }
    let endless = "x".repeat(100_000);
    let error = store.permissions(&[&endless]).await.unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert_eq!(server.seen().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_tells_the_time_too() {
    const EPOCH: &str = "Thu, 01 Jan 1970 00:00:00 GMT";
    let server = Server::new([
        refusal_with(401, "required", &[("date", EPOCH)]),
        json(object(7, b"x")),
    ]);
    let store = server.store();
    assert_eq!(store.clock_offset(), None);
    store.stat(&name("o")).await.unwrap_err();
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let offset = store.clock_offset().unwrap().0;
    assert!(
        (since.as_secs().cast_signed() + offset).abs() < 60,
        "{offset}"
    );
    // The script's server tells the machine's time where the script tells none.
    store.stat(&name("o")).await.unwrap();
    let offset = store.clock_offset().unwrap().0;
    assert!(offset.abs() < 60, "{offset}");
    server.seen();
}

/// One token, for good.
#[derive(Debug)]
struct Bearer(EntityTag, HeaderValue);

impl CredentialsProvider for Bearer {
    async fn headers(
        &self,
        _: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        Ok(CacheableResource::New {
            entity_tag: self.0.clone(),
            data: HeaderMap::from_iter([(http::header::AUTHORIZATION, self.1.clone())]),
        })
    }

    async fn universe_domain(&self) -> Option<String> {
        None
    }
}

/// A service account of the emulator's cluster, for which its STS vouches.
async fn known(emulator: &Emulator, service_account: &str) -> Credentials {
    let subject_token = emulator.admin().mint_token(&MintRequest {
        service_account: service_account.to_owned(),
        ..MintRequest::default()
    });
    let token = exchange(emulator, &subject_token).await;
    let header = HeaderValue::try_from(format!("Bearer {token}")).unwrap();
    Credentials::from(Bearer(EntityTag::new(), header))
}

async fn exchange(emulator: &Emulator, subject_token: &str) -> String {
    let form = [
        (
            "grant_type",
            "urn:ietf:params:oauth:grant-type:token-exchange",
        ),
        (
            "requested_token_type",
            "urn:ietf:params:oauth:token-type:access_token",
        ),
        ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
        ("scope", "https://www.googleapis.com/auth/cloud-platform"),
        ("audience", &emulator.admin().sts_audience()),
        ("subject_token", subject_token),
    ];
    let form =
        form.map(|(key, value)| format!("{key}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
    let body = form.join("&");
    let request = format!(
        "POST /v1/token HTTP/1.1\r\nHost: sts\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = TcpStream::connect(emulator.local_addrs()[0]).await.unwrap();
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_bucket_says_what_an_identity_may_do_and_what_time_it_is() {
    let config = EmulatorConfig {
        buckets: vec!["bkt".to_owned()],
        ..EmulatorConfig::default()
    };
    let emulator = Emulator::start(config).await.unwrap();
    let admin = emulator.admin();
    let reader = admin.member("default", "reader");
    let grants = [Role::ObjectViewer, Role::BucketReader].map(|role| (reader.clone(), role));
    admin.replace_grants("bkt", &grants).unwrap();
    let http = Http::new(&Pool::default());
    let wanted = [
        "storage.objects.create",
        "storage.objects.get",
        "storage.buckets.get",
    ];

    let credentials = Some(known(&emulator, "reader").await);
    let store = store_as(&http, &emulator, "bkt", credentials);
    assert_eq!(store.bucket().await.unwrap().uniform_access, Some(true));
    assert_eq!(store.permissions(&wanted).await.unwrap(), wanted[1..]);

    admin.set_clock_skew(-7200);
    let credentials = Some(known(&emulator, "stranger").await);
    let stranger = store_as(&http, &emulator, "bkt", credentials);
    assert_eq!(stranger.bucket().await.unwrap_err().kind, Kind::Denied);
    let offset = stranger.clock_offset().unwrap().0;
    assert!((-7260..=-7140).contains(&offset), "{offset}");
    assert!(stranger.permissions(&wanted).await.unwrap().is_empty());

    let nobody = store_as(&http, &emulator, "bkt", None);
    let error = nobody.permissions(&wanted).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unauthenticated);
    let missing = store_as(&http, &emulator, "nobucket", None);
    let error = missing.permissions(&wanted).await.unwrap_err();
    assert_eq!(error.kind, Kind::NotFound);
    let counters = admin.counters();
    assert_eq!(counters.of("storage.buckets.testIamPermissions"), 4);
    emulator.shutdown().await;
}
