//! One upload, which finds its way when it shows how large it gets.
//!
//! What may become large gathers in memory first, since what was sent as a stream cannot become a part. When there is
//! enough of it, it goes on in parts; when it ends before, or comes so slowly that one connection keeps up with it, it
//! goes on as one stream. Either way the object appears in one step, at the end.

use std::sync::Arc;

use bytes::Bytes;
use gcsmount_cache::Lease;
use gcsmount_gcs::layer::parts::{PartsUpload, Plan};
use gcsmount_gcs::store::{Upload, WriteRequest};
use gcsmount_gcs::{Error, Kind, Object, Result};

use super::Workshop;

/// An upload under way, and the memory for what it holds.
#[derive(Debug)]
pub(super) struct Transfer {
    way: Way,
    workshop: Arc<Workshop>,
    request: WriteRequest,
    /// For a stream.
    _memory: Lease,
    /// What gathering and parts take beyond that.
    for_parts: Option<Lease>,
}

#[derive(Debug)]
enum Way {
    Gathering(Vec<Bytes>),
    Going(Going),
}

#[derive(Debug)]
enum Going {
    Stream(Box<dyn Upload>),
    Parts {
        upload: Box<PartsUpload>,
        prefix: String,
    },
}

impl Transfer {
    /// An upload of what is still to come, in `memory` as a stream, with `for_parts` possibly in parts.
    pub(super) async fn begin(
        workshop: &Arc<Workshop>,
        request: WriteRequest,
        memory: Lease,
        for_parts: Option<Lease>,
    ) -> Result<Self> {
        let way = match for_parts {
            Some(_) => Way::Gathering(Vec::new()),
            None => Way::Going(Going::begin(workshop, &request, None).await?),
        };
        Ok(Self {
            way,
            workshop: workshop.clone(),
            request,
            _memory: memory,
            for_parts,
        })
    }

    /// An upload of `size` bytes that are all there.
    pub(super) async fn of_size(
        workshop: &Arc<Workshop>,
        request: &WriteRequest,
        size: u64,
        memory: Lease,
    ) -> Result<Self> {
        let mut for_parts = None;
        if size >= workshop.parts_from() as u64 {
            for_parts = workshop.lease_for_parts(request);
        }
        let mut plan = None;
        if for_parts.is_some() {
            plan = workshop.plan(request, size).await;
        }
        Ok(Self {
            for_parts: for_parts.filter(|_| plan.is_some()),
            way: Way::Going(Going::begin(workshop, request, plan).await?),
            workshop: workshop.clone(),
            request: request.clone(),
            _memory: memory,
        })
    }

    /// Whether the way is not known yet. Whoever has nothing to write for a while calls [`Transfer::stop_gathering`].
    pub(super) fn is_gathering(&self) -> bool {
        matches!(self.way, Way::Gathering(_))
    }

    /// Sends what has gathered as the beginning of a stream.
    pub(super) async fn stop_gathering(&mut self) -> Result<()> {
        self.go_on(None).await
    }

    /// Appends `bytes`. An error is final.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<()> {
        let pieces = match &mut self.way {
            Way::Going(going) => return going.write(&self.workshop, bytes).await,
            Way::Gathering(pieces) => pieces,
        };
        pieces.push(bytes);
        let size = pieces.iter().map(Bytes::len).sum::<usize>();
        if size < self.workshop.parts_from() {
            return Ok(());
        }
        let plan = self.workshop.plan(&self.request, size as u64).await;
        self.go_on(plan).await
    }

    /// Leaves the gathering behind, if it lasts: what has gathered goes first.
    async fn go_on(&mut self, plan: Option<Plan>) -> Result<()> {
        let Way::Gathering(pieces) = &mut self.way else {
            return Ok(());
        };
        let in_parts = plan.is_some();
        let mut going = Going::begin(&self.workshop, &self.request, plan).await?;
        let mut sent = Ok(());
        for piece in std::mem::take(pieces) {
            sent = going.write(&self.workshop, piece).await;
            if sent.is_err() {
                break;
            }
        }
        self.way = Way::Going(going);
        if !in_parts {
            self.for_parts = None;
        }
        sent
    }

    /// Publishes what was written.
    pub(super) async fn finish(mut self) -> Result<Object> {
        self.stop_gathering().await?;
        match self.way {
            Way::Going(going) => going.finish(&self.workshop).await,
            Way::Gathering(_) => Err(super::overdue("the upload was not begun")),
        }
    }

    /// Has the store forget the upload. Best effort.
    pub(super) async fn cancel(&mut self) {
        if let Way::Going(going) = &mut self.way {
            going.cancel(&self.workshop).await;
        }
    }
}

impl Going {
    /// No request of an upload in parts is sent yet.
    async fn begin(
        workshop: &Workshop,
        request: &WriteRequest,
        plan: Option<Plan>,
    ) -> Result<Self> {
        let Some(plan) = plan else {
            let upload = workshop.store.upload(request);
            return Ok(Self::Stream(workshop.call(upload).await?));
        };
        let prefix = plan.prefix.clone();
        let upload = PartsUpload::new(workshop.store.clone(), request, plan);
        Ok(Self::Parts {
            upload: Box::new(upload),
            prefix,
        })
    }

    async fn write(&mut self, workshop: &Workshop, bytes: Bytes) -> Result<()> {
        match self {
            Self::Stream(upload) => workshop.step(upload.write(bytes)).await,
            Self::Parts { upload, prefix } => {
                let written = workshop.step(upload.write(bytes)).await;
                of_parts(workshop, prefix, written).await
            }
        }
    }

    async fn finish(self, workshop: &Workshop) -> Result<Object> {
        match self {
            Self::Stream(mut upload) => workshop.step(upload.finish()).await,
            Self::Parts { mut upload, prefix } => {
                let finished = workshop.step(upload.finish()).await;
                of_parts(workshop, &prefix, finished).await
            }
        }
    }

    async fn cancel(&mut self, workshop: &Workshop) {
        match self {
            Self::Stream(upload) => upload.cancel().await,
            Self::Parts { upload, prefix } => {
                upload.cancel().await;
                workshop.sweep(prefix).await;
            }
        }
    }
}

/// Ends a step of an upload in parts: one that has failed leaves nothing behind.
async fn of_parts<T>(workshop: &Workshop, prefix: &str, step: Result<T>) -> Result<T> {
    let Err(error) = step else {
        return step;
    };
    workshop.sweep(prefix).await;
    match error.kind {
        // What is missing is a part, not the file: nobody has touched that.
        Kind::NotFound => Err(Error {
            kind: Kind::Gone,
            message: format!(
                "a part of the upload is gone, somebody else has deleted it: {}",
                error.message
            ),
            ..error
        }),
        _ => Err(error),
    }
}
