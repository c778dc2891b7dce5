//! Volumes as they appear in a real directory.

use std::fs;
use std::os::unix::fs::symlink;

use gcsmount_k8s_contract::layout::{Base, MAX_VOLUMES};

fn base() -> (tempfile::TempDir, Base) {
    let dir = tempfile::tempdir().unwrap();
    let base = Base(dir.path().join(".volumes"));
    (dir, base)
}

#[test]
fn volumes_are_the_directories_below_the_base_by_name() {
    let (_dir, base) = base();
    assert!(base.volumes().unwrap().is_empty());
    for name in ["pv-b", "pv-a", "pv-10"] {
        fs::create_dir_all(base.0.join(name)).unwrap();
    }
    fs::write(base.exit_file(), "").unwrap();
    fs::write(base.flags_for_defaulting(), "").unwrap();
    let volumes = base.volumes().unwrap();
    let names: Vec<_> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["pv-10", "pv-a", "pv-b"]);
    assert_eq!(volumes[1], base.volume("pv-a"));
    assert_eq!(volumes[1].socket(), base.0.join("pv-a/socket"));
}

#[test]
fn links_are_no_volumes_and_no_base() {
    let (dir, base) = base();
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("volume")).unwrap();
    fs::create_dir(&base.0).unwrap();
    symlink(&elsewhere, base.0.join("link")).unwrap();
    assert!(base.volumes().unwrap().is_empty());
    fs::remove_file(base.0.join("link")).unwrap();
    fs::remove_dir(&base.0).unwrap();
    symlink(&elsewhere, &base.0).unwrap();
    assert!(base.volumes().is_err());
}

#[test]
fn more_directories_than_a_pod_can_have_are_refused() {
    let (_dir, base) = base();
    for number in 0..MAX_VOLUMES {
        fs::create_dir_all(base.0.join(number.to_string())).unwrap();
    }
    assert_eq!(base.volumes().unwrap().len(), MAX_VOLUMES);
    fs::create_dir(base.0.join("more")).unwrap();
    let error = base.volumes().unwrap_err();
    assert!(error.to_string().contains("1024"), "{error}");
}
