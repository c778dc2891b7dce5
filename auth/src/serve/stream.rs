//! The bytes of one connection. They end where the server wants the connection to: once all that
//! the client sent has been read, so that no request is thrown away unseen. A client that does not
//! read what it asked for is not waited for long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::{Sleep, sleep};

use super::connections::Busy;

/// How long nothing at all may be read of an answer that does not fit into the socket.
const STALL: Duration = Duration::from_secs(2);

pub(super) struct Stream {
    io: TokioIo<UnixStream>,
    busy: Busy,
    /// Runs while the client does not read.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub(super) fn new(stream: UnixStream, busy: Busy) -> Self {
        Self {
            io: TokioIo::new(stream),
            busy,
            stall: None,
        }
    }

    /// What came of a write, or that the client has not read for too long.
    fn in_time(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(stall.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.io).poll_read(cx, buf) {
            // Nothing was put into the buffer: the end.
            Poll::Pending if self.busy.is_over() => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
            read => {
                self.busy.note_bytes();
                read
            }
        }
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        self.in_time(written, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.in_time(written, cx)
    }
}
