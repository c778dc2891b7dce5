//! What several volumes of one pod are to each other, and to the container that serves them.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bytes::Bytes;
use gcsmount_emulator::{Config, FaultAction, FaultRule, MetadataFlavor, MintRequest, Role};
use nix::sys::signal::Signal;
use tokio::time::timeout;

use crate::kit::{LIMIT, World, blocking, can_mount, in_network_namespace};
use crate::node::{Container, Group, Node};
use crate::pod::{A, ACCOUNT, B, flags, program, scene, stored, subject, until, use_it, world};
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

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_is_told_metrics_and_what_to_tune() {
    if !can_mount() {
        return;
    }
    let (world, node, mut sidecar) = scene(true).await;
    let plain = node.publish("plain", B, &["disable-metrics-for-gke:true"]);
    let volume = node.publish("data", A, &["enable-gcsfuse-kernel-params=true"]);
    use_it(&volume, "file").await;
    use_it(&plain, "file").await;
    let missing = volume.path("missing");
    blocking(move || fs::metadata(missing).unwrap_err()).await;
    let socket = volume.volume.metrics_socket();
    until("the metrics are there", || socket.exists()).await;
    let asked = socket.clone();
    let text = blocking(move || {
        let mut driver = UnixStream::connect(asked).unwrap();
        let question = "GET /metrics HTTP/1.1\r\nHost: volume\r\n\r\n";
        driver.write_all(question.as_bytes()).unwrap();
        let mut answer = String::new();
        driver.read_to_string(&mut answer).unwrap();
        answer
    })
    .await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.trim().parse().unwrap()
    };
    let size = "this is file".len() as f64;
    assert_eq!(value("gcs_read_bytes_count "), size);
    assert_eq!(value("gcsmount_written_bytes_count "), size);
    assert_eq!(value("gcsmount_upload_bytes_count "), size);
    assert_eq!(value("fs_ops_count{fs_op=\"CreateFile\"} "), 1.0);
    let unknown = "fs_ops_error_count{fs_error_category=\"NO_FILE_OR_DIR\",fs_op=\"LookUpInode\"} ";
    assert!(value(unknown) >= 1.0);
    for method in ["CreateObject", "NewReader"] {
        let count = value(&format!("gcs_request_count{{gcs_method=\"{method}\"}} "));
        assert_eq!(count, 1.0, "{method}");
    }
    assert_eq!(
        value("gcsmount_token_exchanges_count{result=\"granted\"} "),
        1.0
    );
    assert!(value("gcsmount_token_remaining_seconds ") > 0.0);
    let status = |status: &str| format!("gcsmount_request_outcomes_count{{outcome=\"{status}\"}} ");
    assert!(value(&status("200")) >= 1.0);
    assert!(
        !plain.volume.metrics_socket().exists(),
        "it was told not to"
    );
    let wish = fs::read_to_string(volume.volume.kernel_params()).unwrap();
    assert!(
        wish.contains(r#"{"name":"max-read-ahead-kb","value":"1024"}"#),
        "{wish}"
    );
    assert!(
        !plain.volume.kernel_params().exists(),
        "it was not asked for"
    );
    assert_eq!(world.emulator.admin().counters().exchanges, 1);
    sidecar.signal(Signal::SIGTERM);
    let code = sidecar.ended(Duration::from_secs(20)).await;
    assert_eq!(code, Some(0), "{}", sidecar.log());
    assert!(!socket.exists(), "the socket goes with the volume");
}

/// A close that a crash cut off is finished by the next start: the data was sealed, and the object is still the old one.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_sealed_before_a_crash_is_stored_after_it() {
    if !can_mount() {
        return;
    }
    // More than is held in memory, so that it is staged.
    const SIZE: usize = 12 << 20;
    let (world, node, mut sidecar) = scene(true).await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(A, "edited", Bytes::from(vec![b'o'; SIZE]))
        .unwrap();
    let volume = node.publish("data", A, &[]);
    use_it(&volume, "file").await;
    admin.add_fault(FaultRule {
        count: u64::MAX,
        ..FaultRule::once(
            "storage.objects.insert.*",
            FaultAction::Stall {
                duration: Duration::from_secs(600),
            },
        )
    });
    let inserts = || admin.counters().of("storage.objects.insert.start");
    let before = inserts();
    let path = volume.path("edited");
    let closing = tokio::task::spawn_blocking(move || {
        let mut file = fs::File::options().write(true).open(path).unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        file.write_all(b"TWO").unwrap();
        file.sync_all().unwrap_err()
    });
    until("the upload has begun", || inserts() > before).await;
    sidecar.signal(Signal::SIGKILL);
    sidecar.ended(Duration::from_secs(10)).await;
    let error = timeout(LIMIT, closing).await.unwrap().unwrap();
    println!("the writer was told: {error}");
    admin.clear_faults();
    let there = stored(&world, A, "edited").await;
    assert!(
        there == "o".repeat(SIZE),
        "nothing was promised, and nothing is half there"
    );
    drop(volume);

    let container = Container {
        token: Some(world.path("token")),
        native: true,
        flags: flags(&world),
        ..Container::default()
    };
    let mut sidecar = container.start(&node, &program());
    let _volume = node.publish("data", A, &[]);
    until("it is stored", || {
        let log = sidecar.log();
        log.contains("edited") && log.contains("it is stored now")
    })
    .await;
    let there = stored(&world, A, "edited").await;
    assert!(there == format!("ooooTWO{}", "o".repeat(SIZE - 7)));
    sidecar.signal(Signal::SIGTERM);
    let code = sidecar.ended(Duration::from_secs(20)).await;
    assert_eq!(code, Some(0), "{}", sidecar.log());
}

/// What one volume has learned of the token service is known to all, between their attempts too.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_service_that_names_a_pause_is_not_asked_by_each_volume() {
    if !can_mount() {
        return;
    }
    let world = World::with(Config {
        buckets: vec![A.into(), B.into()],
        ..Config::default()
    })
    .await;
    Projection::new(world.path("token"), &subject(&world));
    world.emulator.admin().add_fault(FaultRule {
        count: u64::MAX,
        ..FaultRule::once(
            "sts.token",
            FaultAction::Status {
                code: 429,
                reason: None,
                retry_after: Some(3600),
            },
        )
    });
    let node = Node::new(world.path("node"));
    let container = Container {
        token: Some(world.path("token")),
        native: true,
        flags: flags(&world),
        ..Container::default()
    };
    let mut sidecar = container.start(&node, &program());
    let volumes: Vec<_> = (0..5)
        .map(|n| node.publish(&format!("volume-{n}"), A, &[]))
        .collect();
    until("each volume has been tried several times", || {
        sidecar.log().matches("again_in").count() >= 4 * volumes.len()
    })
    .await;
    let asked = world.emulator.admin().counters().of("sts.token");
    assert_eq!(asked, 1, "{}", sidecar.log());
    sidecar.signal(Signal::SIGTERM);
    let code = sidecar.ended(Duration::from_secs(20)).await;
    assert_eq!(code, Some(0), "{}", sidecar.log());
}
