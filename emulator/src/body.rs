//! The body of a reply: bytes at hand, a range of an object without copying, or a stored gzip stream unpacked.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body::{Body, Frame, SizeHint};

use crate::content::RopeReader;
use crate::counters::Tally;
use crate::gate::{Gate, MAX_FRAME};

/// Unpacked bytes leave in frames of this size.
const UNPACKED_FRAME: usize = 256 * 1024;

/// A reply's body. Ends in an error, which drops the connection, when a fault cuts it or stored gzip is broken.
#[derive(Debug)]
pub(crate) struct ReplyBody {
    source: Source,
    gate: Option<Box<Gate>>,
    tally: Option<Arc<Tally>>,
}

#[derive(Debug)]
enum Source {
    Full(Bytes),
    Object(RopeReader),
    Gunzip {
        decoder: Box<MultiGzDecoder<RopeReader>>,
        done: bool,
    },
}

impl ReplyBody {
    pub(crate) fn full(bytes: impl Into<Bytes>) -> Self {
        Self::from(Source::Full(bytes.into()))
    }

    pub(crate) fn object(reader: RopeReader) -> Self {
        Self::from(Source::Object(reader))
    }

    pub(crate) fn gunzip(reader: RopeReader) -> Self {
        let decoder = Box::new(MultiGzDecoder::new(reader));
        Self::from(Source::Gunzip {
            decoder,
            done: false,
        })
    }

    /// The bytes of a reply that has them at hand.
    pub(crate) fn at_hand(&self) -> Option<&Bytes> {
        match &self.source {
            Source::Full(bytes) => Some(bytes),
            Source::Object(_) | Source::Gunzip { .. } => None,
        }
    }

    fn from(source: Source) -> Self {
        Self {
            source,
            gate: None,
            tally: None,
        }
    }

    /// Puts rate and faults before the body and counts what leaves.
    pub(crate) fn shaped(self, gate: Option<Gate>, tally: Arc<Tally>) -> Self {
        Self {
            gate: gate.map(Box::new),
            tally: Some(tally),
            ..self
        }
    }
}

impl Source {
    fn next(&mut self, limit: usize) -> io::Result<Option<Bytes>> {
        match self {
            Self::Full(bytes) => {
                let count = bytes.len().min(limit);
                Ok((count > 0).then(|| bytes.split_to(count)))
            }
            Self::Object(reader) => Ok(reader.take(limit)),
            Self::Gunzip { decoder, done } => {
                let mut frame = Vec::new();
                let limit = limit.min(UNPACKED_FRAME) as u64;
                decoder.by_ref().take(limit).read_to_end(&mut frame)?;
                *done = frame.is_empty();
                Ok((!*done).then(|| frame.into()))
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        match self {
            Self::Full(bytes) => Some(bytes.len() as u64),
            Self::Object(reader) => Some(reader.remaining()),
            Self::Gunzip { done: true, .. } => Some(0),
            Self::Gunzip { .. } => None,
        }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        if this.source.remaining() == Some(0) {
            return Poll::Ready(None);
        }
        let limit = match &mut this.gate {
            None => MAX_FRAME,
            Some(gate) => match ready!(gate.poll_allowance(cx)) {
                Ok(allowed) => allowed,
                Err(cut) => return Poll::Ready(Some(Err(io::Error::other(cut)))),
            },
        };
        let frame = match this.source.next(limit) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Poll::Ready(None),
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        if let Some(gate) = &mut this.gate {
            gate.passed(frame.len());
        }
        if let Some(tally) = &this.tally {
            tally.sent(frame.len());
        }
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.source.remaining() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.source
            .remaining()
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
