//! What survives: a restart, a kill, and a journal that was written half.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::time::Duration;

use gcsmount_emulator::{Auth, BucketSettings, Config, Emulator, Role};
use serde_json::{Value, json};
use tokio::io::AsyncBufReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::{BUCKET, Bench, DEADLINE, ask, generation, names, object_path, upload_path};

fn config(dir: &Path) -> Config {
    Config {
        auth: Auth::Off,
        mutation_limit: None,
        data_dir: Some(dir.to_owned()),
        ..Config::default()
    }
}

async fn bench(dir: &Path) -> Bench {
    Bench::with(config(dir)).await
}

async fn all(bench: &Bench) -> Value {
    let path = format!("/storage/v1/b/{BUCKET}/o?versions=true");
    let mut all = bench.answer(ask("GET", path)).await.expect(200).json();
    // Links lead to another port each time.
    for item in all["items"].as_array_mut().unwrap() {
        item["selfLink"].take();
        item["mediaLink"].take();
    }
    all
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (before, settings) = {
        let bench = bench(dir.path()).await;
        let admin = bench.admin();
        let settings = BucketSettings {
            versioning: true,
            soft_delete: Some(Duration::from_secs(700_000)),
            ..BucketSettings::default()
        };
        admin.set_bucket(BUCKET, settings).unwrap();
        admin.create_hierarchical_bucket("folders").unwrap();
        admin.put_object("folders", "a/b/o", "deep".into()).unwrap();
        admin.create_bucket("gone").unwrap();
        bench
            .answer(ask("DELETE", "/storage/v1/b/gone"))
            .await
            .expect(204);
        let member = admin.member("ns", "sa");
        admin
            .replace_grants(BUCKET, &[(member, Role::ObjectViewer)])
            .unwrap();
        let first = generation(&bench.put("a", vec![1; 300_000]).await);
        bench.put("a", "second").await;
        let patch = ask("PATCH", object_path("a", "")).json(&json!({"metadata": {"k": "v"}}));
        bench.answer(patch).await.expect(200);
        let delete = ask("DELETE", object_path("a", &format!("generation={first}")));
        bench.answer(delete).await.expect(204);
        let copy = format!("/storage/v1/b/{BUCKET}/o/a/copyTo/b/{BUCKET}/o/copy");
        bench.answer(ask("POST", copy)).await.expect(200);
        let compose = json!({"sourceObjects": [{"name": "a"}, {"name": "copy"}]});
        let path = format!("/storage/v1/b/{BUCKET}/o/joined/compose");
        bench
            .answer(ask("POST", path).json(&compose))
            .await
            .expect(200);
        bench
            .answer(ask("DELETE", object_path("copy", "")))
            .await
            .expect(204);
        let usage = admin.usage(BUCKET).unwrap();
        let before = (all(&bench).await, usage);
        bench.emulator.shutdown().await;
        (before, settings)
    };
    let required = Config {
        auth: Auth::Required,
        ..config(dir.path())
    };
    let bench = Bench::with(required).await;
    let token = bench.access_token("ns", "sa").await;
    let stranger = bench.access_token("ns", "other").await;
    let read = || ask("GET", object_path("joined", "alt=media"));
    assert_eq!(
        bench.answer(read().bearer(&token)).await.expect(200).body,
        "secondsecond"
    );
    bench.answer(read().bearer(&stranger)).await.expect(403);
    drop(bench.emulator);
    let bench = reopen(dir.path()).await;
    assert_eq!(
        (all(&bench).await, bench.admin().usage(BUCKET).unwrap()),
        before
    );
    let told = bench
        .answer(ask("GET", format!("/storage/v1/b/{BUCKET}")))
        .await
        .json();
    assert_eq!(told["versioning"]["enabled"], settings.versioning);
    bench
        .answer(ask("GET", "/storage/v1/b/gone"))
        .await
        .expect(404);
    let folders = bench
        .answer(ask("GET", "/storage/v1/b/folders/folders"))
        .await
        .expect(200);
    assert_eq!(names(&folders.json(), "items"), ["a/", "a/b/"]);
    // A generation is never given twice, and the name goes on.
    let last = generation(
        &before.0["items"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone(),
    );
    assert!(generation(&bench.put("a", "third").await) > last);
    bench.emulator.shutdown().await;
}

/// The directory is free a moment after an emulator was dropped, once its connections have ended.
async fn reopen(dir: &Path) -> Bench {
    let free = async {
        loop {
            let config = Config {
                buckets: vec![BUCKET.to_owned()],
                ..config(dir)
            };
            match Emulator::start(config).await {
                Ok(emulator) => return Bench { emulator },
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(DEADLINE, free).await.unwrap()
}

#[tokio::test]
async fn one_emulator_at_a_time_has_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let bench = bench(dir.path()).await;
    let second = Emulator::start(config(dir.path())).await;
    assert_eq!(second.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_torn_end_is_cut_off_and_damage_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let journal = dir.path().join("journal");
    let bench = bench(dir.path()).await;
    bench.put("a", "kept").await;
    let whole = std::fs::read(&journal).unwrap();
    bench.put("b", "torn").await;
    bench.emulator.shutdown().await;
    let longer = std::fs::read(&journal).unwrap();
    for end in whole.len()..longer.len() {
        std::fs::write(&journal, &longer[..end]).unwrap();
        let bench = reopen(dir.path()).await;
        assert_eq!(bench.read("a").await.expect(200).body, "kept");
        bench.stat("b").await.expect(404);
        bench.emulator.shutdown().await;
        assert_eq!(std::fs::read(&journal).unwrap(), whole);
        if end > whole.len() + 20 {
            break;
        }
    }
    let mut damaged = longer.clone();
    damaged[whole.len() - 2] ^= 1;
    std::fs::write(&journal, &damaged).unwrap();
    let refused = Emulator::start(config(dir.path())).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    assert_eq!(std::fs::read(&journal).unwrap(), damaged);
}

#[tokio::test]
async fn a_journal_of_another_version_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let strange = "gcsmount-emulator journal 9\nwhatever";
    std::fs::write(dir.path().join("journal"), strange).unwrap();
    let bench = bench(dir.path()).await;
    bench.stat("a").await.expect(404);
    bench.put("a", "x").await;
    bench.emulator.shutdown().await;
    let files = std::fs::read_dir(dir.path()).unwrap();
    let aside = files
        .map(|file| file.unwrap().path())
        .find(|path| path.to_string_lossy().contains("set-aside"));
    assert_eq!(std::fs::read_to_string(aside.unwrap()).unwrap(), strange);
    let bench = reopen(dir.path()).await;
    bench.stat("a").await.expect(200);
    bench.emulator.shutdown().await;
}

#[tokio::test]
async fn a_journal_is_written_anew_when_most_of_it_is_of_no_use() {
    let dir = tempfile::tempdir().unwrap();
    let bench = bench(dir.path()).await;
    for index in 0..40 {
        bench.put("a", vec![index; 4 << 20]).await;
    }
    bench.put("b", "last").await;
    let length = std::fs::metadata(dir.path().join("journal")).unwrap().len();
    assert!(length < 100 << 20, "{length}");
    bench.emulator.shutdown().await;
    let bench = reopen(dir.path()).await;
    assert_eq!(bench.read("a").await.expect(200).body, vec![39; 4 << 20]);
    assert_eq!(bench.read("b").await.expect(200).body, "last");
    bench.emulator.shutdown().await;
}

/// Set for the process that is killed: its data directory.
const DIR: &str = "GCSMOUNT_JOURNAL_TEST_DIR";

/// Not a test of its own: the process that [`what_was_acknowledged_survives_a_kill`] kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serve_until_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let bench = bench(Path::new(&dir)).await;
    println!("serves {}", bench.emulator.local_addrs()[0]);
    io::stdout().flush().unwrap();
    // The one who kills it holds the other end.
    let mut line = String::new();
    let ended = tokio::task::spawn_blocking(move || io::stdin().lock().read_line(&mut line));
    let _ = ended.await;
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::open().await;
    let mut told = 0;
    for round in 0..4_u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "journal::serve_until_killed", "--nocapture"])
            .env(DIR, dir.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap()).lines();
        let addr = loop {
            let line = timeout(DEADLINE, lines.next_line()).await;
            let line = line.unwrap().unwrap().unwrap();
            if let Some((_, addr)) = line.split_once("serves ") {
                break addr.parse().unwrap();
            }
        };
        for index in 0..told {
            let stat = ask("GET", object_path(&format!("o{index}"), "alt=media"));
            let read = bench.send_to(addr, stat).await.unwrap().expect(200);
            assert_eq!(read.body, format!("body {index}"));
        }
        for index in told..told + 20 {
            let put = ask(
                "POST",
                upload_path(&format!("o{index}"), "uploadType=media"),
            );
            let put = put.body(format!("body {index}"));
            bench.send_to(addr, put).await.unwrap().expect(200);
        }
        told += 20;
        // One that may be in the middle of it.
        let put = ask(
            "POST",
            upload_path(&format!("x{round}"), "uploadType=media"),
        );
        let sent = bench.send_to(addr, put.body(vec![7; 3 << 20]));
        tokio::select! {
            biased;
            _ = sent => {}
            () = tokio::task::yield_now() => {}
        }
        child.kill().await.unwrap();
    }
    bench.emulator.shutdown().await;
}
