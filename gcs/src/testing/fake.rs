//! A bucket in memory, as strict as the contract.

mod folders;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream;
use parking_lot::Mutex;

use super::{Calls, Method, listing};
use crate::object::{Attributes, Bucket, Digest, Folder, Layout};
use crate::store::{
    ClockOffset, ComposeSource, FolderListRequest, FolderPage, FolderRename, ListPage, ListRequest,
    Patch, Preconditions, Read, ReadRequest, Sources, Store, TransferRequest, Upload, WriteRequest,
};
use crate::{Error, FolderName, Generation, Kind, Metageneration, Object, ObjectName, Result};

/// Far from zero and with gaps, as the store's own generations are.
const FIRST_GENERATION: i64 = 1_700_000_000_000_000;
const GENERATION_STEP: i64 = 1_003;

/// A bucket in memory. Clones share it.
///
/// It keeps no superseded generations and computes no MD5; both are things that a consumer must not rely on.
#[derive(Clone, Default)]
pub struct FakeStore {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    live: BTreeMap<ObjectName, Entry>,
    /// Empty in a flat bucket.
    folders: BTreeMap<FolderName, Folder>,
    published: i64,
    last_instant: Option<SystemTime>,
    calls: Calls,
    bucket: Described,
    /// `None`: everything.
    permitted: Option<Vec<String>>,
    clock_offset: Option<ClockOffset>,
    upload_memory: usize,
}

/// What the bucket says of itself.
struct Described(Bucket);

impl Default for Described {
    fn default() -> Self {
        Self(Bucket {
            location: "US".to_owned(),
            storage_class: "STANDARD".to_owned(),
            hierarchical: false,
            uniform_access: Some(true),
        })
    }
}

#[derive(Clone)]
struct Entry {
    object: Object,
    bytes: Bytes,
}

impl AsRef<Object> for Entry {
    fn as_ref(&self) -> &Object {
        &self.object
    }
}

impl FakeStore {
    /// An empty bucket.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty bucket with a hierarchical namespace.
    #[must_use]
    pub fn hierarchical() -> Self {
        let store = Self::default();
        store.state.lock().bucket.0.hierarchical = true;
        store
    }

    /// Publishes an object past every precondition, as another writer would. Not counted in [`FakeStore::calls`].
    ///
    /// # Panics
    /// For a name that the store would refuse.
    pub fn put(&self, name: &str, bytes: impl Into<Bytes>) -> Object {
        self.put_with(name, bytes, Attributes::default())
    }

    /// [`FakeStore::put`] with attributes.
    ///
    /// # Panics
    /// For a name that the store would refuse.
    pub fn put_with(&self, name: &str, bytes: impl Into<Bytes>, attributes: Attributes) -> Object {
        #[expect(clippy::expect_used, reason = "a wrong name is a mistake in the test")]
        let name = ObjectName::parse(name).expect("a valid object name");
        self.state
            .lock()
            .publish(&name, attributes, bytes.into(), None)
    }

    /// Removes an object as another writer would; whether there was one. Not counted.
    pub fn remove(&self, name: &str) -> bool {
        self.state.lock().live.remove(name).is_some()
    }

    /// The live bytes of a name, to look at without a call.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<Bytes> {
        self.state.lock().live.get(name).map(|e| e.bytes.clone())
    }

    /// The live object of a name, to look at without a call.
    #[must_use]
    pub fn object(&self, name: &str) -> Option<Object> {
        self.state.lock().live.get(name).map(|e| e.object.clone())
    }

    /// Every live name, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let state = self.state.lock();
        state.live.keys().map(ToString::to_string).collect()
    }

    /// What [`Store::bucket`] answers from now on. Of the rest, only folders go by it: there are some where it says
    /// that the bucket is hierarchical.
    pub fn set_bucket(&self, bucket: Bucket) {
        self.state.lock().bucket = Described(bucket);
    }

    /// The only permissions that [`Store::permissions`] still grants. Calls that need others work all the same.
    pub fn permit_only(&self, permissions: &[&str]) {
        let permissions = permissions.iter().map(ToString::to_string).collect();
        self.state.lock().permitted = Some(permissions);
    }

    /// What [`Store::clock_offset`] tells from now on; nothing until then.
    pub fn set_clock_offset(&self, offset: Option<ClockOffset>) {
        self.state.lock().clock_offset = offset;
    }

    /// What [`Store::upload_memory`] tells from now on; nothing until then, since what is written is as good as in the
    /// bucket.
    pub fn set_upload_memory(&self, bytes: usize) {
        self.state.lock().upload_memory = bytes;
    }

    /// The calls so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.state.lock().calls.clone()
    }

    /// Counts from zero again.
    pub fn reset_calls(&self) {
        self.state.lock().calls = Calls::default();
    }

    /// Counts the call and acts in one step.
    fn call<T>(
        &self,
        method: Method,
        subject: &(impl fmt::Display + ?Sized),
        act: impl FnOnce(&mut State) -> Result<T, Kind>,
    ) -> Result<T> {
        let mut state = self.state.lock();
        state.calls.count(method);
        act(&mut state).map_err(|kind| error(method, subject, kind))
    }
}

fn error(method: Method, subject: &(impl fmt::Display + ?Sized), kind: Kind) -> Error {
    let why = match kind {
        Kind::NotFound => "no such object",
        Kind::Precondition => "the precondition does not hold",
        Kind::OutOfRange => "the range begins behind the end of the object",
        Kind::Canceled => "the upload was canceled",
        Kind::Exists => "the folder already exists",
        Kind::NotEmpty => "the folder is not empty",
        Kind::Unsupported => "the bucket does not support hierarchical namespace",
        _ => "the request is wrong",
    };
    Error::new(kind, method.operation(), subject, why)
}

impl State {
    fn publish(
        &mut self,
        name: &ObjectName,
        attributes: Attributes,
        bytes: Bytes,
        component_count: Option<u64>,
    ) -> Object {
        self.published += 1;
        let now = self.now();
        let object = Object {
            name: name.clone(),
            generation: Generation(FIRST_GENERATION + self.published * GENERATION_STEP),
            metageneration: Metageneration(1),
            size: bytes.len() as u64,
            crc32c: Some(crc32c::crc32c(&bytes)),
            md5: None,
            created: now,
            updated: now,
            component_count,
            attributes: Attributes {
                storage_class: attributes
                    .storage_class
                    .clone()
                    .or_else(|| Some("STANDARD".to_owned())),
                ..attributes
            },
        };
        let entry = Entry {
            object: object.clone(),
            bytes,
        };
        self.live.insert(name.clone(), entry);
        self.house(name);
        object
    }

    /// Wall time that never repeats, so that `updated` orders changes.
    fn now(&mut self) -> SystemTime {
        let mut now = SystemTime::now();
        if let Some(last) = self.last_instant {
            now = now.max(last + Duration::from_millis(1));
        }
        self.last_instant = Some(now);
        now
    }

    fn entry(&self, name: &ObjectName, preconditions: &Preconditions) -> Result<&Entry, Kind> {
        let entry = self.live.get(name).ok_or(Kind::NotFound)?;
        check(preconditions, Some(&entry.object))?;
        Ok(entry)
    }

    fn check_target(&self, name: &ObjectName, preconditions: &Preconditions) -> Result<(), Kind> {
        check(preconditions, self.live.get(name).map(|e| &e.object))
    }
}

fn check(preconditions: &Preconditions, live: Option<&Object>) -> Result<(), Kind> {
    let generation = live.map_or(Generation::ABSENT, |o| o.generation);
    let metageneration = live.map(|o| o.metageneration);
    let holds = preconditions.generation.is_none_or(|g| g == generation)
        && preconditions.generation_not.is_none_or(|g| g != generation)
        && preconditions
            .metageneration
            .is_none_or(|m| Some(m) == metageneration)
        && preconditions
            .metageneration_not
            .is_none_or(|m| metageneration.is_some_and(|live| m != live));
    holds.then_some(()).ok_or(Kind::Precondition)
}

/// The bytes in pieces of odd lengths, so that nobody can take one piece for the whole.
fn pieces(mut bytes: Bytes) -> Vec<Result<Bytes>> {
    let mut lengths = [1, 1_021, 4_099]
        .into_iter()
        .chain(std::iter::repeat(65_537));
    let mut pieces = Vec::new();
    while let Some(length) = lengths.next().filter(|_| !bytes.is_empty()) {
        pieces.push(Ok(bytes.split_to(length.min(bytes.len()))));
    }
    pieces
}

fn clip(range: Option<&Range<u64>>, size: u64) -> Result<Range<u64>, Kind> {
    match range {
        None => Ok(0..size),
        Some(range) if range.is_empty() => Err(Kind::Invalid),
        Some(range) if range.start >= size => Err(Kind::OutOfRange),
        Some(range) => Ok(range.start..range.end.min(size)),
    }
}

fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "clipped to the length of bytes in memory"
    )]
    bytes.slice(range.start as usize..range.end as usize)
}

impl fmt::Debug for FakeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeStore")
            .field("objects", &self.state.lock().live.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for FakeStore {
    async fn bucket(&self) -> Result<Bucket> {
        let mut state = self.state.lock();
        state.calls.count(Method::Bucket);
        Ok(state.bucket.0.clone())
    }

    async fn permissions(&self, wanted: &[&str]) -> Result<Vec<String>> {
        let mut state = self.state.lock();
        state.calls.count(Method::Permissions);
        if wanted.is_empty() {
            return Err(error(Method::Permissions, "bucket", Kind::Invalid));
        }
        let granted = wanted.iter().filter(|wanted| {
            let permitted = state.permitted.as_ref();
            permitted.is_none_or(|permitted| permitted.iter().any(|held| held == *wanted))
        });
        Ok(granted.map(ToString::to_string).collect())
    }

    fn clock_offset(&self) -> Option<ClockOffset> {
        self.state.lock().clock_offset
    }

    fn upload_memory(&self) -> usize {
        self.state.lock().upload_memory
    }

    async fn stat(&self, name: &ObjectName) -> Result<Object> {
        self.call(Method::Stat, name, |state| {
            let entry = state.entry(name, &Preconditions::default())?;
            Ok(entry.object.clone())
        })
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        let mut state = self.state.lock();
        state.calls.count(Method::List);
        listing::page(&state.live, request)
            .ok_or_else(|| error(Method::List, &request.prefix, Kind::Invalid))
    }

    async fn read(&self, request: &ReadRequest) -> Result<Read> {
        let (entry, range) = self.call(Method::Read, &request.name, |state| {
            let live = state.live.get(&request.name).ok_or(Kind::NotFound)?;
            if request
                .generation
                .is_some_and(|g| g != live.object.generation)
            {
                return Err(Kind::NotFound);
            }
            check(&request.preconditions, Some(&live.object))?;
            let range = clip(request.range.as_ref(), live.object.size)?;
            Ok((live.clone(), range))
        })?;
        Ok(Read {
            generation: entry.object.generation,
            metageneration: entry.object.metageneration,
            size: entry.object.size,
            crc32c: entry.object.crc32c,
            body: stream::iter(pieces(slice(&entry.bytes, &range))).boxed(),
            range,
        })
    }

    async fn write(&self, request: &WriteRequest, body: Bytes) -> Result<Object> {
        self.call(Method::Write, &request.name, |state| {
            state.check_target(&request.name, &request.preconditions)?;
            Ok(state.publish(&request.name, request.attributes.clone(), body, None))
        })
    }

    async fn upload(&self, request: &WriteRequest) -> Result<Box<dyn Upload>> {
        self.call(Method::Upload, &request.name, |state| {
            state.check_target(&request.name, &request.preconditions)
        })?;
        Ok(Box::new(FakeUpload {
            store: self.clone(),
            request: request.clone(),
            phase: Phase::Open(BytesMut::new()),
        }))
    }

    async fn patch(
        &self,
        name: &ObjectName,
        patch: &Patch,
        preconditions: &Preconditions,
    ) -> Result<Object> {
        self.call(Method::Patch, name, |state| {
            state.entry(name, preconditions)?;
            let now = state.now();
            let entry = state.live.get_mut(name).ok_or(Kind::NotFound)?;
            apply(patch, &mut entry.object.attributes);
            entry.object.metageneration.0 += 1;
            entry.object.updated = now;
            Ok(entry.object.clone())
        })
    }

    async fn delete(&self, name: &ObjectName, preconditions: &Preconditions) -> Result<()> {
        self.call(Method::Delete, name, |state| {
            state.entry(name, preconditions)?;
            state.live.remove(name);
            Ok(())
        })
    }

    async fn compose(
        &self,
        request: &WriteRequest,
        sources: &[ComposeSource],
        after: Sources,
    ) -> Result<Object> {
        self.call(Method::Compose, &request.name, |state| {
            after.refuse(sources).map_err(|_| Kind::Invalid)?;
            state.check_target(&request.name, &request.preconditions)?;
            let mut bytes = BytesMut::new();
            let mut components = 0;
            for source in sources {
                let preconditions = Preconditions {
                    generation: source.generation,
                    ..Preconditions::default()
                };
                let entry = state.entry(&source.name, &preconditions)?;
                let pinned = source.known.filter(|_| source.generation.is_some());
                if pinned.is_some_and(|known| Digest::of(&entry.object) != Some(known)) {
                    return Err(Kind::Invalid);
                }
                bytes.extend_from_slice(&entry.bytes);
                components += entry.object.component_count.unwrap_or(1);
            }
            let others = sources.iter().filter(|source| source.name != request.name);
            for source in others.filter(|_| after == Sources::Delete) {
                state.live.remove(&source.name);
            }
            let attributes = request.attributes.clone();
            Ok(state.publish(&request.name, attributes, bytes.freeze(), Some(components)))
        })
    }

    async fn copy(&self, request: &TransferRequest) -> Result<Object> {
        self.call(Method::Copy, &request.source, |state| {
            transfer(state, request)
        })
    }

    async fn rename(&self, request: &TransferRequest) -> Result<Object> {
        self.call(Method::Rename, &request.source, |state| {
            if request.source == request.target {
                return Err(Kind::Invalid);
            }
            let object = transfer(state, request)?;
            state.live.remove(&request.source);
            Ok(object)
        })
    }

    async fn layout(&self) -> Result<Layout> {
        let mut state = self.state.lock();
        state.calls.count(Method::Layout);
        let bucket = &state.bucket.0;
        Ok(Layout {
            location: bucket.location.clone(),
            location_type: "multi-region".to_owned(),
            hierarchical: bucket.hierarchical,
        })
    }

    async fn create_folder(&self, name: &FolderName, recursive: bool) -> Result<Folder> {
        self.call(Method::CreateFolder, name, |state| {
            state.create_folder(name, recursive)
        })
    }

    async fn folder(&self, name: &FolderName) -> Result<Folder> {
        self.call(Method::Folder, name, |state| state.folder(name))
    }

    async fn list_folders(&self, request: &FolderListRequest) -> Result<FolderPage> {
        self.call(Method::ListFolders, &request.prefix, |state| {
            state.list_folders(request)
        })
    }

    async fn rename_folder(&self, request: &FolderRename) -> Result<Folder> {
        self.call(Method::RenameFolder, &request.source, |state| {
            state.rename_folder(request)
        })
    }

    async fn delete_folder(
        &self,
        name: &FolderName,
        metageneration: Option<Metageneration>,
    ) -> Result<()> {
        self.call(Method::DeleteFolder, name, |state| {
            state.delete_folder(name, metageneration)
        })
    }
}

fn transfer(state: &mut State, request: &TransferRequest) -> Result<Object, Kind> {
    let source = state
        .entry(&request.source, &request.source_preconditions)?
        .clone();
    state.check_target(&request.target, &request.target_preconditions)?;
    Ok(state.publish(
        &request.target,
        source.object.attributes,
        source.bytes,
        source.object.component_count,
    ))
}

fn apply(patch: &Patch, attributes: &mut Attributes) {
    if let Some(content_type) = &patch.content_type {
        attributes.content_type = Some(content_type.clone());
    }
    for (key, value) in &patch.metadata {
        match value {
            Some(value) => attributes.metadata.insert(key.clone(), value.clone()),
            None => attributes.metadata.remove(key),
        };
    }
}

struct FakeUpload {
    store: FakeStore,
    request: WriteRequest,
    phase: Phase,
}

enum Phase {
    Open(BytesMut),
    Finished,
    Failed(Kind),
}

impl FakeUpload {
    fn closed(&self, method: Method, kind: Kind) -> Error {
        error(method, &self.request.name, kind)
    }
}

impl fmt::Debug for FakeUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeUpload")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Upload for FakeUpload {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.store.state.lock().calls.count(Method::UploadWrite);
        match &mut self.phase {
            Phase::Open(written) => {
                written.extend_from_slice(&bytes);
                Ok(())
            }
            Phase::Finished => Err(self.closed(Method::UploadWrite, Kind::Invalid)),
            Phase::Failed(kind) => Err(error(Method::UploadWrite, &self.request.name, *kind)),
        }
    }

    async fn finish(&mut self) -> Result<Object> {
        let request = &self.request;
        let phase = &mut self.phase;
        self.store
            .call(Method::UploadFinish, &request.name, |state| {
                let written = match phase {
                    Phase::Open(written) => written.split().freeze(),
                    Phase::Finished => return Err(Kind::Invalid),
                    Phase::Failed(kind) => return Err(*kind),
                };
                if let Err(kind) = state.check_target(&request.name, &request.preconditions) {
                    *phase = Phase::Failed(kind);
                    return Err(kind);
                }
                *phase = Phase::Finished;
                Ok(state.publish(&request.name, request.attributes.clone(), written, None))
            })
    }

    async fn cancel(&mut self) {
        self.store.state.lock().calls.count(Method::UploadCancel);
        if let Phase::Open(_) = self.phase {
            self.phase = Phase::Failed(Kind::Canceled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::contract;

    #[tokio::test]
    async fn fake_keeps_the_contract() {
        contract::run_all(|| async { Arc::new(FakeStore::new()) as Arc<dyn Store> }).await;
        contract::run_folders(|| async { Arc::new(FakeStore::hierarchical()) as Arc<dyn Store> })
            .await;
    }

    #[tokio::test]
    async fn a_flat_bucket_has_no_folders() {
        let store = FakeStore::new();
        store.put("a/b", "x");
        let name = FolderName::parse("a/").unwrap();
        assert!(!store.layout().await.unwrap().hierarchical);
        let unsupported = [
            store.create_folder(&name, true).await.err(),
            store.folder(&name).await.err(),
            store
                .list_folders(&FolderListRequest::default())
                .await
                .err(),
            store.delete_folder(&name, None).await.err(),
        ];
        for error in unsupported {
            assert_eq!(error.unwrap().kind, Kind::Unsupported);
        }
    }

    #[tokio::test]
    async fn a_source_that_is_known_wrongly_is_told() {
        let store = FakeStore::new();
        let object = store.put("o", "body");
        let request = WriteRequest {
            name: ObjectName::parse("p").unwrap(),
            attributes: Attributes::default(),
            preconditions: Preconditions::absent(),
        };
        let mut source = ComposeSource::from(&object);
        source.known = Some(Digest::EMPTY);
        let error = store
            .compose(&request, &[source], Sources::Keep)
            .await
            .unwrap_err();
        assert_eq!((error.kind, store.bytes("p")), (Kind::Invalid, None));
    }

    #[tokio::test]
    async fn calls_are_counted_by_method() {
        let store = FakeStore::new();
        let object = store.put("o", "not counted");
        store.stat(&object.name).await.unwrap();
        store.stat(&object.name).await.unwrap();
        store.list(&ListRequest::default()).await.unwrap();
        assert_eq!(store.calls().of(Method::Stat), 2);
        assert_eq!(store.calls().of(Method::List), 1);
        assert_eq!(store.calls().total(), 3);
        store.reset_calls();
        assert_eq!(store.calls().total(), 0);
    }

    #[tokio::test]
    async fn the_bucket_is_what_it_was_set_to() {
        let store = FakeStore::new();
        assert_eq!(store.bucket().await.unwrap().uniform_access, Some(true));
        assert_eq!(store.clock_offset(), None);
        let wanted = ["storage.objects.list", "storage.objects.get"];
        assert_eq!(store.permissions(&wanted).await.unwrap(), wanted);

        let acl_bucket = Bucket {
            uniform_access: Some(false),
            ..store.bucket().await.unwrap()
        };
        store.set_bucket(acl_bucket.clone());
        store.permit_only(&["storage.objects.get", "storage.buckets.get"]);
        store.set_clock_offset(Some(ClockOffset(90)));
        assert_eq!(store.bucket().await.unwrap(), acl_bucket);
        assert_eq!(store.clock_offset(), Some(ClockOffset(90)));
        assert_eq!(
            store.permissions(&wanted).await.unwrap(),
            ["storage.objects.get"]
        );
        store.permit_only(&[]);
        assert!(store.permissions(&wanted).await.unwrap().is_empty());
        assert_eq!(store.calls().of(Method::Permissions), 3);
    }

    #[tokio::test]
    async fn bodies_come_in_several_pieces() {
        let store = FakeStore::new();
        store.put("o", vec![7; 10]);
        let request = ReadRequest {
            name: ObjectName::parse("o").unwrap(),
            generation: None,
            range: None,
            preconditions: Preconditions::default(),
        };
        let read = store.read(&request).await.unwrap();
        assert_eq!(read.body.count().await, 2);
    }
}
