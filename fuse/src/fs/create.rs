//! create, mknod, mkdir, symlink.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::store::{Preconditions, WriteRequest};
use gcsmount_gcs::{Kind, Object, ObjectName};
use nix::errno::Errno;

use super::Fs;
use super::attr::Entry;
use super::open::{Access, OpenFlags, Opened};
use crate::errno::{Error, Result};
use crate::handle::writer::Writer;
use crate::inode::{Body, File, Found, Ino, Table};
use crate::metadata::{self, Edits, Posix, posix};
use crate::names::Node;

impl Fs {
    /// Creates a file and opens it, or opens the one that is there. A lookup is counted. `born` is kept with a new file
    /// under [`super::FsConfig::posix_attributes`].
    ///
    /// A new file takes no call here: it is in the bucket from its first flush on, if its name is free still. Only with
    /// `exclusive` is the store asked whether the name is free now, where the kernel's lookup has not done so.
    ///
    /// # Errors
    /// `EEXIST` with `exclusive`; those of [`crate::names::creatable`]; the store's.
    pub async fn create(
        &self,
        parent: Ino,
        name: &OsStr,
        flags: OpenFlags,
        born: Posix,
    ) -> Result<(Entry, Opened)> {
        if let Some(ino) = self.existing(parent, name, flags.exclusive).await? {
            if flags.exclusive {
                return Err(Error::of(Errno::EEXIST));
            }
            let opened = self.open(ino, flags).await?;
            let mut table = self.table.lock();
            return Ok((self.count_lookup(&mut table, ino)?, opened));
        }
        self.create_new(parent, name, flags, born)
    }

    /// [`Fs::create`] of a new file, if no question is open. `None`: use the other.
    #[must_use]
    pub fn try_create(
        &self,
        parent: Ino,
        name: &OsStr,
        flags: OpenFlags,
        born: Posix,
    ) -> Option<Result<(Entry, Opened)>> {
        if flags.exclusive {
            return None;
        }
        {
            let mut table = self.table.lock();
            let (name, _) = self.new_place(&table, parent, name, "").ok()?;
            match table.find(parent, &name)? {
                Found::Inode(_) => return None,
                Found::Absent | Found::Unknown(_) => {}
            }
        }
        Some(self.create_new(parent, name, flags, born))
    }

    fn create_new(
        &self,
        parent: Ino,
        name: &OsStr,
        flags: OpenFlags,
        born: Posix,
    ) -> Result<(Entry, Opened)> {
        let mut table = self.table.lock();
        let (name, object) = self.new_place(&table, parent, name, "")?;
        let read_back = flags.access == Access::ReadWrite;
        let edits = Edits {
            metadata: self
                .keys_of_new(&table, parent, born, false)
                .into_iter()
                .map(|(key, value)| (key, Some(value)))
                .collect(),
            ..Edits::default()
        };
        let writer = Writer::create(self.workshop.clone(), object, read_back, edits);
        let body = Body::File(File {
            writer: Some(writer.clone()),
            writers: 1,
            ..File::default()
        });
        let ino = table
            .create(parent, &name, body)
            .ok_or(Error::of(Errno::ESTALE))?;
        let entry = self.count_lookup(&mut table, ino)?;
        let opened = self.add_handle(&mut table, ino, flags, None, Some(writer));
        Ok((entry, opened))
    }

    /// The inode of a name that is there. The kernel has just looked the name up, so what is not known is not there;
    /// but a listing that said so may be old, and with `ask` it is not relied on.
    async fn existing(&self, parent: Ino, name: &OsStr, ask: bool) -> Result<Option<Ino>> {
        let (found, object) = {
            let mut table = self.table.lock();
            let (name, object) = self.new_place(&table, parent, name, "")?;
            (table.find(parent, &name), object)
        };
        match found {
            Some(Found::Inode(ino)) => Ok(Some(ino)),
            Some(Found::Absent | Found::Unknown(_)) | None if !ask => Ok(None),
            Some(Found::Absent | Found::Unknown(_)) | None => {
                match self.stat(object.as_str()).await? {
                    Some(_) => Err(self.taken(parent, Error::of(Errno::EEXIST))),
                    None => Ok(None),
                }
            }
        }
    }

    /// Makes an empty file and publishes it. A lookup is counted.
    ///
    /// # Errors
    /// As [`Fs::mkdir`].
    pub async fn mknod(&self, parent: Ino, name: &OsStr, born: Posix) -> Result<Entry> {
        let (name, object) = self.free_place(parent, name, "")?;
        let none = Edits::default();
        let mut attributes = metadata::next_attributes(None, &none, SystemTime::now());
        self.say_of_new(&mut attributes, parent, born, false);
        let put = self.put_new(parent, object, attributes, Bytes::new());
        let object = put.await?;
        self.enter_new(parent, &name, Node::File(object))
    }

    /// Makes a directory: a placeholder object. A lookup is counted.
    ///
    /// # Errors
    /// `EEXIST`; those of [`crate::names::creatable`]; the store's.
    pub async fn mkdir(&self, parent: Ino, name: &OsStr, born: Posix) -> Result<Entry> {
        let (name, object) = self.free_place(parent, name, "/")?;
        let mut attributes = Attributes::default();
        self.say_of_new(&mut attributes, parent, born, true);
        let put = self.put_new(parent, object, attributes, Bytes::new());
        let placeholder = put.await?;
        let entry = self.enter_new(parent, &name, Node::Dir(Some(placeholder)))?;
        self.table.lock().listed_empty(entry.attr.ino);
        Ok(entry)
    }

    /// Makes a symbolic link. A lookup is counted.
    ///
    /// # Errors
    /// As [`Fs::mkdir`]; `EILSEQ` for a target that is not UTF-8, which the metadata cannot hold.
    pub async fn symlink(
        &self,
        parent: Ino,
        name: &OsStr,
        target: &OsStr,
        born: Posix,
    ) -> Result<Entry> {
        let target = target.to_str().ok_or(Error::of(Errno::EILSEQ))?;
        let (name, object) = self.free_place(parent, name, "")?;
        let mut attributes = metadata::symlink_attributes(target, SystemTime::now());
        // The bits of a symbolic link say nothing.
        let born = Posix { mode: None, ..born };
        self.say_of_new(&mut attributes, parent, born, false);
        let content = Bytes::copy_from_slice(target.as_bytes());
        let put = self.put_new(parent, object, attributes, content);
        let object = put.await?;
        self.enter_new(parent, &name, Node::File(object))
    }

    /// The keys that say what a new node is, if that is kept.
    fn keys_of_new(
        &self,
        table: &Table,
        parent: Ino,
        born: Posix,
        is_dir: bool,
    ) -> Vec<(String, String)> {
        if !self.config.posix_attributes {
            return Vec::new();
        }
        let above = table.get(parent).map(|inode| self.attr_of(inode));
        let born = above.map_or(born, |above| {
            posix::inherit(born, is_dir, above.perm, above.gid)
        });
        born.keys()
    }

    fn say_of_new(&self, attributes: &mut Attributes, parent: Ino, born: Posix, is_dir: bool) {
        let keys = self.keys_of_new(&self.table.lock(), parent, born, is_dir);
        attributes.metadata.extend(keys);
    }

    /// A name that is not known to be taken.
    fn free_place(&self, parent: Ino, name: &OsStr, tail: &str) -> Result<(Arc<str>, ObjectName)> {
        let mut table = self.table.lock();
        let (name, object) = self.new_place(&table, parent, name, tail)?;
        match table.find(parent, &name) {
            Some(Found::Inode(_)) => Err(Error::of(Errno::EEXIST)),
            Some(Found::Absent | Found::Unknown(_)) | None => Ok((name, object)),
        }
    }

    /// What is told of a name that is taken, although this mount did not know.
    pub(super) fn taken(&self, parent: Ino, error: Error) -> Error {
        self.table.lock().doubt_absence(parent);
        error.answered_as(Errno::EEXIST)
    }

    async fn put_new(
        &self,
        parent: Ino,
        name: ObjectName,
        attributes: Attributes,
        content: Bytes,
    ) -> Result<Arc<Object>> {
        let request = WriteRequest {
            name,
            attributes,
            preconditions: Preconditions::absent(),
        };
        match self
            .workshop
            .call(self.store.write(&request, content))
            .await
        {
            Ok(object) => Ok(Arc::new(object)),
            Err(error) if error.kind == Kind::Precondition => Err(self.taken(parent, error.into())),
            Err(error) => Err(error.into()),
        }
    }

    fn enter_new(&self, parent: Ino, name: &str, node: Node) -> Result<Entry> {
        let mut table = self.table.lock();
        let ino = table
            .create(parent, name, node.into())
            .ok_or(Error::of(Errno::ESTALE))?;
        self.count_lookup(&mut table, ino)
    }
}
