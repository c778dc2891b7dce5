//! The JSON API of Google Cloud Storage over HTTP/1.1 or HTTP/2: the client that is used unless another is asked for.
//!
//! What it adds to the bare protocol:
//! - A deadline at every wait: connect, the head of an answer, progress of a body in either direction, the operation.
//! - Repetition by a table of safety and kind (`retry`), and no other: a mutation is repeated only where its
//!   preconditions keep it from acting twice, and an answer that was lost is resolved by looking before anybody calls
//!   it a conflict.
//! - Bodies that break or stall go on from their last byte, pinned to their generation.
//! - What was not asked for is [`Kind::Corrupt`](crate::Kind::Corrupt): another generation, range or length, or a checksum that differs.
//! - The bytes of a body are handed on as the connection yields them, and sent as they were handed in, without a copy.
//!
//! ```no_run
//! use gcsmount_gcs::client::json::{Config, Http, JsonStore, Pool};
//! use gcsmount_gcs::{BucketName, ObjectName, Store};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let http = Http::new(&Pool::default());
//! let config = Config { endpoint: "http://127.0.0.1:9000".parse()?, ..Config::default() };
//! let store = JsonStore::new(&http, BucketName::parse("demo")?, config)?;
//! println!("{:?}", store.stat(&ObjectName::parse("hello")?).await?);
//! # Ok(())
//! # }
//! ```

mod answer;
mod call;
mod client;
mod clock;
mod config;
mod connect;
mod deadline;
mod endpoint;
mod folders;
mod hedge;
mod identity;
mod limit;
mod mutate;
mod observer;
mod operation;
mod payload;
mod proxy;
mod read;
mod resolve;
mod resource;
mod retry;
mod session;
mod silence;
mod tokens;
mod transport;
mod upload;
mod url;
mod watch;
mod write;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

pub use config::{Budget, Config, Hedge, Pool, Protocol, Retry, Timeouts};
pub use endpoint::{Endpoint, InvalidEndpoint};
pub use hedge::Hedged;
pub use limit::Rate;
pub use observer::{Attempt, Observer, Outcome, Reason, Repetition};
pub use transport::Http;

use crate::object::{Bucket, Folder, Layout};
use crate::store::{
    ClockOffset, ComposeSource, FolderListRequest, FolderPage, FolderRename, ListPage, ListRequest,
    Patch, Preconditions, Read, ReadRequest, Sources, Store, TransferRequest, Upload, WriteRequest,
};
use crate::{BucketName, FolderName, Metageneration, Object, ObjectName, Result};
use client::{Client, Shared};

/// Why a configuration cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConfig {
    /// Header values are visible ASCII.
    #[error("the user agent cannot be a header value")]
    UserAgent,
    /// Header values are visible ASCII.
    #[error("the billing project cannot be a header value")]
    BillingProject,
}

/// A bucket behind the JSON API.
pub struct JsonStore {
    client: Shared,
}

impl JsonStore {
    /// The bucket of this name, talked to over the connections of `http`. No request is sent yet.
    ///
    /// # Errors
    /// A configuration that no request could carry.
    pub fn new(http: &Http, bucket: BucketName, config: Config) -> Result<Self, InvalidConfig> {
        let client = Client::new(http.clone(), bucket, config)?;
        Ok(Self {
            client: Arc::new(client),
        })
    }
}

impl fmt::Debug for JsonStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonStore")
            .field("endpoint", &self.client.endpoint.authority())
            .field("bucket", &self.client.bucket)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for JsonStore {
    async fn bucket(&self) -> Result<Bucket> {
        self.client.bucket().await
    }

    fn upload_memory(&self) -> usize {
        upload::memory(&self.client)
    }

    async fn permissions(&self, wanted: &[&str]) -> Result<Vec<String>> {
        self.client.permissions(wanted).await
    }

    fn clock_offset(&self) -> Option<ClockOffset> {
        self.client.clock.offset()
    }

    async fn stat(&self, name: &ObjectName) -> Result<Object> {
        self.client.stat(name).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListPage> {
        self.client.list(request).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<Read> {
        read::read(&self.client, request).await
    }

    async fn write(&self, request: &WriteRequest, body: Bytes) -> Result<Object> {
        let crc32c = crc32c::crc32c(&body);
        self.client.insert(request, &body.into(), crc32c).await
    }

    async fn upload(&self, request: &WriteRequest) -> Result<Box<dyn Upload>> {
        Ok(Box::new(upload::JsonUpload::new(&self.client, request)))
    }

    async fn patch(
        &self,
        name: &ObjectName,
        patch: &Patch,
        preconditions: &Preconditions,
    ) -> Result<Object> {
        self.client.patch(name, patch, preconditions).await
    }

    async fn delete(&self, name: &ObjectName, preconditions: &Preconditions) -> Result<()> {
        self.client.delete(name, preconditions).await
    }

    async fn compose(
        &self,
        request: &WriteRequest,
        sources: &[ComposeSource],
        after: Sources,
    ) -> Result<Object> {
        self.client.compose(request, sources, after).await
    }

    async fn copy(&self, request: &TransferRequest) -> Result<Object> {
        self.client.copy(request).await
    }

    async fn rename(&self, request: &TransferRequest) -> Result<Object> {
        self.client.rename(request).await
    }

    async fn layout(&self) -> Result<Layout> {
        self.client.layout().await
    }

    async fn create_folder(&self, name: &FolderName, recursive: bool) -> Result<Folder> {
        self.client.create_folder(name, recursive).await
    }

    async fn folder(&self, name: &FolderName) -> Result<Folder> {
        self.client.folder(name).await
    }

    async fn list_folders(&self, request: &FolderListRequest) -> Result<FolderPage> {
        self.client.list_folders(request).await
    }

    async fn rename_folder(&self, request: &FolderRename) -> Result<Folder> {
        self.client.rename_folder(request).await
    }

    async fn delete_folder(
        &self,
        name: &FolderName,
        metageneration: Option<Metageneration>,
    ) -> Result<()> {
        self.client.delete_folder(name, metageneration).await
    }
}
