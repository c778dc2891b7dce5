//! Extended attributes as custom metadata, and what an object says of itself as extended attributes.
//!
//! `user.NAME` is the custom metadata key `gcsmount-xattr-NAME`. Keys travel as names of HTTP headers in parts of the
//! service, which know no case and few characters, so any other name than one of lower-case letters, digits, `-`, `_`
//! and `.` is written in hexadecimal behind `gcsmount-xattrhex-`. A value that is not printable ASCII, or that a header
//! would trim, is `base64url:` and that. Names in `user.gcs.` are the view of the object, which no list shows: tools
//! that copy extended attributes would try to set them on the copy.
//!
//! Limits: <https://cloud.google.com/storage/docs/reference/rpc/google.storage.v1>, `ServiceConstants`.

mod code;

use gcsmount_gcs::Object;
use gcsmount_gcs::object::Attributes;
use nix::errno::Errno;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{Edits, METADATA_LIMIT};

const USER: &[u8] = b"user.";
const VIEW: &[u8] = b"gcs.";

/// The most bytes of one value as it is kept.
const VALUE_LIMIT: usize = 4 << 10;
/// Of an object's custom metadata, what is left for times, owner and mode, so that a file with many attributes can still be published.
const RESERVED: usize = 512;
/// Longer ones are no header that a server takes.
const FIELD_LIMIT: usize = 1 << 10;

/// What must be so for an attribute to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetXattr {
    /// Nothing.
    Any,
    /// There is none of the name (`XATTR_CREATE`).
    Create,
    /// There is one (`XATTR_REPLACE`).
    Replace,
}

/// A name that an attribute can have here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name<'a> {
    /// Kept as custom metadata: what comes behind `user.`.
    Custom(&'a [u8]),
    /// Seen of the object: what comes behind `user.gcs.`.
    View(&'a [u8]),
}

impl<'a> Name<'a> {
    /// Reads a name as the kernel passes it. `None` for other namespaces, which a bucket does not have.
    #[must_use]
    pub fn parse(name: &'a [u8]) -> Option<Self> {
        let name = name.strip_prefix(USER).filter(|name| !name.is_empty())?;
        Some(match name.strip_prefix(VIEW) {
            Some(field) => Self::View(field),
            None => Self::Custom(name),
        })
    }
}

/// What there is to see of a file.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The object whose content the file is; `None` while it is another one that the bucket does not have.
    pub object: Option<&'a Object>,
    /// What is said of it.
    pub attributes: &'a Attributes,
}

impl Seen<'_> {
    /// The value of an attribute.
    ///
    /// # Errors
    /// `ENODATA` where there is none.
    pub fn get(&self, name: Name<'_>) -> Result<Vec<u8>, Errno> {
        let value = match name {
            Name::Custom(name) => {
                let kept = self.attributes.metadata.get(&code::key(name));
                kept.and_then(|kept| code::read_value(kept))
            }
            Name::View(field) => self.field(field).map(String::into_bytes),
        };
        value.ok_or(Errno::ENODATA)
    }

    fn field(&self, field: &[u8]) -> Option<String> {
        match field {
            b"content-type" => self.attributes.content_type.clone(),
            b"cache-control" => self.attributes.cache_control.clone(),
            b"storage-class" => self.attributes.storage_class.clone(),
            b"generation" => Some(self.object?.generation.to_string()),
            b"metageneration" => Some(self.object?.metageneration.to_string()),
            b"md5" => Some(code::base64(&self.object?.md5?)),
            b"crc32c" => Some(code::base64(&self.object?.crc32c?.to_be_bytes())),
            b"updated" => {
                let updated = OffsetDateTime::from(self.object?.updated);
                updated.format(&Rfc3339).ok()
            }
            _ => None,
        }
    }
}

/// The names of all attributes but those of the view, each ended by a NUL, as listxattr(2) has them.
#[must_use]
pub fn list(attributes: &Attributes) -> Vec<u8> {
    let names = attributes.metadata.keys().filter_map(|key| {
        let name = code::read_key(key)?;
        // What another tool has put there under a name of the view would hide behind it.
        (!name.starts_with(VIEW)).then_some(name)
    });
    names.fold(Vec::new(), |mut list, name| {
        list.extend([USER, &name, b"\0"].concat());
        list
    })
}

/// What sets an attribute of an object of which `attributes` are said.
///
/// # Errors
/// `EEXIST` and `ENODATA` as `how` has it; `E2BIG` for a value that no object holds, `ENOSPC` where there is no room for
/// it beside the rest; `EPERM` for what can only be seen, `EINVAL` for what that cannot be.
pub fn set(
    attributes: &Attributes,
    name: Name<'_>,
    value: &[u8],
    how: SetXattr,
) -> Result<Edits, Errno> {
    let there = match name {
        Name::Custom(name) => attributes.metadata.contains_key(&code::key(name)),
        Name::View(b"content-type") => attributes.content_type.is_some(),
        Name::View(b"cache-control") => attributes.cache_control.is_some(),
        Name::View(_) => return Err(Errno::EPERM),
    };
    match (how, there) {
        (SetXattr::Create, true) => return Err(Errno::EEXIST),
        (SetXattr::Replace, false) => return Err(Errno::ENODATA),
        (SetXattr::Any, _) | (SetXattr::Create, false) | (SetXattr::Replace, true) => {}
    }
    let mut edits = Edits::default();
    match name {
        Name::Custom(name) => {
            let kept = code::value(value);
            if kept.len() > VALUE_LIMIT {
                return Err(Errno::E2BIG);
            }
            edits.metadata.insert(code::key(name), Some(kept));
            let total = super::size(&edits.applied(attributes).metadata);
            if total > METADATA_LIMIT - RESERVED {
                return Err(Errno::ENOSPC);
            }
        }
        Name::View(b"content-type") => edits.content_type = Some(header(value)?),
        Name::View(_) => edits.cache_control = Some(header(value)?),
    }
    Ok(edits)
}

/// What removes an attribute.
///
/// # Errors
/// `ENODATA` where there is none; `EPERM` for what can only be seen.
pub fn remove(attributes: &Attributes, name: Name<'_>) -> Result<Edits, Errno> {
    let Name::Custom(name) = name else {
        return Err(Errno::EPERM);
    };
    let key = code::key(name);
    if !attributes.metadata.contains_key(&key) {
        return Err(Errno::ENODATA);
    }
    let mut edits = Edits::default();
    edits.metadata.insert(key, None);
    Ok(edits)
}

/// A value that a header can have: one that it cannot would keep the file from ever being published.
fn header(value: &[u8]) -> Result<String, Errno> {
    if value.is_empty() || value.len() > FIELD_LIMIT || !code::is_plain(value) {
        return Err(Errno::EINVAL);
    }
    String::from_utf8(value.to_vec()).map_err(|_| Errno::EINVAL)
}

#[cfg(test)]
mod tests;
