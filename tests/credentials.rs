//! A mount by each way that an identity can come, beside the projected token: files, impersonation, limits, metadata
//! servers.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;

use bytes::Bytes;
use gcsmount_emulator::{Admin, Config, MetadataFlavor, Role};
use nix::sys::signal::Signal;
use tokio::process::Command;
use tokio::time::timeout;

use crate::kit::{BUCKET, LIMIT, Mount, World, blocking, can_mount, gcsmount};

const ACCOUNT: &str = "trainer@demo.iam.gserviceaccount.com";

fn member() -> String {
    format!("serviceAccount:{ACCOUNT}")
}

/// A world whose bucket lets in nobody but the service account.
async fn world_of_account() -> World {
    let world = World::new().await;
    let admin = world.emulator.admin();
    admin.create_service_account(ACCOUNT).unwrap();
    let only = [(member(), Role::ObjectAdmin)];
    admin.replace_grants(BUCKET, &only).unwrap();
    world
}

/// A mount command that trusts the emulator with tokens, in place of Google.
fn command(world: &World) -> Command {
    let mut command = world.command();
    command.args(["--iam-endpoint", &world.emulator.endpoint()]);
    command
}

/// Runs a command that fails to its end: exit code and what it said.
async fn refused(world: &World, mut command: Command) -> (Option<i32>, String) {
    command
        .args(["--foreground", BUCKET])
        .arg(world.mount_point());
    let output = timeout(LIMIT, command.output())
        .await
        .expect("it ends")
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

async fn write_and_read(mount: &Mount, name: &str) {
    let path = mount.path(name);
    blocking(move || {
        fs::write(&path, "by this identity").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"by this identity");
    })
    .await;
}

/// Replaces a file in one step, as a person's tools do.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_key_mounts_and_a_rotated_one_goes_on() {
    if !can_mount() {
        return;
    }
    let world = world_of_account().await;
    let admin = world.emulator.admin();
    let key = || {
        admin
            .mint_service_account_key(ACCOUNT, &world.emulator.endpoint())
            .unwrap()
    };
    let path = world.path("key.json");
    let first = key();
    replace(&path, &first);
    let mut mounting = command(&world);
    mounting.arg("--key-file").arg(&path);
    let mount = world.mount_with(mounting).await;
    write_and_read(&mount, "first").await;
    replace(&path, &key());
    let id: serde_json::Value = serde_json::from_str(&first).unwrap();
    let id = id["private_key_id"].as_str().unwrap();
    admin.revoke_service_account_key(ACCOUNT, id).unwrap();
    admin.revoke_access_tokens();
    write_and_read(&mount, "second").await;
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_login_is_noticed_without_a_restart() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin();
    let someone = "user:someone@example.com";
    admin
        .replace_grants(BUCKET, &[(someone.into(), Role::ObjectAdmin)])
        .unwrap();
    let login = || {
        admin
            .mint_authorized_user(someone, &world.emulator.endpoint())
            .unwrap()
    };
    let path = world.path("login.json");
    let first = login();
    replace(&path, &first);
    // As gcloud leaves it, and found without a flag.
    let gcloud = world.path(".config/gcloud");
    fs::create_dir_all(&gcloud).unwrap();
    let found = gcloud.join("application_default_credentials.json");
    fs::rename(&path, &found).unwrap();
    let mut mounting = command(&world);
    mounting
        .env("HOME", world.scratch.path())
        .env_remove("CLOUDSDK_CONFIG");
    let mount = world.mount_with(mounting).await;
    write_and_read(&mount, "first").await;

    let text: serde_json::Value = serde_json::from_str(&first).unwrap();
    admin
        .revoke_refresh_token(text["refresh_token"].as_str().unwrap())
        .unwrap();
    admin.revoke_access_tokens();
    let file = mount.path("second");
    let error = blocking(move || fs::write(file, "lost").unwrap_err()).await;
    assert_ne!(error.kind(), ErrorKind::NotFound, "{error}");
    replace(&found, &login());
    let file = mount.path("third");
    let healed = blocking(move || {
        while fs::write(&file, "renewed").is_err() {
            std::thread::yield_now();
        }
        fs::read(&file).unwrap()
    });
    assert_eq!(healed.await, b"renewed");
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_acts_as_a_service_account_where_it_may() {
    if !can_mount() {
        return;
    }
    let world = world_of_account().await;
    let admin = world.emulator.admin();
    let pod = || {
        let mut command = command(&world);
        command.arg("--token-file").arg(world.token_file());
        command
    };
    let (code, said) = refused(&world, pod()).await;
    assert_eq!(code, Some(7), "{said}");

    let acting = || {
        let mut command = pod();
        command.args(["--impersonate-service-account", ACCOUNT]);
        command
    };
    let (code, said) = refused(&world, acting()).await;
    assert_eq!(code, Some(5), "{said}");
    assert!(
        said.contains("roles/iam.workloadIdentityUser")
            && said.contains("/subject/ns/tests/sa/runner"),
        "it says what to grant to whom: {said}"
    );

    admin
        .grant_impersonation(ACCOUNT, &admin.member("tests", "runner"))
        .unwrap();
    let mount = world.mount_with(acting()).await;
    write_and_read(&mount, "file").await;
    let counters = admin.counters();
    assert_eq!((counters.impersonations, counters.metadata_calls), (1, 0));
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_account_file_serves_with_impersonation_and_no_metadata_server() {
    if !can_mount() {
        return;
    }
    let world = world_of_account().await;
    let admin = world.emulator.admin();
    let endpoint = world.emulator.endpoint();
    let provider = admin.provider();
    let token = world.path("federated");
    let subject = admin.mint_token(&gcsmount_emulator::MintRequest {
        namespace: "tests".into(),
        service_account: "runner".into(),
        audience: Some(provider.into()),
        ttl: LIMIT,
        ..Default::default()
    });
    fs::write(&token, subject).unwrap();
    let file = serde_json::json!({
        "type": "external_account",
        "audience": provider,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{endpoint}/v1/token"),
        "service_account_impersonation_url":
            format!("{endpoint}/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"),
        "credential_source": {"file": token},
    });
    let path = world.path("external.json");
    fs::write(&path, file.to_string()).unwrap();
    let mounting = || {
        let mut command = command(&world);
        command.arg("--key-file").arg(&path);
        command
    };
    let (code, said) = refused(&world, mounting()).await;
    assert_eq!(code, Some(5), "{said}");
    // The sentence names whom to let act as the account.
    let principal = said
        .split_whitespace()
        .find(|word| word.starts_with("principal://"));
    let principal = principal.unwrap_or_else(|| panic!("no principal in: {said}"));
    let principal = principal.trim_end_matches([',', ';', ')', '.']);
    admin
        .grant_impersonation(
            ACCOUNT,
            &principal.replace("PROJECT_NUMBER", "123456789012"),
        )
        .unwrap();
    let mount = world.mount_with(mounting()).await;
    write_and_read(&mount, "file").await;
    assert_eq!(admin.counters().metadata_calls, 0);
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_token_reaches_what_it_is_limited_to() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin();
    admin
        .put_object(BUCKET, "there", Bytes::from_static(b"x"))
        .unwrap();
    let mut mounting = command(&world);
    mounting
        .arg("--token-file")
        .arg(world.token_file())
        .args(["--access-boundary", &format!("gs://{BUCKET}:ro")]);
    let mount = world.mount_with(mounting).await;
    let (there, new) = (mount.path("there"), mount.path("new"));
    blocking(move || {
        assert_eq!(fs::read(there).unwrap(), b"x");
        // What `fs::write` leaves to the close, whose error it drops, is asked for here.
        let mut file = fs::File::create(new).unwrap();
        file.write_all(b"y").unwrap();
        let error = file.sync_all().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    })
    .await;
    assert!(admin.counters().downscopings > 0);
    // The refused file may be let go of before the signal or after it, when it counts as unsaved.
    let mut mount = mount;
    mount.signal(Signal::SIGTERM);
    let code = mount.ended().await.code();
    assert!(matches!(code, Some(0 | 10)), "{code:?}");

    let mut elsewhere = command(&world);
    elsewhere
        .arg("--token-file")
        .arg(world.token_file())
        .args(["--access-boundary", "another-bucket"]);
    let before = admin.counters().requests;
    let (code, said) = refused(&world, elsewhere).await;
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(admin.counters().requests, before, "nobody is asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_may_be_limited_to_the_directory_that_it_mounts() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin();
    for name in ["in/side/there", "out/there"] {
        let data = Bytes::from_static(b"x");
        admin.put_object(BUCKET, name, data).unwrap();
    }
    let mut mounting = command(&world);
    mounting
        .arg("--token-file")
        .arg(world.token_file())
        .args(["--access-boundary", &format!("{BUCKET}/in/")])
        .args(["--only-dir", "in/side"]);
    let mount = world.mount_with(mounting).await;
    let dir = mount.path("");
    let names = blocking(move || {
        assert_eq!(fs::read(dir.join("there")).unwrap(), b"x");
        fs::write(dir.join("new"), b"y").unwrap();
        fs::rename(dir.join("new"), dir.join("renamed")).unwrap();
        let entries = fs::read_dir(&dir).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    });
    assert_eq!(names.await, ["renamed", "there"]);
    mount.stop().await;
}

/// An emulator that is the pod's metadata server at its second address and the node's at its third.
async fn world_with_metadata() -> World {
    let world = World::with(Config {
        listen: ["127.0.0.1:0"; 3].map(|any| any.parse().unwrap()).to_vec(),
        ..Config::default()
    })
    .await;
    let pod = MetadataFlavor::Pod {
        namespace: "tests".into(),
        service_account: "runner".into(),
    };
    let admin: &Admin = world.emulator.admin();
    admin.set_metadata_at(world.emulator.local_addrs()[1], pod);
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metadata_server_serves_whom_it_answers_for_and_nobody_else() {
    if !can_mount() {
        return;
    }
    let world = world_with_metadata().await;
    let [_, pod, node] = *world.emulator.local_addrs() else {
        panic!("three addresses");
    };
    let admin = world.emulator.admin();
    let mounting = |server: std::net::SocketAddr, words: &[&str]| {
        let mut command = command(&world);
        command
            .args(words)
            .env("GCE_METADATA_HOST", server.to_string());
        // No login of whoever runs the test.
        command
            .env("HOME", "/nonexistent")
            .env_remove("CLOUDSDK_CONFIG");
        command
    };
    // A pod with a network of its own.
    for words in [&["--metadata-server", "pod"][..], &[]] {
        let mount = world.mount_with(mounting(pod, words)).await;
        write_and_read(&mount, "file").await;
        mount.stop().await;
    }
    let used = admin.counters();
    assert_eq!((used.pod_tokens, used.node_tokens), (2, 0));
    // On the host's network the same words find the node.
    let (code, said) = refused(&world, mounting(node, &["--metadata-server", "pod"])).await;
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("answers for the node"), "{said}");
    // Who means the machine gets it, and the bucket does not know it.
    let (code, said) = refused(&world, mounting(node, &["--metadata-server", "node"])).await;
    assert_eq!(code, Some(7), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_one_universe_are_not_sent_to_another() {
    if !can_mount() {
        return;
    }
    let world = world_of_account().await;
    let admin = world.emulator.admin();
    let key = admin
        .mint_service_account_key(ACCOUNT, &world.emulator.endpoint())
        .unwrap();
    let path = world.path("key.json");
    fs::write(&path, key).unwrap();
    let mut mounting = command(&world);
    mounting
        .arg("--key-file")
        .arg(&path)
        .args(["--universe-domain", "cloud.example"]);
    let (code, said) = refused(&world, mounting).await;
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("--universe-domain googleapis.com"), "{said}");
    assert_eq!(admin.counters().of("storage.buckets.get"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_identity_is_told_where_one_was_looked_for() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mut show = gcsmount();
    show.args(["token", "show"])
        .env("HOME", "/nonexistent")
        .env_remove("CLOUDSDK_CONFIG")
        .env("GCE_METADATA_HOST", "127.0.0.1:9");
    let output = timeout(LIMIT, show.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(4), "{said}");
    for part in [
        "GOOGLE_APPLICATION_CREDENTIALS",
        "gcloud login",
        "127.0.0.1:9",
        "--token-file",
    ] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    drop(world);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_file_whose_path_is_not_utf_8_is_that_file_and_nobody_else() {
    use std::os::unix::ffi::OsStrExt;
    let mut show = gcsmount();
    show.args(["token", "show"])
        .env("HOME", "/nonexistent")
        .env("GCE_METADATA_HOST", "127.0.0.1:9")
        .env(
            "GOOGLE_APPLICATION_CREDENTIALS",
            std::ffi::OsStr::from_bytes(b"/nonexistent/k\xff.json"),
        );
    let output = timeout(LIMIT, show.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("credential file /nonexistent/k"), "{said}");
}
