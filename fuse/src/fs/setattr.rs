//! setattr: lengths, times, and where they are kept, permission bits, owner and group. Where they are not, changing them
//! succeeds and does nothing, as with gcsfuse, since tools that copy them treat a refusal as a failure of the copy.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::{Kind, Object, ObjectName};
use nix::errno::Errno;
use tokio::time::Instant;

use super::attr::Attr;
use super::{Fh, Fs};
use crate::errno::{Error, Result};
use crate::handle::writer::Decide;
use crate::inode::{Body, Ino};
use crate::metadata::{self, Edits, Posix, posix};

/// What to change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Length in bytes.
    pub size: Option<u64>,
    /// Time of the last modification.
    pub mtime: Option<SystemTime>,
    /// Permission bits, owner, group and time of the last access.
    pub posix: Posix,
}

impl SetAttr {
    /// What is to be said of an object of which `attributes` say what is so now.
    ///
    /// Whoever changes the owner or the length without saying the mode takes the privileges away that it gave: the kernel
    /// leaves that to the file system (`FUSE_HANDLE_KILLPRIV_V2`) or says the mode.
    fn edits(&self, attributes: &Attributes, is_dir: bool, default_mode: u16) -> Edits {
        let mut posix = self.posix;
        let kills = posix.uid.is_some() || posix.gid.is_some() || self.size.is_some();
        if posix.mode.is_none() && kills && !is_dir {
            let mode = Posix::read(&attributes.metadata).mode;
            let mode = mode.unwrap_or(default_mode);
            let left = posix::without_privileges(mode);
            posix.mode = Some(left).filter(|left| *left != mode);
        }
        let changed = posix
            .keys()
            .into_iter()
            .filter(|(key, value)| attributes.metadata.get(key) != Some(value));
        Edits {
            mtime: self.mtime,
            metadata: changed.map(|(key, value)| (key, Some(value))).collect(),
            ..Edits::default()
        }
    }
}

impl Fs {
    /// Changes attributes. A length that is set through a handle is published when the handle is flushed, one that is
    /// set by name before this returns. All else rides in the next publication if there is one to come, and is one call
    /// else.
    ///
    /// # Errors
    /// `ESTALE` where the object is gone or somebody else has changed it; `EISDIR` for the length of a directory;
    /// `EINVAL` for a time that cannot be recorded; the store's.
    pub async fn setattr(
        &self,
        ino: Ino,
        fh: Option<Fh>,
        set: SetAttr,
    ) -> Result<(Attr, Duration)> {
        if let Some(size) = set.size {
            self.set_size(ino, fh, size).await?;
        }
        let set = self.kept(set);
        if set.mtime.is_some() || set.posix != Posix::default() || self.kills(ino, &set) {
            self.say(ino, &set).await?;
        }
        self.getattr(ino).await
    }

    /// Of what is to be set, what this file system keeps.
    fn kept(&self, set: SetAttr) -> SetAttr {
        if self.config.posix_attributes {
            return set;
        }
        SetAttr {
            posix: Posix::default(),
            size: None,
            ..set
        }
    }

    /// Whether a new length takes privileges away.
    fn kills(&self, ino: Ino, set: &SetAttr) -> bool {
        set.size.is_some() && self.has_privileges(ino)
    }

    /// Whether a file runs as somebody else than who runs it.
    #[must_use]
    pub fn has_privileges(&self, ino: Ino) -> bool {
        if !self.config.posix_attributes {
            return false;
        }
        let table = self.table.lock();
        let perm = table.get(ino).map(|inode| self.attr_of(inode).perm);
        perm.is_some_and(|perm| posix::without_privileges(perm) != perm)
    }

    /// Takes away the privileges of a file that is being written. To be called before the write is answered.
    ///
    /// # Errors
    /// As [`Fs::setattr`].
    pub async fn drop_privileges(&self, ino: Ino) -> Result<()> {
        let set = SetAttr {
            size: Some(0),
            ..SetAttr::default()
        };
        self.say(ino, &set).await
    }

    async fn set_size(&self, ino: Ino, fh: Option<Fh>, size: u64) -> Result<()> {
        let open = fh.and_then(|fh| self.file(fh).ok()?.writer.clone());
        if let Some(writer) = open {
            let cut = writer.truncate(size).await;
            self.adopt(ino, &writer);
            return cut;
        }
        let writer = self.hold_writer(ino).await?;
        let cut = match writer.truncate(size).await {
            Ok(()) => self.publish(ino, &writer).await,
            Err(error) => Err(error),
        };
        self.drop_writer(ino, &writer).await;
        cut
    }

    async fn say(&self, ino: Ino, set: &SetAttr) -> Result<()> {
        if set
            .mtime
            .is_some_and(|at| metadata::mtime_keys(at).is_empty())
        {
            return Err(Error::of(Errno::EINVAL));
        }
        let is_dir = {
            let table = self.table.lock();
            let inode = table.get(ino).ok_or(Error::of(Errno::ESTALE))?;
            inode.dir().is_some()
        };
        if is_dir {
            let mode = self.config.dir_mode;
            self.say_of_dir(ino, set, &|said| Ok(set.edits(said, true, mode)))
                .await
        } else {
            let mode = self.config.file_mode;
            self.amend(ino, &|said| Ok(set.edits(said, false, mode)))
                .await
        }
    }

    /// Directories that have an object keep it there; of others it is known for as long as the kernel knows them.
    async fn say_of_dir(&self, ino: Ino, set: &SetAttr, decide: &Decide<'_>) -> Result<()> {
        if self.config.posix_attributes && !self.amend_placeholder(ino, decide).await? {
            let mut table = self.table.lock();
            if let Some(dir) = table.get_mut(ino).and_then(|inode| inode.dir_mut()) {
                let said = dir.edits.applied(&Attributes::default());
                dir.edits.then(decide(&said)?);
            }
        }
        let mut table = self.table.lock();
        let dir = table.get_mut(ino).and_then(|inode| inode.dir_mut());
        if let (Some(dir), Some(mtime)) = (dir, set.mtime) {
            dir.mtime = mtime;
            dir.mtime_known = true;
        }
        Ok(())
    }

    /// Changes what is said of a file: of one that has no name any more, for as long as somebody writes it.
    pub(super) async fn amend(&self, ino: Ino, decide: &Decide<'_>) -> Result<()> {
        let writer = {
            let table = self.table.lock();
            let inode = table.get(ino).ok_or(Error::of(Errno::ESTALE))?;
            match &inode.body {
                Body::Dir(_) => return Err(Error::of(Errno::EISDIR)),
                Body::File(file) if !inode.linked && file.writer.is_none() => return Ok(()),
                Body::File(file) => file.writer.clone(),
            }
        };
        let amended = match &writer {
            Some(writer) => writer.amend(decide).await,
            None => {
                let object = self.fresh_object(ino).await?;
                let amended = self.workshop.amend(object, decide).await;
                amended.map(|object| self.set_object(ino, object))
            }
        };
        match (&amended, writer) {
            (Ok(()), Some(writer)) => self.adopt(ino, &writer),
            (Ok(()), None) => {}
            // Unless the store has been asked, it has nothing new to say.
            (Err(error), _) if error.kind().is_none() => {}
            (Err(_), _) => self.table.lock().outdate(ino),
        }
        amended
    }

    /// Changes what is said of a directory's own object; `false` where there is none.
    pub(super) async fn amend_placeholder(&self, ino: Ino, decide: &Decide<'_>) -> Result<bool> {
        let Some(placeholder) = self.placeholder(ino).await? else {
            return Ok(false);
        };
        let amended = match self.workshop.amend(placeholder, decide).await {
            // It was replaced since it was met, or is gone.
            Err(error) if is_outdated(&error) => {
                self.set_placeholder(ino, None);
                match self.placeholder(ino).await? {
                    Some(live) => self.workshop.amend(live, decide).await?,
                    None => return Ok(false),
                }
            }
            amended => amended?,
        };
        self.set_placeholder(ino, Some(amended));
        Ok(true)
    }

    /// The object of a directory, as it was met or is met now. The root has none.
    pub(super) async fn placeholder(&self, ino: Ino) -> Result<Option<Arc<Object>>> {
        if ino == Ino::ROOT {
            // Nobody looks the root up, so what its object says would not be seen at the next mount.
            return Ok(None);
        }
        let (known, name) = {
            let table = self.table.lock();
            let inode = table.get(ino).ok_or(Error::of(Errno::ESTALE))?;
            let dir = inode.dir().ok_or(Error::of(Errno::ENOTDIR))?;
            let known = dir.placeholder.clone().filter(|_| table.is_sure(inode));
            (known, self.prefix(&table, ino)?)
        };
        // The object of a directory that was renamed has another name now.
        if let Some(known) = known.filter(|known| known.name.as_str() == name) {
            return Ok(Some(known));
        }
        let Ok(name) = ObjectName::parse(name) else {
            return Ok(None);
        };
        let found = self.stat(name.as_str()).await?.map(Arc::new);
        self.set_placeholder(ino, found.clone());
        Ok(found)
    }

    fn set_placeholder(&self, ino: Ino, placeholder: Option<Arc<Object>>) {
        let mut table = self.table.lock();
        if let Some(dir) = table.get_mut(ino).and_then(|inode| inode.dir_mut()) {
            dir.bare = placeholder.is_none().then(Instant::now);
            dir.placeholder = placeholder;
        }
    }
}

fn is_outdated(error: &Error) -> bool {
    matches!(error.kind(), Some(Kind::NotFound | Kind::Precondition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_go_with_the_owner_and_the_content_unless_the_mode_is_said() {
        let none = Posix::default();
        let mode = |mode| Posix {
            mode: Some(mode),
            ..none
        };
        let owned = Posix {
            uid: Some(5),
            ..none
        };
        let set = |size, posix| SetAttr {
            size,
            posix,
            mtime: None,
        };
        let both = Posix {
            mode: Some(0o4755),
            ..owned
        };
        for (had, set, is_dir, expected) in [
            (0o4755, set(None, owned), false, Some("755")),
            (0o755, set(None, owned), false, None),
            (0o6755, set(Some(1), none), false, Some("755")),
            (0o2755, set(None, owned), true, None),
            (0o644, set(None, mode(0o4755)), false, Some("4755")),
            (0o700, set(None, both), false, Some("4755")),
            // What is said already is not said again.
            (0o644, set(None, mode(0o644)), false, None),
        ] {
            let attributes = Attributes {
                metadata: mode(had).keys().into_iter().collect(),
                ..Attributes::default()
            };
            let edits = set.edits(&attributes, is_dir, 0o644);
            let said = edits.metadata.get("goog-reserved-posix-mode");
            let expected = expected.map(|mode| Some(mode.to_owned()));
            assert_eq!(said, expected.as_ref(), "{had:o} {set:?}");
        }
    }
}
