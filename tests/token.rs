//! The broker by itself: who am I, is it well, and tokens for others.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use gcsmount_emulator::{Config, FaultAction, FaultRule};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::kit::{BUCKET, LIMIT, World, blocking, can_mount, gcsmount, not_run, run};

/// `gcsmount` with `words`, told of the emulator and a token file.
fn command(world: &World, words: &[&str]) -> Command {
    let mut command = gcsmount();
    command
        .args(words)
        .args(["--sts-endpoint", &world.emulator.endpoint(), "--token-file"]);
    command.arg(world.token_file());
    command
}

/// Runs to the end: exit code, standard output, standard error.
async fn outcome(mut command: Command) -> (Option<i32>, String, String) {
    let output = timeout(LIMIT, command.output())
        .await
        .expect("it ends")
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn show_names_the_principal_and_no_secret() {
    let world = World::new().await;
    let (code, out, _) = outcome(command(&world, &["token", "show"])).await;
    assert_eq!(code, Some(0), "{out}");
    for part in [
        "system:serviceaccount:tests:runner",
        "principal://",
        "/subject/ns/tests/sa/runner",
        "identitynamespace:",
    ] {
        assert!(out.contains(part), "{part} is not in: {out}");
    }
    let token = fs::read_to_string(world.path("token")).unwrap();
    assert!(!out.contains(token.rsplit('.').next().unwrap()));

    let (code, out, _) = outcome(command(&world, &["token", "show", "--json"])).await;
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &json["exit"]), (Some(0), &0.into()));
    let step = |name: &str| {
        let steps = json["steps"].as_array().unwrap().iter();
        let found: Vec<_> = steps.filter(|step| step["step"] == name).collect();
        found[0].clone()
    };
    let claims = step("token file");
    assert_eq!(claims["subject"], "system:serviceaccount:tests:runner");
    let exchange = step("exchange");
    assert!(exchange["expires_in"].as_u64().is_some_and(|n| n > 3000));
    let audience = exchange["audience"].as_str().unwrap();
    assert!(audience.starts_with("identitynamespace:"), "{audience}");
    let principal = step("principal")["principal"].clone();
    assert!(principal.as_str().unwrap().starts_with("principal://"));
    assert_eq!(world.emulator.admin().counters().metadata_calls, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_walks_from_the_token_to_the_bucket() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let doctor = |bucket: &str| {
        let mut command = command(
            &world,
            &["doctor", "--custom-endpoint", &world.emulator.endpoint()],
        );
        command.arg(bucket);
        command
    };
    let (code, out, err) = outcome(doctor(BUCKET)).await;
    assert_eq!(code, Some(0), "{out}{err}");
    for step in [
        "identity",
        "token file",
        "exchange",
        "principal",
        "bucket",
        "permissions",
        "clock",
        "fuse",
    ] {
        assert!(
            out.lines()
                .any(|l| l.starts_with(step) && l.contains(" ok ")),
            "{step} holds: {out}"
        );
    }

    let admin = world.emulator.admin();
    admin.create_bucket("readable").unwrap();
    let viewer = (
        admin.member("tests", "runner"),
        gcsmount_emulator::Role::ObjectViewer,
    );
    admin.replace_grants("readable", &[viewer]).unwrap();
    let (code, out, _) = outcome(doctor("readable")).await;
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.contains("storage.objects.create")
            && out.contains("add-iam-policy-binding gs://readable"),
        "{out}"
    );

    admin.create_bucket("locked").unwrap();
    admin.replace_grants("locked", &[]).unwrap();
    let (code, out, err) = outcome(doctor("locked")).await;
    assert_eq!(code, Some(7), "{out}");
    assert_eq!(out.matches("FAILED").count(), 1, "{out}");
    let command = "gcloud storage buckets add-iam-policy-binding gs://locked --role roles/storage.objectUser --member";
    let line = out.lines().find(|line| line.trim().starts_with(command));
    let line = line.unwrap_or_else(|| panic!("a line to copy: {out}"));
    assert!(line.ends_with("/subject/ns/tests/sa/runner'"), "{line}");
    assert!(!line.contains("PROJECT_NUMBER"), "the refusal tells it");
    assert!(err.contains("\"bucket\" failed"), "{err}");

    let (code, out, _) = outcome(doctor("no-such-bucket")).await;
    assert_eq!(code, Some(3), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_fails_once_and_skips_what_depends_on_it() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let endpoint = world.emulator.endpoint();
    let words = ["doctor", "--custom-endpoint", &endpoint, "--json", BUCKET];
    let mut command = command(&world, &words);
    fs::remove_file(world.path("token")).unwrap();
    command.arg(world.path("mnt"));
    let (code, out, _) = outcome(command).await;
    assert_eq!(code, Some(4), "{out}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let steps = json["steps"].as_array().unwrap();
    let verdicts: Vec<_> = steps
        .iter()
        .map(|step| {
            (
                step["step"].as_str().unwrap(),
                step["verdict"].as_str().unwrap(),
            )
        })
        .collect();
    let want = [
        ("identity", "ok"),
        ("token file", "FAILED"),
        ("exchange", "skipped"),
        ("principal", "skipped"),
        ("bucket", "skipped"),
        ("permissions", "skipped"),
        ("clock", "skipped"),
        ("fuse", "ok"),
    ];
    assert_eq!(verdicts, want);
    assert_eq!(world.emulator.admin().counters().exchanges, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_asks_for_no_grant_where_the_boundary_says_read_only() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let endpoint = world.emulator.endpoint();
    let limit = format!("{BUCKET}:ro");
    let words = [
        "doctor",
        "--access-boundary",
        &limit,
        "--custom-endpoint",
        &endpoint,
    ];
    let mut command = command(&world, &words);
    command.arg(BUCKET);
    let (code, out, _) = outcome(command).await;
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.contains("read-only, as --access-boundary has it"),
        "{out}"
    );
    assert!(!out.contains("gcloud storage"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_socket_answers_curl() {
    let world = World::new().await;
    let path = world.path("token.sock");
    let mut serve = command(&world, &["token", "serve"]);
    serve.arg("--socket").arg(&path).stdout(Stdio::piped());
    let mut serving = serve.spawn().unwrap();
    let mut line = String::new();
    let output = serving.stdout.take().unwrap();
    timeout(LIMIT, BufReader::new(output).read_line(&mut line))
        .await
        .unwrap()
        .unwrap();
    assert!(line.contains("token.sock"), "{line}");
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );

    let curl = |uid: Option<u32>| {
        let mut command = Command::new("curl");
        command
            .args(["-s", "--max-time", "20", "--unix-socket"])
            .arg(&path)
            .arg("http://unix/")
            .kill_on_drop(true);
        if let Some(uid) = uid {
            command.uid(uid);
        }
        command
    };
    let Ok(answer) = curl(None).output().await else {
        not_run("curl");
        return;
    };
    let reply: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!(reply["token_type"], "Bearer");
    assert!(
        reply["expires_in"].as_u64().is_some_and(|n| n > 3000),
        "{:?}",
        reply["expires_in"]
    );
    assert!(reply["expiry"].as_str().is_some_and(|t| t.contains('T')));
    let token = reply["access_token"].as_str().unwrap();
    // The token is one that the bucket takes.
    let url = format!("{}/storage/v1/b/{BUCKET}/o", world.emulator.endpoint());
    let (listed, said) = run(
        "curl",
        ["-sf", "-H", &format!("Authorization: Bearer {token}"), &url],
    )
    .await;
    assert!(listed, "{said}");
    // Twice asked, once exchanged.
    curl(None).output().await.unwrap();
    assert_eq!(world.emulator.admin().counters().exchanges, 1);
    if nix::unistd::geteuid().is_root() {
        let other = curl(Some(65534)).output().await.unwrap();
        assert!(
            !String::from_utf8_lossy(&other.stdout).contains(token),
            "another user gets no token"
        );
    }
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(serving.id().unwrap()).unwrap()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    assert!(
        timeout(LIMIT, serving.wait())
            .await
            .unwrap()
            .unwrap()
            .success()
    );
    assert!(!path.exists(), "the socket is gone with its process");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_without_any_token_names_each_route_that_lacks_one() {
    let world = World::new().await;
    let socket = world.path("run/token.sock");
    let serve = |routes: &[String]| {
        let mut command = gcsmount();
        command.args([
            "token",
            "serve",
            "--sts-endpoint",
            &world.emulator.endpoint(),
        ]);
        command.arg("--socket").arg(&socket);
        for route in routes {
            command.args(["--route", route]);
        }
        command
    };
    let lost = |route: &str| format!("{route}:token-file={}", world.path("none").display());
    let (code, _, err) = outcome(serve(&[lost("/a"), lost("/b")])).await;
    assert_eq!(code, Some(4), "{err}");
    let said = err.lines().last().unwrap();
    assert!(
        said.contains("--route /a: ") && said.contains("; --route /b: "),
        "{err}"
    );
    assert!(!err.contains("serving all the same"), "{err}");

    let good = format!("/a:token-file={}", world.token_file().display());
    let mut command = serve(&[good, lost("/b")]);
    let mut serving = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines();
    let mut line = async || {
        let line = timeout(LIMIT, lines.next_line()).await;
        line.unwrap().unwrap().unwrap()
    };
    let first = line().await;
    assert!(
        first.starts_with("tokens of ") && first.ends_with(" at /a"),
        "{first}"
    );
    let second = line().await;
    assert!(
        second.starts_with("no token of ") && second.ends_with(" at /b"),
        "{second}"
    );
    let mode = fs::metadata(world.path("run"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_lives_on_the_tokens_of_another_process() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let path = world.path("token.sock");
    let mut serve = command(&world, &["token", "serve"]);
    serve.arg("--socket").arg(&path).stdout(Stdio::piped());
    let mut serving = serve.spawn().unwrap();
    let output = serving.stdout.take().unwrap();
    let mut line = String::new();
    let reading = timeout(LIMIT, BufReader::new(output).read_line(&mut line)).await;
    assert!(reading.unwrap().unwrap() > 0);
    for reuse in ["--reuse-token-from-url", "--reuse-token-from-url=false"] {
        let mut mount = world.command();
        mount
            .arg("--token-url")
            .arg(format!("unix://{}", path.display()))
            .arg(reuse);
        let mount = world.mount_with(mount).await;
        let file = mount.path("file");
        let read = blocking(move || {
            fs::write(&file, "by another's token").unwrap();
            fs::read(&file).unwrap()
        });
        assert_eq!(read.await, b"by another's token");
        mount.stop().await;
    }
    assert_eq!(
        world.emulator.admin().counters().exchanges,
        1,
        "the broker's own"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_file_sends_its_token_to_nobody_it_should_not() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let key = world.path("external.json");
    let account = serde_json::json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/v",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{}/v1/token", world.emulator.endpoint()),
        "credential_source": {"file": world.token_file()},
    });
    fs::write(&key, account.to_string()).unwrap();
    let mut show = gcsmount();
    show.args(["token", "show", "--key-file"]).arg(&key);
    let (code, out, err) = outcome(show).await;
    assert_eq!(code, Some(4), "{out}{err}");
    let said = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("would send a token to 127.0.0.1"), "{out}");
    assert_eq!(world.emulator.admin().counters().of("sts.token"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_token_service_within_a_tokens_life_fails_no_call() {
    if !can_mount() {
        return;
    }
    let world = World::with(Config {
        access_token_ttl: Duration::from_secs(12),
        ..Config::default()
    })
    .await;
    let mount = world.mount(&[]).await;
    let admin = world.emulator.admin().clone();
    admin.add_fault(FaultRule {
        count: 3,
        ..FaultRule::once(
            "sts.token",
            FaultAction::Status {
                code: 503,
                reason: None,
                retry_after: None,
            },
        )
    });
    let dir = mount.dir.clone();
    let rounds = blocking(move || {
        let mut round = 0u64;
        // The first token, then the outage, then a second token.
        while admin.counters().exchanges < 2 {
            let path = dir.join(format!("file-{round}"));
            fs::write(&path, round.to_be_bytes()).unwrap();
            assert_eq!(fs::read(&path).unwrap(), round.to_be_bytes());
            fs::remove_file(&path).unwrap();
            round += 1;
        }
        assert!(
            admin.counters().of("sts.token") >= 5,
            "three of the exchanges failed"
        );
        round
    })
    .await;
    println!("{rounds} rounds through the outage");
    mount.stop().await;
}
