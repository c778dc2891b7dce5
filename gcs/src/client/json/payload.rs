//! What a request carries: pieces that are kept for replay and never copied.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

use super::deadline::Transit;
use super::limit::Limiter;

/// Small enough that a body on its way shows progress long before a deadline.
const FRAME: usize = 256 << 10;

/// Where a body on its way is: written by the body, read by whoever waits for the answer. `None` until the connection
/// takes the first byte.
pub(super) type Sent = Arc<Mutex<Option<Transit>>>;

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
    /// `limiter` bounds its rate.
    pub(super) fn outgoing(&self, sent: &Sent, limiter: Option<Arc<Limiter>>) -> Outgoing {
        Outgoing {
            limiter,
            held: None,
            pieces: self.pieces.clone().into_iter(),
            current: Bytes::new(),
            left: self.length,
            sent: Arc::clone(sent),
        }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        let mut payload = Self::default();
        payload.push(bytes);
        payload
    }
}

/// A [`Payload`] on its way.
pub(super) struct Outgoing {
    pieces: std::vec::IntoIter<Bytes>,
    current: Bytes,
    left: u64,
    sent: Sent,
    limiter: Option<Arc<Limiter>>,
    /// A frame whose turn has not come.
    held: Option<(Pin<Box<Sleep>>, Bytes)>,
}

impl Outgoing {
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
        self.left -= frame.len() as u64;
        let mut sent = self.sent.lock();
        *sent = Some(Transit::advanced(*sent, frame.len() as u64));
        drop(sent);
        Frame::data(frame)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        if this.held.is_none() {
            let Some(frame) = this.cut() else {
                return Poll::Ready(None);
            };
            let Some(end) = this.hold(&frame) else {
                return Poll::Ready(Some(Ok(this.leave(frame))));
            };
            let mut sent = this.sent.lock();
            *sent = Some(Transit::held(*sent, end));
            drop(sent);
            this.held = Some((Box::pin(sleep_until(end)), frame));
        }
        if let Some((sleep, _)) = &mut this.held {
            ready!(sleep.as_mut().poll(cx));
        }
        let frame = this.held.take().map(|(_, frame)| this.leave(frame));
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
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
        let body = payload.outgoing(&sent, None);
        assert_eq!(body.size_hint().exact(), Some(payload.len()));
        let bytes = body.collect().await.unwrap().to_bytes();
        let taken = sent.lock().map_or(0, |transit| transit.taken());
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
        let mut body = payload.outgoing(&Arc::default(), None);
        let mut lengths = Vec::new();
        while let Some(frame) = body.frame().await {
            lengths.push(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!(lengths, [FRAME, FRAME, 1]);
    }
}
