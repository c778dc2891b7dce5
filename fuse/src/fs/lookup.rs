//! lookup, forget, getattr, readlink.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use gcsmount_gcs::store::ListRequest;
use gcsmount_gcs::{Kind, Object, ObjectName};
use nix::errno::Errno;
use tokio::time::Instant;

use super::attr::{Attr, Entry};
use super::{Fs, Place};
use crate::errno::{Error, Result};
use crate::inode::{Found, Ino, Table};
use crate::names::{self, Node};
use crate::{handle, metadata, version};

/// What the store has under one name.
#[derive(Debug)]
struct Answer {
    object: Option<Arc<Object>>,
    /// What the directory is, if there is one.
    dir: Option<Node>,
}

impl Answer {
    /// What an entry called `name` is, given that.
    fn node(&self, name: &str) -> Option<Node> {
        let (_, beside_dir) = names::object_part(name);
        match (&self.object, &self.dir) {
            (Some(object), Some(_)) if beside_dir => Some(Node::File(object.clone())),
            (_, _) if beside_dir => None,
            (_, Some(dir)) => Some(dir.clone()),
            (Some(object), None) => Some(Node::File(object.clone())),
            (None, None) => None,
        }
    }
}

impl Fs {
    /// The node of a name, with a lookup counted, if it takes no call. `None`: use [`Fs::lookup`].
    #[must_use]
    pub fn try_lookup(&self, parent: Ino, name: &OsStr) -> Option<Result<Entry>> {
        let mut table = self.table.lock();
        let name = match self.place(&table, parent, name) {
            Ok(place) => place.name,
            Err(error) => return Some(Err(error)),
        };
        match table.find(parent, &name)? {
            Found::Inode(ino) => Some(self.count_lookup(&mut table, ino)),
            Found::Absent => Some(Err(Error::of(Errno::ENOENT))),
            Found::Unknown(_) => None,
        }
    }

    /// The node of a name, with a lookup counted. A name that is not known costs one pair of calls, side by side.
    ///
    /// # Errors
    /// `ENOENT`; the store's.
    pub async fn lookup(&self, parent: Ino, name: &OsStr) -> Result<Entry> {
        if let Some(known) = self.try_lookup(parent, name) {
            return known;
        }
        let ino = self.ask(parent, name).await?;
        let mut table = self.table.lock();
        self.count_lookup(&mut table, ino)
    }

    /// The inode of a name, known or asked for. No lookup is counted.
    pub(super) async fn resolve(&self, parent: Ino, name: &OsStr) -> Result<Ino> {
        let found = {
            let mut table = self.table.lock();
            let place = self.place(&table, parent, name)?;
            table.find(parent, &place.name)
        };
        match found {
            Some(Found::Inode(ino)) => Ok(ino),
            Some(Found::Absent) | None => Err(Error::of(Errno::ENOENT)),
            Some(Found::Unknown(_)) => self.ask(parent, name).await,
        }
    }

    /// Asks the store for a name.
    async fn ask(&self, parent: Ino, name: &OsStr) -> Result<Ino> {
        let (place, changes) = {
            let table = self.table.lock();
            let place = self.place(&table, parent, name)?;
            let dir = table.get(parent).and_then(|inode| inode.dir());
            (place, dir.map_or(0, |dir| dir.changes))
        };
        let begun = Instant::now();
        let answer = self.ask_store(&place).await?;
        let mut table = self.table.lock();
        let now = table.get(parent).and_then(|inode| inode.dir());
        if now.is_none_or(|dir| dir.changes != changes) {
            return self.settle_race(&mut table, parent, &place.name, &answer);
        }
        let ino = match answer.node(&place.name) {
            Some(node) => table.learn(parent, &place.name, node, begun),
            None => {
                table.learn_absent(parent, &place.name, begun);
                table.child(parent, &place.name).map(|inode| inode.ino)
            }
        };
        if let (Some(_), Some(object)) = (answer.dir, answer.object) {
            let beside = names::beside_dir(&place.name);
            table.note(parent, &beside.into(), Node::File(object), begun);
        }
        ino.ok_or(Error::of(Errno::ENOENT))
    }

    /// The directory has changed while the store was asked: what is known here counts, and the answer is not kept.
    fn settle_race(
        &self,
        table: &mut Table,
        parent: Ino,
        name: &str,
        answer: &Answer,
    ) -> Result<Ino> {
        if let Some(Found::Inode(ino)) = table.find(parent, name) {
            return Ok(ino);
        }
        let ino = answer
            .node(name)
            .and_then(|node| table.learn(parent, name, node, Instant::now()));
        if let Some(ino) = ino {
            table.distrust(ino);
        }
        ino.ok_or(Error::of(Errno::ENOENT))
    }

    /// One pair of calls, side by side: the object itself, and anything below it.
    async fn ask_store(&self, place: &Place) -> Result<Answer> {
        let object = self.stat(&place.object);
        let dir = self.dir_of(format!("{}/", place.object));
        let (object, dir) = tokio::join!(object, dir);
        Ok(Answer {
            object: object?.map(Arc::new),
            dir: dir?,
        })
    }

    /// The live object, if there is one. A string that cannot be a name has none.
    pub(super) async fn stat(&self, name: &str) -> Result<Option<Object>> {
        let Ok(name) = ObjectName::parse(name) else {
            return Ok(None);
        };
        match self.workshop.call(self.store.stat(&name)).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The directory whose names begin with `prefix`, if there are any.
    async fn dir_of(&self, prefix: String) -> Result<Option<Node>> {
        let mut request = ListRequest {
            prefix,
            max_results: Some(1),
            ..ListRequest::default()
        };
        loop {
            let page = self.workshop.call(self.store.list(&request)).await?;
            if let Some(first) = page.objects.into_iter().next() {
                // The placeholder comes before all else.
                let placeholder = (first.name.as_str() == request.prefix).then(|| first.into());
                return Ok(Some(Node::Dir(placeholder)));
            }
            // A page may be empty and still have a next one.
            let Some(token) = page.next_page_token else {
                return Ok(None);
            };
            request.page_token = Some(token);
        }
    }

    pub(super) fn count_lookup(&self, table: &mut Table, ino: Ino) -> Result<Entry> {
        table.add_lookup(ino);
        let inode = table.get(ino).ok_or(Error::of(Errno::ENOENT))?;
        Ok(self.entry_of(inode))
    }

    /// Takes back `count` lookups of an inode.
    pub fn forget(&self, ino: Ino, count: u64) {
        self.table.lock().forget(ino, count);
    }

    /// Attributes, if it takes no call. `None`: use [`Fs::getattr`].
    #[must_use]
    pub fn try_getattr(&self, ino: Ino) -> Option<Result<(Attr, Duration)>> {
        let table = self.table.lock();
        let Some(inode) = table.get(ino) else {
            return Some(Err(Error::of(Errno::ESTALE)));
        };
        // What the store could say of a directory is only whether it is there, which is for lookup to ask.
        // Nor has it anything to say of a file that only this mount has.
        let sure = inode.dir().is_some() || inode.is_local() || table.is_sure(inode);
        sure.then(|| Ok((self.attr_of(inode), self.ttl_of(inode))))
    }

    /// Attributes, and how long they may be believed.
    ///
    /// # Errors
    /// `ESTALE` where the object is gone; the store's.
    pub async fn getattr(&self, ino: Ino) -> Result<(Attr, Duration)> {
        if let Some(known) = self.try_getattr(ino) {
            return known;
        }
        self.refresh(ino).await?;
        let table = self.table.lock();
        let inode = table.get(ino).ok_or(Error::of(Errno::ESTALE))?;
        Ok((self.attr_of(inode), self.ttl_of(inode)))
    }

    /// Asks the store about a file that has a name, takes the answer in, and returns the newest that is known then.
    pub(super) async fn refresh(&self, ino: Ino) -> Result<Arc<Object>> {
        let (parent, name, object) = {
            let table = self.table.lock();
            let inode = table
                .get(ino)
                .filter(|inode| inode.linked)
                .ok_or(Error::of(Errno::ESTALE))?;
            let object = self.object_path(&table, inode.parent, &inode.name)?;
            (inode.parent, inode.name.clone(), object)
        };
        let begun = Instant::now();
        let found = self.stat(&object).await?.map(Arc::new);
        let mut table = self.table.lock();
        let here = table
            .get(ino)
            .filter(|inode| inode.linked && inode.parent == parent && inode.name == name)
            .is_some_and(|_| {
                let now = self.object_path(&table, parent, &name);
                now.is_ok_and(|now| now == object)
            });
        match found {
            // What was asked about has another name by now, or none.
            _ if !here => {}
            Some(object) => {
                table.learn(parent, &name, Node::File(object.clone()), begun);
                let file = table.get(ino).and_then(|inode| inode.file());
                let known = file.and_then(|file| file.object.as_ref());
                return Ok(version::newest(object, known));
            }
            None => table.learn_absent(parent, &name, begun),
        }
        // A publication or a rename may have come between.
        let known = table.get(ino).filter(|inode| inode.linked);
        let known = known.filter(|inode| inode.checked.is_some_and(|at| at > begun));
        let known = known.and_then(|inode| inode.file()?.object.clone());
        // The kernel looks the name up anew on this one, and then finds what there is.
        known.ok_or(Error::of(Errno::ESTALE))
    }

    /// The live object of a file that nobody writes: as known, if that is fresh.
    pub(super) async fn fresh_object(&self, ino: Ino) -> Result<Arc<Object>> {
        let known = {
            let table = self.table.lock();
            let inode = table.get(ino).ok_or(Error::of(Errno::ESTALE))?;
            let object = inode.file().ok_or(Error::of(Errno::EISDIR))?.object.clone();
            object.filter(|_| table.is_sure(inode))
        };
        match known {
            Some(object) => Ok(object),
            None => self.refresh(ino).await,
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for anything else; the store's where the target is the object's content.
    pub async fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let object = self.fresh_object(ino).await?;
        if let Some(target) = metadata::symlink_target(&object) {
            return Ok(target.as_bytes().to_vec());
        }
        if !metadata::is_symlink(&object) {
            return Err(Error::of(Errno::EINVAL));
        }
        // PATH_MAX bounds what the kernel takes.
        let reader = self.workshop.reader(&object);
        let target = self.workshop.call(reader.read(0, 4096)).await;
        let target = target.map_err(handle::writer::stale);
        if target.is_err() {
            self.table.lock().outdate(ino);
        }
        Ok(target?.to_vec())
    }
}
