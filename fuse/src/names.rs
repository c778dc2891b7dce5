//! Names of the bucket seen as names of directory entries, and back.
//!
//! Pure: pages of a listing go in, directory entries come out. A prefix is a directory whether or not it has a
//! placeholder object. Where an object `foo` and names below `foo/` exist, the directory keeps the name and the object
//! is shown as `foo` with a line feed behind it, which no object name can hold. Names that the kernel cannot hold
//! (empty, `.`, `..`, with a NUL, too long) are hidden and counted.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use gcsmount_gcs::name::Invalid;
use gcsmount_gcs::store::ListPage;
use gcsmount_gcs::{Object, ObjectName};
use nix::errno::Errno;

use crate::version;

/// The longest name of a directory entry in bytes: `NAME_MAX`, which programs size their buffers by.
pub const NAME_MAX: usize = 255;

/// The directory at the root of the mount that holds our own temporary objects and is not shown.
pub const HIDDEN_DIR: &str = ".gcsmount";

/// Ends the name of a file whose own name a directory has.
const CONFLICT: char = '\n';

/// What a name stands for in the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// There are objects below the name; its placeholder, where that was met.
    Dir(Option<Arc<Object>>),
    /// An object: a file or a symbolic link.
    File(Arc<Object>),
}

impl Node {
    /// What a name stands for of which `found` was said after, or while, this was known.
    #[must_use]
    pub fn followed_by(&self, found: Self) -> Self {
        match (self, found) {
            (Self::File(known), Self::File(found)) => {
                Self::File(version::newest(found, Some(known)))
            }
            (Self::Dir(Some(known)), Self::Dir(Some(found))) => {
                Self::Dir(Some(version::newest(found, Some(known))))
            }
            (Self::Dir(_) | Self::File(_), found) => found,
        }
    }
}

/// One directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: Arc<str>,
    /// What it is.
    pub node: Node,
}

/// Turns the pages of one directory's listing, in order, into entries.
#[derive(Debug, Clone)]
pub struct Pages {
    /// Of every name in the directory; empty, or ending with a slash.
    prefix: String,
    /// Whether this is the root, which has [`HIDDEN_DIR`].
    root: bool,
    /// Objects whose directory of the same name may be on a later page: `foo` sorts before `foo-1`, and that before `foo/`.
    held: Vec<Arc<Object>>,
    hidden: u64,
}

impl Pages {
    /// For the directory whose names begin with `prefix`.
    #[must_use]
    pub fn new(prefix: String, root: bool) -> Self {
        Self {
            prefix,
            root,
            held: Vec::new(),
            hidden: 0,
        }
    }

    /// Names that were left out so far because the kernel cannot hold them.
    #[must_use]
    pub fn hidden(&self) -> u64 {
        self.hidden
    }

    /// The entries that `page` settles.
    #[must_use]
    pub fn add(&mut self, page: ListPage) -> Vec<Entry> {
        let last = last_name(&page);
        let ended = page.next_page_token.is_none();
        let dirs: HashSet<String> = page
            .prefixes
            .iter()
            .filter_map(|full| self.child(full.strip_suffix('/').unwrap_or(full)))
            .map(str::to_owned)
            .collect();
        let mut entries = Vec::with_capacity(page.objects.len() + dirs.len());
        let mut objects = std::mem::take(&mut self.held);
        let mut placeholders = HashMap::new();
        for object in page.objects.into_iter().map(Arc::new) {
            // The directory's own placeholder ends with a slash too.
            if object.name.as_str().ends_with('/') && object.name.as_str() != self.prefix {
                placeholders.insert(object.name.as_str().to_owned(), object);
            } else {
                objects.push(object);
            }
        }
        for object in objects {
            let settled = ended || last.as_deref().is_some_and(|l| settles(l, &object.name));
            if settled {
                entries.extend(self.file(object, &dirs));
            } else {
                self.held.push(object);
            }
        }
        entries.extend(self.dirs(&page.prefixes, &placeholders));
        entries
    }

    fn dirs(
        &mut self,
        prefixes: &[String],
        placeholders: &HashMap<String, Arc<Object>>,
    ) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(prefixes.len());
        for full in prefixes {
            let name = full.strip_suffix('/').unwrap_or(full);
            match self.child(name) {
                Some(HIDDEN_DIR) if self.root => {}
                Some(name) if is_holdable(name) => entries.push(Entry {
                    name: name.into(),
                    node: Node::Dir(placeholders.get(full).cloned()),
                }),
                Some(_) | None => self.hidden += 1,
            }
        }
        entries
    }

    fn file(&mut self, object: Arc<Object>, dirs: &HashSet<String>) -> Option<Entry> {
        let full = object.name.as_str();
        if full == self.prefix {
            // The placeholder of the directory itself.
            return None;
        }
        let name = self.child(full)?;
        let name: Arc<str> = if dirs.contains(name) {
            format!("{name}{CONFLICT}").into()
        } else {
            name.into()
        };
        if !is_holdable(&name) {
            self.hidden += 1;
            return None;
        }
        Some(Entry {
            name,
            node: Node::File(object),
        })
    }

    fn child<'a>(&self, full: &'a str) -> Option<&'a str> {
        full.strip_prefix(self.prefix.as_str())
    }
}

fn last_name(page: &ListPage) -> Option<String> {
    let object = page.objects.last().map(|o| o.name.as_str());
    let prefix = page.prefixes.last().map(String::as_str);
    object.max(prefix).map(str::to_owned)
}

/// Whether a page that ends with `last` would have had the directory of the same name as `object`.
fn settles(last: &str, object: &ObjectName) -> bool {
    let dir = object.as_str().bytes().chain([b'/']);
    last.bytes().ge(dir)
}

/// Whether the kernel can hold `name` as that of a directory entry.
#[must_use]
pub fn is_holdable(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && name.len() <= NAME_MAX && !name.contains(['\0', '/'])
}

/// Whether `suffix`, a name behind the prefix of a directory, leads to an entry that can be seen.
#[must_use]
pub fn is_reachable(suffix: &str) -> bool {
    suffix
        .strip_suffix('/')
        .unwrap_or(suffix)
        .split('/')
        .all(is_holdable)
}

/// A name that the kernel asks about. Names that no object can have are simply not there.
#[must_use]
pub fn asked(name: &OsStr) -> Option<&str> {
    std::str::from_utf8(name.as_bytes())
        .ok()
        .filter(|name| is_holdable(name))
}

/// The last part of the object name that an entry called `name` stands for, and whether it is the view of a file beside a directory.
#[must_use]
pub fn object_part(name: &str) -> (&str, bool) {
    match name.strip_suffix(CONFLICT) {
        Some(part) => (part, true),
        None => (name, false),
    }
}

/// The entry name of the object beside a directory called `name`.
#[must_use]
pub fn beside_dir(name: &str) -> String {
    format!("{name}{CONFLICT}")
}

/// Checks the name of a new entry in the directory with `prefix`; `dir` says that a slash will follow.
///
/// # Errors
/// What GCS or the kernel cannot hold: `EILSEQ`, `ENAMETOOLONG`, `EINVAL`; `EPERM` for [`HIDDEN_DIR`] at the root.
pub fn creatable<'a>(
    prefix: &str,
    root: bool,
    name: &'a OsStr,
    dir: bool,
) -> Result<&'a str, Errno> {
    let name = std::str::from_utf8(name.as_bytes()).map_err(|_| Errno::EILSEQ)?;
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if root && name == HIDDEN_DIR {
        return Err(Errno::EPERM);
    }
    let full = format!("{prefix}{name}{}", if dir { "/" } else { "" });
    match ObjectName::parse(&full) {
        Ok(_) => Ok(name),
        Err(Invalid::TooLong) => Err(Errno::ENAMETOOLONG),
        Err(Invalid::NotUtf8) => Err(Errno::EILSEQ),
        Err(Invalid::Empty | Invalid::LineBreak | Invalid::Reserved | Invalid::Bucket) => {
            Err(Errno::EINVAL)
        }
    }
}

#[cfg(test)]
mod tests;
