//! What a request carries: pieces that are kept for replay and never copied.

use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Observer;
use super::deadline::Transit;
use super::limit::Limiter;

/// Small enough that a body on its way shows progress long before a deadline.
const FRAME: usize = 256 << 10;

/// Where a body on its way is: written by the body, read by whoever waits for the answer. `None` until the connection
/// takes the first byte.
#[derive(Clone, Default)]
pub(super) struct Sent(Arc<Mutex<Option<Transit>>>);

impl Sent {
    pub(super) fn transit(&self) -> Option<Transit> {
        *self.0.lock()
    }

    fn change(&self, change: impl FnOnce(Option<Transit>) -> Transit) {
        let mut transit = self.0.lock();
        *transit = Some(change(*transit));
    }
}

/// The body of a request. Cloning shares the bytes.
#[derive(Clone, Default)]
pub(super) struct Payload {
    pieces: Vec<Bytes>,
    length: u64,
}

impl Payload {
    /// Bytes in all.
    pub(super) fn len(&self) -> u64 {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.length += piece.len() as u64;
            self.pieces.push(piece);
        }
    }

    /// Adds what another payload holds; the bytes are shared.
    pub(super) fn append(&mut self, other: &Self) {
        self.length += other.length;
        self.pieces.extend_from_slice(&other.pieces);
    }

    /// Drops the first `count` bytes.
    pub(super) fn advance(&mut self, count: u64) {
        let mut left = usize::try_from(count.min(self.length)).unwrap_or(usize::MAX);
        self.length -= left as u64;
        let whole = self
            .pieces
            .iter()
            .take_while(|piece| {
                let whole = piece.len() <= left;
                if whole {
                    left -= piece.len();
                }
                whole
            })
            .count();
        self.pieces.drain(..whole);
        if let Some(first) = self.pieces.first_mut() {
            first.advance(left);
        }
    }

    /// A body that sends these bytes and records in `sent` what the connection took.
    /// `limiter` bounds its rate, and `meter` counts it.
    pub(super) fn outgoing(
        &self,
        sent: &Sent,
        limiter: Option<Arc<Limiter>>,
        meter: Option<Meter>,
    ) -> Outgoing {
        Outgoing((!self.is_empty()).then(|| {
            Box::new(Leaving {
                limiter,
                meter,
                held: None,
                pieces: self.pieces.clone().into_iter(),
                current: Bytes::new(),
                gone: 0,
                length: self.length,
                sent: sent.clone(),
            })
        }))
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        let mut payload = Self::default();
        payload.push(bytes);
        payload
    }
}

/// Counts the part of a payload that is content.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    pub(super) observer: Arc<dyn Observer>,
    pub(super) content: Range<u64>,
}

impl Meter {
    /// Counts what of the bytes at `range` of the payload is content.
    fn count(&self, range: Range<u64>) {
        let first = range.start.max(self.content.start);
        let bytes = range.end.min(self.content.end).saturating_sub(first);
        if bytes > 0 {
            self.observer.sent(bytes);
        }
    }
}

/// A [`Payload`] on its way. Most requests have none and are moved about often, so it is small.
pub(super) struct Outgoing(Option<Box<Leaving>>);

struct Leaving {
    pieces: std::vec::IntoIter<Bytes>,
    current: Bytes,
    /// Bytes that the connection took, and all there are.
    gone: u64,
    length: u64,
    sent: Sent,
    limiter: Option<Arc<Limiter>>,
    meter: Option<Meter>,
    /// A frame whose turn has not come.
    held: Option<(Pin<Box<Sleep>>, Bytes)>,
}

impl Leaving {
    /// The next frame.
    fn cut(&mut self) -> Option<Bytes> {
        if self.current.is_empty() {
            self.current = self.pieces.next()?;
        }
        Some(self.current.split_to(self.current.len().min(FRAME)))
    }

    /// Until when `frame` has to wait.
    fn hold(&self, frame: &Bytes) -> Option<Instant> {
        let limiter = self.limiter.as_ref()?;
        let wait = limiter.take(frame.len() as u64);
        (!wait.is_zero()).then(|| Instant::now() + wait)
    }

    fn leave(&mut self, frame: Bytes) -> Frame<Bytes> {
        let count = frame.len() as u64;
        self.sent
            .change(|transit| Transit::advanced(transit, count));
        if let Some(meter) = &self.meter {
            meter.count(self.gone..self.gone + count);
        }
        self.gone += count;
        Frame::data(frame)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if self.held.is_none() {
            let Some(frame) = self.cut() else {
                return Poll::Ready(None);
            };
            let Some(end) = self.hold(&frame) else {
                return Poll::Ready(Some(self.leave(frame)));
            };
            self.sent.change(|transit| Transit::held(transit, end));
            self.held = Some((Box::pin(sleep_until(end)), frame));
        }
        if let Some((sleep, _)) = &mut self.held {
            ready!(sleep.as_mut().poll(cx));
        }
        let frame = self.held.take().map(|(_, frame)| self.leave(frame));
        Poll::Ready(frame)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().0 {
            Some(leaving) => leaving.poll(cx).map(|frame| frame.map(Ok)),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.0.as_ref().map(|leaving| leaving.length - leaving.gone);
        SizeHint::with_exact(left.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn payload(pieces: &[&'static str]) -> Payload {
        let mut payload = Payload::default();
        for piece in pieces {
            payload.push(Bytes::from_static(piece.as_bytes()));
        }
        payload
    }

    async fn sent(payload: &Payload) -> (Bytes, u64) {
        let sent = Sent::default();
        let body = payload.outgoing(&sent, None, None);
        assert_eq!(body.size_hint().exact(), Some(payload.len()));
        let bytes = body.collect().await.unwrap().to_bytes();
        let taken = sent.transit().map_or(0, |transit| transit.taken());
        (bytes, taken)
    }

    #[tokio::test]
    async fn pieces_are_sent_in_order_as_often_as_asked() {
        let payload = payload(&["ab", "", "cde"]);
        assert_eq!(payload.len(), 5);
        for _ in 0..2 {
            assert_eq!(sent(&payload).await, (Bytes::from("abcde"), 5));
        }
    }

    #[tokio::test]
    async fn advancing_drops_from_the_front() {
        for (count, rest) in [
            (0, "abcde"),
            (1, "bcde"),
            (2, "cde"),
            (4, "e"),
            (5, ""),
            (9, ""),
        ] {
            let mut payload = payload(&["ab", "cde"]);
            payload.advance(count);
            assert_eq!(payload.len(), rest.len() as u64);
            assert_eq!(sent(&payload).await.0, rest);
        }
    }

    #[tokio::test]
    async fn large_pieces_leave_in_frames() {
        let payload = Payload::from(Bytes::from(vec![1; FRAME * 2 + 1]));
        let mut body = payload.outgoing(&Sent::default(), None, None);
        let mut lengths = Vec::new();
        while let Some(frame) = body.frame().await {
            lengths.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(lengths, [FRAME, FRAME, 1]);
    }
}
