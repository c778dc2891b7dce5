//! What a process leaves behind that ends in the middle, and what the next one makes of it. A crash is that everything is
//! dropped without being published: staged files that somebody misses then stay.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gcsmount_gcs::object::Attributes;
use tempfile::TempDir;

use super::*;

const NAME: &str = "bucket-identity-mount";

struct Machine {
    dir: TempDir,
    store: FakeStore,
    faults: FaultyStore<FakeStore>,
}

impl Machine {
    fn new() -> Self {
        let store = FakeStore::new();
        Self {
            dir: tempfile::tempdir().unwrap(),
            faults: FaultyStore::new(store.clone()),
            store,
        }
    }

    /// A process.
    fn start(&self) -> Arc<Workshop> {
        self.start_over(Arc::new(self.faults.clone()))
    }

    fn start_over(&self, store: Arc<dyn Store>) -> Arc<Workshop> {
        let config = WorkshopConfig {
            temp_dir: self.dir.path().to_owned(),
            staging_name: Some(NAME.to_owned()),
            ..config()
        };
        let cache = BlockCache::new(&Budget::new(32 << 20), CacheConfig::default());
        Workshop::new(store, cache, Handle::current(), config)
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }

    /// What is there of staged files, by ending, without what is aside.
    fn staged(&self) -> Vec<String> {
        files(&self.home())
    }

    fn aside(&self) -> Vec<String> {
        files(&self.home().join("lost+found"))
    }

    fn bytes(&self, name: &str) -> Option<Bytes> {
        self.store.bytes(name)
    }
}

fn files(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut endings: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.extension().unwrap().to_str().unwrap().to_owned())
        .collect();
    endings.sort();
    endings
}

/// The file of this ending.
fn file(dir: &Path, ending: &str) -> PathBuf {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|found| found == ending))
        .unwrap()
}

/// A new file with content out of order.
async fn staged(workshop: &Arc<Workshop>, name: &str, content: &[u8]) -> Arc<Writer> {
    let name = ObjectName::parse(name).unwrap();
    let writer = Writer::create(workshop.clone(), name, true, Edits::default());
    write_staged(&writer, content).await;
    writer
}

async fn write_staged(writer: &Writer, content: &[u8]) {
    let half = content.len() / 2;
    for (at, piece) in [(half, &content[half..]), (0, &content[..half])] {
        let piece = Bytes::copy_from_slice(piece);
        writer.write(Place::At(at as u64), piece).await.unwrap();
    }
    assert!(writer.workshop.staged_bytes() > 0);
}

/// Seals the content, and fails to upload it.
async fn sealed(machine: &Machine, writer: &Writer) {
    let fault = Fault::Before(Kind::Unavailable);
    machine.faults.inject(Method::UploadWrite, 1, fault);
    assert_eq!(errno(writer.publish()).await, Errno::EIO);
}

/// The one outcome of a recovery.
async fn only(workshop: &Arc<Workshop>, name: Option<&str>) -> Outcome {
    let mut recovered = workshop.recover().await;
    assert_eq!(recovered.len(), 1, "{recovered:?}");
    let one = recovered.remove(0);
    assert_eq!(one.object.as_deref(), name);
    one.outcome
}

fn content() -> Vec<u8> {
    pattern(LIMIT * 3)
}

#[tokio::test]
async fn what_was_not_sealed_is_set_aside() {
    let machine = Machine::new();
    let process = machine.start();
    let writer = staged(&process, "f", &content()).await;
    assert_eq!(machine.staged(), ["data", "record"]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&machine.home()), 0o700);
    for ending in ["data", "record"] {
        assert_eq!(mode(&file(&machine.home(), ending)), 0o600);
    }
    drop((writer, process));
    let process = machine.start();
    let Outcome::Unsealed(kept) = only(&process, Some("f")).await else {
        panic!("not set aside");
    };
    assert!(fs::read(&kept).unwrap() == content());
    assert_eq!(machine.aside(), ["data", "record"]);
    assert_eq!(mode(kept.parent().unwrap()), 0o700);
    assert!(machine.staged().is_empty());
    drop(process);
    // It is told once, and stays.
    assert!(machine.start().recover().await.is_empty());
    assert_eq!(machine.aside(), ["data", "record"]);
    assert_eq!(machine.store.calls().total(), 0);
}

#[tokio::test]
async fn what_was_sealed_is_finished() {
    let machine = Machine::new();
    let attributes = Attributes {
        content_type: Some("text/x".into()),
        ..Attributes::default()
    };
    let base = machine.store.put_with("f", "old", attributes);
    let process = machine.start();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(77);
    let writer = Writer::open(process.clone(), Arc::new(base), then);
    writer.expect_reads().await;
    write_staged(&writer, &content()).await;
    assert!(set_mtime(&writer, then).await);
    sealed(&machine, &writer).await;
    drop((writer, process));
    let process = machine.start();
    let outcome = only(&process, Some("f")).await;
    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
    assert!(machine.bytes("f").unwrap() == content());
    let object = machine.store.object("f").unwrap();
    assert_eq!(object.attributes.content_type.as_deref(), Some("text/x"));
    assert_eq!(crate::metadata::mtime(&object), then);
    assert!(machine.staged().is_empty() && machine.aside().is_empty());
    assert_eq!(process.staged_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_a_crash_interrupts_is_done_again() {
    let machine = Machine::new();
    let process = machine.start();
    let writer = staged(&process, "f", &content()).await;
    machine.faults.inject(Method::UploadFinish, 1, Fault::Stall);
    let publication = tokio::time::timeout(Duration::from_secs(9), writer.publish());
    assert!(publication.await.is_err());
    drop((writer, process));
    let outcome = only(&machine.start(), Some("f")).await;
    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
    assert!(machine.bytes("f").unwrap() == content());
}

#[tokio::test]
async fn an_upload_whose_answer_was_lost_is_not_done_again() {
    let machine = Machine::new();
    for base in [None, Some("old")] {
        let _ = machine.store.remove("f");
        let process = machine.start();
        let writer = match base {
            None => staged(&process, "f", &content()).await,
            Some(base) => {
                let base = Arc::new(machine.store.put("f", base));
                let writer = Writer::open(process.clone(), base, SystemTime::now());
                writer.expect_reads().await;
                write_staged(&writer, &content()).await;
                writer
            }
        };
        let lost = Fault::After(Kind::Unavailable);
        machine.faults.inject(Method::UploadFinish, 1, lost);
        assert_eq!(errno(writer.publish()).await, Errno::EIO);
        drop((writer, process));
        let generation = machine.store.object("f").unwrap().generation;
        let outcome = only(&machine.start(), Some("f")).await;
        assert!(matches!(outcome, Outcome::AlreadyThere), "{outcome:?}");
        assert_eq!(machine.store.object("f").unwrap().generation, generation);
        assert!(machine.staged().is_empty() && machine.aside().is_empty());
    }
}

#[tokio::test]
async fn a_recovery_whose_answer_is_lost_looks_what_there_is() {
    let machine = Machine::new();
    let process = machine.start();
    let writer = staged(&process, "f", &content()).await;
    sealed(&machine, &writer).await;
    drop((writer, process));
    let lost = Fault::After(Kind::Unavailable);
    machine.faults.inject(Method::UploadFinish, 1, lost);
    let outcome = only(&machine.start(), Some("f")).await;
    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
    assert!(machine.staged().is_empty());
}

#[tokio::test]
async fn what_others_have_changed_is_kept_out_of_their_way() {
    for (old, theirs) in [
        (None, Some("theirs")),
        (Some("old"), Some("theirs")),
        (Some("old"), None),
    ] {
        let machine = Machine::new();
        let process = machine.start();
        let writer = match old {
            None => staged(&process, "f", &content()).await,
            Some(old) => {
                let base = Arc::new(machine.store.put("f", old));
                let writer = Writer::open(process.clone(), base, SystemTime::now());
                writer.expect_reads().await;
                write_staged(&writer, &content()).await;
                writer
            }
        };
        sealed(&machine, &writer).await;
        drop((writer, process));
        let _ = machine.store.remove("f");
        if let Some(theirs) = theirs {
            machine.store.put("f", theirs);
        }
        let Outcome::Conflict(kept) = only(&machine.start(), Some("f")).await else {
            panic!("no conflict");
        };
        assert!(fs::read(kept).unwrap() == content());
        assert_eq!(machine.aside(), ["data", "record"]);
        assert!(machine.staged().is_empty());
        assert_eq!(machine.bytes("f").as_deref(), theirs.map(str::as_bytes));
    }
}

#[tokio::test]
async fn somebody_who_writes_behind_the_look_wins() {
    let machine = Machine::new();
    let process = machine.start();
    let writer = staged(&process, "f", &content()).await;
    sealed(&machine, &writer).await;
    drop((writer, process));
    let slow = SlowStore::new(machine.store.clone());
    let held = slow.hold_stat();
    let process = machine.start_over(Arc::new(slow));
    let recovery = tokio::spawn(async move { only(&process, Some("f")).await });
    held.taken.await.unwrap();
    machine.store.put("f", "theirs");
    held.arrive.send(()).unwrap();
    let outcome = recovery.await.unwrap();
    assert!(matches!(outcome, Outcome::Conflict(_)), "{outcome:?}");
    assert_eq!(machine.bytes("f").unwrap(), "theirs");
    assert_eq!(machine.aside(), ["data", "record"]);
}

#[tokio::test]
async fn records_that_say_nothing_are_set_aside_with_their_data() {
    type Damage = fn(&Path);
    let torn: Damage = |home| {
        let record = file(home, "record");
        let text = fs::read(&record).unwrap();
        fs::write(record, &text[..text.len() / 2]).unwrap();
    };
    let empty: Damage = |home| fs::write(file(home, "record"), "").unwrap();
    let later: Damage = |home| fs::write(file(home, "record"), "gcsmount-staged 2\n{}").unwrap();
    let changed: Damage = |home| {
        let data = file(home, "data");
        let mut bytes = fs::read(&data).unwrap();
        bytes[5] ^= 1;
        fs::write(data, bytes).unwrap();
    };
    let longer: Damage = |home| {
        let data = file(home, "data");
        let mut bytes = fs::read(&data).unwrap();
        bytes.push(0);
        fs::write(data, bytes).unwrap();
    };
    for (damage, name) in [
        (torn, None),
        (empty, None),
        (later, None),
        (changed, Some("f")),
        (longer, Some("f")),
    ] {
        let machine = Machine::new();
        let process = machine.start();
        let writer = staged(&process, "f", &content()).await;
        sealed(&machine, &writer).await;
        drop((writer, process));
        damage(&machine.home());
        machine.store.reset_calls();
        let outcome = only(&machine.start(), name).await;
        assert!(matches!(outcome, Outcome::Unreadable(_)), "{outcome:?}");
        assert_eq!(machine.aside(), ["data", "record"]);
        assert_eq!(machine.store.calls().total(), 0);
    }
}

#[tokio::test]
async fn while_the_store_is_away_sealed_files_wait() {
    let machine = Machine::new();
    let process = machine.start();
    let writer = staged(&process, "f", &content()).await;
    sealed(&machine, &writer).await;
    drop((writer, process));
    for (method, kind) in [
        (Method::Stat, Kind::Unavailable),
        (Method::UploadFinish, Kind::Denied),
    ] {
        machine.faults.inject(method, 1, Fault::Before(kind));
        let outcome = only(&machine.start(), Some("f")).await;
        assert!(matches!(outcome, Outcome::Waiting(_)), "{outcome:?}");
        assert_eq!(machine.staged(), ["data", "record"]);
    }
    let outcome = only(&machine.start(), Some("f")).await;
    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
}

#[tokio::test]
async fn whoever_closes_in_order_leaves_nothing() {
    let machine = Machine::new();
    let process = machine.start();
    let writer = staged(&process, "f", &content()).await;
    writer.publish().await.unwrap();
    // The content is there for reading, and nobody would miss it.
    assert_eq!(machine.staged(), ["data"]);
    writer
        .write(Place::At(1), Bytes::from_static(b"x"))
        .await
        .unwrap();
    assert_eq!(machine.staged(), ["data", "record"]);
    writer.publish().await.unwrap();
    drop(writer);
    assert!(machine.staged().is_empty());
    // One that is emptied, and one that is deleted before the bucket ever had it.
    let writer = staged(&process, "g", &content()).await;
    writer.truncate(0).await.unwrap();
    assert!(machine.staged().is_empty());
    let writer = staged(&process, "h", &content()).await;
    sealed(&machine, &writer).await;
    writer.unlink(|_| async { Ok(()) }).await.unwrap();
    assert_eq!(machine.staged(), ["data"]);
    drop((writer, process));
    assert!(machine.start().recover().await.is_empty());
    assert_eq!(machine.store.names(), ["f"]);
}

#[tokio::test]
async fn what_a_crash_leaves_that_nobody_misses_is_cleared_away() {
    let machine = Machine::new();
    drop(staged(&machine.start(), "f", &content()).await);
    let (data, record) = (
        file(&machine.home(), "data"),
        file(&machine.home(), "record"),
    );
    let other = machine.home().join("mine.txt");
    fs::write(&other, "x").unwrap();
    for (lost, left) in [(&record, vec!["data"]), (&data, vec!["record"])] {
        fs::write(&data, "x").unwrap();
        fs::write(&record, "x").unwrap();
        fs::write(record.with_extension("record-new"), "x").unwrap();
        fs::remove_file(lost).unwrap();
        let before = machine.staged();
        assert_eq!(before.len(), left.len() + 2, "{before:?}");
        assert!(machine.start().recover().await.is_empty());
        assert_eq!(machine.staged(), ["txt"]);
    }
    assert!(other.exists(), "what is not ours stays");
}

#[tokio::test]
async fn a_record_follows_its_data_aside() {
    let machine = Machine::new();
    drop(staged(&machine.start(), "f", &content()).await);
    let data = file(&machine.home(), "data");
    let aside = machine.home().join("lost+found");
    fs::create_dir(&aside).unwrap();
    fs::rename(&data, aside.join(data.file_name().unwrap())).unwrap();
    assert!(machine.start().recover().await.is_empty());
    assert_eq!(machine.aside(), ["data", "record"]);
}

#[tokio::test]
async fn mounts_at_the_same_time_have_a_home_each() {
    let machine = Machine::new();
    let (one, two) = (machine.start(), machine.start());
    let first = staged(&one, "1", &content()).await;
    let second = staged(&two, "2", &content()).await;
    let other = machine.dir.path().join(format!("{NAME}.1"));
    assert_eq!(machine.staged(), ["data", "record"]);
    assert_eq!(files(&other), ["data", "record"]);
    // Nobody takes what belongs to somebody who is alive.
    assert!(two.recover().await.is_empty());
    sealed(&machine, &second).await;
    drop((second, two));
    let outcome = only(&one, Some("2")).await;
    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
    assert!(files(&other).is_empty());
    first.publish().await.unwrap();
    for name in ["1", "2"] {
        assert!(machine.bytes(name).unwrap() == content());
    }
}

#[tokio::test]
async fn a_process_finishes_what_was_left_and_not_what_it_stages_itself() {
    let machine = Machine::new();
    let process = machine.start();
    let writer = staged(&process, "old", &content()).await;
    sealed(&machine, &writer).await;
    drop((writer, process));
    let process = machine.start();
    let new = staged(&process, "new", &content()).await;
    sealed(&machine, &new).await;
    let outcome = only(&process, Some("old")).await;
    assert!(matches!(outcome, Outcome::Finished), "{outcome:?}");
    assert_eq!(machine.bytes("new"), None);
    new.publish().await.unwrap();
}

#[tokio::test]
async fn many_files_are_finished_one_by_one() {
    const FILES: usize = 40;
    let machine = Machine::new();
    let process = machine.start();
    for number in 0..FILES {
        let writer = staged(&process, &format!("{number}"), &pattern(LIMIT * 2 + number)).await;
        sealed(&machine, &writer).await;
    }
    drop(process);
    let process = machine.start();
    let recovered = process.recover().await;
    assert_eq!(recovered.len(), FILES);
    for number in 0..FILES {
        let content = pattern(LIMIT * 2 + number);
        assert!(machine.bytes(&format!("{number}")).unwrap() == content);
    }
    assert!(machine.staged().is_empty());
}

#[tokio::test]
async fn a_directory_that_others_may_write_into_is_not_taken() {
    let machine = Machine::new();
    fs::create_dir(machine.home()).unwrap();
    fs::set_permissions(machine.home(), fs::Permissions::from_mode(0o770)).unwrap();
    let elsewhere = machine.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let link = machine.dir.path().join(format!("{NAME}.1"));
    std::os::unix::fs::symlink(&elsewhere, link).unwrap();
    let process = machine.start();
    let writer = staged(&process, "f", &content()).await;
    let taken = machine.dir.path().join(format!("{NAME}.2"));
    assert_eq!(files(&taken), ["data", "record"]);
    assert!(machine.staged().is_empty() && files(&elsewhere).is_empty());
    writer.publish().await.unwrap();
}

#[tokio::test]
async fn a_home_that_somebody_removes_is_made_again() {
    let machine = Machine::new();
    let process = machine.start();
    drop(staged(&process, "f", &content()).await);
    fs::remove_dir_all(machine.home()).unwrap();
    let writer = staged(&process, "g", &content()).await;
    writer.publish().await.unwrap();
    assert!(machine.bytes("g").unwrap() == content());
}

#[tokio::test]
async fn without_a_home_files_are_staged_all_the_same() {
    let machine = Machine::new();
    let config = WorkshopConfig {
        temp_dir: machine.dir.path().to_owned(),
        staging_name: Some("no/name".to_owned()),
        ..config()
    };
    let cache = BlockCache::new(&Budget::new(32 << 20), CacheConfig::default());
    let store = Arc::new(machine.store.clone());
    let process = Workshop::new(store, cache, Handle::current(), config);
    let writer = staged(&process, "f", &content()).await;
    writer.publish().await.unwrap();
    assert!(machine.bytes("f").unwrap() == content());
    assert!(process.recover().await.is_empty());
    assert_eq!(fs::read_dir(machine.dir.path()).unwrap().count(), 0);
}
