//! What users of other mounts and brokers suffered from, on a real mount. What takes long waits is in `auth/tests`, where
//! time is told to pass.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use gcsmount_emulator::{Admin, Config, FaultAction, FaultRule, MintRequest, Role};
use nix::sys::signal::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::kit::{BUCKET, LIMIT, World, blocking, can_mount, gcsmount, in_network_namespace};

/// Strikes the next `count` exchanges with `code`.
fn trouble_at_sts(admin: &Admin, count: u64, code: u16, retry_after: Option<u64>) {
    admin.add_fault(FaultRule {
        count,
        ..FaultRule::once(
            "sts.token",
            FaultAction::Status {
                code,
                reason: None,
                retry_after,
            },
        )
    });
}

fn of_storage(admin: &Admin) -> u64 {
    let requests = admin.counters().requests;
    let storage = requests
        .iter()
        .filter(|(method, _)| method.starts_with("storage."));
    storage.map(|(_, count)| count).sum()
}

/// Lets `seconds` of tokens' lives pass where they are judged, and here.
async fn short_lived(seconds: u64) -> World {
    World::with(Config {
        access_token_ttl: Duration::from_secs(seconds),
        ..Config::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_revoked_in_the_middle_of_a_read_costs_one_exchange_and_no_byte() {
    if !can_mount() {
        return;
    }
    const SIZE: usize = 64 << 20;
    let data: Vec<u8> = (0..SIZE / 8).flat_map(|n: usize| n.to_be_bytes()).collect();
    let world = World::new().await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(BUCKET, "big", Bytes::from(data.clone()))
        .unwrap();
    let mount = world.mount(&[]).await;
    let path = mount.path("big");
    let before = admin.counters();
    let read = blocking(move || {
        let mut file = fs::File::open(path).unwrap();
        let mut all = vec![0; 4 << 20];
        file.read_exact(&mut all).unwrap();
        admin.revoke_access_tokens();
        file.read_to_end(&mut all).unwrap();
        (all, admin.counters())
    });
    let (all, after) = read.await;
    assert!(all == data, "the bytes are those of the object");
    assert_eq!(after.exchanges, before.exchanges + 1);
    let counted = |class: &str| {
        after.statuses.get(class).unwrap_or(&0) - before.statuses.get(class).unwrap_or(&0)
    };
    // Whatever was under way with the old token is refused, once each, and sent again with the new one.
    let (refused, served) = (counted("4xx"), counted("2xx"));
    assert!(
        (1..=served).contains(&refused),
        "{refused} answers of 401 among {served} that were served"
    );
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_hangs_ends_in_an_error_that_names_it_and_heals() {
    if !can_mount() {
        return;
    }
    let world = short_lived(6).await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(BUCKET, "there", Bytes::from_static(b"x"))
        .unwrap();
    let mount = world.mount(&["--metadata-cache-ttl", "0"]).await;
    let there = mount.path("there");
    fs_read(&there).await.unwrap();
    let hanging = Duration::from_secs(600);
    admin.add_fault(FaultRule {
        count: u64::MAX,
        ..FaultRule::once("sts.token", FaultAction::Stall { duration: hanging })
    });
    // The token that is held is used to its end, then each call ends by itself.
    let mut worked = 0;
    let failure = loop {
        match fs_read(&there).await {
            Ok(_) => worked += 1,
            Err(error) => break error,
        }
    };
    assert!(
        worked > 0,
        "the token was still good when its source went away"
    );
    assert_ne!(failure.kind(), std::io::ErrorKind::NotFound, "{failure}");
    assert!(
        mount.log().contains("token service at"),
        "the log names the source: {}",
        mount.log()
    );
    admin.clear_faults();
    let healed = async {
        while fs_read(&there).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(60), healed)
        .await
        .expect("it heals by itself");
    mount.stop().await;
}

/// Reads past the kernel's cache.
async fn fs_read(path: &Path) -> std::io::Result<Vec<u8>> {
    let path = path.to_owned();
    blocking(move || {
        let mut file = fs::File::open(&path)?;
        let _ = nix::fcntl::posix_fadvise(
            &file,
            0,
            0,
            nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED,
        );
        let mut all = Vec::new();
        file.read_to_end(&mut all)?;
        fs::metadata(&path)?;
        Ok(all)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_waits_for_a_token_service_that_is_not_ready_and_for_one_that_is_throttled() {
    if !can_mount() {
        return;
    }
    for (code, retry_after) in [(503, None), (500, None), (429, Some(1))] {
        let world = World::new().await;
        let admin = world.emulator.admin();
        trouble_at_sts(admin, 2, code, retry_after);
        let mut command = world.patient_command("60s");
        command.arg("--token-file").arg(world.token_file());
        let mount = world.mount_with(command).await;
        let asked = admin.counters().of("sts.token");
        assert_eq!((asked, admin.counters().exchanges), (3, 1), "{code}");
        mount.stop().await;
    }
}

/// Runs a mount that cannot come about to its end: exit code and what it said.
async fn refused(world: &World, patience: &str) -> (Option<i32>, String) {
    let mut command = world.patient_command(patience);
    command
        .arg("--token-file")
        .arg(world.token_file())
        .args(["--foreground", BUCKET])
        .arg(world.mount_point());
    let output = timeout(LIMIT, command.output())
        .await
        .expect("it ends")
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_is_refused_for_good_does_not_ask_again() {
    if !can_mount() {
        return;
    }
    for code in [400, 403] {
        let world = World::new().await;
        let admin = world.emulator.admin();
        trouble_at_sts(admin, u64::MAX, code, None);
        let (exit, said) = refused(&world, "60s").await;
        assert_eq!(exit, Some(5), "{said}");
        assert_eq!(admin.counters().of("sts.token"), 1, "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_nothing_is_asked_of_the_bucket() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let admin = world.emulator.admin();
    trouble_at_sts(admin, u64::MAX, 500, None);
    let (exit, said) = refused(&world, "3s").await;
    assert_eq!(exit, Some(6), "{said}");
    assert!(admin.counters().of("sts.token") > 1, "it tried again");
    assert_eq!(of_storage(admin), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_was_stopped_for_longer_than_its_token_lives_goes_on() {
    if !can_mount() {
        return;
    }
    let world = short_lived(3).await;
    let admin = world.emulator.admin().clone();
    admin
        .put_object(BUCKET, "there", Bytes::from_static(b"x"))
        .unwrap();
    let mount = world.mount(&["--metadata-cache-ttl", "0"]).await;
    let there = mount.path("there");
    fs_read(&there).await.unwrap();
    mount.signal(Signal::SIGSTOP);
    tokio::time::sleep(Duration::from_secs(5)).await;
    mount.signal(Signal::SIGCONT);
    fs_read(&there).await.unwrap();
    mount.stop().await;
}

/// `gcsmount token serve` with `words`, once its socket is there.
async fn token_socket(words: &[&str], socket: &Path) -> Child {
    let mut command = gcsmount();
    command
        .args(["token", "serve"])
        .args(words)
        .arg("--socket")
        .arg(socket);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let output = child.stdout.take().unwrap();
    let read = timeout(LIMIT, BufReader::new(output).read_line(&mut line)).await;
    assert!(read.unwrap().unwrap() > 0, "{} serves", socket.display());
    child
}

/// Asks a token socket for `target`: status and body.
fn ask(socket: &Path, target: &str) -> (u16, serde_json::Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nhost: unix\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_default())
}

#[test]
fn pods_on_the_hosts_network_have_their_own_identities_and_never_the_nodes() {
    if !can_mount() {
        return;
    }
    in_network_namespace(|| async {
        let buckets = ["bucket-of-one", "bucket-of-two"];
        let config = Config {
            listen: vec![
                "127.0.0.1:0".parse().unwrap(),
                "169.254.169.254:80".parse().unwrap(),
            ],
            buckets: buckets.map(Into::into).to_vec(),
            ..Config::default()
        };
        let world = World::with(config).await;
        let admin = world.emulator.admin();
        let endpoint = world.emulator.endpoint();
        let mut held = Vec::new();
        for (bucket, account) in buckets.iter().zip(["one", "two"]) {
            let member = (admin.member("tests", account), Role::ObjectAdmin);
            admin.replace_grants(bucket, &[member]).unwrap();
            let token = world.path(account);
            let subject = admin.mint_token(&MintRequest {
                namespace: "tests".into(),
                service_account: account.into(),
                ttl: Duration::from_secs(3600),
                ..MintRequest::default()
            });
            fs::write(&token, subject).unwrap();
            let socket = world.path(&format!("{account}.sock"));
            let words = [
                "--sts-endpoint",
                &endpoint,
                "--token-file",
                token.to_str().unwrap(),
            ];
            let broker = token_socket(&words, &socket).await;
            let mut command = world.command();
            command
                .arg("--token-url")
                .arg(format!("unix://{}", socket.display()));
            let dir = world.path(&format!("mnt-of-{account}"));
            fs::create_dir(&dir).unwrap();
            let mount = world.mount_at(command, bucket, dir).await;
            let file = mount.path("mine");
            blocking(move || {
                fs::write(&file, "mine").unwrap();
                assert_eq!(fs::read(&file).unwrap(), b"mine");
            })
            .await;
            held.push((mount, broker));
        }
        let counters = admin.counters();
        assert_eq!((counters.metadata_calls, counters.exchanges), (0, 2));
        for (mount, _broker) in held {
            mount.stop().await;
        }
    });
}

/// A projected volume as kubelet writes one: `token` leads through `..data` to a directory that is swapped.
pub(crate) struct Projection {
    dir: PathBuf,
    generation: usize,
}

impl Projection {
    pub(crate) fn new(dir: PathBuf, token: &str) -> Self {
        fs::create_dir(&dir).unwrap();
        let mut projection = Self { dir, generation: 0 };
        projection.rotate(token);
        symlink("..data/token", projection.token()).unwrap();
        projection
    }

    fn token(&self) -> PathBuf {
        self.dir.join("token")
    }

    pub(crate) fn rotate(&mut self, token: &str) {
        let name = |generation: usize| format!("..{generation}");
        let old = self.generation;
        self.generation += 1;
        let new = self.dir.join(name(self.generation));
        fs::create_dir(&new).unwrap();
        fs::write(new.join("token"), token).unwrap();
        symlink(name(self.generation), self.dir.join("..tmp")).unwrap();
        fs::rename(self.dir.join("..tmp"), self.dir.join("..data")).unwrap();
        let _ = fs::remove_dir_all(self.dir.join(name(old)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_whose_token_file_is_swapped_all_the_time_fails_nobody() {
    let world = short_lived(3).await;
    let admin = world.emulator.admin().clone();
    let mut projection = Projection::new(world.path("projected"), &world.mint(LIMIT));
    let token = projection.token();
    let socket = world.path("token.sock");
    let endpoint = world.emulator.endpoint();
    let words = [
        "--sts-endpoint",
        &endpoint,
        "--token-file",
        token.to_str().unwrap(),
    ];
    let _broker = token_socket(&words, &socket).await;
    let subjects: Vec<String> = (0..20).map(|_| world.mint(LIMIT)).collect();
    let rounds = blocking(move || {
        let mut rounds = 0;
        while admin.counters().exchanges < 6 {
            projection.rotate(&subjects[rounds % subjects.len()]);
            let (status, body) = ask(&socket, "/");
            assert_eq!(status, 200, "{body}");
            rounds += 1;
        }
        rounds
    })
    .await;
    println!("{rounds} rotations");
    assert!(rounds > 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_socket_serves_several_identities_each_at_its_own_path() {
    let world = World::new().await;
    let admin = world.emulator.admin();
    let endpoint = world.emulator.endpoint();
    let mut words: Vec<String> = vec!["--sts-endpoint".into(), endpoint.clone()];
    for account in ["one", "two"] {
        let subject = admin.mint_token(&MintRequest {
            namespace: "tests".into(),
            service_account: account.into(),
            ttl: Duration::from_secs(3600),
            ..MintRequest::default()
        });
        let path = world.path(account);
        fs::write(&path, subject).unwrap();
        words.extend([
            "--route".into(),
            format!("/{account}:token-file={}", path.display()),
        ]);
    }
    let one = world.path("one");
    words.extend([
        "--route".into(),
        format!("/again:token-file={}", one.display()),
    ]);
    words.extend([
        "--route".into(),
        format!("/lost:token-file={}", world.path("none").display()),
    ]);
    let socket = world.path("token.sock");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let _broker = token_socket(&words, &socket).await;
    let answers = blocking(move || {
        ["/one", "/two", "/again", "/lost", "/", "/one/"].map(|path| ask(&socket, path))
    })
    .await;
    let statuses = answers.each_ref().map(|(status, _)| *status);
    assert_eq!(statuses, [200, 200, 200, 500, 404, 404]);
    let token = |at: usize| answers[at].1["access_token"].as_str().unwrap();
    assert_ne!(token(0), token(1));
    assert_eq!(token(0), token(2), "one identity, one token");
    assert_eq!(admin.counters().exchanges, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_that_contradict_each_other_are_refused() {
    let world = World::new().await;
    let socket = world.path("token.sock");
    for (words, hint) in [
        (
            vec!["--route", "/a:token-file=/t", "--token-file", "/t"],
            "exclude each other",
        ),
        (
            vec!["--route", "/a:token-file=/t", "--route", "/a:key-file=/k"],
            "twice",
        ),
        (vec!["--route", "a:token-file=/t"], "expected /PATH:"),
        (vec!["--route", "/a"], "expected /PATH:"),
        (vec!["--route", "/a:"], "expected /PATH:"),
        (vec!["--route", "/ä:token-file=/t"], "expected /PATH:"),
        (vec!["--route", "/a:token-file"], "token-file has no value"),
        (
            vec!["--route", "/a:socket=/t"],
            "--route /a: socket is not a flag",
        ),
        (
            vec!["--route", "/a:token-file=/t,key-file=/k"],
            "--route /a: --token-file and --key-file exclude",
        ),
    ] {
        let mut command: Command = gcsmount();
        command
            .args(["token", "serve", "--socket"])
            .arg(&socket)
            .args(&words);
        let output = timeout(LIMIT, command.output())
            .await
            .expect("it ends")
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(hint), "{words:?}: {said}");
        assert!(!socket.exists());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_waits_for_its_first_token_ends_when_it_is_told() {
    let world = World::new().await;
    let admin = world.emulator.admin();
    admin.add_fault(FaultRule {
        count: u64::MAX,
        ..FaultRule::once(
            "sts.token",
            FaultAction::Stall {
                duration: LIMIT * 9,
            },
        )
    });
    let socket = world.path("token.sock");
    let mut command = gcsmount();
    command
        .args([
            "token",
            "serve",
            "--sts-endpoint",
            &world.emulator.endpoint(),
        ])
        .arg("--token-file")
        .arg(world.token_file())
        .arg("--socket")
        .arg(&socket)
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let asked = async {
        while admin.counters().of("sts.token") == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, asked).await.expect("it asks");
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    let mut said = String::new();
    let output = child.stdout.take().unwrap();
    let read = timeout(LIMIT, BufReader::new(output).read_line(&mut said)).await;
    assert_eq!(read.unwrap().unwrap(), 0, "nothing is served: {said}");
    assert!(
        timeout(LIMIT, child.wait())
            .await
            .unwrap()
            .unwrap()
            .success()
    );
    assert!(!socket.exists());
}
