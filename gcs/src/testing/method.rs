//! Names for the calls of a store, to count and to script them.

use std::collections::BTreeMap;

/// A call of [`Store`](crate::Store) or of [`Upload`](crate::store::Upload).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum Method {
    Bucket,
    Permissions,
    Stat,
    List,
    Read,
    Write,
    Upload,
    UploadWrite,
    UploadFinish,
    UploadCancel,
    Patch,
    Delete,
    Compose,
    Copy,
    Rename,
    Layout,
    CreateFolder,
    Folder,
    ListFolders,
    RenameFolder,
    DeleteFolder,
}

impl Method {
    /// The call in Google's words, as errors name it.
    #[must_use]
    pub fn operation(self) -> &'static str {
        match self {
            Self::Bucket => "storage.buckets.get",
            Self::Permissions => "storage.buckets.testIamPermissions",
            Self::Stat | Self::Read => "storage.objects.get",
            Self::List => "storage.objects.list",
            Self::Write
            | Self::Upload
            | Self::UploadWrite
            | Self::UploadFinish
            | Self::UploadCancel => "storage.objects.insert",
            Self::Patch => "storage.objects.patch",
            Self::Delete => "storage.objects.delete",
            Self::Compose => "storage.objects.compose",
            Self::Copy => "storage.objects.rewrite",
            Self::Rename => "storage.objects.move",
            Self::Layout => "storage.buckets.getStorageLayout",
            Self::CreateFolder => "storage.folders.insert",
            Self::Folder => "storage.folders.get",
            Self::ListFolders => "storage.folders.list",
            Self::RenameFolder => "storage.folders.rename",
            Self::DeleteFolder => "storage.folders.delete",
        }
    }
}

/// How often each method was called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls(BTreeMap<Method, u64>);

impl Calls {
    /// The calls of one method.
    #[must_use]
    pub fn of(&self, method: Method) -> u64 {
        self.0.get(&method).copied().unwrap_or(0)
    }

    /// All calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    pub(super) fn count(&mut self, method: Method) {
        *self.0.entry(method).or_default() += 1;
    }
}
