//! The table of inodes.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use gcsmount_gcs::Generation;
use tokio::time::Instant;

use super::{Body, Dir, File, Ino, Inode, Known};
use crate::metadata::Edits;
use crate::names::Node;
use crate::version;

/// Inodes that wait to be announced as outdated. Beyond, the time to live has to do.
const OUTDATED: usize = 1024;

/// What the kernel should forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outdated {
    /// Of which file.
    pub ino: Ino,
    /// Whether its pages too, and not its attributes alone. While a read fails, they must stay: the kernel asks again for a
    /// page that is taken away while it is read.
    pub pages: bool,
}

/// What is known of a name without asking the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// This inode, and what it says is fresh.
    Inode(Ino),
    /// There is no such name: a fresh listing does not have it.
    Absent,
    /// Ask; the directory had seen this many changes when the question came up.
    Unknown(u64),
}

/// Inodes by number and by name.
#[derive(Debug)]
pub struct Table {
    inodes: HashMap<Ino, Inode>,
    /// The linked ones.
    names: HashMap<(Ino, Arc<str>), Ino>,
    /// Names without an inode.
    known: Known,
    /// The directory of each shelf.
    shelves: HashMap<u64, Ino>,
    /// Files that the bucket may not know of yet.
    unpublished: HashSet<Ino>,
    /// Tells of files of which the kernel was told something that is not so any more.
    outdated: SyncSender<Outdated>,
    /// The other end, until somebody takes it.
    announced: Option<Receiver<Outdated>>,
    /// The last number handed out as a generation or a shelf.
    serial: u64,
    /// How long an answer of the store is believed.
    ttl: Duration,
}

impl Table {
    /// A table with the root only, which remembers up to `known` names without an inode.
    #[must_use]
    pub fn new(ttl: Duration, known: usize) -> Self {
        let (outdated, announced) = sync_channel(OUTDATED);
        let mut table = Self {
            unpublished: HashSet::new(),
            outdated,
            announced: Some(announced),
            inodes: HashMap::new(),
            names: HashMap::new(),
            known: Known::new(known),
            shelves: HashMap::new(),
            serial: 0,
            ttl,
        };
        let (generation, shelf) = (table.next_serial(), table.next_serial());
        let root = Inode {
            ino: Ino::ROOT,
            generation,
            parent: Ino::ROOT,
            name: "".into(),
            linked: true,
            body: Body::Dir(Dir::new(shelf)),
            checked: Some(Instant::now()),
            lookups: 0,
            opens: 0,
            children: 0,
        };
        table.inodes.insert(Ino::ROOT, root);
        table.shelves.insert(shelf, Ino::ROOT);
        table
    }

    /// The inode of a number that the kernel gave.
    #[must_use]
    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.inodes.get(&ino)
    }

    /// As [`Table::get`].
    #[must_use]
    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        self.inodes.get_mut(&ino)
    }

    /// Every inode, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Inode> {
        self.inodes.values()
    }

    /// How many inodes there are, the root among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// Whether there is nothing; there is always the root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// How many names are known that have no inode.
    #[must_use]
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// The linked inode of a name, fresh or not.
    #[must_use]
    pub fn child(&self, parent: Ino, name: &str) -> Option<&Inode> {
        let ino = self.names.get(&(parent, Arc::from(name)))?;
        self.inodes.get(ino)
    }

    /// The files directly below a directory that the bucket does not know of.
    pub fn local_children(&mut self, parent: Ino) -> impl Iterator<Item = &Inode> {
        let inodes = &self.inodes;
        self.unpublished
            .retain(|ino| inodes.get(ino).is_some_and(Inode::is_local));
        self.unpublished
            .iter()
            .filter_map(|ino| inodes.get(ino))
            .filter(move |inode| inode.parent == parent && inode.linked)
    }

    /// Where is announced what the kernel should forget. There is one to take.
    pub fn announcements(&mut self) -> Option<Receiver<Outdated>> {
        self.announced.take()
    }

    /// Whether what the store said at `checked` still counts.
    fn is_fresh(&self, checked: Instant) -> bool {
        checked.elapsed() < self.ttl
    }

    /// Whether what an inode says still counts. A new file that could not be published does not answer for its name:
    /// somebody else may have it.
    #[must_use]
    pub fn is_sure(&self, inode: &Inode) -> bool {
        inode.has_unpublished()
            || !inode.linked
            || inode.checked.is_some_and(|at| self.is_fresh(at))
    }

    /// The names of the parts of the path from the root down, with the number of the topmost unlinked inode's parent last.
    /// `None` for a number that does not exist.
    #[must_use]
    pub fn path(&self, ino: Ino) -> Option<Vec<Arc<str>>> {
        let mut parts = Vec::new();
        let mut inode = self.get(ino)?;
        while inode.ino != Ino::ROOT {
            parts.push(inode.name.clone());
            inode = self.get(inode.parent)?;
        }
        parts.reverse();
        Some(parts)
    }

    /// Whether `ino` is `above` or somewhere below it.
    #[must_use]
    pub fn is_within(&self, ino: Ino, above: Ino) -> bool {
        let mut next = Some(ino);
        while let Some(here) = next {
            if here == above {
                return true;
            }
            next = self
                .get(here)
                .filter(|inode| inode.ino != Ino::ROOT)
                .map(|inode| inode.parent);
        }
        false
    }

    /// What is known of a name. Makes an inode, without a lookup, where the name was only known.
    pub fn find(&mut self, parent: Ino, name: &str) -> Option<Found> {
        let dir = self.get(parent)?.dir()?;
        let (shelf, changes) = (dir.shelf, dir.changes);
        let listed = dir.listed.is_some_and(|at| self.is_fresh(at));
        if let Some(inode) = self.child(parent, name) {
            return Some(match self.is_sure(inode) {
                true => Found::Inode(inode.ino),
                false => Found::Unknown(changes),
            });
        }
        let name: Arc<str> = name.into();
        Some(match self.known.take(shelf, &name) {
            Some((node, checked)) if self.is_fresh(checked) => {
                Found::Inode(self.insert(parent, name, node.into(), checked))
            }
            Some(_) => Found::Unknown(changes),
            None if listed => Found::Absent,
            None => Found::Unknown(changes),
        })
    }

    /// Takes in what the store said of a name at `checked`, and returns the inode. What is not published stays.
    pub fn learn(&mut self, parent: Ino, name: &str, node: Node, checked: Instant) -> Option<Ino> {
        let shelf = self.get(parent)?.dir()?.shelf;
        let name: Arc<str> = name.into();
        let node = match self.known.take(shelf, &name) {
            Some((known, _)) => known.followed_by(node),
            None => node,
        };
        if let Some(ino) = self.names.get(&(parent, name.clone())).copied() {
            let inode = self.inodes.get_mut(&ino)?;
            let before = inode.content();
            if inode.refresh(&node, checked) {
                if inode.content() != before {
                    // The kernel may believe the old length for a while, and cut what is read off at it.
                    let _ = self.outdated.try_send(Outdated { ino, pages: true });
                }
                return Some(ino);
            }
            self.unlink(ino);
        }
        Some(self.insert(parent, name, node.into(), checked))
    }

    /// As [`Table::learn`] for a name that nobody has asked for: it gets no inode unless it has one.
    pub fn note(&mut self, parent: Ino, name: &Arc<str>, node: Node, checked: Instant) {
        let Some(shelf) = self.get(parent).and_then(Inode::dir).map(|dir| dir.shelf) else {
            return;
        };
        if self.names.contains_key(&(parent, name.clone())) {
            self.learn(parent, name, node, checked);
            return;
        }
        let node = match self.known.take(shelf, name) {
            Some((known, _)) => known.followed_by(node),
            None => node,
        };
        self.put_aside(shelf, name, node, checked);
    }

    /// Takes in that the store did not have a name when it was asked at `asked`. What is not published stays, and so does
    /// what has been confirmed by a later question, or by a publication since.
    pub fn learn_absent(&mut self, parent: Ino, name: &str, asked: Instant) {
        let Some(shelf) = self.get(parent).and_then(Inode::dir).map(|dir| dir.shelf) else {
            return;
        };
        let name: Arc<str> = name.into();
        if let Some((node, checked)) = self.known.take(shelf, &name)
            && checked > asked
        {
            self.put_aside(shelf, &name, node, checked);
        }
        let gone = self
            .child(parent, &name)
            .filter(|inode| !inode.has_unpublished() && !inode.is_local())
            .filter(|inode| inode.checked.is_none_or(|checked| checked <= asked))
            .map(|inode| inode.ino);
        if let Some(ino) = gone {
            self.unlink(ino);
            // Answers to questions from before may still say that it is there.
            if let Some(dir) = self.get_mut(parent).and_then(Inode::dir_mut) {
                dir.changes += 1;
            }
        }
    }

    /// Takes in proof that a name is there which this mount did not know of: no listing of its directory that has been
    /// begun so far can say that a name is absent.
    pub fn doubt_absence(&mut self, parent: Ino) {
        if let Some(dir) = self.get_mut(parent).and_then(Inode::dir_mut) {
            dir.changes += 1;
            dir.listed = None;
        }
    }

    /// Notes a complete listing of a directory that was begun at `begun`, when it had seen `changes` changes: until it
    /// ages, names that it did not have are absent. Names of this mount's own making are there anyway.
    pub fn listed(&mut self, dir: Ino, begun: Instant, changes: u64) {
        if let Some(Body::Dir(dir)) = self.get_mut(dir).map(|inode| &mut inode.body)
            && dir.changes == changes
        {
            dir.listed = Some(begun);
        }
    }

    /// Makes an inode for a name that this mount has just given to something new.
    pub fn create(&mut self, parent: Ino, name: &str, body: Body) -> Option<Ino> {
        let shelf = self.changed(parent)?;
        self.known.take(shelf, &name.into());
        if let Some(old) = self.child(parent, name).map(|inode| inode.ino) {
            self.unlink(old);
        }
        let ino = self.insert(parent, name.into(), body, Instant::now());
        if self.get(ino).is_some_and(Inode::is_local) {
            self.unpublished.insert(ino);
        }
        Some(ino)
    }

    /// Notes that this mount has removed a name. The inode lives on while it is used.
    pub fn remove(&mut self, parent: Ino, name: &str) {
        let Some(shelf) = self.changed(parent) else {
            return;
        };
        self.known.take(shelf, &name.into());
        if let Some(ino) = self.child(parent, name).map(|inode| inode.ino) {
            self.unlink(ino);
        }
    }

    /// Lets a directory that this mount has just made answer for the names that it does not have: it has none.
    pub fn listed_empty(&mut self, dir: Ino) {
        let changes = self.get(dir).and_then(Inode::dir).map(|dir| dir.changes);
        if let Some(changes) = changes {
            self.listed(dir, Instant::now(), changes);
        }
    }

    /// Notes that this mount has moved an inode to another name, over whatever had it.
    pub fn rename(&mut self, ino: Ino, parent: Ino, name: &str) {
        self.remove(parent, name);
        let Some(old_parent) = self.get(ino).map(|inode| inode.parent) else {
            return;
        };
        self.changed(old_parent);
        self.detach(ino);
        let name: Arc<str> = name.into();
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.parent = parent;
            inode.name = name.clone();
            inode.linked = true;
        }
        self.names.insert((parent, name), ino);
        if let Some(dir) = self.inodes.get_mut(&parent) {
            dir.children += 1;
        }
        self.collect(old_parent);
    }

    /// Distrusts everything below `dir`, whose objects have just got other names.
    pub fn distrust_below(&mut self, dir: Ino) {
        let below: Vec<Ino> = self
            .inodes
            .keys()
            .copied()
            .filter(|ino| self.is_within(*ino, dir))
            .collect();
        for ino in below {
            let shelf = self.next_serial();
            if let Some(Body::Dir(dir)) = self.inodes.get_mut(&ino).map(|inode| &mut inode.body) {
                self.shelves.remove(&dir.shelf);
                self.shelves.insert(shelf, ino);
                dir.shelf = shelf;
                dir.listed = None;
                dir.changes += 1;
            }
            if ino != dir {
                self.distrust(ino);
            }
        }
    }

    /// Lets the next question about an inode go to the store.
    pub fn distrust(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.checked = None;
        }
    }

    /// As [`Table::distrust`], and announces that the kernel should not believe it either.
    pub fn outdate(&mut self, ino: Ino) {
        self.distrust(ino);
        let _ = self.outdated.try_send(Outdated { ino, pages: true });
    }

    /// The same for a file whose content is another one than its readers have opened: their pages stay as they are.
    pub fn outdate_attributes(&mut self, ino: Ino) {
        self.distrust(ino);
        let _ = self.outdated.try_send(Outdated { ino, pages: false });
    }

    /// Notes that the kernel got a reference.
    pub fn add_lookup(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.lookups += 1;
        }
    }

    /// Notes that the kernel gave up `count` references.
    pub fn forget(&mut self, ino: Ino, count: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            debug_assert!(
                inode.lookups >= count,
                "the kernel forgets what it never knew"
            );
            inode.lookups = inode.lookups.saturating_sub(count);
        }
        self.collect(ino);
    }

    /// Notes an open handle.
    pub fn add_open(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.opens += 1;
        }
    }

    /// Notes that a handle is closed.
    pub fn close(&mut self, ino: Ino) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.opens = inode.opens.saturating_sub(1);
        }
        self.collect(ino);
    }

    /// Drops an inode that was made for a look and is not used.
    pub fn collect(&mut self, ino: Ino) {
        let mut next = Some(ino);
        while let Some(ino) = next.take() {
            let Some(inode) = self.inodes.get(&ino) else {
                return;
            };
            if !inode.is_unused() {
                return;
            }
            let parent = inode.parent;
            if inode.linked {
                self.detach(ino);
                next = Some(parent);
            }
            self.unpublished.remove(&ino);
            if let Some(inode) = self.inodes.remove(&ino) {
                if let Body::Dir(dir) = &inode.body {
                    self.shelves.remove(&dir.shelf);
                }
                if next.is_some() {
                    self.keep_aside(inode);
                }
            }
        }
    }

    /// The number that a name without an inode would probably get.
    #[must_use]
    pub fn likely_ino(&self, parent: Ino, name: &str) -> Ino {
        match self.child(parent, name) {
            Some(inode) => inode.ino,
            None => preferred(parent, name),
        }
    }

    /// What a published inode, linked until now, said of its name stays known.
    fn keep_aside(&mut self, inode: Inode) {
        let Some(checked) = inode.checked.filter(|at| self.is_fresh(*at)) else {
            return;
        };
        let Some(shelf) = self.get(inode.parent).and_then(Inode::dir).map(|d| d.shelf) else {
            return;
        };
        match inode.body {
            Body::Dir(dir) => {
                self.put_aside(shelf, &inode.name, Node::Dir(dir.placeholder), checked);
            }
            Body::File(File {
                object: Some(object),
                ..
            }) => self.put_aside(shelf, &inode.name, Node::File(object), checked),
            Body::File(_) => {}
        }
    }

    fn put_aside(&mut self, shelf: u64, name: &Arc<str>, node: Node, checked: Instant) {
        let Some(left) = self.known.put(shelf, name, node, checked) else {
            return;
        };
        // The directory of the name that left cannot answer any more for names that it does not have.
        let left = self
            .shelves
            .get(&left)
            .and_then(|ino| self.inodes.get_mut(ino));
        if let Some(Body::Dir(dir)) = left.map(|inode| &mut inode.body) {
            dir.listed = None;
        }
    }

    fn insert(&mut self, parent: Ino, name: Arc<str>, body: Body, checked: Instant) -> Ino {
        let mut ino = preferred(parent, &name);
        while ino <= Ino::ROOT || self.inodes.contains_key(&ino) {
            ino = Ino(ino.0.wrapping_add(1));
        }
        let generation = self.next_serial();
        let mut inode = Inode {
            ino,
            generation,
            parent,
            name: name.clone(),
            linked: true,
            body,
            checked: Some(checked),
            lookups: 0,
            opens: 0,
            children: 0,
        };
        if let Body::Dir(dir) = &mut inode.body {
            dir.shelf = self.next_serial();
            self.shelves.insert(dir.shelf, ino);
        }
        self.inodes.insert(ino, inode);
        self.names.insert((parent, name), ino);
        if let Some(parent) = self.inodes.get_mut(&parent) {
            parent.children += 1;
        }
        ino
    }

    fn unlink(&mut self, ino: Ino) {
        self.detach(ino);
        self.collect(ino);
    }

    /// Takes an inode out of its directory.
    fn detach(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.get_mut(&ino).filter(|inode| inode.linked) else {
            return;
        };
        inode.linked = false;
        let key = (inode.parent, inode.name.clone());
        self.names.remove(&key);
        if let Some(parent) = self.inodes.get_mut(&key.0) {
            parent.children -= 1;
        }
    }

    fn changed(&mut self, dir: Ino) -> Option<u64> {
        match self.inodes.get_mut(&dir).map(|inode| &mut inode.body) {
            Some(Body::Dir(dir)) => {
                dir.changes += 1;
                dir.mtime = SystemTime::now();
                dir.mtime_known = true;
                Some(dir.shelf)
            }
            Some(Body::File(_)) | None => None,
        }
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

impl Inode {
    /// The generation of a file that has one.
    fn content(&self) -> Option<Generation> {
        self.file()?.object.as_ref().map(|object| object.generation)
    }

    /// Takes in a newer answer of the store. `false` where it is about something else: another kind of node.
    fn refresh(&mut self, node: &Node, checked: Instant) -> bool {
        match (&mut self.body, node) {
            (Body::Dir(dir), Node::Dir(found)) => {
                let known = dir.placeholder.as_ref();
                dir.placeholder = found.clone().map(|found| version::newest(found, known));
            }
            (Body::File(file), Node::File(object)) => {
                // A writer's publication is what it says it is.
                if !file.has_unpublished() {
                    file.object = Some(version::newest(object.clone(), file.object.as_ref()));
                }
            }
            (Body::File(file), Node::Dir(_)) if file.has_unpublished() => {}
            (Body::Dir(_), Node::File(_)) | (Body::File(_), Node::Dir(_)) => return false,
        }
        self.checked = self.checked.max(Some(checked));
        true
    }
}

impl Dir {
    /// A directory whose names are kept under `shelf`.
    fn new(shelf: u64) -> Self {
        Self {
            mtime: SystemTime::now(),
            mtime_known: false,
            changes: 0,
            listed: None,
            shelf,
            placeholder: None,
            bare: None,
            edits: Edits::default(),
        }
    }

    /// A directory that has just been made or found.
    #[must_use]
    pub fn found() -> Self {
        // The table gives it its shelf when it goes in.
        Self::new(0)
    }
}

impl From<Node> for Body {
    fn from(node: Node) -> Self {
        match node {
            Node::Dir(placeholder) => Self::Dir(Dir {
                placeholder,
                ..Dir::found()
            }),
            Node::File(object) => Self::File(File {
                object: Some(object),
                ..File::default()
            }),
        }
    }
}

/// The number that a name gets if it is free: the same each time, so that programs which compare numbers across a
/// walk (`fts`, `tar`, `git`) are not confused when the kernel has forgotten a directory in between.
fn preferred(parent: Ino, name: &str) -> Ino {
    let mut hasher = DefaultHasher::new();
    (parent, name).hash(&mut hasher);
    // The highest bit stays clear: some programs keep the number in a signed integer.
    Ino(hasher.finish() >> 1)
}
