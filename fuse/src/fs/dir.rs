//! opendir, readdir, readdirplus.

use std::ffi::OsStr;
use std::sync::Arc;

use gcsmount_gcs::store::ListPage;
use nix::errno::Errno;

use super::attr::{Entry, Kind};
use super::{Fh, Fs};
use crate::errno::{Error, Result};
use crate::handle::dir::{DOTS, Listing, Next};
use crate::inode::{Found, Ino, Table};
use crate::metadata;
use crate::names::{self, Node};

/// Takes directory entries until it is full.
pub trait EntrySink: Send {
    /// Whether entries are taken with attributes, each of which counts as a lookup.
    fn wants_attributes(&self) -> bool;

    /// Takes one; `false` if it is full, and then it has not taken it. `next` is the offset behind it.
    fn add(&mut self, next: u64, ino: Ino, kind: Kind, name: &OsStr) -> bool;

    /// Takes one with attributes; as [`EntrySink::add`].
    fn add_with_attributes(&mut self, next: u64, entry: &Entry, name: &OsStr) -> bool;
}

/// An open directory.
#[derive(Debug)]
pub(super) struct OpenDir {
    ino: Ino,
    /// Held while a page is fetched: two reads of one handle have no order anyway.
    listing: tokio::sync::Mutex<Option<Listing>>,
}

/// How far the handing out of entries came.
struct Handed {
    /// The offset behind the last.
    at: u64,
    /// Whether there were any.
    some: bool,
    /// Whether the sink takes no more.
    full: bool,
}

impl Fs {
    /// Opens a directory.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    pub fn opendir(&self, ino: Ino) -> Result<Fh> {
        let mut table = self.table.lock();
        let inode = table.get(ino).ok_or(Error::of(Errno::ESTALE))?;
        inode.dir().ok_or(Error::of(Errno::ENOTDIR))?;
        table.add_open(ino);
        let fh = self.next_fh();
        let dir = OpenDir {
            ino,
            listing: tokio::sync::Mutex::new(None),
        };
        self.dirs.lock().insert(fh, Arc::new(dir));
        Ok(fh)
    }

    /// Closes a directory.
    pub fn releasedir(&self, fh: Fh) {
        let dir = self.dirs.lock().remove(&fh);
        if let Some(dir) = dir {
            self.table.lock().close(dir.ino);
        }
    }

    /// Fills `sink` with the entries from `offset` on. Adds nothing at the end. Offset 0 begins anew.
    ///
    /// Entries go out as pages come in. A call that has something to hand out does not wait for another page.
    ///
    /// # Errors
    /// `EBADF`; the store's.
    pub async fn readdir(&self, fh: Fh, offset: u64, sink: &mut dyn EntrySink) -> Result<()> {
        let dir = self.dirs.lock().get(&fh).cloned();
        let dir = dir.ok_or(Error::of(Errno::EBADF))?;
        let mut slot = dir.listing.lock().await;
        if offset == 0 || slot.is_none() {
            *slot = Some(self.begin_listing(dir.ino)?);
        }
        let Some(listing) = slot.as_mut() else {
            return Ok(());
        };
        let mut at = self.add_dots(dir.ino, offset, sink);
        loop {
            let handed = self.hand_out(dir.ino, listing, at, sink);
            at = handed.at;
            // An empty answer would say that this is the end.
            if handed.full || handed.some {
                return Ok(());
            }
            match listing.next(at) {
                Next::End => return Ok(()),
                Next::Fetch(request) => {
                    let page = self.workshop.call(self.store.list(&request)).await?;
                    self.take_page(dir.ino, listing, at, page);
                }
            }
        }
    }

    /// A listing from the start. Files that are not in the bucket yet come first.
    fn begin_listing(&self, dir: Ino) -> Result<Listing> {
        let mut table = self.table.lock();
        let prefix = self.prefix(&table, dir)?;
        let local = table
            .local_children(dir)
            .map(|child| names::Entry {
                name: child.name.clone(),
                node: Node::Dir(None),
            })
            .collect();
        let changes = table
            .get(dir)
            .and_then(|inode| inode.dir())
            .map_or(0, |dir| dir.changes);
        let root = dir == Ino::ROOT;
        let page_size = self.config.list_page;
        let listing = Listing::new(prefix, root, page_size, local, changes);
        Ok(listing.with_placeholders(self.config.posix_attributes))
    }

    /// Hands out `.` and `..` where they are due; the offset to go on from.
    fn add_dots(&self, dir: Ino, offset: u64, sink: &mut dyn EntrySink) -> u64 {
        let parent = {
            let table = self.table.lock();
            table.get(dir).map_or(dir, |inode| inode.parent)
        };
        for (at, ino, name) in [(0, dir, "."), (1, parent, "..")] {
            if offset <= at && !sink.add(at + 1, ino, Kind::Dir, OsStr::new(name)) {
                return at;
            }
        }
        offset.max(DOTS)
    }

    /// Hands out what is at hand from `offset` on.
    fn hand_out(
        &self,
        dir: Ino,
        listing: &Listing,
        offset: u64,
        sink: &mut dyn EntrySink,
    ) -> Handed {
        let mut handed = Handed {
            at: offset,
            some: false,
            full: offset < DOTS,
        };
        if handed.full {
            return handed;
        }
        let mut table = self.table.lock();
        let fresh = listing.changes == changes_of(&table, dir);
        for (next, entry) in listing.at_hand(offset) {
            if listing.is_local(next) && table.child(dir, &entry.name).is_none() {
                // Removed since the listing was begun.
                handed.at = next;
                continue;
            }
            let taken = if sink.wants_attributes() {
                let known = match table.find(dir, &entry.name) {
                    Some(Found::Inode(ino)) => Some(ino),
                    _ => learn(&mut table, dir, entry, listing, fresh),
                };
                known.is_none_or(|ino| self.add_looked_up(&mut table, ino, next, sink))
            } else {
                let ino = table.likely_ino(dir, &entry.name);
                let kind = kind_of(&table, ino, &entry.node);
                sink.add(next, ino, kind, OsStr::new(&*entry.name))
            };
            if !taken {
                handed.full = true;
                break;
            }
            handed.at = next;
            handed.some = true;
        }
        handed
    }

    fn add_looked_up(
        &self,
        table: &mut Table,
        ino: Ino,
        next: u64,
        sink: &mut dyn EntrySink,
    ) -> bool {
        let Some(inode) = table.get(ino) else {
            return true;
        };
        let (name, answer) = (inode.name.clone(), self.entry_of(inode));
        // The lookup counts before the kernel can give it up again.
        table.add_lookup(ino);
        let taken = sink.add_with_attributes(next, &answer, OsStr::new(&*name));
        if !taken {
            table.forget(ino, 1);
        }
        taken
    }

    /// Takes in a page: names that are known from it cost no call for a while.
    fn take_page(&self, dir: Ino, listing: &mut Listing, offset: u64, page: ListPage) {
        let (begun, changes) = (listing.begun(), listing.changes);
        let (entries, is_last) = listing.add(offset, page);
        let mut table = self.table.lock();
        if changes_of(&table, dir) != changes {
            // What this mount has done since is newer than what the page says.
            return;
        }
        for entry in entries {
            table.note(dir, &entry.name, entry.node.clone(), begun);
        }
        if is_last {
            table.listed(dir, begun, changes);
        }
    }
}

/// Takes in one entry of a page. What the page says of a directory that has changed since is not relied on: the kernel
/// gets it with no time to live, and looks it up when it is asked for.
fn learn(
    table: &mut Table,
    dir: Ino,
    entry: &names::Entry,
    listing: &Listing,
    fresh: bool,
) -> Option<Ino> {
    let ino = table.learn(dir, &entry.name, entry.node.clone(), listing.begun())?;
    if !fresh {
        table.distrust(ino);
    }
    Some(ino)
}

fn changes_of(table: &Table, dir: Ino) -> u64 {
    let dir = table.get(dir).and_then(|inode| inode.dir());
    dir.map_or(0, |dir| dir.changes)
}

fn kind_of(table: &Table, ino: Ino, node: &Node) -> Kind {
    match (node, table.get(ino)) {
        (Node::File(object), _) if metadata::is_symlink(object) => Kind::Symlink,
        (Node::File(_), _) => Kind::File,
        // Local files have no object to stand for them.
        (Node::Dir(_), Some(inode)) if inode.file().is_some() => Kind::File,
        (Node::Dir(_), _) => Kind::Dir,
    }
}
