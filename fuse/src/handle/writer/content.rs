//! The states of a file that is written, and how a write moves between them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use gcsmount_gcs::store::WriteRequest;
use gcsmount_gcs::{Object, ObjectName};
use nix::errno::Errno;

use super::memory::Memory;
use super::staged::Staged;
use super::stream::Stream;
use super::{Place, View, Workshop};
use crate::errno::{Error, Result};
use crate::handle::reader::Reader;
use crate::metadata::Edits;
use crate::version;

/// Up to this size, a published file that is appended to is fetched and written anew: two calls and one object without
/// parts, where a tail costs three calls. Also the most that a file which is open and published keeps in memory.
const REWRITE_LIMIT: u64 = 256 << 10;

/// Where the content is that the base does not have.
#[derive(Debug)]
pub(super) enum Content {
    /// The base has it all.
    Published,
    /// The end of the file, or all of it, is in memory.
    Memory(Memory),
    /// The end of the file, or all of it, is on its way to the store.
    Stream(Stream),
    /// All of the file is in a local file.
    Staged(Staged),
    /// A stream broke: what was handed in cannot be had again.
    Lost,
}

impl Content {
    /// A file of no bytes that the bucket does not have.
    pub(super) fn empty() -> Self {
        Self::Memory(Memory::from(0))
    }

    /// Whether the bucket does not have it.
    pub(super) fn is_dirty(&self) -> bool {
        match self {
            Self::Published => false,
            Self::Memory(memory) => memory.dirty,
            Self::Staged(staged) => staged.dirty,
            Self::Stream(_) | Self::Lost => true,
        }
    }
}

/// A write that was refused.
#[derive(Debug)]
pub(super) struct Refused {
    /// Where in the file it was to begin.
    offset: u64,
    pub(super) error: Error,
}

/// All there is to say of a file that is written.
#[derive(Debug)]
pub(super) struct State {
    /// What it is called; `None` once it is unlinked.
    pub(super) name: Option<ObjectName>,
    /// The generation that the next one replaces; `None`: there must be none.
    pub(super) base: Option<Arc<Object>>,
    pub(super) content: Content,
    pub(super) mtime: SystemTime,
    /// Whether that is what somebody set, rather than when it was last written.
    pub(super) mtime_set: bool,
    /// What else is to be said of the file from now on, and the base does not say.
    pub(super) edits: Arc<Edits>,
    /// Why the last publication failed.
    pub(super) failed: Option<Error>,
    /// A write into unpublished content that was refused, and has not been made up for: the content is not what its
    /// program meant, and replaces nothing.
    pub(super) refused: Option<Refused>,
    /// Whether somebody reads and writes through one handle.
    pub(super) read_back: bool,
    /// A reader of the base.
    reader: Option<Arc<Reader>>,
}

impl State {
    pub(super) fn new(
        name: ObjectName,
        base: Option<Arc<Object>>,
        content: Content,
        mtime: SystemTime,
    ) -> Self {
        Self {
            name: Some(name),
            base,
            content,
            mtime,
            mtime_set: false,
            edits: Arc::default(),
            failed: None,
            refused: None,
            read_back: false,
            reader: None,
        }
    }

    pub(super) fn view(&self) -> View {
        View {
            size: self.size(),
            mtime: self.mtime,
            dirty: self.is_dirty(),
            edits: self.edits.clone(),
            failed: self.failed.is_some(),
            base: self.base.clone(),
            name: self.name.clone(),
        }
    }

    /// Whether there is anything that the bucket does not have.
    fn is_dirty(&self) -> bool {
        self.content.is_dirty() || !self.edits.is_empty()
    }

    fn base_size(&self) -> u64 {
        self.base.as_ref().map_or(0, |base| base.size)
    }

    pub(super) fn size(&self) -> u64 {
        match &self.content {
            Content::Published | Content::Lost => self.base_size(),
            Content::Memory(memory) => memory.end(),
            Content::Stream(stream) => stream.end(),
            Content::Staged(staged) => staged.length,
        }
    }

    fn offset(&self, place: Place) -> u64 {
        match place {
            Place::At(offset) => offset,
            Place::End => self.size(),
        }
    }

    /// Notes that it was written now.
    fn touch(&mut self) {
        self.mtime = SystemTime::now();
        self.mtime_set = false;
    }

    pub(super) fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Takes in a new base that has all of the content, unless it is of another file or from before the one that is
    /// known: an answer may arrive after a later publication, or after a rename.
    pub(super) fn rebase(&mut self, base: Arc<Object>, mtime: SystemTime) {
        let known = self.base.as_deref();
        if self.name.as_ref() != Some(&base.name)
            || known.is_some_and(|known| version::is_older(&base, known))
        {
            return;
        }
        self.base = Some(base);
        self.mtime = mtime;
        self.reader = None;
        self.content = Content::Published;
        self.refused = None;
    }

    /// Lets go of what is kept for reading the base.
    pub(super) fn let_reader_go(&mut self) {
        self.reader = None;
    }

    /// Takes in the generation that a publication has made.
    pub(super) fn published(&mut self, base: Arc<Object>) {
        self.base = Some(base);
        self.reader = None;
        self.failed = None;
        self.mtime_set = false;
        self.edits = Arc::default();
    }

    /// Takes in the name and generation that the base has got by a move.
    pub(super) fn moved(&mut self, base: Arc<Object>) {
        self.name = Some(base.name.clone());
        self.published(base);
    }

    /// [`State::write`] without waiting, where that is possible.
    pub(super) fn write_at_once(
        &mut self,
        workshop: &Workshop,
        place: Place,
        data: &[u8],
    ) -> Option<Result<()>> {
        if let Err(error) = self.check() {
            return Some(Err(error));
        }
        let offset = self.offset(place);
        let fits = match &mut self.content {
            Content::Memory(memory) if offset >= memory.start => {
                put(memory, workshop, offset, data)
            }
            Content::Stream(stream) if offset == stream.end() => stream.try_push(data),
            Content::Memory(_)
            | Content::Stream(_)
            | Content::Published
            | Content::Staged(_)
            | Content::Lost => false,
        };
        if fits {
            self.touch();
            self.make_up_for(offset, data.len());
        }
        fits.then_some(Ok(()))
    }

    pub(super) async fn write(
        &mut self,
        workshop: &Arc<Workshop>,
        place: Place,
        data: &Bytes,
    ) -> Result<()> {
        self.check()?;
        let offset = self.offset(place);
        let written = self.write_at(workshop, offset, data).await;
        match &written {
            Ok(()) => self.make_up_for(offset, data.len()),
            Err(error) if self.content.is_dirty() && self.refused.is_none() => {
                let error = error.clone();
                self.refused = Some(Refused { offset, error });
            }
            Err(_) => {}
        }
        written
    }

    /// Notes a write that may be a refused one, tried again.
    fn make_up_for(&mut self, offset: u64, len: usize) {
        let written = offset..offset + len as u64;
        self.refused
            .take_if(|refused| written.contains(&refused.offset));
    }

    async fn write_at(
        &mut self,
        workshop: &Arc<Workshop>,
        offset: u64,
        data: &Bytes,
    ) -> Result<()> {
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or(Error::of(Errno::EFBIG))?;
        self.make_way(workshop, offset, end).await?;
        match &mut self.content {
            Content::Memory(memory) => memory.put(offset, data),
            Content::Staged(staged) => {
                let request = || request_for(&self.name, &self.base, self.mtime, &self.edits);
                staged.note(request).await?;
                staged.put(offset, data.clone()).await?;
            }
            Content::Stream(stream) => {
                if let Err(error) = stream.push(data).await {
                    return Err(self.lose(error.into()));
                }
            }
            // `make_way` leaves a state that takes the write.
            Content::Published | Content::Lost => return Err(Error::of(Errno::EIO)),
        }
        self.touch();
        Ok(())
    }

    /// Brings the content into a state in which bytes `offset..end` can be put: in memory with room for them, streaming
    /// with its end at `offset`, or staged.
    async fn make_way(&mut self, workshop: &Arc<Workshop>, offset: u64, end: u64) -> Result<()> {
        if let Content::Stream(stream) = &self.content {
            if stream.end() == offset {
                return Ok(());
            }
            // What went out cannot be changed on its way, so it is published and then fetched.
            self.settle_stream(workshop).await?;
        }
        if matches!(self.content, Content::Published) {
            self.begin(workshop, offset).await?;
        }
        if let Content::Memory(memory) = &mut self.content {
            if offset >= memory.start {
                if reserve(memory, workshop, end) {
                    return Ok(());
                }
                if offset == memory.end() && !self.read_back && self.stream(workshop).await? {
                    return Ok(());
                }
            }
            self.stage(workshop, u64::MAX).await?;
        }
        Ok(())
    }

    /// Publishes a stream. One of an unlinked file has nowhere to go, and cannot be read.
    async fn settle_stream(&mut self, workshop: &Arc<Workshop>) -> Result<()> {
        if !matches!(self.content, Content::Stream(_)) {
            return Ok(());
        }
        if self.name.is_none() {
            return Err(Error::of(Errno::ESTALE));
        }
        self.publish(workshop).await.map(drop)
    }

    /// Leaves the published state for a write at `offset`: as an empty tail where that does, else with all of the base
    /// in memory, else staged.
    async fn begin(&mut self, workshop: &Arc<Workshop>, offset: u64) -> Result<()> {
        let size = self.base_size();
        let rewrite = REWRITE_LIMIT.min(workshop.buffer_limit);
        if offset >= size && (size == 0 || size > rewrite) {
            self.content = Content::Memory(Memory::from(size));
            return Ok(());
        }
        if size <= workshop.buffer_limit && self.load(workshop, size).await? {
            return Ok(());
        }
        self.stage(workshop, size).await
    }

    /// Fetches the first `size` bytes of the base into memory; `false` where there is no memory for them.
    async fn load(&mut self, workshop: &Workshop, size: u64) -> Result<bool> {
        let mut memory = Memory::from(0);
        if !memory.reserve(size, |bytes| workshop.lease(bytes)) {
            return Ok(false);
        }
        let mut at = 0;
        let mut base = self.fetch(workshop, size).await?;
        while let Some(piece) = base.next(workshop).await? {
            memory.put(at, &piece);
            at += piece.len() as u64;
        }
        memory.dirty = false;
        self.content = Content::Memory(memory);
        Ok(true)
    }

    /// Turns memory into a stream with the same bytes; `false` where there is no room for another stream.
    async fn stream(&mut self, workshop: &Arc<Workshop>) -> Result<bool> {
        let Content::Memory(memory) = &mut self.content else {
            return Ok(false);
        };
        let Some(name) = self.name.clone() else {
            return Ok(false);
        };
        let start = memory.start;
        let request = match start {
            0 => super::publish::request(name, self.base.as_deref(), self.mtime, &self.edits),
            _ => workshop.tail_request()?,
        };
        let Some(mut stream) = Stream::begin(workshop, start, request) else {
            return Ok(false);
        };
        let bytes = memory.lend();
        match stream.push(&bytes).await {
            Ok(()) => {
                self.content = Content::Stream(stream);
                Ok(true)
            }
            Err(error) => {
                // The bytes are all here still.
                memory.give_back(bytes);
                self.failed = Some(error.into());
                self.check().map(|()| false)
            }
        }
    }

    /// Moves the content into a local file: at most `keep` bytes of it, so that what is to be cut off is not fetched.
    async fn stage(&mut self, workshop: &Arc<Workshop>, keep: u64) -> Result<()> {
        let mut staged = Staged::create(&workshop.staging).await?;
        let from_base = match &self.content {
            Content::Memory(memory) => memory.start,
            _ => self.base_size(),
        };
        let mut base = self.fetch(workshop, from_base.min(keep)).await?;
        while let Some(piece) = base.next(workshop).await? {
            staged.put(staged.length, piece).await?;
        }
        if let Content::Memory(memory) = &self.content {
            let rest = memory.slice(memory.start, usize::MAX);
            staged
                .put(memory.start, Bytes::copy_from_slice(rest))
                .await?;
        }
        staged.dirty = self.content.is_dirty();
        if staged.dirty {
            let request = || request_for(&self.name, &self.base, self.mtime, &self.edits);
            staged.note(request).await?;
        }
        self.content = Content::Staged(staged);
        Ok(())
    }

    pub(super) async fn truncate(&mut self, workshop: &Arc<Workshop>, size: u64) -> Result<()> {
        if size == 0 {
            self.abandon_content().await;
            self.content = Content::empty();
            self.failed = None;
            self.refused = None;
            self.touch();
            return Ok(());
        }
        self.check()?;
        if size == self.size() {
            return Ok(());
        }
        self.settle_stream(workshop).await?;
        if matches!(self.content, Content::Published) {
            self.begin_resize(workshop, size).await?;
        }
        if let Content::Memory(memory) = &mut self.content {
            if size >= memory.start && reserve(memory, workshop, size) {
                memory.resize(size);
            } else {
                self.stage(workshop, size).await?;
            }
        }
        if let Content::Staged(staged) = &mut self.content {
            let request = || request_for(&self.name, &self.base, self.mtime, &self.edits);
            staged.note(request).await?;
            staged.resize(size).await?;
        }
        self.touch();
        Ok(())
    }

    async fn begin_resize(&mut self, workshop: &Arc<Workshop>, size: u64) -> Result<()> {
        let base = self.base_size();
        if size > base {
            return self.begin(workshop, base).await;
        }
        if size <= workshop.buffer_limit && self.load(workshop, size).await? {
            return Ok(());
        }
        self.stage(workshop, size).await
    }

    pub(super) async fn read(
        &mut self,
        workshop: &Arc<Workshop>,
        offset: u64,
        len: usize,
    ) -> Result<Bytes> {
        self.settle_stream(workshop).await?;
        let start = match &self.content {
            Content::Staged(staged) => return staged.read(offset, len).await,
            Content::Memory(memory) if offset >= memory.start => {
                return Ok(Bytes::copy_from_slice(memory.slice(offset, len)));
            }
            Content::Memory(memory) => memory.start,
            Content::Published | Content::Stream(_) => u64::MAX,
            Content::Lost => {
                self.check()?;
                return Err(Error::of(Errno::EIO));
            }
        };
        let before = usize::try_from(start - offset).map_or(len, |n| n.min(len));
        let head = self.read_base(workshop, offset, before).await?;
        match &self.content {
            Content::Memory(memory) if head.len() < len => {
                let mut both = BytesMut::from(head.as_ref());
                both.extend_from_slice(memory.slice(memory.start, len - head.len()));
                Ok(both.freeze())
            }
            _ => Ok(head),
        }
    }

    async fn read_base(&mut self, workshop: &Workshop, offset: u64, len: usize) -> Result<Bytes> {
        let Some(base) = &self.base else {
            return Ok(Bytes::new());
        };
        let reader = self
            .reader
            .get_or_insert_with(|| workshop.reader(base))
            .clone();
        let read = workshop.call(reader.read(offset, len)).await;
        read.map_err(super::publish::stale)
    }

    /// Notes that a publication has failed, and returns the error.
    pub(super) fn fail(&mut self, error: Error) -> Error {
        self.failed = Some(error.clone());
        error
    }

    /// Notes that a stream broke.
    pub(super) fn lose(&mut self, error: Error) -> Error {
        self.content = Content::Lost;
        self.fail(error)
    }

    /// Gives up the name. A stream goes on, and is forgotten in the end.
    pub(super) async fn unlink(&mut self) {
        self.name = None;
        if let Content::Staged(staged) = &mut self.content {
            staged.forget().await;
        }
    }

    /// Lets go of what nobody can publish any more. A staged file that could not be is kept, and this tells where.
    pub(super) async fn abandon(&mut self) -> Option<PathBuf> {
        let mut kept = None;
        self.edits = Arc::default();
        if let Content::Staged(staged) = &mut self.content
            && self.name.is_some()
        {
            kept = staged.set_aside().await;
        }
        if kept.is_some() {
            self.content = Content::Published;
        } else {
            self.abandon_content().await;
        }
        kept
    }

    async fn abandon_content(&mut self) {
        match std::mem::replace(&mut self.content, Content::Published) {
            Content::Stream(stream) => stream.abandon().await,
            Content::Staged(mut staged) => staged.forget().await,
            Content::Published | Content::Memory(_) | Content::Lost => {}
        }
    }

    /// Lets go of memory that only saves a fetch.
    pub(super) fn slim(&mut self) {
        if let Content::Memory(memory) = &self.content
            && !memory.dirty
            && (memory.start > 0 || memory.len() > REWRITE_LIMIT)
        {
            self.content = Content::Published;
        }
    }
}

/// What will publish a file, as far as that is known now. `None` for one that was unlinked.
fn request_for(
    name: &Option<ObjectName>,
    base: &Option<Arc<Object>>,
    mtime: SystemTime,
    edits: &Edits,
) -> Option<WriteRequest> {
    let name = name.clone()?;
    let base = base.as_deref();
    Some(super::publish::request(name, base, mtime, edits))
}

fn reserve(memory: &mut Memory, workshop: &Workshop, end: u64) -> bool {
    let len = end.max(memory.end()) - memory.start;
    len <= workshop.buffer_limit && memory.reserve(len, |bytes| workshop.lease(bytes))
}

fn put(memory: &mut Memory, workshop: &Workshop, offset: u64, data: &[u8]) -> bool {
    let fits = offset
        .checked_add(data.len() as u64)
        .is_some_and(|end| reserve(memory, workshop, end));
    if fits {
        memory.put(offset, data);
    }
    fits
}
