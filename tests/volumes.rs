//! What several volumes of one pod are to each other, and to the container that serves them.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use gcsmount_emulator::{Config, MetadataFlavor, MintRequest, Role};
use nix::sys::signal::Signal;

use crate::kit::{LIMIT, World, blocking, can_mount, in_network_namespace};
use crate::node::{Container, Group, Node};
use crate::pod::{A, ACCOUNT, B, flags, program, scene, subject, use_it, world};
use crate::reports::Projection;

#[tokio::test(flavor = "multi_thread")]
async fn one_bucket_twice_in_a_pod_is_two_volumes() {
    if !can_mount() {
        return;
    }
    let (world, node, mut sidecar) = scene(true).await;
    let admin = world.emulator.admin();
    admin
        .put_object(A, "dags/one.py", Bytes::from_static(b"pass"))
        .unwrap();
    let whole = node.publish("whole", A, &["implicit-dirs"]);
    let inside = node.publish("inside", A, &["only-dir=dags", "ro", "file-mode=444"]);
    use_it(&whole, "file").await;
    let there = inside.path("one.py");
    let outside = inside.path("file");
    blocking(move || {
        assert_eq!(fs::read(&there).unwrap(), b"pass");
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&there.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o444);
        assert!(!outside.exists(), "it is not in this volume");
    })
    .await;
    inside.unpublish();
    use_it(&whole, "after the other went").await;
    assert_eq!(admin.counters().exchanges, 1, "one identity");
    sidecar.signal(Signal::SIGTERM);
    let code = sidecar.ended(Duration::from_secs(20)).await;
    assert_eq!(code, Some(0), "{}", sidecar.log());
}

/// The reference refuses a credential file with a token file on the host's network.
#[test]
fn federation_works_on_the_hosts_network() {
    if !can_mount() {
        return;
    }
    in_network_namespace(|| async {
        let world = world(MetadataFlavor::Node).await;
        let admin = world.emulator.admin();
        let (endpoint, provider) = (world.emulator.endpoint(), admin.provider());
        let federation = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/demo-pool";
        assert!(provider.starts_with(federation));
        let who = format!("principal:{federation}/subject/system:serviceaccount:tests:{ACCOUNT}");
        admin.grant(A, &who, Role::ObjectUser).unwrap();
        let federated = admin.mint_token(&MintRequest {
            namespace: "tests".into(),
            service_account: ACCOUNT.into(),
            audience: Some(provider.into()),
            ttl: LIMIT,
            ..MintRequest::default()
        });
        Projection::new(world.path("token"), &federated);
        let file = serde_json::json!({
            "type": "external_account",
            "audience": provider,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": format!("{endpoint}/v1/token"),
            "credential_source": {"file": "/gcsfuse-sa-token/token"},
        });
        let node = Node::new(world.path("node"));
        fs::write(node.buffer().join("credential.json"), file.to_string()).unwrap();
        let container = Container {
            token: Some(world.path("token")),
            native: true,
            flags: flags(&world),
            env: vec!["GOOGLE_APPLICATION_CREDENTIALS=/gcsfuse-buffer/credential.json".into()],
            ..Container::default()
        };
        let mut sidecar = container.start(&node, &program());
        let volume = node.publish("data", A, &[]);
        use_it(&volume, "file").await;
        let counters = admin.counters();
        assert_eq!((counters.exchanges, counters.metadata_calls), (1, 0));
        sidecar.signal(Signal::SIGTERM);
        let code = sidecar.ended(Duration::from_secs(20)).await;
        assert_eq!(code, Some(0), "{}", sidecar.log());
    });
}

/// Two volumes are read and written with more than the container has.
#[tokio::test(flavor = "multi_thread")]
async fn the_container_is_not_killed_for_its_memory() {
    const MEMORY: u64 = 160 << 20;
    const SIZE: usize = 192 << 20;
    if !can_mount() {
        return;
    }
    let Some(group) = Group::new("sidecar", MEMORY) else {
        return;
    };
    let world = World::with(Config {
        buckets: vec![A.into(), B.into()],
        ..Config::default()
    })
    .await;
    Projection::new(world.path("token"), &subject(&world));
    let data = Bytes::from(
        (0..SIZE / 8)
            .flat_map(usize::to_be_bytes)
            .collect::<Vec<_>>(),
    );
    for bucket in [A, B] {
        let admin = world.emulator.admin();
        admin.put_object(bucket, "big", data.clone()).unwrap();
    }
    let node = Node::new(world.path("node"));
    let container = Container {
        token: Some(world.path("token")),
        native: true,
        flags: flags(&world),
        group: Some(group),
        ..Container::default()
    };
    let mut sidecar = container.start(&node, &program());
    let volumes = [node.publish("a", A, &[]), node.publish("b", B, &[])];
    let work = volumes.iter().flat_map(|volume| {
        let (big, copy, data) = (volume.path("big"), volume.path("copy"), data.clone());
        let written = data.clone();
        [
            tokio::spawn(blocking(move || {
                assert!(fs::read(big).unwrap() == data, "bytes");
            })),
            tokio::spawn(blocking(move || fs::write(copy, written).unwrap())),
        ]
    });
    for task in work.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let log = sidecar.log();
    assert!(log.contains("memory for file data mebibytes=53"), "{log}");
    let peak = sidecar.kib("VmHWM:") << 10;
    assert!(peak < MEMORY, "{} MiB at the peak", peak >> 20);
    for volume in &volumes {
        let copy = volume.path("copy");
        let length = blocking(move || fs::metadata(copy).unwrap().len()).await;
        assert_eq!(length, SIZE as u64);
    }
    sidecar.signal(Signal::SIGTERM);
    let code = sidecar.ended(Duration::from_secs(20)).await;
    assert_eq!(code, Some(0), "{}", sidecar.log());
}
