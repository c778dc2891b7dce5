//! What a failed operation tells the caller, and how loudly it is logged.
//!
//! Both are exhaustive matches over [`Kind`]: a new kind does not compile until it has a place here.

use std::fmt;
use std::sync::Arc;

use gcsmount_gcs::Kind;
use nix::errno::Errno;
use tracing::Level;

/// Shorthand for the results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An operation that failed: the errno for the caller, and the store's error where one stands behind it.
#[derive(Debug, Clone)]
pub struct Error {
    errno: Errno,
    cause: Option<Cause>,
}

/// What stands behind a failure.
#[derive(Debug, Clone)]
enum Cause {
    /// Boxed: the store's error is large and the result of every operation carries room for it.
    Store(Box<gcsmount_gcs::Error>),
    /// What happened on this machine, in one sentence.
    Local(Arc<str>),
}

impl Error {
    /// A failure that the store has no part in.
    #[must_use]
    pub fn of(errno: Errno) -> Self {
        Self { errno, cause: None }
    }

    /// A failure that the store has no part in, and why.
    #[must_use]
    pub fn because(errno: Errno, why: impl fmt::Display) -> Self {
        let cause = Some(Cause::Local(why.to_string().into()));
        Self { errno, cause }
    }

    /// A failure of local disk I/O on `what`: out of space is the caller's to know, the rest is EIO.
    #[must_use]
    pub fn local(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let errno = match error.raw_os_error().map(Errno::from_raw) {
            Some(kept @ (Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG)) => kept,
            _ => Errno::EIO,
        };
        Self::because(errno, format_args!("{what}: {error}"))
    }

    /// The same failure under another errno, where the operation knows better what it means.
    #[must_use]
    pub fn answered_as(self, errno: Errno) -> Self {
        Self { errno, ..self }
    }

    /// The errno that the caller gets.
    #[must_use]
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// The store's kind, where the store was asked.
    #[must_use]
    pub fn kind(&self) -> Option<Kind> {
        match &self.cause {
            Some(Cause::Store(cause)) => Some(cause.kind),
            Some(Cause::Local(_)) | None => None,
        }
    }

    /// The store's HTTP status, where it answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match &self.cause {
            Some(Cause::Store(cause)) => cause.status,
            Some(Cause::Local(_)) | None => None,
        }
    }

    /// How loud the one log line of this failure is: what a program expects to meet is not an operator's concern.
    #[must_use]
    pub fn level(&self) -> Level {
        match self.kind() {
            Some(kind) => level(kind),
            None => match self.errno {
                Errno::EIO | Errno::ETIMEDOUT | Errno::ENOSPC => Level::ERROR,
                _ => Level::DEBUG,
            },
        }
    }
}

impl From<gcsmount_gcs::Error> for Error {
    fn from(cause: gcsmount_gcs::Error) -> Self {
        Self {
            errno: errno(cause.kind),
            cause: Some(Cause::Store(Box::new(cause))),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(Cause::Store(cause)) => cause.fmt(f),
            Some(Cause::Local(why)) => f.write_str(why),
            None => f.write_str(self.errno.desc()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        None
    }
}

/// The errno of a kind, where the operation does not know better.
#[must_use]
pub fn errno(kind: Kind) -> Errno {
    match kind {
        Kind::NotFound => Errno::ENOENT,
        Kind::Exists => Errno::EEXIST,
        Kind::NotEmpty => Errno::ENOTEMPTY,
        // Somebody else has changed the object: what the caller holds is about a file that is no more.
        Kind::Precondition => Errno::ESTALE,
        Kind::Denied | Kind::Unauthenticated => Errno::EACCES,
        // Not EAGAIN: programs take that from a blocking descriptor as a promise that poll(2) helps.
        Kind::Throttled => Errno::EBUSY,
        Kind::Canceled => Errno::ETIMEDOUT,
        Kind::Unavailable | Kind::Corrupt | Kind::OutOfRange | Kind::Gone => Errno::EIO,
        Kind::TooLarge => Errno::EFBIG,
        Kind::Held => Errno::EPERM,
        Kind::Unsupported => Errno::ENOTSUP,
        Kind::Invalid => Errno::EIO,
    }
}

fn level(kind: Kind) -> Level {
    match kind {
        Kind::NotFound | Kind::Exists | Kind::NotEmpty => Level::DEBUG,
        Kind::Precondition | Kind::Held | Kind::TooLarge | Kind::Unsupported => Level::WARN,
        Kind::Denied
        | Kind::Unauthenticated
        | Kind::Throttled
        | Kind::Unavailable
        | Kind::Canceled
        | Kind::Corrupt
        | Kind::OutOfRange
        | Kind::Gone
        | Kind::Invalid => Level::ERROR,
    }
}

#[cfg(test)]
mod tests {
    use gcsmount_gcs::ObjectName;

    use super::*;

    #[test]
    fn every_kind_has_its_errno() {
        let table = [
            (Kind::NotFound, Errno::ENOENT),
            (Kind::Exists, Errno::EEXIST),
            (Kind::NotEmpty, Errno::ENOTEMPTY),
            (Kind::Precondition, Errno::ESTALE),
            (Kind::Denied, Errno::EACCES),
            (Kind::Unauthenticated, Errno::EACCES),
            (Kind::Throttled, Errno::EBUSY),
            (Kind::Unavailable, Errno::EIO),
            (Kind::Canceled, Errno::ETIMEDOUT),
            (Kind::Corrupt, Errno::EIO),
            (Kind::OutOfRange, Errno::EIO),
            (Kind::Gone, Errno::EIO),
            (Kind::TooLarge, Errno::EFBIG),
            (Kind::Held, Errno::EPERM),
            (Kind::Unsupported, Errno::ENOTSUP),
            (Kind::Invalid, Errno::EIO),
        ];
        for (kind, expected) in table {
            assert_eq!(errno(kind), expected, "{kind:?}");
        }
    }

    #[test]
    fn an_error_keeps_its_cause_under_another_errno() {
        let name = ObjectName::parse("o").unwrap();
        let error = Error::from(gcsmount_gcs::Error::not_found("storage.objects.get", &name));
        assert_eq!(error.level(), Level::DEBUG);
        let error = error.answered_as(Errno::ESTALE);
        assert_eq!(error.errno(), Errno::ESTALE);
        assert_eq!(error.kind(), Some(Kind::NotFound));
        assert!(error.to_string().contains("storage.objects.get"));
    }

    #[test]
    fn a_full_staging_disk_is_told() {
        let full = std::io::Error::from_raw_os_error(Errno::ENOSPC as i32);
        let full = Error::local("staging in /d", &full);
        assert_eq!((full.errno(), full.level()), (Errno::ENOSPC, Level::ERROR));
        assert_eq!(
            full.to_string(),
            "staging in /d: No space left on device (os error 28)"
        );
        let odd = std::io::Error::other("odd");
        assert_eq!(Error::local("x", &odd).errno(), Errno::EIO);
        assert_eq!(Error::of(Errno::ENOSPC).level(), Level::ERROR);
        assert_eq!(Error::of(Errno::ENOENT).level(), Level::DEBUG);
    }
}
