//! What is wrong at the start is said in one sentence, with an exit code of its own, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use gcsmount_emulator::{BucketSettings, MintRequest, Role};
use tokio::process::Command;
use tokio::time::timeout;

use crate::kit::{BUCKET, World, can_mount, gcsmount, is_mounted};

/// Within which every one of these ends when nothing is retried.
const SOON: Duration = Duration::from_secs(10);

/// Runs `command` to its failure and checks code, sentence and that nothing is mounted.
async fn fails(mut command: Command, exit: i32, parts: &[&str], dir: &Path) {
    let output = timeout(SOON, command.output())
        .await
        .expect("it ends soon")
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let sentence = said.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(exit), "{said}");
    assert!(sentence.starts_with("gcsmount: "), "{said}");
    for part in parts {
        assert!(sentence.contains(part), "{part:?} is not in: {said}");
    }
    let lines = said.lines().filter(|l| l.starts_with("gcsmount: ")).count();
    assert_eq!(lines, 1, "one sentence: {said}");
    assert!(!is_mounted(dir));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_or_the_identity_is_wrong() {
    let world = World::new().await;
    let dir = world.mount_point();
    let good = world.token_file();
    if !can_mount() {
        return;
    }
    let with = |token: &Path, bucket: &str| {
        let mut command = world.command();
        command
            .arg("--foreground")
            .arg("--token-file")
            .arg(token)
            .arg(bucket)
            .arg(&dir);
        command
    };
    let file = |name: &str, text: &str| {
        let path = world.path(name);
        fs::write(&path, text).unwrap();
        path
    };

    fails(
        with(&good, "no-such-bucket"),
        3,
        &["no-such-bucket", "does not exist"],
        &dir,
    )
    .await;

    let missing = world.path("nowhere/token");
    fails(with(&missing, BUCKET), 4, &["nowhere/token"], &dir).await;
    fails(
        with(&world.path(""), BUCKET),
        4,
        &["not a regular file"],
        &dir,
    )
    .await;
    fails(
        with(&file("garbage", "not a token"), BUCKET),
        4,
        &["garbage"],
        &dir,
    )
    .await;
    let mint = |request: MintRequest| world.emulator.admin().mint_token(&request);
    let request = MintRequest {
        namespace: "tests".into(),
        service_account: "runner".into(),
        ..MintRequest::default()
    };
    let expired = mint(MintRequest {
        ttl: Duration::ZERO,
        ..request.clone()
    });
    fails(
        with(&file("expired", &expired), BUCKET),
        4,
        &["expired"],
        &dir,
    )
    .await;

    let elsewhere = mint(MintRequest {
        ttl: Duration::from_secs(600),
        audience: Some("elsewhere.svc.id.goog".into()),
        ..request
    });
    fails(
        with(&file("elsewhere", &elsewhere), BUCKET),
        5,
        &["elsewhere.svc.id.goog", "--identity-pool"],
        &dir,
    )
    .await;

    let admin = world.emulator.admin();
    admin.create_bucket("locked").unwrap();
    admin.replace_grants("locked", &[]).unwrap();
    fails(
        with(&good, "locked"),
        7,
        &[
            "locked",
            "projects/123456789012/",
            "tests/sa/runner",
            "roles/storage.objectUser",
        ],
        &dir,
    )
    .await;

    let narrow = |limit: &str| {
        let mut command = with(&good, BUCKET);
        command.args(["--access-boundary", limit]);
        command
    };
    let prefix = format!("{BUCKET}/a/");
    fails(narrow(&prefix), 2, &["--only-dir a"], &dir).await;
    fails(narrow("other"), 2, &["leaves out", BUCKET], &dir).await;

    admin.create_bucket("acls").unwrap();
    let by_acl = BucketSettings {
        uniform_access: false,
        ..BucketSettings::default()
    };
    admin.set_bucket("acls", by_acl).unwrap();
    let turn_on = "gcloud storage buckets update gs://acls --uniform-bucket-level-access";
    fails(with(&good, "acls"), 7, &[turn_on], &dir).await;

    admin.create_bucket("paid").unwrap();
    let paid = BucketSettings {
        requester_pays: true,
        ..BucketSettings::default()
    };
    admin.set_bucket("paid", paid).unwrap();
    fails(with(&good, "paid"), 7, &["give --billing-project"], &dir).await;

    let endpoint = world.emulator.endpoint();
    let mut by_variable = gcsmount();
    by_variable.env("STORAGE_EMULATOR_HOST", &endpoint);
    by_variable
        .args(["mount", "--foreground", BUCKET])
        .arg(&dir);
    fails(by_variable, 7, &["--sts-endpoint", "--auth off"], &dir).await;

    let mut anonymous = world.command();
    anonymous
        .args(["--foreground", "--anonymous-access", BUCKET])
        .arg(&dir);
    fails(anonymous, 7, &["anonymous", "--token-file"], &dir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_out_of_reach() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let dir = world.mount_point();
    let token = world.token_file();
    // A port that nobody listens on, a listener that never answers, and a name that does not exist.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = [
        (
            format!("http://{}", closed.local_addr().unwrap()),
            "refused",
        ),
        (format!("http://{}", silent.local_addr().unwrap()), "answer"),
        ("http://no-such-host.invalid".to_owned(), "no-such-host"),
    ];
    drop(closed);
    let good = &world.emulator.endpoint();
    for (bad, why) in &addresses {
        for (store, sts) in [(bad, good), (good, bad)] {
            let mut command = gcsmount();
            command.args(["mount", "--foreground", "--mount-retry-timeout=0"]);
            command.args([
                "--custom-endpoint",
                store,
                "--sts-endpoint",
                sts,
                "--token-file",
            ]);
            command.arg(&token).arg(BUCKET).arg(&dir);
            let host = bad.trim_start_matches("http://");
            fails(command, 6, &[host, why], &dir).await;
        }
        for reuse in ["", "--reuse-token-from-url=false"] {
            let mut command = gcsmount();
            command.args(["mount", "--foreground", "--mount-retry-timeout=0"]);
            command.args(["--custom-endpoint", good, "--token-url", bad]);
            command.args(Some(reuse).filter(|flag| !flag.is_empty()));
            command.arg(BUCKET).arg(&dir);
            let host = bad.trim_start_matches("http://");
            fails(command, 6, &[host, why], &dir).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mount_point_cannot_be_used() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let token = world.token_file();
    let at = |dir: &Path| {
        let mut command = world.command();
        command
            .arg("--foreground")
            .arg("--token-file")
            .arg(&token)
            .arg(BUCKET)
            .arg(dir);
        command
    };
    let missing = world.path("missing");
    fails(at(&missing), 8, &["missing", "create"], &missing).await;
    fails(at(&token), 8, &["token", "directory"], &token).await;

    let mut no_staging = at(&world.mount_point());
    no_staging.arg("--temp-dir=/nonexistent");
    fails(no_staging, 2, &["twice"], &missing).await;
    let mut no_staging = gcsmount();
    no_staging.args([
        "mount",
        "--foreground",
        "--temp-dir=/nonexistent",
        "--token-file",
    ]);
    no_staging.arg(&token).arg(BUCKET).arg(world.mount_point());
    fails(
        no_staging,
        2,
        &["--temp-dir /nonexistent", "writable"],
        &missing,
    )
    .await;
    let mut demo = gcsmount();
    demo.arg("demo").arg(&token);
    fails(demo, 8, &["not a directory"], &token).await;

    let mount = world.mount(&[]).await;
    let output = timeout(SOON, at(&mount.dir).output())
        .await
        .expect("it ends soon")
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert!(said.contains("unmount it first"), "{said}");
    assert!(is_mounted(&mount.dir), "the first mount is untouched");
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_right_to_the_device() {
    if !can_mount() {
        return;
    }
    let mode = fs::metadata("/dev/fuse").unwrap().permissions().mode() & 0o777;
    if mode & 0o006 == 0o006 {
        use std::io::Write;
        let _ = writeln!(
            std::io::stderr(),
            "NOT RUN: everybody may open /dev/fuse here (mode {mode:04o})"
        );
        return;
    }
    let world = World::new().await;
    fs::set_permissions(world.scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = world.mount_point();
    let mut command = world.command();
    command
        .arg("--foreground")
        .arg("--token-file")
        .arg(world.token_file())
        .arg(BUCKET)
        .arg(&dir);
    command.uid(65534).gid(65534);
    fails(
        command,
        9,
        &["/dev/fuse", &format!("{mode:04o}"), "run as root"],
        &dir,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_is_wrong() {
    let nowhere = Path::new("/nonexistent/mount/point");
    let table: [(&[&str], &[&str]); 9] = [
        (
            &["emulator", "--listen=127.0.0.1:0", "--bucket=AB"],
            &["--bucket", "AB"],
        ),
        (
            &[
                "mount",
                "abc",
                "/tmp",
                "--anonymous-access",
                "--identity-pool=p",
            ],
            &["goes with a service-account token"],
        ),
        (&["mount", "bucket-only"], &["BUCKET and DIR"]),
        (
            &["/mnt", "my-bucket"],
            &["the bucket comes first: gcsmount my-bucket /mnt"],
        ),
        (&["doctor"], &["expected BUCKET, got nothing"]),
        (&["mount", "Not_A_Bucket", "/tmp"], &["not a bucket name"]),
        (
            &["mount", "abc", "/tmp", "--uid=me", "--sts-endpoint=x"],
            &["--uid", "--sts-endpoint"],
        ),
        (
            &["mount", "abc", "/tmp", "--token-fil=x"],
            &["--token-file"],
        ),
        (
            &[
                "mount",
                "abc",
                "/tmp",
                "--anonymous-access",
                "--token-file=x",
            ],
            &["exclude each other"],
        ),
    ];
    for (arguments, parts) in table {
        let mut command = gcsmount();
        command.args(arguments);
        fails(command, 2, parts, nowhere).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_background_the_failure_is_the_commands_own() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let dir = world.mount_point();
    let mut command = world.command();
    command
        .arg("--token-file")
        .arg(world.token_file())
        .arg("no-such-bucket")
        .arg(&dir);
    fails(command, 3, &["no-such-bucket"], &dir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relative_path_is_meant_from_where_the_command_is_given() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let dir = world.mount_point();
    let here = world.scratch.path();
    let login = "gcloud/application_default_credentials.json";
    fs::create_dir(world.path("gcloud")).unwrap();
    fs::write(world.path(login), "{}").unwrap();
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str);
    let settings: [Case<'_>; 4] = [
        (&["--token-file", "nowhere"], &[], "nowhere"),
        (&["--key-file", "nowhere"], &[], "nowhere"),
        (
            &[],
            &[("GOOGLE_APPLICATION_CREDENTIALS", "nowhere")],
            "nowhere",
        ),
        (&[], &[("CLOUDSDK_CONFIG", "gcloud")], login),
    ];
    for (flags, variables, file) in settings {
        let mut command = world.command();
        command.current_dir(here).args(flags).arg(BUCKET).arg(&dir);
        command.envs(variables.iter().copied());
        let file = here.join(file);
        fails(command, 4, &[file.to_str().unwrap()], &dir).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_will_bite_is_warned_of_at_the_start() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin();
    let viewer = (admin.member("tests", "runner"), Role::ObjectViewer);
    admin.replace_grants(BUCKET, &[viewer]).unwrap();
    fs::write(world.mount_point().join("hidden"), "").unwrap();
    let warnings = [
        "mnt is not empty",
        "writes will be refused",
        "--implicit-dirs is gcsfuse's",
    ];
    let mount = world.mount(&["--implicit-dirs"]).await;
    for part in warnings {
        assert_eq!(mount.log().matches(part).count(), 1, "{}", mount.log());
    }
    mount.stop().await;

    fs::remove_file(world.mount_point().join("hidden")).unwrap();
    let mount = world.mount(&["-o", "ro"]).await;
    assert!(!mount.log().contains("WARN"), "{}", mount.log());
    mount.stop().await;
}
