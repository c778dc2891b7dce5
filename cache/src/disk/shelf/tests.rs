use super::*;

fn key(object: u128, generation: i64) -> Key {
    Key { object, generation }
}

fn bury(shelf: &mut Shelf) -> Vec<Key> {
    let graves = shelf.graves();
    for (key, _) in &graves {
        shelf.buried(key);
    }
    graves.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn the_one_used_longest_ago_goes_first() {
    let mut shelf = Shelf::new(100, 10);
    for object in 1..=3 {
        shelf.add(key(object, 1), 30);
    }
    assert!(matches!(shelf.find(&key(1, 1)), Some(Place::OnDisk)));
    assert!(matches!(shelf.reserve(&key(4, 1), 10), Room::Reserved));
    assert!(matches!(shelf.reserve(&key(5, 1), 30), Room::Bury(None)));
    assert!(!shelf.contains(&key(2, 1)));
    assert_eq!(shelf.bytes(), 100, "it counts until it is gone");
    assert_eq!(bury(&mut shelf), [key(2, 1)]);
    assert!(matches!(shelf.reserve(&key(5, 1), 30), Room::Reserved));
    assert_eq!(shelf.bytes(), 100);
}

#[test]
fn what_is_set_aside_goes_before_anything_else() {
    let mut shelf = Shelf::new(100, 10);
    shelf.add(key(1, 1), 30);
    let names = || vec!["a".to_owned()];
    shelf.add_aside(Aside {
        names: names(),
        bytes: 60,
    });
    let Room::Unlink(aside) = shelf.reserve(&key(2, 1), 20) else {
        panic!("there is something aside")
    };
    shelf.unlinked(&aside);
    assert!(matches!(shelf.reserve(&key(2, 1), 20), Room::Reserved));
    shelf.set_aside(&key(1, 1), names());
    assert!(!shelf.contains(&key(1, 1)));
    assert!(matches!(shelf.reserve(&key(3, 1), 70), Room::Unlink(_)));
}

#[test]
fn what_can_never_fit_evicts_nothing() {
    let mut shelf = Shelf::new(100, 10);
    shelf.add(key(1, 1), 30);
    assert!(matches!(shelf.reserve(&key(2, 1), 101), Room::Full));
    assert!(matches!(shelf.reserve(&key(2, 1), u64::MAX), Room::Full));
    assert!(matches!(shelf.reserve(&key(1, 1), 71), Room::Full));
    assert_eq!((shelf.len(), shelf.bytes()), (1, 30));
}

#[test]
fn contents_are_bounded_in_number() {
    let mut shelf = Shelf::new(100, 2);
    shelf.add(key(1, 1), 1);
    shelf.add(key(2, 1), 1);
    assert!(matches!(shelf.reserve(&key(1, 1), 1), Room::Reserved));
    assert!(matches!(shelf.reserve(&key(3, 1), 1), Room::Bury(_)));
    assert!(matches!(shelf.reserve(&key(3, 1), 1), Room::Reserved));
}

#[test]
fn a_reservation_becomes_what_was_written() {
    let mut shelf = Shelf::new(100, 10);
    shelf.add(key(1, 1), 30);
    for (bytes, then) in [(Some(35), 35), (None, 55), (Some(10), 10)] {
        assert!(matches!(shelf.reserve(&key(1, 1), 20), Room::Reserved));
        shelf.settle(&key(1, 1), 20, bytes);
        assert_eq!(shelf.bytes(), then);
    }
    assert!(matches!(shelf.reserve(&key(1, 1), 20), Room::Reserved));
    shelf.doom(&key(1, 1));
    shelf.settle(&key(1, 1), 20, Some(30));
    assert_eq!(shelf.bytes(), 30);
    assert_eq!(bury(&mut shelf), [key(1, 1)]);
    assert_eq!(shelf.bytes(), 0);
}

#[test]
fn every_generation_of_an_object_goes_and_no_other() {
    let mut shelf = Shelf::new(100, 10);
    let all = [
        key(1, 9),
        key(2, i64::MIN),
        key(2, 5),
        key(2, i64::MAX),
        key(3, 0),
    ];
    for key in all {
        shelf.add(key, 1);
    }
    shelf.doom_object(2);
    let left: Vec<_> = all.iter().filter(|key| shelf.contains(key)).collect();
    assert_eq!(left, [&key(1, 9), &key(3, 0)]);
    assert_eq!(bury(&mut shelf).len(), 3);
}
