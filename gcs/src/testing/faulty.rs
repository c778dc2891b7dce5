//! Failures on cue around any store.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, future, stream};
use parking_lot::Mutex;

use super::Method;
use crate::object::{Bucket, Folder, Layout};
use crate::store::{
    ClockOffset, ComposeSource, FolderListRequest, FolderPage, FolderRename, ListPage, ListRequest,
    Patch, Preconditions, Read, ReadRequest, Sources, Store, TransferRequest, Upload, WriteRequest,
};
use crate::{Error, FolderName, Kind, Metageneration, Object, ObjectName, Result};

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fails; nothing happened.
    Before(Kind),
    /// Fails although it happened: the answer is lost.
    After(Kind),
    /// Never answers.
    Stall,
    /// [`Method::Read`]: the body fails behind this many bytes.
    BreakBody(u64, Kind),
    /// [`Method::Read`]: the body stops for ever behind this many bytes.
    StallBody(u64),
    /// [`Method::Read`]: the body ends behind this many bytes as if all were well, which no honest store does.
    ShortBody(u64),
    /// [`Method::Read`]: the byte at this offset of the body is wrong.
    WrongByte(u64),
}

/// Any store, failing on cue. Clones share store and script.
#[derive(Debug, Clone)]
pub struct FaultyStore<S> {
    inner: S,
    script: Script,
}

#[derive(Debug, Clone, Default)]
struct Script(Arc<Mutex<HashMap<Method, VecDeque<Option<Fault>>>>>);

impl<S: Store> FaultyStore<S> {
    /// `inner`, with no fault as yet.
    #[must_use]
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            script: Script::default(),
        }
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Lets the next `times` calls of `method` that have no fault yet meet `fault`.
    pub fn inject(&self, method: Method, times: usize, fault: Fault) {
        self.script.extend(method, times, Some(fault));
    }

    /// Lets the next `times` calls of `method` pass, so that a later fault meets a later call.
    pub fn pass(&self, method: Method, times: usize) {
        self.script.extend(method, times, None);
    }

    /// The faults of `method` that no call has met.
    #[must_use]
    pub fn pending(&self, method: Method) -> usize {
        let script = self.script.0.lock();
        script
            .get(&method)
            .map_or(0, |faults| faults.iter().flatten().count())
    }
}

impl Script {
    fn extend(&self, method: Method, times: usize, fault: Option<Fault>) {
        let mut script = self.0.lock();
        let faults = script.entry(method).or_default();
        faults.extend(std::iter::repeat_n(fault, times));
    }

    fn next(&self, method: Method) -> Option<Fault> {
        self.0.lock().get_mut(&method)?.pop_front().flatten()
    }

    /// Runs `act` under the next fault of `method`; faults of bodies are left to the caller.
    async fn run<T>(
        &self,
        method: Method,
        subject: &(impl std::fmt::Display + ?Sized + Sync),
        act: impl Future<Output = Result<T>> + Send,
    ) -> (Result<T>, Option<Fault>) {
        let fault = self.next(method);
        let result = match fault {
            Some(Fault::Before(kind)) => Err(injected(method, subject, kind)),
            Some(Fault::After(kind)) => match act.await {
                Ok(_) => Err(injected(method, subject, kind)),
                Err(error) => Err(error),
            },
            Some(Fault::Stall) => future::pending().await,
            Some(
                Fault::BreakBody(..)
                | Fault::StallBody(_)
                | Fault::ShortBody(_)
                | Fault::WrongByte(_),
            )
            | None => act.await,
        };
        (result, fault)
    }
}

fn injected(method: Method, subject: &(impl std::fmt::Display + ?Sized), kind: Kind) -> Error {
    Error::new(kind, method.operation(), subject, "injected fault")
}

fn damage(
    body: BoxStream<'static, Result<Bytes>>,
    fault: Fault,
    name: &ObjectName,
) -> BoxStream<'static, Result<Bytes>> {
    match fault {
        Fault::BreakBody(after, kind) => {
            let error = injected(Method::Read, name, kind);
            cut(body, after)
                .chain(stream::once(future::ready(Err(error))))
                .boxed()
        }
        Fault::StallBody(after) => cut(body, after).chain(stream::pending()).boxed(),
        Fault::ShortBody(after) => cut(body, after).boxed(),
        Fault::WrongByte(offset) => flip(body, offset).boxed(),
        Fault::Before(_) | Fault::After(_) | Fault::Stall => body,
    }
}

/// The first `left` bytes.
fn cut(
    body: BoxStream<'static, Result<Bytes>>,
    left: u64,
) -> impl futures_util::Stream<Item = Result<Bytes>> + Send {
    body.scan(left, |left, piece| {
        let piece = match piece {
            Ok(_) if *left == 0 => None,
            Ok(mut piece) => {
                piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.len() as u64;
                Some(Ok(piece))
            }
            Err(error) => Some(Err(error)),
        };
        future::ready(piece)
    })
}

fn flip(
    body: BoxStream<'static, Result<Bytes>>,
    offset: u64,
) -> impl futures_util::Stream<Item = Result<Bytes>> + Send {
    body.scan(offset, |ahead, piece| {
        let piece = piece.map(|piece| {
            let here = usize::try_from(*ahead).ok();
            *ahead = match here {
                Some(here) if here < piece.len() => u64::MAX,
                _ => ahead.saturating_sub(piece.len() as u64),
            };
            match here {
                Some(here) if here < piece.len() => {
                    let mut wrong = BytesMut::from(piece.as_ref());
                    wrong[here] ^= 1;
                    wrong.freeze()
                }
                _ => piece,
            }
        });
        future::ready(Some(piece))
    })
}

#[async_trait]
impl<S: Store> Store for FaultyStore<S> {
    async fn bucket(&self) -> Result<Bucket> {
        let act = self.inner.bucket();
        self.script.run(Method::Bucket, "bucket", act).await.0
    }

    async fn permissions(&self, wanted: &[&str]) -> Result<Vec<String>> {
        let act = self.inner.permissions(wanted);
        self.script.run(Method::Permissions, "bucket", act).await.0
    }

    fn clock_offset(&self) -> Option<ClockOffset> {
        self.inner.clock_offset()
    }

    fn upload_memory(&self) -> usize {
        self.inner.upload_memory()
    }

    async fn stat(&self, name: &ObjectName) -> Result<Object> {
        let act = self.inner.stat(name);
        self.script.run(Method::Stat, name, act).await.0
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        let act = self.inner.list(request);
        self.script.run(Method::List, &request.prefix, act).await.0
    }

    async fn read(&self, request: &ReadRequest) -> Result<Read> {
        let act = self.inner.read(request);
        let (read, fault) = self.script.run(Method::Read, &request.name, act).await;
        let mut read = read?;
        if let Some(fault) = fault {
            read.body = damage(read.body, fault, &request.name);
        }
        Ok(read)
    }

    async fn write(&self, request: &WriteRequest, body: Bytes) -> Result<Object> {
        let act = self.inner.write(request, body);
        self.script.run(Method::Write, &request.name, act).await.0
    }

    async fn upload(&self, request: &WriteRequest) -> Result<Box<dyn Upload>> {
        let act = self.inner.upload(request);
        let (upload, _) = self.script.run(Method::Upload, &request.name, act).await;
        Ok(Box::new(FaultyUpload {
            inner: upload?,
            script: self.script.clone(),
            name: request.name.clone(),
            lost: None,
        }))
    }

    async fn patch(
        &self,
        name: &ObjectName,
        patch: &Patch,
        preconditions: &Preconditions,
    ) -> Result<Object> {
        let act = self.inner.patch(name, patch, preconditions);
        self.script.run(Method::Patch, name, act).await.0
    }

    async fn delete(&self, name: &ObjectName, preconditions: &Preconditions) -> Result<()> {
        let act = self.inner.delete(name, preconditions);
        self.script.run(Method::Delete, name, act).await.0
    }

    async fn compose(
        &self,
        request: &WriteRequest,
        sources: &[ComposeSource],
        after: Sources,
    ) -> Result<Object> {
        let act = self.inner.compose(request, sources, after);
        self.script.run(Method::Compose, &request.name, act).await.0
    }

    async fn copy(&self, request: &TransferRequest) -> Result<Object> {
        let act = self.inner.copy(request);
        self.script.run(Method::Copy, &request.source, act).await.0
    }

    async fn rename(&self, request: &TransferRequest) -> Result<Object> {
        let act = self.inner.rename(request);
        self.script
            .run(Method::Rename, &request.source, act)
            .await
            .0
    }

    async fn layout(&self) -> Result<Layout> {
        let act = self.inner.layout();
        self.script.run(Method::Layout, "bucket", act).await.0
    }

    async fn create_folder(&self, name: &FolderName, recursive: bool) -> Result<Folder> {
        let act = self.inner.create_folder(name, recursive);
        self.script.run(Method::CreateFolder, name, act).await.0
    }

    async fn folder(&self, name: &FolderName) -> Result<Folder> {
        let act = self.inner.folder(name);
        self.script.run(Method::Folder, name, act).await.0
    }

    async fn list_folders(&self, request: &FolderListRequest) -> Result<FolderPage> {
        let act = self.inner.list_folders(request);
        let subject = &request.prefix;
        self.script.run(Method::ListFolders, subject, act).await.0
    }

    async fn rename_folder(&self, request: &FolderRename) -> Result<Folder> {
        let act = self.inner.rename_folder(request);
        let subject = &request.source;
        self.script.run(Method::RenameFolder, subject, act).await.0
    }

    async fn delete_folder(
        &self,
        name: &FolderName,
        metageneration: Option<Metageneration>,
    ) -> Result<()> {
        let act = self.inner.delete_folder(name, metageneration);
        self.script.run(Method::DeleteFolder, name, act).await.0
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn Upload>,
    script: Script,
    name: ObjectName,
    /// The contract: after an error every later call fails with the same kind.
    lost: Option<Error>,
}

impl FaultyUpload {
    fn keep<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.lost = Some(error.clone());
        }
        result
    }
}

#[async_trait]
impl Upload for FaultyUpload {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        let act = self.inner.write(bytes);
        let (result, _) = self.script.run(Method::UploadWrite, &self.name, act).await;
        self.keep(result)
    }

    async fn finish(&mut self) -> Result<Object> {
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        let act = self.inner.finish();
        let (result, _) = self.script.run(Method::UploadFinish, &self.name, act).await;
        self.keep(result)
    }

    async fn cancel(&mut self) {
        if let Some(Fault::Stall) = self.script.next(Method::UploadCancel) {
            future::pending::<()>().await;
        }
        self.inner.cancel().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::testing::{FakeStore, contract};

    const MINUTE: Duration = Duration::from_secs(60);

    fn name() -> ObjectName {
        ObjectName::parse("o").unwrap()
    }

    fn store() -> FaultyStore<FakeStore> {
        let fake = FakeStore::new();
        fake.put("o", "0123456789");
        FaultyStore::new(fake)
    }

    /// The bytes before the end of the body, and its error if it has one.
    async fn read(store: &impl Store) -> (Vec<u8>, Option<Kind>) {
        let request = ReadRequest {
            name: name(),
            generation: None,
            range: None,
            preconditions: Preconditions::default(),
        };
        let mut body = store.read(&request).await.unwrap().body;
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            match piece {
                Ok(piece) => bytes.extend_from_slice(&piece),
                Err(error) => return (bytes, Some(error.kind)),
            }
        }
        (bytes, None)
    }

    #[tokio::test]
    async fn without_faults_it_keeps_the_contract() {
        contract::run_all(|| async {
            Arc::new(FaultyStore::new(FakeStore::new())) as Arc<dyn Store>
        })
        .await;
        contract::run_folders(|| async {
            Arc::new(FaultyStore::new(FakeStore::hierarchical())) as Arc<dyn Store>
        })
        .await;
    }

    #[tokio::test]
    async fn faults_meet_calls_in_order() {
        let store = store();
        store.inject(Method::Stat, 2, Fault::Before(Kind::Unavailable));
        store.pass(Method::Stat, 1);
        store.inject(Method::Stat, 1, Fault::Before(Kind::Denied));
        let mut kinds = Vec::new();
        for _ in 0..5 {
            kinds.push(store.stat(&name()).await.err().map(|e| e.kind));
        }
        let unavailable = Some(Kind::Unavailable);
        assert_eq!(
            kinds,
            [unavailable, unavailable, None, Some(Kind::Denied), None]
        );
        assert_eq!(store.inner().calls().of(Method::Stat), 2);
        assert_eq!(store.pending(Method::Stat), 0);
    }

    #[tokio::test]
    async fn the_bucket_fails_on_cue_and_its_clock_is_read() {
        let store = store();
        store.inner().set_clock_offset(Some(ClockOffset(-7)));
        store.inner().set_upload_memory(12);
        store.inject(Method::Permissions, 1, Fault::Before(Kind::Unauthenticated));
        let wanted = ["storage.objects.get"];
        let error = store.permissions(&wanted).await.unwrap_err();
        assert_eq!(
            (error.kind, error.operation),
            (Kind::Unauthenticated, "storage.buckets.testIamPermissions")
        );
        assert_eq!(store.permissions(&wanted).await.unwrap(), wanted);
        assert_eq!(store.inner().calls().of(Method::Permissions), 1);
        assert_eq!(store.clock_offset(), Some(ClockOffset(-7)));
        assert_eq!(store.upload_memory(), 12);
    }

    #[tokio::test]
    async fn a_lost_answer_has_acted() {
        let store = store();
        store.inject(Method::Delete, 1, Fault::After(Kind::Unavailable));
        let result = store.delete(&name(), &Preconditions::default()).await;
        assert_eq!(result.unwrap_err().kind, Kind::Unavailable);
        assert_eq!(store.inner().bytes("o"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_lasts() {
        let store = store();
        store.inject(Method::Stat, 1, Fault::Stall);
        store.inject(Method::Read, 1, Fault::StallBody(3));
        assert!(timeout(MINUTE, store.stat(&name())).await.is_err());
        assert!(timeout(MINUTE, read(&store)).await.is_err());
    }

    #[tokio::test]
    async fn bodies_break_where_told() {
        let store = store();
        let table = [
            (
                Fault::BreakBody(0, Kind::Unavailable),
                "",
                Some(Kind::Unavailable),
            ),
            (
                Fault::BreakBody(4, Kind::Corrupt),
                "0123",
                Some(Kind::Corrupt),
            ),
            (Fault::ShortBody(9), "012345678", None),
            (Fault::WrongByte(0), "1123456789", None),
            (Fault::WrongByte(5), "0123446789", None),
        ];
        for (fault, bytes, kind) in table {
            store.inject(Method::Read, 1, fault);
            assert_eq!(read(&store).await, (bytes.into(), kind), "{fault:?}");
        }
    }

    #[tokio::test]
    async fn a_failed_upload_stays_failed() {
        let store = store();
        let request = WriteRequest {
            name: name(),
            attributes: crate::object::Attributes::default(),
            preconditions: Preconditions::default(),
        };
        store.inject(Method::UploadWrite, 1, Fault::Before(Kind::Gone));
        let mut upload = store.upload(&request).await.unwrap();
        for _ in 0..2 {
            let result = upload.write("x".into()).await;
            assert_eq!(result.unwrap_err().kind, Kind::Gone);
        }
        assert_eq!(upload.finish().await.unwrap_err().kind, Kind::Gone);
        assert_eq!(store.inner().bytes("o").unwrap(), "0123456789");
    }
}
