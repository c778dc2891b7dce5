//! The body of an answer, as it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::poll_fn;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::Lost;
use crate::Cause;
use crate::client::json::Observer;
use crate::client::json::limit::Limiter;

/// A body as it arrives. Holds its connection's slot until it is dropped.
pub(in crate::client::json) struct Flow {
    pub(super) body: Incoming,
    pub(super) idle: Duration,
    pub(super) limiter: Option<Arc<Limiter>>,
    /// Who counts the bytes, where they are content.
    pub(super) observer: Option<Arc<dyn Observer>>,
    pub(super) _slot: OwnedSemaphorePermit,
}

impl Flow {
    /// Says that this is content, and who counts it.
    pub(in crate::client::json) fn counted_by(self, observer: Option<Arc<dyn Observer>>) -> Self {
        Self { observer, ..self }
    }

    /// The next bytes, never empty; `None` where the body ended as it should.
    pub(in crate::client::json) async fn next(&mut self) -> Option<Result<Bytes, Lost>> {
        let piece = self.arrive().await?;
        if let Ok(bytes) = &piece {
            self.pass(bytes.len()).await;
        }
        Some(piece)
    }

    /// Waits until the rate allows for another `count` bytes.
    async fn pass(&self, count: usize) {
        if let Some(limiter) = &self.limiter {
            limiter.pass(count as u64).await;
        }
    }

    async fn arrive(&mut self) -> Option<Result<Bytes, Lost>> {
        while !self.body.is_end_stream() {
            match self.frame().await?.map(Frame::into_data) {
                Ok(Ok(bytes)) if !bytes.is_empty() => {
                    if let Some(observer) = &self.observer {
                        observer.received(bytes.len() as u64);
                    }
                    return Some(Ok(bytes));
                }
                Ok(_) => {}
                Err(lost) => return Some(Err(lost)),
            }
        }
        None
    }

    async fn frame(&mut self) -> Option<Result<Frame<Bytes>, Lost>> {
        // What is there already, as a small body is with its head, needs no timer.
        let there = poll_fn(|cx| Poll::Ready(Pin::new(&mut self.body).poll_frame(cx))).await;
        let frame = match there {
            Poll::Ready(frame) => frame?,
            Poll::Pending => match timeout(self.idle, self.body.frame()).await {
                Ok(frame) => frame?,
                Err(_) => return Some(Err(Lost::silent("the body stalled", self.idle))),
            },
        };
        Some(frame.map_err(|error| Lost::new(Cause::Broken, &error.to_string())))
    }

    /// The whole of a body that is at most `limit` bytes long.
    pub(in crate::client::json) async fn collect(
        mut self,
        limit: usize,
        deadline: Instant,
    ) -> Result<Bytes, Lost> {
        let all = async {
            let Some(first) = self.arrive().await else {
                return Ok(Bytes::new());
            };
            let first = first?;
            let Some(second) = self.arrive().await else {
                return Ok(first);
            };
            let mut all = BytesMut::from(first);
            all.extend_from_slice(&second?);
            while let Some(piece) = self.arrive().await {
                if all.len() > limit {
                    return Err(Lost::new(
                        Cause::Broken,
                        "the answer is longer than any should be",
                    ));
                }
                all.extend_from_slice(&piece?);
            }
            Ok(all.freeze())
        };
        let all = timeout_at(deadline, all).await.unwrap_or_else(|_| {
            Err(Lost::new(
                Cause::TimedOut,
                "half an answer before the deadline",
            ))
        })?;
        self.pass(all.len()).await;
        Ok(all)
    }
}
