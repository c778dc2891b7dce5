//! An object that is uploaded as parts side by side, and joined by compose.
//!
//! One connection carries what one connection carries; parts take as many as they may. Each part is an object of its
//! own under a prefix that is this upload's alone, written where nothing is. The target appears in one step, with the
//! last compose, under the preconditions of the request; more than 32 parts are joined as a tree. Parts go when the
//! upload ends, one way or the other, and never before the last compose is over: those that it joins go with it, the
//! others by themselves. Those of a process that died stay for whoever sweeps the prefix.

mod strategy;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use tokio::task::JoinSet;

pub use strategy::{Circumstances, Strategy, Thresholds};

use crate::object::{Attributes, Digest};
use crate::store::{ComposeSource, Preconditions, Sources, Upload, WriteRequest};
use crate::{Error, Kind, Object, ObjectName, Result, Store};

/// As the joining of objects is called.
const OPERATION: &str = "storage.objects.compose";

/// Removals under way at a time. They carry no content, so that nothing but the store's patience bounds them.
const REMOVALS: usize = 32;

/// How an object is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Where the parts are: names beneath it must be nobody else's, also in the future.
    pub prefix: String,
    /// Bytes of a part.
    pub part: usize,
    /// Parts under way at a time.
    pub in_flight: usize,
}

impl Plan {
    /// The most bytes of content that an upload keeps: the parts under way, and the one that fills.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.part.saturating_mul(self.in_flight.saturating_add(1))
    }
}

/// An [`Upload`] in parts. One that ends within its first part is a single write.
pub struct PartsUpload {
    store: Arc<dyn Store>,
    request: WriteRequest,
    plan: Plan,
    filling: BytesMut,
    /// Parts that were begun.
    begun: u32,
    /// Gone with the upload.
    sending: JoinSet<(u32, Result<Object>)>,
    stored: BTreeMap<u32, Object>,
    whole: Digest,
    state: State,
}

enum State {
    Open,
    /// A call that was dropped half-way has left a gap.
    Torn,
    Finished,
    Failed(Error),
}

impl PartsUpload {
    /// An upload of `request` over `store`. No request is sent yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, request: &WriteRequest, plan: Plan) -> Self {
        Self {
            store,
            request: request.clone(),
            plan,
            filling: BytesMut::new(),
            begun: 0,
            sending: JoinSet::new(),
            stored: BTreeMap::new(),
            whole: Digest::EMPTY,
            state: State::Open,
        }
    }

    fn error(&self, kind: Kind, message: impl Into<String>) -> Error {
        Error::new(kind, OPERATION, &self.request.name, message)
    }

    /// Takes the state out, so that a call that is dropped leaves the upload torn.
    fn enter(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.state, State::Torn) {
            State::Open => Ok(()),
            State::Torn => {
                Err(self.error(Kind::Canceled, "an earlier call on the upload was dropped"))
            }
            State::Finished => {
                self.state = State::Finished;
                Err(self.error(Kind::Invalid, "the upload is already finished"))
            }
            State::Failed(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Ends a call: with an error, the upload too.
    async fn leave<T>(&mut self, result: Result<T>, then: State) -> Result<T> {
        match &result {
            Ok(_) => self.state = then,
            Err(error) => {
                self.state = State::Failed(error.clone());
                self.clear().await;
            }
        }
        result
    }

    async fn append(&mut self, mut bytes: Bytes) -> Result<()> {
        self.whole = self.whole.then(digest(&bytes)).ok_or_else(|| {
            self.error(Kind::TooLarge, "the object is longer than can be counted")
        })?;
        while !bytes.is_empty() {
            // A full part waits for more, since a whole object within one is no part.
            if self.filling.len() == self.plan.part {
                self.send().await?;
            }
            if self.filling.is_empty() {
                self.filling.reserve(self.plan.part);
            }
            let space = self.plan.part - self.filling.len();
            self.filling
                .extend_from_slice(&bytes.split_to(space.min(bytes.len())));
        }
        Ok(())
    }

    /// Sends what has gathered as the next part, once there is room for it.
    async fn send(&mut self) -> Result<()> {
        while self.sending.len() >= self.plan.in_flight.max(1) {
            self.settle_one().await?;
        }
        let index = self.begun;
        self.begun += 1;
        let request = self.part(&format!("{index:08}"))?;
        let body = std::mem::take(&mut self.filling).freeze();
        let store = Arc::clone(&self.store);
        self.sending
            .spawn(async move { (index, store.write(&request, body).await) });
        Ok(())
    }

    /// Waits for one part, whichever is the first.
    async fn settle_one(&mut self) -> Result<()> {
        let (index, stored) = match self.sending.join_next().await {
            None => return Ok(()),
            Some(Ok(settled)) => settled,
            Some(Err(_)) => {
                return Err(self.error(Kind::Canceled, "the runtime stopped the upload"));
            }
        };
        let object = stored.map_err(of_part)?;
        self.stored.insert(index, object);
        Ok(())
    }

    /// Where a part or a join of parts goes. It says whose it is, for whoever finds it left behind.
    fn part(&self, name: &str) -> Result<WriteRequest> {
        let name = ObjectName::parse(format!("{}{name}", self.plan.prefix));
        let name =
            name.map_err(|why| self.error(Kind::Invalid, format!("a part's name: {why}")))?;
        let base = self.request.preconditions.generation;
        let mut metadata =
            BTreeMap::from([("gcsmount-target".to_owned(), self.request.name.to_string())]);
        if let Some(base) = base {
            metadata.insert("gcsmount-base".to_owned(), base.to_string());
        }
        Ok(WriteRequest {
            name,
            attributes: Attributes {
                storage_class: self.request.attributes.storage_class.clone(),
                metadata,
                ..Attributes::default()
            },
            preconditions: Preconditions::absent(),
        })
    }

    async fn publish(&mut self) -> Result<Object> {
        if self.begun == 0 {
            let body = std::mem::take(&mut self.filling).freeze();
            return self.store.write(&self.request, body).await;
        }
        if !self.filling.is_empty() {
            self.send().await?;
        }
        while !self.sending.is_empty() {
            self.settle_one().await?;
        }
        let object = self.join().await?;
        if Digest::of(&object).is_some_and(|joined| joined != self.whole)
            || object.size != self.whole.size
        {
            return Err(self.error(
                Kind::Corrupt,
                "the store holds other bytes than those that were sent",
            ));
        }
        self.clear().await;
        Ok(object)
    }

    /// Joins the parts, level by level, the last join being the target.
    async fn join(&mut self) -> Result<Object> {
        let mut sources: Vec<Object> = self.stored.values().cloned().collect();
        let mut level = 0;
        while sources.len() > tree::FAN_IN {
            level += 1;
            sources = self.join_level(level, &sources).await?;
        }
        let sources: Vec<_> = sources.iter().map(ComposeSource::from).collect();
        self.join_last(&sources).await
    }

    /// Makes the target of its sources. They go with it, unless they may not be deleted: that is no reason to fail.
    async fn join_last(&mut self, sources: &[ComposeSource]) -> Result<Object> {
        let compose = |after| self.store.compose(&self.request, sources, after);
        match compose(tree::after(sources, &self.request.name)).await {
            Ok(object) => {
                let is_source = |part: &Object| sources.iter().any(|s| s.name == part.name);
                self.stored.retain(|_, part| !is_source(part));
                Ok(object)
            }
            Err(error) if matches!(error.kind, Kind::Held | Kind::Denied | Kind::Unsupported) => {
                tracing::debug!(%error, "the parts of an upload are joined without removing them");
                compose(Sources::Keep).await
            }
            Err(error) => Err(error),
        }
    }

    async fn join_level(&mut self, level: u32, sources: &[Object]) -> Result<Vec<Object>> {
        let mut joins = Vec::new();
        for (index, group) in tree::groups(sources.len()).into_iter().enumerate() {
            let request = self.part(&format!("{level}-{index:08}"))?;
            let group = sources[group].to_vec();
            joins.push(join(Arc::clone(&self.store), request, group));
        }
        let joined: Vec<_> = stream::iter(joins)
            .buffered(self.plan.in_flight.max(1))
            .collect()
            .await;
        // What was joined is to be cleared away even where another join failed.
        for object in joined.iter().flatten() {
            self.remember(object);
        }
        joined.into_iter().collect()
    }

    /// Keeps what was joined among what is to be cleared away.
    fn remember(&mut self, object: &Object) {
        let known = self.stored.values().any(|known| known.name == object.name);
        if !known {
            let index = self.begun;
            self.begun += 1;
            self.stored.insert(index, object.clone());
        }
    }

    /// Removes every part that is known to be there, each by its generation. Best effort.
    async fn clear(&mut self) {
        self.filling = BytesMut::new();
        // A part that arrives meanwhile is known too late to be removed; a sweep of the prefix finds it.
        while let Some(settled) = self.sending.join_next().await {
            if let Ok((index, Ok(object))) = settled {
                self.stored.insert(index, object);
            }
        }
        let parts = std::mem::take(&mut self.stored).into_values();
        let removals: Vec<_> = parts
            .map(|part| remove(Arc::clone(&self.store), part))
            .collect();
        stream::iter(removals)
            .buffer_unordered(REMOVALS)
            .collect::<()>()
            .await;
    }
}

/// One object of a group; a single one is left as it is.
async fn join(store: Arc<dyn Store>, request: WriteRequest, group: Vec<Object>) -> Result<Object> {
    if let [alone] = &group[..] {
        return Ok(alone.clone());
    }
    let sources: Vec<_> = group.iter().map(ComposeSource::from).collect();
    store
        .compose(&request, &sources, Sources::Keep)
        .await
        .map_err(of_part)
}

async fn remove(store: Arc<dyn Store>, part: Object) {
    let exact = Preconditions::generation(part.generation);
    if let Err(error) = store.delete(&part.name, &exact).await {
        tracing::debug!(%error, "a part of an upload stays behind");
    }
}

fn digest(bytes: &Bytes) -> Digest {
    Digest {
        size: bytes.len() as u64,
        crc32c: crc32c::crc32c(bytes),
    }
}

/// A conflict over a part is none over the target.
fn of_part(error: Error) -> Error {
    match error.kind {
        Kind::Precondition => Error {
            kind: Kind::Invalid,
            message: format!("the name of a part is taken: {}", error.message),
            ..error
        },
        _ => error,
    }
}

#[async_trait]
impl Upload for PartsUpload {
    async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.enter()?;
        let result = self.append(bytes).await;
        self.leave(result, State::Open).await
    }

    async fn finish(&mut self) -> Result<Object> {
        self.enter()?;
        let result = self.publish().await;
        self.leave(result, State::Finished).await
    }

    async fn cancel(&mut self) {
        if matches!(self.state, State::Finished) {
            return;
        }
        if !matches!(self.state, State::Failed(_)) {
            let canceled = self.error(Kind::Canceled, "the upload was canceled");
            self.state = State::Failed(canceled);
        }
        self.clear().await;
    }
}

impl fmt::Debug for PartsUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartsUpload")
            .field("name", &self.request.name)
            .field("begun", &self.begun)
            .field("size", &self.whole.size)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
