//! The pod's own identity reaches the bucket, stays fresh, and no other is asked for.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use gcsmount_emulator::Config;

use crate::kit::{BUCKET, World, blocking, can_mount, in_network_namespace, run};

#[tokio::test(flavor = "multi_thread")]
async fn no_call_fails_across_token_expiries() {
    if !can_mount() {
        return;
    }
    let world = World::with(Config {
        access_token_ttl: Duration::from_secs(3),
        ..Config::default()
    })
    .await;
    let mount = world.mount(&[]).await;
    let dir = mount.dir.clone();
    let admin = world.emulator.admin().clone();
    // A token is replaced before it ends, after two fifths of its life or more: with nine made, five have ended. An event,
    // not a time.
    let rounds = blocking(move || {
        let mut round = 0u64;
        while admin.counters().exchanges < 9 {
            let path = dir.join(format!("file-{round}"));
            let data = round.to_be_bytes();
            fs::write(&path, data).unwrap();
            let mut back = [0; 8];
            fs::File::open(&path)
                .unwrap()
                .read_exact_at(&mut back, 0)
                .unwrap();
            assert_eq!(back, data);
            fs::remove_file(&path).unwrap();
            round += 1;
        }
        round
    })
    .await;
    println!("{rounds} rounds across five expiries");
    assert!(rounds > 10);
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_costs_one_exchange_and_no_failed_call() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mount = world.mount(&[]).await;
    let path = mount.path("file");
    let file = path.clone();
    blocking(move || fs::write(file, "one").unwrap()).await;
    let before = world.emulator.admin().counters().exchanges;
    world.emulator.admin().revoke_access_tokens();
    let dir = mount.dir.clone();
    blocking(move || {
        let readers: Vec<_> = (0..8)
            .map(|n| {
                let dir = dir.clone();
                std::thread::spawn(move || {
                    fs::write(dir.join(format!("after-{n}")), "two").unwrap();
                })
            })
            .collect();
        readers.into_iter().for_each(|r| r.join().unwrap());
        assert_eq!(fs::read(path).unwrap(), b"one");
    })
    .await;
    assert_eq!(world.emulator.admin().counters().exchanges, before + 1);
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_holds_a_token() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mount = world.mount(&["--log-severity", "trace"]).await;
    let dir = mount.dir.clone();
    blocking(move || {
        fs::write(dir.join("small"), "x").unwrap();
        fs::write(dir.join("large"), vec![1; 20 << 20]).unwrap();
        fs::read(dir.join("large")).unwrap();
        fs::read(dir.join("missing")).unwrap_err();
    })
    .await;
    world.emulator.admin().revoke_access_tokens();
    let dir = mount.dir.clone();
    blocking(move || fs::write(dir.join("again"), "x").unwrap()).await;
    let log = mount.log();
    let subject = fs::read_to_string(world.path("token")).unwrap();
    assert!(log.lines().count() > 5, "the log says something: {log}");
    let signature = subject.rsplit('.').next().unwrap();
    for secret in [subject.as_str(), signature, "Bearer ", "upload_id="] {
        assert!(!log.contains(secret), "a secret is in the log");
    }
    mount.stop().await;
}

#[test]
fn the_metadata_server_is_not_asked_although_it_is_there() {
    if !can_mount() {
        return;
    }
    in_network_namespace(|| async {
        let config = Config {
            listen: vec![
                "127.0.0.1:0".parse().unwrap(),
                "169.254.169.254:80".parse().unwrap(),
            ],
            ..Config::default()
        };
        let world = World::with(config).await;
        let mount = world.mount(&[]).await;
        let path = mount.path("file");
        let (done, said) = run(
            "sh",
            [
                "-c".into(),
                format!("echo hello > {0} && cat {0} && rm {0}", path.display()),
            ],
        )
        .await;
        assert!(done && said == "hello\n", "{said}");
        let counters = world.emulator.admin().counters();
        assert_eq!(counters.metadata_calls, 0);
        assert_eq!(counters.exchanges, 1);
        mount.stop().await;
        // The trap would have been heard.
        let asked = tokio::net::TcpStream::connect("169.254.169.254:80").await;
        assert!(
            asked.is_ok(),
            "the metadata server's address answers in {BUCKET}'s namespace"
        );
    });
}
