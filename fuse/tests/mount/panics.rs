//! A panic in a request is one failed request.

use std::fs;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use gcsmount_fuse::session::{self, MountOptions, MountPoint};
use gcsmount_gcs::object::Bucket as BucketInfo;
use gcsmount_gcs::store::{
    ComposeSource, ListPage, ListRequest, Patch, Preconditions, Read, ReadRequest, Sources,
    TransferRequest, Upload, WriteRequest,
};
use gcsmount_gcs::testing::{FakeStore, FaultyStore};
use gcsmount_gcs::{Object, ObjectName, Result, Store};
use nix::errno::Errno;

use crate::kit::{Bucket, errno, is_mounted, run};

/// Panics when it is asked about an object called `panic` or a listing of `dir/`.
#[derive(Debug)]
struct PanickyStore(FaultyStore<FakeStore>);

#[async_trait]
impl Store for PanickyStore {
    async fn bucket(&self) -> Result<BucketInfo> {
        self.0.bucket().await
    }

    async fn permissions(&self, wanted: &[&str]) -> Result<Vec<String>> {
        self.0.permissions(wanted).await
    }

    async fn stat(&self, name: &ObjectName) -> Result<Object> {
        assert_ne!(name.as_str(), "panic", "on purpose");
        self.0.stat(name).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        assert!(
            request.prefix != "dir/" || request.delimiter.is_none(),
            "on purpose"
        );
        self.0.list(request).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<Read> {
        self.0.read(request).await
    }

    async fn write(&self, request: &WriteRequest, body: Bytes) -> Result<Object> {
        self.0.write(request, body).await
    }

    async fn upload(&self, request: &WriteRequest) -> Result<Box<dyn Upload>> {
        self.0.upload(request).await
    }

    async fn patch(
        &self,
        name: &ObjectName,
        patch: &Patch,
        preconditions: &Preconditions,
    ) -> Result<Object> {
        self.0.patch(name, patch, preconditions).await
    }

    async fn delete(&self, name: &ObjectName, preconditions: &Preconditions) -> Result<()> {
        self.0.delete(name, preconditions).await
    }

    async fn compose(
        &self,
        request: &WriteRequest,
        sources: &[ComposeSource],
        after: Sources,
    ) -> Result<Object> {
        self.0.compose(request, sources, after).await
    }

    async fn copy(&self, request: &TransferRequest) -> Result<Object> {
        self.0.copy(request).await
    }

    async fn rename(&self, request: &TransferRequest) -> Result<Object> {
        self.0.rename(request).await
    }
}

#[test]
fn a_panic_fails_its_request_and_no_other() {
    run(|| {
        let bucket = Bucket::over(|_| {}, |faults| Arc::new(PanickyStore(faults)));
        bucket.store.put("f", "x");
        bucket.store.put("dir/g", "y");
        let dir = tempfile::tempdir().unwrap();
        let at = MountPoint::Dir(dir.path().to_owned());
        let mounted = session::mount(bucket.fs.clone(), at, &MountOptions::default()).unwrap();
        // More often than there are threads that serve.
        for _ in 0..5 {
            let looked_up = fs::metadata(dir.path().join("panic"));
            assert_eq!(errno(looked_up), Errno::EIO);
            let listed = fs::read_dir(dir.path().join("dir"))
                .and_then(|mut entries| entries.next().transpose());
            assert_eq!(errno(listed), Errno::EIO);
        }
        assert_eq!(fs::read(dir.path().join("f")).unwrap(), b"x");
        assert!(!mounted.has_ended());
        drop(mounted);
        assert!(!is_mounted(dir.path()));
    });
}
