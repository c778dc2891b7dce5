//! A pod's sidecar on one machine: the test is the node driver and the workload, the sidecar a container without rights.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use gcsmount_emulator::{Config, FaultAction, FaultRule, MetadataFlavor, MintRequest, Role};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use tokio::time::timeout;

use crate::kit::{LIMIT, World, blocking, can_mount, in_network_namespace, run};
use crate::node::{Container, Node, Published, Sidecar};
use crate::reports::Projection;

pub(crate) const A: &str = "bucket-a";
pub(crate) const B: &str = "bucket-b";
pub(crate) const ACCOUNT: &str = "trainer";

/// An emulator that is also what answers at the metadata server's address, and two buckets that let in the pod's account
/// alone.
pub(crate) async fn world(metadata: MetadataFlavor) -> World {
    let world = World::with(Config {
        listen: vec![
            "127.0.0.1:0".parse().unwrap(),
            "169.254.169.254:80".parse().unwrap(),
        ],
        buckets: vec![A.into(), B.into()],
        metadata,
        ..Config::default()
    })
    .await;
    let admin = world.emulator.admin();
    for bucket in [A, B] {
        let only = [(admin.member("tests", ACCOUNT), Role::ObjectAdmin)];
        admin.replace_grants(bucket, &only).unwrap();
    }
    world
}

pub(crate) fn subject(world: &World) -> String {
    world.emulator.admin().mint_token(&MintRequest {
        namespace: "tests".into(),
        service_account: ACCOUNT.into(),
        ttl: Duration::from_secs(3600),
        ..MintRequest::default()
    })
}

pub(crate) fn flags(world: &World) -> Vec<String> {
    let endpoint = world.emulator.endpoint();
    ["--custom-endpoint", &endpoint, "--sts-endpoint", &endpoint]
        .map(Into::into)
        .to_vec()
}

pub(crate) fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_gcsmount").into()
}

/// Writes and reads a file of a volume, which is served once this returns.
pub(crate) async fn use_it(volume: &Published, name: &str) {
    let (path, text) = (volume.path(name), format!("this is {name}"));
    blocking(move || {
        fs::write(&path, &text).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    })
    .await;
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap_or_else(|_| panic!("{what}"));
}

fn has_no_rights(sidecar: &Sidecar) {
    let status = sidecar.status();
    for line in [
        "CapEff:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Uid:\t65534\t65534",
    ] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
}

#[test]
fn a_pod_on_the_hosts_network_reaches_its_buckets_as_itself() {
    if !can_mount() {
        return;
    }
    in_network_namespace(|| async {
        let world = world(MetadataFlavor::Node).await;
        let admin = world.emulator.admin().clone();
        let mut projection = Projection::new(world.path("token"), &subject(&world));
        let node = Node::new(world.path("node"));
        // A volume is there before the sidecar, another one comes while it runs.
        let mut ephemeral =
            node.publish("data", A, &["implicit-dirs", "metadata-cache:ttl-secs:0"]);
        let container = Container {
            token: Some(world.path("token")),
            native: true,
            flags: flags(&world),
            ..Container::default()
        };
        let mut sidecar = container.start(&node, &program());
        ephemeral.handed_over().await;
        use_it(&ephemeral, "first").await;
        has_no_rights(&sidecar);
        let mut persistent = node.publish(
            "a-persistent-volume-with-a-long-name",
            B,
            &["gid=4321", "hnw-ksa=true"],
        );
        persistent.handed_over().await;
        use_it(&persistent, "first").await;
        let metadata = {
            let path = persistent.path("first");
            blocking(move || fs::metadata(path).unwrap()).await
        };
        assert_eq!(std::os::unix::fs::MetadataExt::gid(&metadata), 4321);
        assert_eq!(admin.counters().exchanges, 1, "two volumes, one identity");

        // Kubelet rotates the token, and the old access token ends.
        projection.rotate(&subject(&world));
        admin.revoke_access_tokens();
        use_it(&ephemeral, "after the rotation").await;
        use_it(&persistent, "after the rotation").await;
        assert_eq!(admin.counters().exchanges, 2);

        // The token service goes away, and the token that is held is used on.
        admin.add_fault(FaultRule {
            count: u64::MAX,
            ..FaultRule::once(
                "sts.token",
                FaultAction::Status {
                    code: 503,
                    reason: None,
                    retry_after: None,
                },
            )
        });
        use_it(&ephemeral, "through the outage").await;
        admin.clear_faults();

        // The pod ends while a file is open and unsaved.
        let path = ephemeral.path("late");
        let mut late = blocking(move || fs::File::create(path).unwrap()).await;
        let mut late = blocking(move || {
            late.write_all(b"written before the end").unwrap();
            late
        })
        .await;
        sidecar.signal(Signal::SIGTERM);
        blocking(move || {
            late.write_all(b", and after").unwrap();
            late.sync_all().unwrap();
            drop(late);
        })
        .await;
        assert_eq!(
            sidecar.ended(Duration::from_secs(30)).await,
            Some(0),
            "{}",
            sidecar.log()
        );
        let counters = admin.counters();
        assert_eq!(
            counters.metadata_calls, 0,
            "nobody asked for the node's identity"
        );
        let late = stored(&world, A, "late").await;
        assert_eq!(late, "written before the end, and after");
        ephemeral.unpublish();
        persistent.unpublish();
        // The trap would have been heard.
        assert!(
            tokio::net::TcpStream::connect("169.254.169.254:80")
                .await
                .is_ok()
        );
    });
}

/// An object, read as the pod's account by another client.
pub(crate) async fn stored(world: &World, bucket: &str, name: &str) -> String {
    let mut show = world.command();
    let token = world.path("reader");
    fs::write(&token, subject(world)).unwrap();
    show.arg("--token-file").arg(token);
    let dir = world.path(&format!("reader-of-{bucket}"));
    fs::create_dir_all(&dir).unwrap();
    let mount = world.mount_at(show, bucket, dir).await;
    let path = mount.path(name);
    let text = blocking(move || fs::read_to_string(path).unwrap()).await;
    mount.stop().await;
    text
}

#[test]
fn a_pod_with_a_network_of_its_own_is_served_by_gkes_metadata_server() {
    if !can_mount() {
        return;
    }
    in_network_namespace(|| async {
        let world = world(MetadataFlavor::Pod {
            namespace: "tests".into(),
            service_account: ACCOUNT.into(),
        })
        .await;
        let node = Node::new(world.path("node"));
        let volumes = [node.publish("a", A, &[]), node.publish("b", B, &[])];
        let container = Container {
            native: true,
            flags: flags(&world),
            ..Container::default()
        };
        let mut sidecar = container.start(&node, &program());
        for volume in &volumes {
            use_it(volume, "file").await;
        }
        let counters = world.emulator.admin().counters();
        assert_eq!(
            (
                counters.pod_tokens,
                counters.node_tokens,
                counters.exchanges
            ),
            (1, 0, 0)
        );
        sidecar.signal(Signal::SIGTERM);
        assert_eq!(sidecar.ended(Duration::from_secs(10)).await, Some(0));
    });
}

#[test]
fn without_a_token_volume_the_node_is_not_taken_for_the_pod() {
    if !can_mount() {
        return;
    }
    in_network_namespace(|| async {
        let world = world(MetadataFlavor::Node).await;
        let node = Node::new(world.path("node"));
        let mut volume = node.publish("a", A, &[]);
        let container = Container {
            native: true,
            flags: flags(&world),
            ..Container::default()
        };
        let mut sidecar = container.start(&node, &program());
        volume.handed_over().await;
        until("the driver is told", || volume.error().is_some()).await;
        let said = volume.error().unwrap();
        for part in ["gcsfuse-sa-token", "answers for the node"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
        assert_eq!(
            of_storage(&world),
            0,
            "the bucket is not asked without an identity"
        );
        sidecar.signal(Signal::SIGTERM);
        assert_eq!(sidecar.ended(Duration::from_secs(10)).await, Some(0));
        // Nobody waits at a mount point whose server is gone.
        let target = volume.target.clone();
        let error = blocking(move || fs::metadata(target).unwrap_err()).await;
        assert_eq!(error.raw_os_error(), Some(Errno::ENOTCONN as i32));
    });
}

fn of_storage(world: &World) -> u64 {
    let requests = world.emulator.admin().counters().requests;
    let storage = requests
        .iter()
        .filter(|(method, _)| method.starts_with("storage."));
    storage.map(|(_, count)| count).sum()
}

/// A world without traps, a token volume, a node, and a native sidecar.
pub(crate) async fn scene(native: bool) -> (World, Node, Sidecar) {
    let world = World::with(Config {
        buckets: vec![A.into(), B.into()],
        ..Config::default()
    })
    .await;
    Projection::new(world.path("token"), &subject(&world));
    let node = Node::new(world.path("node"));
    let container = Container {
        token: Some(world.path("token")),
        native,
        flags: flags(&world),
        ..Container::default()
    };
    let sidecar = container.start(&node, &program());
    (world, node, sidecar)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_volume_harms_no_other_and_heals() {
    if !can_mount() {
        return;
    }
    let (world, node, mut sidecar) = scene(true).await;
    let admin = world.emulator.admin();
    let good = node.publish("good", A, &[]);
    let missing = node.publish("missing", "no-such-bucket", &[]);
    let locked = node.publish("locked", B, &[]);
    admin.replace_grants(B, &[]).unwrap();
    let typo = node.publish("typo", A, &["implicit-dirs", "no-such-flag=1"]);
    let stolen = node.publish("stolen", A, &["key-file=/etc/passwd"]);
    use_it(&good, "file").await;
    for volume in [&missing, &typo, &stolen] {
        until("each tells the driver", || volume.error().is_some()).await;
    }
    // What cannot heal by itself is told to whoever waits at once.
    for (volume, named) in [(&typo, "no-such-flag"), (&stolen, "key-file")] {
        let said = volume.error().unwrap();
        assert!(said.contains(named), "{said}");
        let code = gcsmount_k8s_contract::status::code_of(&said);
        assert_eq!(
            code,
            gcsmount_k8s_contract::status::Code::InvalidArgument,
            "{said}"
        );
        let target = volume.target.clone();
        let error = blocking(move || fs::metadata(target).unwrap_err()).await;
        assert_eq!(error.raw_os_error(), Some(Errno::ENOTCONN as i32), "{said}");
    }
    // What can is tried again until it does, and its error goes.
    admin.create_bucket("no-such-bucket").unwrap();
    admin
        .grant(
            "no-such-bucket",
            &admin.member("tests", ACCOUNT),
            Role::ObjectAdmin,
        )
        .unwrap();
    use_it(&missing, "file").await;
    until("the error is taken back", || missing.error().is_none()).await;
    admin
        .grant(B, &admin.member("tests", ACCOUNT), Role::ObjectAdmin)
        .unwrap();
    use_it(&locked, "file").await;
    assert_eq!(admin.counters().exchanges, 1);
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(
        sidecar.ended(Duration::from_secs(20)).await,
        Some(0),
        "{}",
        sidecar.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_sidecar_leaves_nobody_waiting_and_is_replaced() {
    if !can_mount() {
        return;
    }
    let (world, node, mut sidecar) = scene(true).await;
    let volume = node.publish("data", A, &[]);
    use_it(&volume, "file").await;
    let path = volume.path("file");
    let open = blocking(move || fs::File::options().write(true).open(path).unwrap()).await;
    sidecar.signal(Signal::SIGKILL);
    sidecar.ended(Duration::from_secs(10)).await;
    // What the kernel holds may still be had of it; what it has to ask for is an error, and no wait.
    let unseen = volume.path("never looked for");
    let (looked, synced) = blocking(move || {
        let looked = fs::metadata(unseen).unwrap_err().raw_os_error();
        (looked, open.set_len(0).unwrap_err().raw_os_error())
    })
    .await;
    let gone = Some(Errno::ENOTCONN as i32);
    assert_eq!((looked, synced), (gone, gone));
    // Kubelet starts the container again, and the driver publishes anew.
    drop(volume);
    let container = Container {
        token: Some(world.path("token")),
        native: true,
        flags: flags(&world),
        ..Container::default()
    };
    let mut sidecar = container.start(&node, &program());
    let volume = node.publish("data", A, &[]);
    use_it(&volume, "file").await;
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(
        sidecar.ended(Duration::from_secs(10)).await,
        Some(0),
        "{}",
        sidecar.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_regular_sidecar_outlives_a_signal_and_ends_with_its_volumes() {
    if !can_mount() {
        return;
    }
    let (_world, node, mut sidecar) = scene(false).await;
    let volume = node.publish("data", A, &[]);
    use_it(&volume, "before").await;
    sidecar.signal(Signal::SIGTERM);
    use_it(&volume, "after the signal").await;
    volume.unpublish();
    assert_eq!(
        sidecar.ended(Duration::from_secs(10)).await,
        Some(0),
        "{}",
        sidecar.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_regular_sidecar_ends_when_the_driver_says_so() {
    if !can_mount() {
        return;
    }
    let (_world, node, mut sidecar) = scene(false).await;
    let volume = node.publish("data", A, &[]);
    use_it(&volume, "file").await;
    fs::write(node.exit_file(), "").unwrap();
    assert_eq!(
        sidecar.ended(Duration::from_secs(10)).await,
        Some(0),
        "{}",
        sidecar.log()
    );
    assert!(!node.exit_file().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_volumes_cost_one_exchange_and_little_memory() {
    if !can_mount() {
        return;
    }
    const MORE: u64 = 49;
    let (world, node, mut sidecar) = scene(true).await;
    let first = node.publish("first", A, &[]);
    use_it(&first, "file").await;
    let one = sidecar.kib("VmRSS:");
    let more: Vec<_> = (0..MORE)
        .map(|n| node.publish(&format!("more-{n}"), B, &[]))
        .collect();
    world
        .emulator
        .admin()
        .put_object(B, "there", Bytes::from_static(b"x"))
        .unwrap();
    for volume in &more {
        let there = volume.path("there");
        blocking(move || assert_eq!(fs::read(there).unwrap(), b"x")).await;
    }
    let each = sidecar.kib("VmRSS:").saturating_sub(one) / MORE;
    println!("an idle volume takes {each} KiB");
    assert!(each < 2048, "{each} KiB a volume");
    assert_eq!(world.emulator.admin().counters().exchanges, 1);
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(
        sidecar.ended(Duration::from_secs(20)).await,
        Some(0),
        "{}",
        sidecar.log()
    );
}

/// The target of a volume that nobody serves yet answers once somebody does.
#[tokio::test(flavor = "multi_thread")]
async fn who_comes_before_the_sidecar_is_served_when_it_is_there() {
    if !can_mount() {
        return;
    }
    let world = World::with(Config {
        buckets: vec![A.into()],
        ..Config::default()
    })
    .await;
    Projection::new(world.path("token"), &subject(&world));
    let node = Node::new(world.path("node"));
    let volume = node.publish("data", A, &[]);
    let target: &Path = &volume.target;
    let early = tokio::task::spawn_blocking({
        let target = target.to_owned();
        move || fs::metadata(target).unwrap().is_dir()
    });
    let container = Container {
        token: Some(world.path("token")),
        native: true,
        flags: flags(&world),
        ..Container::default()
    };
    let mut sidecar = container.start(&node, &program());
    assert!(timeout(LIMIT, early).await.unwrap().unwrap());
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.ended(Duration::from_secs(10)).await, Some(0));
}

/// What stands in for a stock gcsfuse: it shows what it was started with, and serves with the tokens of its socket.
const STAND_IN: &str = r#"#!/bin/sh
printf '%s\n' "$@" > /gcsfuse-buffer/args
cat /gcsfuse-tmp/.volumes/data/config.yaml > /gcsfuse-buffer/config
echo "a stand-in says hello" >&2
exec /gcsmount mount --foreground --custom-endpoint ENDPOINT --temp-dir /gcsfuse-buffer \
  --token-url unix:///gcsfuse-tmp/.volumes/data/token.sock bucket-a /dev/fd/3
"#;

#[test]
fn a_stock_gcsfuse_is_started_on_the_descriptor_and_finds_its_tokens() {
    if !can_mount() {
        return;
    }
    in_network_namespace(|| async {
        let world = world(MetadataFlavor::Node).await;
        let admin = world.emulator.admin();
        Projection::new(world.path("token"), &subject(&world));
        let node = Node::new(world.path("node"));
        let stand_in = node.buffer().join("gcsfuse");
        let text = STAND_IN.replace("ENDPOINT", &world.emulator.endpoint());
        fs::write(&stand_in, text).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&stand_in, executable).unwrap();
        let mut flags = flags(&world);
        flags.extend(["--gcsfuse-path".into(), "/gcsfuse-buffer/gcsfuse".into()]);
        let container = Container {
            token: Some(world.path("token")),
            native: true,
            flags,
            ..Container::default()
        };
        let mut sidecar = container.start(&node, &program());
        let volume = node.publish(
            "data",
            A,
            &["implicit-dirs", "file-cache:max-size-mb:7", "hnw-ksa=true"],
        );
        use_it(&volume, "file").await;
        let args = fs::read_to_string(node.buffer().join("args")).unwrap();
        let args: Vec<_> = args.lines().collect();
        assert_eq!(args.last_chunk(), Some(&[A, "/dev/fd/3"]));
        for part in [
            "--implicit-dirs=true",
            "--foreground=true",
            "--config-file=/gcsfuse-tmp/.volumes/data/config.yaml",
        ] {
            assert!(args.contains(&part), "{part} is not in {args:?}");
        }
        let config = fs::read_to_string(node.buffer().join("config")).unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(
            config["gcs-auth"]["token-url"],
            "unix:///gcsfuse-tmp/.volumes/data/token.sock"
        );
        assert_eq!(config["file-cache"]["max-size-mb"], 7);
        let counters = admin.counters();
        assert_eq!((counters.exchanges, counters.metadata_calls), (1, 0));
        until("the driver hears what gcsfuse says", || {
            volume
                .error()
                .is_some_and(|said| said.contains("a stand-in says hello"))
        })
        .await;
        sidecar.signal(Signal::SIGTERM);
        assert_eq!(
            sidecar.ended(Duration::from_secs(20)).await,
            Some(0),
            "{}",
            sidecar.log()
        );
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gcsfuse_that_fails_is_told_to_the_driver_and_leaves_nobody_waiting() {
    if !can_mount() {
        return;
    }
    let world = World::with(Config {
        buckets: vec![A.into()],
        ..Config::default()
    })
    .await;
    Projection::new(world.path("token"), &subject(&world));
    let node = Node::new(world.path("node"));
    let stand_in = node.buffer().join("gcsfuse");
    fs::write(
        &stand_in,
        "#!/bin/sh\necho 'Error: unknown flag: --no-such' >&2\nexit 1\n",
    )
    .unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&stand_in, executable).unwrap();
    let mut flags = flags(&world);
    flags.extend(["--gcsfuse-path".into(), "/gcsfuse-buffer/gcsfuse".into()]);
    let container = Container {
        token: Some(world.path("token")),
        native: true,
        flags,
        ..Container::default()
    };
    let mut sidecar = container.start(&node, &program());
    let volume = node.publish("data", A, &[]);
    let target = volume.target.clone();
    let error = blocking(move || fs::metadata(target).unwrap_err()).await;
    assert_eq!(error.raw_os_error(), Some(Errno::ENOTCONN as i32));
    until("the driver is told", || {
        volume
            .error()
            .is_some_and(|said| said.contains("gcsfuse exited with error"))
    })
    .await;
    let code = gcsmount_k8s_contract::status::code_of(&volume.error().unwrap());
    assert_eq!(code, gcsmount_k8s_contract::status::Code::InvalidArgument);
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(
        sidecar.ended(Duration::from_secs(10)).await,
        Some(0),
        "{}",
        sidecar.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sidecar_ends_at_once_and_one_whose_files_stay_open_at_its_limit() {
    if !can_mount() {
        return;
    }
    let (world, node, mut idle) = scene(true).await;
    let volume = node.publish("data", A, &[]);
    use_it(&volume, "file").await;
    idle.signal(Signal::SIGTERM);
    assert_eq!(
        idle.ended(Duration::from_secs(10)).await,
        Some(0),
        "{}",
        idle.log()
    );
    drop(volume);

    let mut flags = flags(&world);
    flags.extend(["--shutdown-timeout".into(), "1s".into()]);
    let container = Container {
        token: Some(world.path("token")),
        native: true,
        flags,
        ..Container::default()
    };
    let mut busy = container.start(&node, &program());
    let volume = node.publish("data", A, &[]);
    use_it(&volume, "file").await;
    let path = volume.path("file");
    let held = blocking(move || fs::File::open(path).unwrap()).await;
    busy.signal(Signal::SIGTERM);
    assert_eq!(
        busy.ended(Duration::from_secs(10)).await,
        Some(0),
        "{}",
        busy.log()
    );
    assert!(
        busy.log().contains("files are still open at the end"),
        "{}",
        busy.log()
    );
    blocking(move || drop(held)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_group_may_write() {
    if !can_mount() {
        return;
    }
    let (_world, node, mut sidecar) = scene(true).await;
    let group = ["gid=4321", "file-mode=664", "dir-mode=775"];
    let volume = node.publish("data", A, &group);
    let file = volume.path("touched");
    let as_member = |groups: &str| {
        let words = [
            "--reuid",
            "1001",
            "--regid",
            "1001",
            "--groups",
            groups,
            "--inh-caps=-all",
            "touch",
        ];
        let mut all: Vec<std::ffi::OsString> = words.map(Into::into).to_vec();
        all.push(file.clone().into());
        run("setpriv", all)
    };
    // The directories above are the test's own.
    let mut above = volume.target.clone();
    while above.pop() && above.starts_with(std::env::temp_dir()) && above != std::env::temp_dir() {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&above, open).unwrap();
    }
    let (stranger, said) = as_member("5555").await;
    assert!(!stranger && said.contains("Permission denied"), "{said}");
    let (member, said) = as_member("4321").await;
    assert!(member, "{said}");
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(
        sidecar.ended(Duration::from_secs(10)).await,
        Some(0),
        "{}",
        sidecar.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn told_twice_it_names_what_is_lost() {
    if !can_mount() {
        return;
    }
    let (world, node, mut sidecar) = scene(true).await;
    let volume = node.publish("data", A, &[]);
    use_it(&volume, "file").await;
    world.emulator.admin().add_fault(FaultRule {
        count: u64::MAX,
        ..FaultRule::once(
            "storage.objects.insert*",
            FaultAction::Stall {
                duration: Duration::from_secs(600),
            },
        )
    });
    let path = volume.path("unsaved");
    let open = blocking(move || {
        let mut file = fs::File::create(path).unwrap();
        file.write_all(b"never closed").unwrap();
        file
    })
    .await;
    sidecar.signal(Signal::SIGTERM);
    // Whoever has a file open is waited for.
    tokio::time::sleep(Duration::from_millis(300)).await;
    sidecar.signal(Signal::SIGTERM);
    let code = sidecar.ended(Duration::from_secs(20)).await;
    assert_eq!(code, Some(10), "{}", sidecar.log());
    assert!(sidecar.log().contains("unsaved"), "{}", sidecar.log());
    drop(blocking(move || open.sync_all().unwrap_err()).await);
}
