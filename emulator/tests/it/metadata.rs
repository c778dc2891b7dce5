use std::time::Duration;

use gcsmount_emulator::{Config, FaultAction, FaultRule, MetadataFlavor, Role};
use serde_json::json;

use crate::client::{Answer, Ask, BUCKET, Bench, ask, object_path};

const ACCOUNTS: &str = "/computeMetadata/v1/instance/service-accounts";

fn pod() -> MetadataFlavor {
    MetadataFlavor::Pod {
        namespace: "ns".to_owned(),
        service_account: "sa".to_owned(),
    }
}

fn metadata(path: impl Into<String>) -> Ask {
    ask("GET", path).header("metadata-flavor", "Google")
}

fn token() -> Ask {
    metadata(format!(
        "{ACCOUNTS}/default/token?scopes=https://www.googleapis.com/auth/cloud-platform"
    ))
}

/// A bucket that the pod `ns/sa` may read, and two addresses.
async fn bench(flavor: MetadataFlavor) -> Bench {
    let loopback = || "127.0.0.1:0".parse().unwrap();
    let config = Config {
        listen: vec![loopback(), loopback()],
        metadata: flavor,
        ..Config::default()
    };
    let bench = Bench::with(config).await;
    let admin = bench.admin();
    admin.put_object(BUCKET, "a", "data".into()).unwrap();
    let binding = (admin.member("ns", "sa"), Role::ObjectViewer);
    admin.replace_grants(BUCKET, &[binding]).unwrap();
    bench
}

fn access_token(answer: &Answer) -> String {
    answer.json()["access_token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_pods_server_stands_for_the_pod() {
    let bench = bench(pod()).await;
    for (path, body) in [
        ("/", "computeMetadata/\n"),
        ("/computeMetadata/v1/project/project-id", "demo"),
        (
            "/computeMetadata/v1/instance/service-accounts/default/email",
            "demo.svc.id.goog",
        ),
        (ACCOUNTS, "default/\ndemo.svc.id.goog/\n"),
    ] {
        let answer = bench.answer(metadata(path)).await.expect(200);
        assert_eq!(answer.text(), body, "{path}");
        assert_eq!(answer.header("metadata-flavor"), Some("Google"));
        assert_eq!(answer.header("server"), Some("GKE Metadata Server"));
    }
    let answer = bench.answer(token()).await.expect(200);
    assert_eq!(answer.json()["expires_in"], 3600);
    let stat = |token: &str| ask("GET", object_path("a", "")).bearer(token);
    bench.answer(stat(&access_token(&answer))).await.expect(200);
    bench
        .answer(metadata(format!("{ACCOUNTS}/default/identity?audience=x")))
        .await
        .expect(404);
    bench
        .answer(metadata(format!("{ACCOUNTS}/other/token")))
        .await
        .expect(404);
    let other = MetadataFlavor::Pod {
        namespace: "ns".to_owned(),
        service_account: "other".to_owned(),
    };
    bench.admin().set_metadata(other);
    let answer = bench.answer(token()).await.expect(200);
    bench.answer(stat(&access_token(&answer))).await.expect(403);
    let counters = bench.admin().counters();
    assert_eq!(
        (
            counters.pod_tokens,
            counters.node_tokens,
            counters.metadata_calls
        ),
        (2, 0, 8)
    );
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn node_and_pod_stand_side_by_side_at_two_addresses() {
    let bench = bench(MetadataFlavor::Node).await;
    let admin = bench.admin();
    let [node_addr, pod_addr] = bench.emulator.local_addrs().try_into().unwrap();
    admin.set_metadata_at(pod_addr, pod());
    let stat = |token: &str| ask("GET", object_path("a", "")).bearer(token);
    for (addr, server, code) in [
        (node_addr, "Metadata Server for VM", 403),
        (pod_addr, "GKE Metadata Server", 200),
    ] {
        let answer = bench.send_to(addr, token()).await.unwrap().expect(200);
        assert_eq!(answer.header("server"), Some(server));
        bench
            .answer(stat(&access_token(&answer)))
            .await
            .expect(code);
    }
    let counters = admin.counters();
    assert_eq!((counters.node_tokens, counters.pod_tokens), (1, 1));
    admin.set_metadata(MetadataFlavor::Node);
    let answer = bench.send_to(pod_addr, token()).await.unwrap();
    assert_eq!(answer.header("server"), Some("Metadata Server for VM"));
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn the_flavor_is_set_over_http() {
    let bench = bench(MetadataFlavor::Node).await;
    let server = |answer: &Answer| answer.header("server").unwrap().to_owned();
    let set = |body| ask("PUT", "/_emulator/metadata").json(&body);
    let pod = json!({"namespace": "ns", "service_account": "sa"});
    let second = bench.emulator.local_addrs()[1];
    bench
        .answer(set(json!({"address": second.to_string(), "pod": pod})))
        .await
        .expect(200);
    assert_eq!(
        server(&bench.answer(metadata("/")).await),
        "Metadata Server for VM"
    );
    assert_eq!(
        server(&bench.send_to(second, metadata("/")).await.unwrap()),
        "GKE Metadata Server"
    );
    bench.answer(set(json!({"pod": pod}))).await.expect(200);
    assert_eq!(
        server(&bench.answer(metadata("/")).await),
        "GKE Metadata Server"
    );
    bench.answer(set(json!({}))).await.expect(200);
    assert_eq!(
        server(&bench.answer(metadata("/")).await),
        "Metadata Server for VM"
    );
    bench
        .answer(set(json!({"flavor": "pod"})))
        .await
        .expect(400);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn faults_strike_the_metadata_server() {
    let bench = bench(pod()).await;
    let admin = bench.admin();
    let unavailable = FaultAction::Status {
        code: 503,
        reason: None,
        retry_after: None,
    };
    admin.add_fault(FaultRule::once("metadata", unavailable));
    bench.answer(token()).await.expect(503);
    admin.add_fault(FaultRule::once("metadata", FaultAction::Reset));
    assert!(bench.send(token()).await.is_err());
    let stall = FaultAction::Stall {
        duration: Duration::from_secs(3600),
    };
    admin.add_fault(FaultRule::once("metadata", stall));
    bench.hang(token(), "metadata").await;
    bench.answer(token()).await.expect(200);
    assert_eq!(admin.counters().pod_tokens, 1);
    bench.emulator.shutdown().await;
}
