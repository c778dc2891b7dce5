//! getxattr, listxattr, setxattr, removexattr.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use gcsmount_gcs::Object;
use gcsmount_gcs::object::Attributes;
use nix::errno::Errno;

use super::Fs;
use super::attr::tells_more;
use crate::errno::{Error, Result};
use crate::handle::writer::Decide;
use crate::inode::{Ino, Inode};
use crate::metadata::xattr::{self, Name, Seen};

pub use crate::metadata::xattr::SetXattr;

/// What is said of a file or directory: what is to be seen of it, and the object if that is its content.
#[derive(Debug, Default)]
struct Said {
    object: Option<Arc<Object>>,
    attributes: Attributes,
}

impl Said {
    fn of(object: Arc<Object>) -> Self {
        Self {
            attributes: object.attributes.clone(),
            object: Some(object),
        }
    }
}

impl Fs {
    /// The value of an extended attribute, if it takes no call. `None`: use [`Fs::getxattr`].
    ///
    /// What the kernel asks of its own accord, `security.capability` and access control lists, takes none.
    #[must_use]
    pub fn try_getxattr(&self, ino: Ino, name: &OsStr) -> Option<Result<Vec<u8>>> {
        let name = match parse(name) {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        let said = self.said_at_hand(ino)?;
        Some(said.and_then(|said| get(&said, name)))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` where there is none, `ENOTSUP` in another namespace than `user`; the store's.
    pub async fn getxattr(&self, ino: Ino, name: &OsStr) -> Result<Vec<u8>> {
        let name = parse(name)?;
        get(&self.said(ino).await?, name)
    }

    /// The names of the extended attributes, each ended by a NUL, if it takes no call. `None`: use [`Fs::listxattr`].
    #[must_use]
    pub fn try_listxattr(&self, ino: Ino) -> Option<Result<Vec<u8>>> {
        let said = self.said_at_hand(ino)?;
        Some(said.map(|said| xattr::list(&said.attributes)))
    }

    /// The names of the extended attributes, each ended by a NUL. Those of the view are not among them.
    ///
    /// # Errors
    /// The store's.
    pub async fn listxattr(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(xattr::list(&self.said(ino).await?.attributes))
    }

    /// Sets an extended attribute: at once, or with the next publication where one is to come.
    ///
    /// # Errors
    /// Those of [`xattr::set`]; `ENOTSUP` in another namespace than `user`, and for a directory that has no object; the
    /// store's.
    pub async fn setxattr(
        &self,
        ino: Ino,
        name: &OsStr,
        value: &[u8],
        how: SetXattr,
    ) -> Result<()> {
        let name = parse(name)?;
        self.edit(ino, &|said| {
            xattr::set(said, name, value, how).map_err(Error::of)
        })
        .await
    }

    /// Removes an extended attribute, as [`Fs::setxattr`].
    ///
    /// # Errors
    /// Those of [`xattr::remove`]; as [`Fs::setxattr`].
    pub async fn removexattr(&self, ino: Ino, name: &OsStr) -> Result<()> {
        let name = parse(name)?;
        self.edit(ino, &|said| xattr::remove(said, name).map_err(Error::of))
            .await
    }

    async fn edit(&self, ino: Ino, decide: &Decide<'_>) -> Result<()> {
        if !self.is_dir(ino)? {
            return self.amend(ino, decide).await;
        }
        match self.amend_placeholder(ino, decide).await? {
            true => Ok(()),
            false => Err(Error::of(Errno::ENOTSUP)),
        }
    }

    fn is_dir(&self, ino: Ino) -> Result<bool> {
        let table = self.table.lock();
        let inode = table.get(ino).ok_or(Error::of(Errno::ESTALE))?;
        Ok(inode.dir().is_some())
    }

    fn said_at_hand(&self, ino: Ino) -> Option<Result<Said>> {
        let table = self.table.lock();
        let Some(inode) = table.get(ino) else {
            return Some(Err(Error::of(Errno::ESTALE)));
        };
        if let Some(dir) = inode.dir() {
            let placeholder = dir.placeholder.clone();
            if let Some(object) = placeholder.filter(|_| table.is_sure(inode)) {
                return Some(Ok(Said::of(object)));
            }
            let bare =
                ino == Ino::ROOT || dir.bare.is_some_and(|at| at.elapsed() < self.config.ttl);
            return bare.then(|| Ok(Said::default()));
        }
        if inode.is_local() || table.is_sure(inode) {
            said_of(inode).map(Ok)
        } else {
            None
        }
    }

    async fn said(&self, ino: Ino) -> Result<Said> {
        if let Some(said) = self.said_at_hand(ino) {
            return said;
        }
        if self.is_dir(ino)? {
            let placeholder = self.placeholder(ino).await?;
            return Ok(placeholder.map(Said::of).unwrap_or_default());
        }
        let object = self.refresh(ino).await?;
        let table = self.table.lock();
        let said = table.get(ino).and_then(said_of);
        Ok(said.unwrap_or_else(|| Said::of(object)))
    }
}

/// What a file is said to be, here or in the bucket.
fn said_of(inode: &Inode) -> Option<Said> {
    let file = inode.file()?;
    let object = file.object.clone();
    let view = file.writer.as_ref().map(|writer| writer.view());
    let Some(view) = view.filter(|view| tells_more(view, object.as_deref())) else {
        return object.map(Said::of);
    };
    let none = Attributes::default();
    let base = view.base.as_ref();
    let attributes = base.map_or(&none, |base| &base.attributes);
    Some(Said {
        attributes: view.edits.applied(attributes),
        object: view.base.filter(|_| !view.dirty),
    })
}

fn get(said: &Said, name: Name<'_>) -> Result<Vec<u8>> {
    let seen = Seen {
        object: said.object.as_deref(),
        attributes: &said.attributes,
    };
    seen.get(name).map_err(Error::of)
}

fn parse(name: &OsStr) -> Result<Name<'_>> {
    Name::parse(name.as_bytes()).ok_or(Error::of(Errno::ENOTSUP))
}
