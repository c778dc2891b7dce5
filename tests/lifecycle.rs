//! A mount begins and ends cleanly, whatever ends it.

use std::fs;
use std::path::Path;

use gcsmount_emulator::{FaultAction, FaultRule};
use nix::sys::signal::Signal;

use crate::kit::{BUCKET, World, blocking, can_mount, gcsmount, is_mounted, run};

/// Nothing of a mount is left: no mount, no file in its staging directory or in the temporary directory of its own.
fn assert_clean(world: &World, dir: &Path) {
    assert!(!is_mounted(dir));
    assert_eq!(
        fs::read_dir(world.staging()).unwrap().count(),
        0,
        "staging is empty"
    );
    assert_eq!(
        fs::read_dir(dir).unwrap().count(),
        0,
        "the mount point is an empty directory again"
    );
}

/// Leaves a file in the mount that is open and unpublished, and one that is staged.
async fn make_busy(dir: &Path) -> (fs::File, fs::File) {
    let dir = dir.to_path_buf();
    blocking(move || {
        use std::io::Write;
        use std::os::unix::fs::FileExt;
        let mut open = fs::File::create(dir.join("open")).unwrap();
        open.write_all(b"written, not closed").unwrap();
        fs::write(dir.join("edited"), [7; 100_000]).unwrap();
        let edited = fs::File::options()
            .write(true)
            .open(dir.join("edited"))
            .unwrap();
        edited.write_all_at(b"in the middle", 50_000).unwrap();
        (open, edited)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_saves_unmounts_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mut mount = world.mount(&[]).await;
    let dir = mount.dir.clone();
    let files = make_busy(&dir).await;
    mount.signal(Signal::SIGTERM);
    let status = mount.ended().await;
    assert!(status.success(), "{status}: {}", mount.log());
    drop(files);
    assert_clean(&world, &dir);

    let mount = world.mount(&[]).await;
    let (open, edited) = (mount.path("open"), mount.path("edited"));
    let (open, edited) =
        blocking(move || (fs::read(open).unwrap(), fs::read(edited).unwrap())).await;
    assert_eq!(open, b"written, not closed");
    assert_eq!(&edited[50_000..50_013], b"in the middle");
    assert_eq!(edited.len(), 100_000);
    mount.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_saved_is_named_and_has_an_exit_code() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mut mount = world.mount(&["--shutdown-timeout", "5s"]).await;
    let dir = mount.dir.clone();
    let files = make_busy(&dir).await;
    let forbidden = FaultAction::Status {
        code: 403,
        reason: None,
        retry_after: None,
    };
    world.emulator.admin().add_fault(FaultRule {
        count: 10_000,
        ..FaultRule::once("storage.objects.insert*", forbidden)
    });
    mount.signal(Signal::SIGTERM);
    let status = mount.ended().await;
    assert_eq!(status.code(), Some(10), "{}", mount.log());
    assert!(
        mount.log().contains("could not be saved"),
        "{}",
        mount.log()
    );
    drop(files);
    assert_clean(&world, &dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn unmounting_by_hand_ends_the_process() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let mut mount = world.mount(&[]).await;
    let dir = mount.dir.clone();
    let file = dir.join("file");
    blocking(move || fs::write(file, "kept").unwrap()).await;
    let (unmounted, said) = run("fusermount3", ["-u".as_ref(), dir.as_os_str()]).await;
    assert!(unmounted, "{said}");
    let status = mount.ended().await;
    assert!(status.success(), "{status}: {}", mount.log());
    assert_clean(&world, &dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_background_the_command_returns_when_the_mount_stands() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let dir = world.mount_point();
    let mut command = world.command();
    command
        .arg("--token-file")
        .arg(world.token_file())
        .arg(BUCKET)
        .arg(&dir);
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(
        said,
        format!("bucket {BUCKET} is mounted on {}\n", dir.display())
    );
    assert!(is_mounted(&dir));
    let file = dir.join("file");
    assert_eq!(
        blocking(move || fs::write(&file, "x").and_then(|()| fs::read(&file)))
            .await
            .unwrap(),
        b"x"
    );
    let (unmounted, said) = run("fusermount3", ["-u".as_ref(), dir.as_os_str()]).await;
    assert!(unmounted, "{said}");
    // The daemon is nobody's child here: it is gone when no process has the directory in its command line.
    until_processes(&dir, 0).await;
    assert_clean(&world, &dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mount_that_is_still_tried_ends_with_the_command_that_waits_for_it() {
    if !can_mount() {
        return;
    }
    let world = World::new().await;
    let (dir, token) = (world.mount_point(), world.token_file());
    let endpoint = world.emulator.endpoint();
    let mut command = gcsmount();
    command.args([
        "mount",
        "--mount-retry-timeout=600s",
        "--custom-endpoint",
        &endpoint,
    ]);
    command.args(["--sts-endpoint", &endpoint, "--token-file"]);
    command.arg(token).arg(BUCKET).arg(&dir);
    world.emulator.shutdown().await;
    let mut waiting = command.spawn().unwrap();
    until_processes(&dir, 2).await;
    waiting.kill().await.unwrap();
    until_processes(&dir, 0).await;
    assert!(!is_mounted(&dir));
}

/// Waits until this many processes of ours have the directory in their command line.
async fn until_processes(dir: &Path, wanted: usize) {
    let reached = async {
        while processes(dir) != wanted {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let reached = tokio::time::timeout(crate::kit::LIMIT, reached).await;
    assert!(
        reached.is_ok(),
        "{} processes, not {wanted}",
        processes(dir)
    );
}

fn processes(dir: &Path) -> usize {
    let dir = dir.as_os_str().as_encoded_bytes();
    let ours = |process: fs::DirEntry| {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        line.starts_with(env!("CARGO_BIN_EXE_gcsmount").as_bytes())
            && line.windows(dir.len()).any(|w| w == dir)
    };
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|p| ours(p).then_some(()))
        .count()
}
