//! A request from its arrival to its answer.

use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime};

use fuser::TimeOrNow;
use nix::errno::Errno;
use tracing::Level;

use super::repeats::Repeats;
use super::reply::{Answer, Refuse};
use crate::errno::{Error, Result};
use crate::fs::{Fs, SetXattr};
use crate::metadata::Posix;
use crate::observer::{Answered, Observer, Operation};

/// The time that a request means.
pub(super) fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(at) => at,
        TimeOrNow::Now => SystemTime::now(),
    }
}

/// The bits of a mode that do not tell the type.
pub(super) fn bits(mode: u32) -> u16 {
    // What is left has 12 bits.
    u16::try_from(mode & 0o7777).unwrap_or_default()
}

/// What a new node of `mode` is, which belongs to whoever asks for it. The kernel has applied the umask.
pub(super) fn born(request: &fuser::Request, mode: u32) -> Posix {
    Posix {
        mode: Some(bits(mode)),
        uid: Some(request.uid()),
        gid: Some(request.gid()),
        atime: None,
    }
}

/// What setxattr(2) requires. The kernel lets no other flags through.
pub(super) fn how(flags: i32) -> SetXattr {
    const XATTR_CREATE: i32 = 1;
    const XATTR_REPLACE: i32 = 2;
    match flags {
        XATTR_CREATE => SetXattr::Create,
        XATTR_REPLACE => SetXattr::Replace,
        _ => SetXattr::Any,
    }
}

/// A request that has no answer yet. Dropped without one, it counts as the EIO that its reply then gives by itself.
#[derive(Debug)]
pub(super) struct Pending {
    operation: Operation,
    /// When it came, and who is to hear of its end.
    watched: Option<(Instant, Arc<dyn Observer>)>,
}

impl Pending {
    pub(super) fn begin(fs: &Fs, operation: Operation) -> Self {
        let observer = fs.config().observer.clone();
        Self {
            operation,
            watched: observer.map(|observer| (Instant::now(), observer)),
        }
    }

    pub(super) fn operation(&self) -> Operation {
        self.operation
    }

    /// Answers, and logs a failure in its one line.
    pub(super) fn answer<T, R: Answer<T>>(self, reply: R, result: Result<T>) {
        match result {
            Ok(value) => self.fulfil(reply, value),
            Err(error) => {
                log(self.operation, &error);
                self.refuse(reply, error.errno());
            }
        }
    }

    pub(super) fn fulfil<T, R: Answer<T>>(mut self, reply: R, value: T) {
        let bytes = match self.operation {
            Operation::ReadFile | Operation::WriteFile => R::content(&value),
            _ => 0,
        };
        self.end(None, bytes);
        reply.ok(value);
    }

    /// Answers with a failure that is no event.
    pub(super) fn refuse<R: Refuse>(mut self, reply: R, errno: Errno) {
        self.end(Some(errno), 0);
        reply.fail(errno);
    }

    fn end(&mut self, errno: Option<Errno>, bytes: u64) {
        if let Some((begun, observer)) = self.watched.take() {
            observer.answered(&Answered {
                operation: self.operation,
                errno,
                took: begun.elapsed(),
                bytes,
            });
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.end(Some(Errno::EIO), 0);
    }
}

/// What makes a failure another one: request, errno, kind, and the store's HTTP status.
type Likeness = (Operation, i32, Option<gcsmount_gcs::Kind>, Option<u16>);

/// Failures that were logged of late.
static LOGGED: LazyLock<Repeats<Likeness>> = LazyLock::new(Repeats::default);

/// Whether a failure is the last that is heard of somebody's data: each of them gets its line.
fn is_about_data(operation: Operation) -> bool {
    matches!(operation, Operation::FlushFile | Operation::SyncFile)
}

/// A store that is down fails every request: of those that differ in their subject only, one in a while gets its line,
/// with the count of those that got none.
fn log(operation: Operation, error: &Error) {
    let (op, errno) = (operation.name(), error.errno());
    let level = error.level();
    if level > Level::WARN {
        tracing::debug!(op, ?errno, %error, "operation failed");
        return;
    }
    let likeness = (operation, errno as i32, error.kind(), error.status());
    let more = match LOGGED.admit(likeness) {
        Some(more) => more,
        None if is_about_data(operation) => 0,
        None => return,
    };
    let and_more = (more > 0).then_some(more);
    if level == Level::ERROR {
        tracing::error!(op, ?errno, %error, and_more, "operation failed");
    } else {
        tracing::warn!(op, ?errno, %error, and_more, "operation failed");
    }
}
