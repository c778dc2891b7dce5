use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const KEY: Key = Key {
    object: 1,
    generation: 2,
};

fn names(home: &Home) -> Vec<String> {
    home.scan().unwrap().into_iter().map(|f| f.name).collect()
}

#[test]
fn what_is_made_is_for_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a/b");
    let home = Home::attach(&root).unwrap();
    home.create(&KEY.data()).unwrap();
    let place = root.join("gcsmount-blocks/0");
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&root), 0o700);
    assert_eq!(mode(&place), 0o700);
    assert_eq!(mode(&place.join(KEY.data())), 0o600);
    assert_eq!(mode(&place.join("lock")), 0o600);
    drop(home);
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    Home::attach(&root).unwrap();
    assert_eq!(mode(&place), 0o700);
}

#[test]
fn links_and_pipes_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::attach(dir.path()).unwrap();
    let place = dir.path().join("gcsmount-blocks/0");
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let name = KEY.data();
    let path = place.join(&name);
    symlink(&victim, &path).unwrap();
    assert!(home.open(&name).is_err() && home.create(&name).is_err());
    home.unlink(&name).unwrap();
    fs::hard_link(&victim, &path).unwrap();
    assert!(home.open(&name).is_err() && home.create(&name).is_err());
    home.unlink(&name).unwrap();
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    assert!(home.open(&name).is_err() && home.open_to_read(&name).is_err());
    assert_eq!(names(&home), [""; 0]);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
}

#[test]
fn a_link_in_place_of_the_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), dir.path().join(ROOT)).unwrap();
    assert!(Home::attach(dir.path()).is_err());
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn the_next_owner_has_what_was_left_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let first = Home::attach(dir.path()).unwrap();
    let second = Home::attach(dir.path()).unwrap();
    let other = Key {
        generation: 3,
        ..KEY
    };
    for (home, key) in [(&first, KEY), (&second, KEY), (&second, other)] {
        home.create(&key.data()).unwrap();
        home.create(&key.index()).unwrap();
    }
    drop((first, second));
    let heir = Home::attach(dir.path()).unwrap();
    let all = [KEY.data(), KEY.index(), other.data(), other.index()];
    assert_eq!(names(&heir), all);
    let next = Home::attach(dir.path()).unwrap();
    assert_eq!(names(&next), [""; 0], "it was moved, and not copied");
}

#[test]
fn a_place_is_free_although_a_child_has_its_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::attach(dir.path()).unwrap();
    // As a process has it between fork and exec.
    let _inherited = home.lock.try_clone().unwrap();
    home.create(&KEY.data()).unwrap();
    drop(home);
    let next = Home::attach(dir.path()).unwrap();
    assert_eq!(names(&next), [KEY.data()]);
}

#[test]
fn a_place_that_was_removed_is_known_to_be_gone() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::attach(dir.path()).unwrap();
    assert!(!home.is_gone());
    fs::remove_dir_all(dir.path().join(ROOT)).unwrap();
    assert!(home.is_gone());
}
