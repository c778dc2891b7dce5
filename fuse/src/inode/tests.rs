use std::collections::HashMap;

use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::{Metageneration, ObjectName};
use proptest::prelude::*;
use tokio::time::advance;

use super::*;
use crate::names::Node;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(60);

fn object(name: &str, generation: i64) -> Arc<Object> {
    Arc::new(Object {
        name: ObjectName::parse(name).unwrap(),
        generation: Generation(generation),
        metageneration: Metageneration(1),
        size: 0,
        crc32c: None,
        md5: None,
        created: SystemTime::UNIX_EPOCH,
        updated: SystemTime::UNIX_EPOCH,
        component_count: None,
        attributes: Attributes::default(),
    })
}

fn file(name: &str) -> Node {
    Node::File(object(name, 1))
}

fn table() -> Table {
    Table::new(TTL, 1000)
}

/// As a lookup that the store has answered.
fn looked_up(table: &mut Table, parent: Ino, name: &str, node: Node) -> Ino {
    let ino = table.learn(parent, name, node, Instant::now()).unwrap();
    table.add_lookup(ino);
    ino
}

fn generation_of(table: &Table, ino: Ino) -> Generation {
    let object = table.get(ino).unwrap().file().unwrap().object.clone();
    object.unwrap().generation
}

#[test]
fn a_forgotten_name_comes_back_under_its_number() {
    let mut table = table();
    let dir = looked_up(&mut table, Ino::ROOT, "d", Node::Dir(None));
    let ino = looked_up(&mut table, dir, "f", file("d/f"));
    let first = table.get(ino).unwrap().generation;
    assert_eq!(table.likely_ino(dir, "f"), ino);
    table.forget(ino, 1);
    assert!(table.get(ino).is_none());
    // It is known still, and costs no call.
    assert_eq!(table.find(dir, "f"), Some(Found::Inode(ino)));
    assert_ne!(table.get(ino).unwrap().generation, first);
}

#[test]
fn an_inode_lives_while_anything_holds_it() {
    let mut table = table();
    let dir = looked_up(&mut table, Ino::ROOT, "d", Node::Dir(None));
    let ino = looked_up(&mut table, dir, "f", file("d/f"));
    table.forget(dir, 1);
    assert!(table.get(dir).is_some(), "it has a child");
    table.add_open(ino);
    table.forget(ino, 1);
    assert!(table.get(ino).is_some(), "it is open");
    table.remove(dir, "f");
    assert!(!table.get(ino).unwrap().linked);
    assert!(table.child(dir, "f").is_none());
    table.close(ino);
    assert!(table.get(ino).is_none());
}

#[test]
fn a_new_file_in_the_place_of_an_unlinked_one_is_another() {
    let mut table = table();
    let old = looked_up(&mut table, Ino::ROOT, "f", file("f"));
    table.remove(Ino::ROOT, "f");
    let new = table
        .create(Ino::ROOT, "f", Body::File(File::default()))
        .unwrap();
    assert_ne!(old, new);
    assert!(table.get(new).unwrap().is_local());
    assert_eq!(table.find(Ino::ROOT, "f"), Some(Found::Inode(new)));
}

#[test]
fn a_rename_takes_the_subtree_along() {
    let mut table = table();
    let a = looked_up(&mut table, Ino::ROOT, "a", Node::Dir(None));
    let b = looked_up(&mut table, Ino::ROOT, "b", Node::Dir(None));
    let sub = looked_up(&mut table, a, "sub", Node::Dir(None));
    let leaf = looked_up(&mut table, sub, "leaf", file("a/sub/leaf"));
    let over = looked_up(&mut table, b, "new", Node::Dir(None));
    table.rename(sub, b, "new");
    table.distrust_below(sub);
    assert_eq!(table.path(leaf).unwrap().join("/"), "b/new/leaf");
    assert!(table.is_within(leaf, b) && !table.is_within(leaf, a));
    assert!(!table.get(over).unwrap().linked);
    assert!(matches!(table.find(sub, "leaf"), Some(Found::Unknown(_))));
    assert!(table.child(a, "sub").is_none());
}

#[tokio::test(start_paused = true)]
async fn knowledge_ages() {
    let mut table = table();
    let ino = looked_up(&mut table, Ino::ROOT, "f", file("f"));
    assert_eq!(table.find(Ino::ROOT, "f"), Some(Found::Inode(ino)));
    advance(TTL).await;
    assert_eq!(table.find(Ino::ROOT, "f"), Some(Found::Unknown(0)));
    table.learn(Ino::ROOT, "f", Node::File(object("f", 2)), Instant::now());
    assert_eq!(table.find(Ino::ROOT, "f"), Some(Found::Inode(ino)));
    assert_eq!(generation_of(&table, ino), Generation(2));
}

#[tokio::test(start_paused = true)]
async fn a_listing_answers_for_names_that_it_does_not_have() {
    let mut table = table();
    table.note(Ino::ROOT, &"f".into(), file("f"), Instant::now());
    table.listed(Ino::ROOT, Instant::now(), 0);
    assert_eq!(table.find(Ino::ROOT, "none"), Some(Found::Absent));
    assert!(matches!(table.find(Ino::ROOT, "f"), Some(Found::Inode(_))));
    table.remove(Ino::ROOT, "f");
    assert_eq!(table.find(Ino::ROOT, "f"), Some(Found::Absent));
    let made = table
        .create(Ino::ROOT, "new", Node::Dir(None).into())
        .unwrap();
    assert_eq!(table.find(Ino::ROOT, "new"), Some(Found::Inode(made)));
    advance(TTL).await;
    assert_eq!(table.find(Ino::ROOT, "none"), Some(Found::Unknown(2)));
}

#[test]
fn a_listing_that_was_overtaken_by_a_change_answers_for_nothing() {
    let mut table = table();
    let begun = Instant::now();
    table.create(Ino::ROOT, "new", Node::Dir(None).into());
    table.listed(Ino::ROOT, begun, 0);
    assert_eq!(table.find(Ino::ROOT, "none"), Some(Found::Unknown(1)));
}

#[test]
fn known_names_are_bounded_and_none_is_denied_that_had_to_leave() {
    let mut table = Table::new(TTL, 10);
    let dir = looked_up(&mut table, Ino::ROOT, "d", Node::Dir(None));
    for i in 0..10 {
        let name = format!("{i}");
        table.note(dir, &name.as_str().into(), file(&name), Instant::now());
    }
    table.listed(dir, Instant::now(), 0);
    assert_eq!(table.find(dir, "none"), Some(Found::Absent));
    table.note(Ino::ROOT, &"x".into(), file("x"), Instant::now());
    assert_eq!(table.known(), 10);
    assert_eq!(table.find(dir, "0"), Some(Found::Unknown(0)));
    assert_eq!(table.find(dir, "none"), Some(Found::Unknown(0)));
}

#[test]
fn an_older_answer_does_not_undo_a_newer_one() {
    let mut table = table();
    let ino = looked_up(&mut table, Ino::ROOT, "f", Node::File(object("f", 5)));
    table.learn(Ino::ROOT, "f", Node::File(object("f", 4)), Instant::now());
    assert_eq!(generation_of(&table, ino), Generation(5));
}

#[test]
fn an_older_answer_does_not_undo_what_was_put_aside() {
    let mut table = table();
    let name: Arc<str> = "f".into();
    table.note(Ino::ROOT, &name, Node::File(object("f", 5)), Instant::now());
    table.note(Ino::ROOT, &name, Node::File(object("f", 4)), Instant::now());
    let ino = looked_up(&mut table, Ino::ROOT, "f", Node::File(object("f", 3)));
    assert_eq!(generation_of(&table, ino), Generation(5));
}

#[tokio::test(start_paused = true)]
async fn absence_from_before_a_confirmation_does_not_count() {
    let mut table = table();
    let asked = Instant::now();
    advance(Duration::from_secs(1)).await;
    let ino = looked_up(&mut table, Ino::ROOT, "f", file("f"));
    table.note(Ino::ROOT, &"g".into(), file("g"), Instant::now());
    for name in ["f", "g"] {
        table.learn_absent(Ino::ROOT, name, asked);
        assert!(matches!(table.find(Ino::ROOT, name), Some(Found::Inode(_))));
    }
    table.learn_absent(Ino::ROOT, "f", Instant::now());
    assert!(!table.get(ino).unwrap().linked);
    // An answer that still has it is from a question of before, and is told by the change.
    assert_eq!(table.find(Ino::ROOT, "f"), Some(Found::Unknown(1)));
}

#[test]
fn proof_that_a_name_exists_ends_the_belief_in_a_listing() {
    let mut table = table();
    table.listed(Ino::ROOT, Instant::now(), 0);
    assert_eq!(table.find(Ino::ROOT, "new"), Some(Found::Absent));
    let begun = Instant::now();
    table.doubt_absence(Ino::ROOT);
    // Nor does a listing that is under way bring it back.
    table.listed(Ino::ROOT, begun, 0);
    assert_eq!(table.find(Ino::ROOT, "new"), Some(Found::Unknown(1)));
}

#[test]
fn a_name_that_became_something_else_is_another_inode() {
    let mut table = table();
    let ino = looked_up(&mut table, Ino::ROOT, "x", file("x"));
    let dir = looked_up(&mut table, Ino::ROOT, "x", Node::Dir(None));
    assert_ne!(ino, dir);
    assert!(!table.get(ino).unwrap().linked);
    table.forget(ino, 1);
    assert_eq!(
        table.child(Ino::ROOT, "x").map(|inode| inode.ino),
        Some(dir)
    );
}

#[test]
fn what_is_gone_is_unlinked_unless_it_is_ours_alone() {
    let mut table = table();
    let published = looked_up(&mut table, Ino::ROOT, "p", file("p"));
    let local = Body::File(File::default());
    let local = table.create(Ino::ROOT, "l", local).unwrap();
    table.learn_absent(Ino::ROOT, "p", Instant::now());
    table.learn_absent(Ino::ROOT, "l", Instant::now());
    assert!(!table.get(published).unwrap().linked);
    assert!(table.get(local).unwrap().linked);
}

#[derive(Debug, Clone)]
enum Step {
    Lookup(u8, u8),
    Forget(u8),
    Open(u8),
    Close(u8),
    Remove(u8, u8),
    Rename(u8, u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let small = 0..6_u8;
    prop_oneof![
        (small.clone(), small.clone()).prop_map(|(d, n)| Step::Lookup(d, n)),
        small.clone().prop_map(Step::Forget),
        small.clone().prop_map(Step::Open),
        small.clone().prop_map(Step::Close),
        (small.clone(), small.clone()).prop_map(|(d, n)| Step::Remove(d, n)),
        (small.clone(), small.clone(), small).prop_map(|(i, d, n)| Step::Rename(i, d, n)),
    ]
}

/// What the kernel would hold.
#[derive(Default)]
struct Kernel {
    /// Lookups and opens of each number, with the generation it came with.
    held: HashMap<Ino, (u64, u64, u64)>,
}

impl Kernel {
    fn pick(&self, at: u8) -> Option<Ino> {
        let mut all: Vec<_> = self.held.keys().copied().collect();
        all.sort();
        (!all.is_empty()).then(|| all[usize::from(at) % all.len()])
    }

    /// A directory that the kernel holds, or the root.
    fn dir(&self, table: &Table, at: u8) -> Ino {
        let linked_dir = |ino: &Ino| {
            let inode = table.get(*ino).unwrap();
            inode.linked && inode.dir().is_some()
        };
        self.pick(at).filter(linked_dir).unwrap_or(Ino::ROOT)
    }
}

proptest! {
    /// Whatever happens, an inode that is held is there under its number and generation, one that is not is dropped,
    /// and in the end only the root is left.
    #[test]
    fn counts_are_exact(steps in prop::collection::vec(step(), 1..120)) {
        let mut table = table();
        let mut kernel = Kernel::default();
        for step in steps {
            match step {
                Step::Lookup(dir, name) => {
                    let dir = kernel.dir(&table, dir);
                    let node = if name % 2 == 0 { Node::Dir(None) } else { file("x") };
                    let ino = looked_up(&mut table, dir, &format!("{name}"), node);
                    let generation = table.get(ino).unwrap().generation;
                    let held = kernel.held.entry(ino).or_insert((0, 0, generation));
                    prop_assert_eq!(held.2, generation);
                    held.0 += 1;
                }
                Step::Forget(at) => {
                    if let Some(ino) = kernel.pick(at) {
                        let held = kernel.held.get_mut(&ino).unwrap();
                        table.forget(ino, held.0);
                        held.0 = 0;
                    }
                }
                Step::Open(at) => {
                    if let Some(ino) = kernel.pick(at) {
                        table.add_open(ino);
                        kernel.held.get_mut(&ino).unwrap().1 += 1;
                    }
                }
                Step::Close(at) => {
                    if let Some(ino) = kernel.pick(at).filter(|ino| kernel.held[ino].1 > 0) {
                        table.close(ino);
                        kernel.held.get_mut(&ino).unwrap().1 -= 1;
                    }
                }
                Step::Remove(dir, name) => {
                    let dir = kernel.dir(&table, dir);
                    table.remove(dir, &format!("{name}"));
                }
                Step::Rename(at, dir, name) => {
                    let dir = kernel.dir(&table, dir);
                    let movable = |ino: &Ino| {
                        table.get(*ino).unwrap().linked && !table.is_within(dir, *ino)
                    };
                    if let Some(ino) = kernel.pick(at).filter(movable) {
                        table.rename(ino, dir, &format!("{name}"));
                        let inode = table.get(ino).unwrap();
                        prop_assert_eq!((inode.parent, inode.linked), (dir, true));
                    }
                }
            }
            kernel.held.retain(|_, (lookups, opens, _)| *lookups + *opens > 0);
            for (ino, (_, _, generation)) in &kernel.held {
                let inode = table.get(*ino);
                prop_assert_eq!(inode.map(|inode| inode.generation), Some(*generation));
            }
            for inode in table.iter().filter(|inode| inode.linked && inode.ino != Ino::ROOT) {
                let child = table.child(inode.parent, &inode.name).map(|child| child.ino);
                prop_assert_eq!(child, Some(inode.ino));
                let parent = table.get(inode.parent);
                prop_assert!(parent.is_some(), "a linked inode keeps its directory");
            }
        }
        for (ino, (lookups, opens, _)) in kernel.held.drain() {
            table.forget(ino, lookups);
            for _ in 0..opens {
                table.close(ino);
            }
        }
        prop_assert_eq!(table.len(), 1);
    }
}
