use std::time::SystemTime;

use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::{Generation, Metageneration, Object, ObjectName};

use super::*;
use crate::names::Node;

fn object(name: &str) -> Object {
    Object {
        name: ObjectName::parse(name).unwrap(),
        generation: Generation(1),
        metageneration: Metageneration(1),
        size: 0,
        crc32c: None,
        md5: None,
        created: SystemTime::UNIX_EPOCH,
        updated: SystemTime::UNIX_EPOCH,
        component_count: None,
        attributes: Attributes::default(),
    }
}

/// Pages of a bucket, by token.
fn page(names: &[&str], next: Option<&str>) -> ListPage {
    ListPage {
        objects: names.iter().map(|name| object(name)).collect(),
        prefixes: Vec::new(),
        next_page_token: next.map(str::to_owned),
    }
}

fn store(token: Option<&str>) -> ListPage {
    match token {
        None => page(&["a", "b"], Some("1")),
        Some("1") => page(&[], Some("2")),
        Some("2") => page(&["c", "d", "e"], Some("3")),
        _ => page(&["f"], None),
    }
}

fn local(name: &str) -> Entry {
    Entry {
        name: name.into(),
        node: Node::Dir(None),
    }
}

/// Everything from `offset` on, `step` entries at a time, and how many pages it took.
fn walk(listing: &mut Listing, offset: u64, step: usize) -> (Vec<String>, usize) {
    let (mut at, mut names, mut fetched) = (offset, Vec::new(), 0);
    loop {
        let some: Vec<(u64, String)> = listing
            .at_hand(at)
            .take(step)
            .map(|(next, entry)| (next, entry.name.to_string()))
            .collect();
        if let Some((next, _)) = some.last() {
            at = *next;
            names.extend(some.into_iter().map(|(_, name)| name));
            continue;
        }
        match listing.next(at) {
            Next::End => return (names, fetched),
            Next::Fetch(request) => {
                fetched += 1;
                listing.add(at, store(request.page_token.as_deref()));
            }
        }
    }
}

fn listing(local: Vec<Entry>) -> Listing {
    Listing::new(String::new(), true, 3, local, 0)
}

#[test]
fn all_entries_come_once_whatever_the_step() {
    for step in 1..8 {
        let mut listing = listing(Vec::new());
        let (names, fetched) = walk(&mut listing, DOTS, step);
        assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
        assert_eq!(fetched, 4);
        // Nothing more, and no further page for it.
        assert_eq!(walk(&mut listing, DOTS + 6, step), (Vec::new(), 0));
    }
}

#[test]
fn offsets_stay_when_the_reader_goes_back() {
    let mut listing = listing(Vec::new());
    walk(&mut listing, DOTS, 100);
    let all = ["a", "b", "c", "d", "e", "f"];
    for back in 0..6 {
        let (names, _) = walk(&mut listing, DOTS + back as u64, 2);
        assert_eq!(names, all[back..]);
    }
    let (_, fetched) = walk(&mut listing, DOTS + 5, 1);
    assert_eq!(fetched, 0, "the last page is at hand");
}

#[test]
fn files_of_this_mount_come_first_and_once() {
    let mut listing = listing(vec![local("x"), local("c")]);
    let (names, _) = walk(&mut listing, DOTS, 1);
    assert_eq!(names, ["x", "c", "a", "b", "d", "e", "f"]);
    assert!(listing.is_local(DOTS + 2) && !listing.is_local(DOTS + 3));
    let (names, _) = walk(&mut listing, DOTS + 1, 1);
    assert_eq!(names, ["c", "a", "b", "d", "e", "f"]);
}

#[test]
fn a_listing_is_complete_with_its_last_page() {
    let mut listing = listing(Vec::new());
    let mut complete = Vec::new();
    let mut at = DOTS;
    while let Next::Fetch(request) = listing.next(at) {
        let (entries, done) = listing.add(at, store(request.page_token.as_deref()));
        complete.push(done);
        at += entries.len() as u64;
    }
    assert_eq!(complete, [false, false, false, true]);
}

#[test]
fn a_page_that_has_shrunk_does_not_hold_the_reader_up() {
    let mut listing = listing(Vec::new());
    walk(&mut listing, DOTS, 1);
    let Next::Fetch(request) = listing.next(DOTS + 3) else {
        panic!("the page was let go");
    };
    // It had c, d and what the page before could not settle.
    assert_eq!(request.page_token.as_deref(), Some("2"));
    listing.add(DOTS + 3, page(&["c"], Some("3")));
    let (names, _) = walk(&mut listing, DOTS + 3, 1);
    assert_eq!(names, ["f"], "what the offset stands for now");
}
