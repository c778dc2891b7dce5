//! The contract with a bucket.
//!
//! A [`Store`] is one bucket, seen by one identity. What its methods promise holds for every implementation and is
//! checked by the contract suite. Implementations retry what is safe to repeat and resolve answers that were lost;
//! when a method returns, its outcome is known, or the error is [`Kind::Unavailable`] or
//! [`Kind::Canceled`] and the caller must look.
//!
//! Dropping a future or a stream abandons the call: it frees its connection and leaves at most a completed mutation
//! behind, never a partial object.

use std::fmt::Debug;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;

use crate::object::{Attributes, Bucket, Digest, Folder, Layout};
use crate::{Error, FolderName, Generation, Kind, Metageneration, Object, ObjectName, Result};

/// What must be true of the live object for a call to act. Empty: nothing.
///
/// Checked by the store in one step with the act itself. A call whose precondition does not hold does nothing and
/// fails with [`Kind::Precondition`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The live generation is this one; [`Generation::ABSENT`]: there is none.
    pub generation: Option<Generation>,
    /// The live generation is not this one; [`Generation::ABSENT`]: there is one.
    pub generation_not: Option<Generation>,
    /// The live metageneration is this one.
    pub metageneration: Option<Metageneration>,
    /// The live metageneration is not this one.
    pub metageneration_not: Option<Metageneration>,
}

impl Preconditions {
    /// Requires `generation` to be the live one.
    #[must_use]
    pub fn generation(generation: Generation) -> Self {
        Self {
            generation: Some(generation),
            ..Self::default()
        }
    }

    /// Requires that the name is free.
    #[must_use]
    pub fn absent() -> Self {
        Self::generation(Generation::ABSENT)
    }

    /// Whether nothing is required.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Which bytes of which content to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// The object.
    pub name: ObjectName,
    /// This content and no other; [`Kind::NotFound`] when the store no longer has it. `None`: the live one.
    pub generation: Option<Generation>,
    /// Offsets in the stored bytes, the end clipped to the object's size. `None`: everything.
    pub range: Option<Range<u64>>,
    /// Preconditions on the live object.
    pub preconditions: Preconditions,
}

/// An answer to [`Store::read`]: what is known before the first byte, then the bytes.
pub struct Read {
    /// Which content the bytes belong to; the same for all of them.
    pub generation: Generation,
    /// Its metageneration.
    pub metageneration: Metageneration,
    /// Stored length of the whole object in bytes.
    pub size: u64,
    /// Offsets of the bytes that follow.
    pub range: Range<u64>,
    /// CRC32C of the whole object, where the store told it.
    pub crc32c: Option<u32>,
    /// Non-empty pieces that add up to [`Read::range`] exactly, or an error and then nothing. An answer that ends
    /// early is resumed or is an error, never a shorter stream.
    pub body: BoxStream<'static, Result<Bytes>>,
}

/// Which names to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// Only names that begin with this.
    pub prefix: String,
    /// Names that hold this behind the prefix are folded into [`ListPage::prefixes`].
    pub delimiter: Option<String>,
    /// Where the page before this one ended; opaque.
    pub page_token: Option<String>,
    /// The most objects and prefixes on one page; the store may return fewer. `None`: the store's own (1,000).
    pub max_results: Option<u32>,
    /// Only names that are equal to or behind this one, in byte order of UTF-8.
    pub start_offset: Option<String>,
    /// List `a/` itself as an object beside the prefix `a/`.
    pub include_trailing_delimiter: bool,
}

/// One page of a list: a consistent view of the moment at which the store made it, in byte order of the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Live objects.
    pub objects: Vec<Object>,
    /// Folded names, each ending with the delimiter; a prefix is on one page only.
    pub prefixes: Vec<String>,
    /// Pass as [`ListRequest::page_token`] for more. A page may be empty and still have a next one.
    pub next_page_token: Option<String>,
}

/// Where to write, and on what terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteRequest {
    /// The object.
    pub name: ObjectName,
    /// What to say of it.
    pub attributes: Attributes,
    /// Checked when the upload begins and, finally, when the object is published.
    pub preconditions: Preconditions,
}

/// One piece of a compose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComposeSource {
    /// The object whose bytes come next.
    pub name: ObjectName,
    /// The content to take, which must be the live one.
    pub generation: Option<Generation>,
    /// What the caller knows of that content; it must be true. It costs nothing and settles what became of a compose
    /// whose answer was lost, also where the target is a source that the compose itself has replaced.
    pub known: Option<Digest>,
}

impl From<&Object> for ComposeSource {
    /// This generation of the object and no other.
    fn from(object: &Object) -> Self {
        Self {
            name: object.name.clone(),
            generation: Some(object.generation),
            known: Digest::of(object),
        }
    }
}

/// What becomes of the sources of a compose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// They stay.
    Keep,
    /// They go once the target is there, for which the identity needs the permission to delete them. Every source must
    /// name its generation, so that nothing goes that was not joined; one that is the target stays as the target.
    Delete,
}

/// The most sources of one compose.
const MOST_SOURCES: usize = 32;

impl Sources {
    /// Why no store composes these.
    pub(crate) fn refuse(self, sources: &[ComposeSource]) -> std::result::Result<(), String> {
        let count = sources.len();
        if !(1..=MOST_SOURCES).contains(&count) {
            return Err(format!(
                "a compose takes 1 to {MOST_SOURCES} sources, not {count}"
            ));
        }
        let unnamed = sources.iter().find(|source| source.generation.is_none());
        match (self, unnamed) {
            (Self::Delete, Some(source)) => Err(format!(
                "the source {} is to be deleted and does not name its generation",
                source.name
            )),
            (Self::Keep, _) | (_, None) => Ok(()),
        }
    }
}

/// A rename or a copy inside the bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferRequest {
    /// From here.
    pub source: ObjectName,
    /// To here, over whatever is there unless the preconditions say otherwise.
    pub target: ObjectName,
    /// Preconditions on the source.
    pub source_preconditions: Preconditions,
    /// Preconditions on the target.
    pub target_preconditions: Preconditions,
}

/// Changes of an object's metadata. `None` leaves a field as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// Custom metadata to set (`Some`) or remove (`None`), key by key; keys that are not named stay.
    pub metadata: Vec<(String, Option<String>)>,
}

/// Which folders to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderListRequest {
    /// Only folders whose names begin with this: empty, or the name of a folder.
    pub prefix: String,
    /// Only those directly below the prefix; else all of them at any depth. The folder of the prefix may be listed with
    /// either.
    pub children_only: bool,
    /// Where the page before this one ended; opaque.
    pub page_token: Option<String>,
    /// The most folders on one page; the store may return fewer. `None`: the store's own.
    pub max_results: Option<u32>,
}

/// One page of folders, in byte order of the names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderPage {
    /// Folders that are there.
    pub folders: Vec<Folder>,
    /// Pass as [`FolderListRequest::page_token`] for more. A page may be empty and still have a next one.
    pub next_page_token: Option<String>,
}

/// A rename of a folder with everything in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderRename {
    /// From here.
    pub source: FolderName,
    /// To here, where no folder is.
    pub target: FolderName,
    /// The source's metageneration; without it, a rename whose request may have been lost is not repeated.
    pub source_metageneration: Option<Metageneration>,
}

/// Whole seconds by which the store's clock is ahead of this machine's; negative: behind.
///
/// It cannot be told better than to a second, and to the time that an answer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClockOffset(pub i64);

/// One bucket.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Asks whether the bucket is there and usable by this identity. An identity that may list or read objects but not
    /// the bucket's own metadata gets `Ok` with the unknown fields empty.
    ///
    /// # Errors
    /// `NotFound` where there is no such bucket, `Denied` where the identity may do nothing in it, `Unauthenticated`.
    async fn bucket(&self) -> Result<Bucket>;

    /// Which of the `wanted` permissions, such as `storage.objects.get`, this identity has on the bucket: in the order
    /// in which they were asked for, and none that was not. An identity that may do nothing gets `Ok` and an empty list.
    ///
    /// Source: <https://cloud.google.com/storage/docs/json_api/v1/buckets/testIamPermissions>.
    ///
    /// # Errors
    /// `Invalid` where nothing is wanted, `NotFound` where there is no such bucket, `Unauthenticated`, also for nobody
    /// in particular in a bucket that is not public.
    async fn permissions(&self, wanted: &[&str]) -> Result<Vec<String>>;

    /// How the store's clock stood to ours at its last answer, a refusal included, so that it is known of a store that
    /// lets nobody in. `None` before the first answer, and of a store that does not tell the time.
    fn clock_offset(&self) -> Option<ClockOffset> {
        None
    }

    /// The most bytes of content that one [`Upload`] of this store keeps at a time, those under way and those kept for
    /// replay together, beside the piece that [`Upload::write`] is being handed. Constant for the life of the store, so
    /// that whoever bounds memory can set as much aside for each upload before it begins. Pieces are kept by reference:
    /// one that is a slice of a larger buffer holds all of that buffer, which is not counted here.
    ///
    /// Zero where an upload keeps nothing in this process.
    fn upload_memory(&self) -> usize {
        0
    }

    /// The live object of this name.
    ///
    /// # Errors
    /// `NotFound`.
    async fn stat(&self, name: &ObjectName) -> Result<Object>;

    /// One page of names.
    ///
    /// # Errors
    /// `Invalid` for a page token that is not the store's.
    async fn list(&self, request: &ListRequest) -> Result<ListPage>;

    /// Bytes of one generation as they are stored, not decompressed.
    ///
    /// # Errors
    /// `NotFound`, `Precondition`; `OutOfRange` where the range begins at or behind the end (an empty object has no
    /// readable range, but can be read whole); `Corrupt`, at once or in the stream, when the answer is not what was asked.
    async fn read(&self, request: &ReadRequest) -> Result<Read>;

    /// Makes `body` the live content of the name, in one step.
    ///
    /// # Errors
    /// `Precondition`, and then the old object is untouched.
    async fn write(&self, request: &WriteRequest, body: Bytes) -> Result<Object>;

    /// Begins an upload whose length is not known.
    ///
    /// # Errors
    /// `Precondition` where it does not hold already; an implementation that has not asked the store yet says so in a
    /// later call of the upload.
    async fn upload(&self, request: &WriteRequest) -> Result<Box<dyn Upload>>;

    /// Changes metadata without touching the content: same generation, next metageneration.
    ///
    /// # Errors
    /// `NotFound`, `Precondition`.
    async fn patch(
        &self,
        name: &ObjectName,
        patch: &Patch,
        preconditions: &Preconditions,
    ) -> Result<Object>;

    /// Removes the live object.
    ///
    /// # Errors
    /// `NotFound`, `Precondition`, `Held`.
    async fn delete(&self, name: &ObjectName, preconditions: &Preconditions) -> Result<()>;

    /// Makes the bytes of 1 to 32 sources, in order, the live content of the target, in one step. The target may be a
    /// source; then, and with [`Sources::Delete`], [`ComposeSource::known`] is what makes a lost answer no unknown
    /// outcome.
    ///
    /// Deleting the sources is no part of that step: for a moment the target and its sources may be there together, but
    /// never a source gone without the target. When the call returns, they are gone; only where its answer was lost, and
    /// a source cannot be deleted then, that one stays.
    ///
    /// # Errors
    /// `NotFound` for a missing source, `Precondition` for the target or a source's generation, `Invalid` for a wrong
    /// number of sources and for one that is to be deleted but names no generation, `Held` for one that may not be
    /// deleted. After any of these no source is gone.
    async fn compose(
        &self,
        request: &WriteRequest,
        sources: &[ComposeSource],
        after: Sources,
    ) -> Result<Object>;

    /// Makes a copy of the source, metadata included, the live object of the target.
    ///
    /// # Errors
    /// `NotFound`, `Precondition`.
    async fn copy(&self, request: &TransferRequest) -> Result<Object>;

    /// Moves the source to the target in one step: at no moment are both or neither there.
    ///
    /// # Errors
    /// `NotFound`, `Precondition`, `Unsupported` where the service cannot move.
    async fn rename(&self, request: &TransferRequest) -> Result<Object>;

    /// How the bucket keeps its objects, for whom the bucket's own metadata is closed too.
    ///
    /// # Errors
    /// `NotFound` where there is no such bucket, `Denied`.
    async fn layout(&self) -> Result<Layout> {
        Err(unsupported("storage.buckets.getStorageLayout", "bucket"))
    }

    /// Makes an empty folder, and with `recursive` the folders that it is in.
    ///
    /// This and all further calls are for buckets with a hierarchical namespace, and `Unsupported` in any other.
    ///
    /// # Errors
    /// `Exists`; `NotFound` where the folder that it is to be in is missing.
    async fn create_folder(&self, name: &FolderName, recursive: bool) -> Result<Folder> {
        let _ = recursive;
        Err(unsupported("storage.folders.insert", name))
    }

    /// The folder of this name. Writing an object makes the folders that it is in.
    ///
    /// # Errors
    /// `NotFound`.
    async fn folder(&self, name: &FolderName) -> Result<Folder> {
        Err(unsupported("storage.folders.get", name))
    }

    /// One page of folders.
    ///
    /// # Errors
    /// `Invalid` for a prefix that is no folder's name, and for a page token that is not the store's.
    async fn list_folders(&self, request: &FolderListRequest) -> Result<FolderPage> {
        Err(unsupported("storage.folders.list", &request.prefix))
    }

    /// Moves a folder with all folders and objects in it, in one step, and returns when it is done: at no moment is a
    /// part of it here and a part there. While it lasts, writes below either name are `Throttled`.
    ///
    /// # Errors
    /// `NotFound` for the source and for the folder that the target is to be in, `Exists` for the target,
    /// `Precondition`, `Invalid` for a target inside the source.
    async fn rename_folder(&self, request: &FolderRename) -> Result<Folder> {
        Err(unsupported("storage.folders.rename", &request.source))
    }

    /// Removes an empty folder, where `metageneration` is the one that it has.
    ///
    /// # Errors
    /// `NotFound`, `NotEmpty`, `Precondition`.
    async fn delete_folder(
        &self,
        name: &FolderName,
        metageneration: Option<Metageneration>,
    ) -> Result<()> {
        let _ = metageneration;
        Err(unsupported("storage.folders.delete", name))
    }
}

/// The error of a store that has no folders.
fn unsupported(operation: &'static str, subject: &(impl std::fmt::Display + ?Sized)) -> Error {
    let message = "this store has no hierarchical namespace";
    Error::new(Kind::Unsupported, operation, subject, message)
}

/// An upload under way. Nothing is visible before [`Upload::finish`] returns; dropping it leaves nothing visible.
///
/// Its calls last as long as bytes move, which on a slow link is longer than any deadline for a whole call should be:
/// the implementation bounds every wait by progress, and a caller that bounds it by a total cuts off slow links.
#[async_trait]
pub trait Upload: Debug + Send {
    /// Appends `bytes`. Returning means that they are on their way or kept for replay, not that they are stored.
    ///
    /// # Errors
    /// After any error the upload is lost and every later call fails with the same kind.
    async fn write(&mut self, bytes: Bytes) -> Result<()>;

    /// Publishes what was written as the live content of the name, in one step, checked against the CRC32C of the bytes
    /// that were handed in.
    ///
    /// # Errors
    /// `Precondition`, `Corrupt`, `Gone`; the old object is untouched.
    async fn finish(&mut self) -> Result<Object>;

    /// Tells the store to forget the upload. Best effort: an upload that is only dropped lives on, invisible, for a week.
    async fn cancel(&mut self);
}

impl Debug for Read {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Read")
            .field("generation", &self.generation)
            .field("size", &self.size)
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}
