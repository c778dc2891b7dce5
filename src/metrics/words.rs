//! What gcsfuse calls things in the labels of its metrics.

use gcsmount_gcs::Cause;
use gcsmount_gcs::client::json::{Outcome, Reason};
use nix::errno::Errno;

/// gcsfuse's word for a call of the store. Those that it does not make keep Google's.
#[must_use]
pub fn method(operation: &'static str) -> &'static str {
    match operation {
        "storage.objects.list" => "ListObjects",
        "storage.objects.get" => "StatObject",
        "storage.objects.get.media" => "NewReader",
        "storage.objects.insert" => "CreateObject",
        "storage.objects.patch" => "UpdateObject",
        "storage.objects.delete" => "DeleteObject",
        "storage.objects.compose" => "ComposeObjects",
        "storage.objects.rewrite" => "CopyObject",
        "storage.objects.move" => "MoveObject",
        "storage.folders.get" => "GetFolder",
        "storage.folders.insert" => "CreateFolder",
        "storage.folders.rename" => "RenameFolder",
        "storage.folders.delete" => "DeleteFolder",
        other => other,
    }
}

/// Its `fs_error_category` of an errno.
#[must_use]
pub fn category(errno: Errno) -> &'static str {
    match errno {
        Errno::ENOENT => "NO_FILE_OR_DIR",
        Errno::EEXIST => "FILE_EXISTS",
        Errno::ENOTEMPTY => "DIR_NOT_EMPTY",
        Errno::ENOTDIR => "NOT_A_DIR",
        Errno::EISDIR | Errno::ENAMETOOLONG | Errno::ELOOP | Errno::EXDEV => "FILE_DIR_ERROR",
        Errno::EPERM | Errno::EACCES | Errno::EROFS => "PERM_ERROR",
        Errno::EIO | Errno::ESTALE => "IO_ERROR",
        Errno::EINTR => "INTERRUPT_ERROR",
        Errno::EINVAL | Errno::EILSEQ | Errno::ERANGE => "INVALID_ARGUMENT",
        Errno::EBADF | Errno::EOPNOTSUPP | Errno::ENOTTY | Errno::EFBIG => "INVALID_OPERATION",
        Errno::ENOSYS => "NOT_IMPLEMENTED",
        Errno::EMFILE | Errno::ENFILE => "TOO_MANY_OPEN_FILES",
        Errno::ENODEV | Errno::ENXIO | Errno::ENOSPC => "DEVICE_ERROR",
        Errno::ETIMEDOUT | Errno::ENETUNREACH | Errno::ECONNREFUSED | Errno::EHOSTUNREACH => {
            "NETWORK_ERROR"
        }
        Errno::EAGAIN | Errno::EBUSY | Errno::ENOMEM => "PROCESS_RESOURCE_MGMT_ERROR",
        _ => "MISC_ERROR",
    }
}

/// Its `retry_error_category` of why a request is sent again; `None`: not after a failure.
#[must_use]
pub fn retried(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::Failed(_, Some(Cause::TimedOut)) => Some("STALLED_READ_REQUEST"),
        Reason::Failed(..) | Reason::Token => Some("OTHER_ERRORS"),
        Reason::Slow | Reason::Headers => None,
    }
}

/// How a request ended, in a word.
#[must_use]
pub fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Answered(status) => status.to_string(),
        Outcome::Lost(cause) => match cause {
            Cause::UnknownHost => "unknown_host",
            Cause::Refused => "refused",
            Cause::Unreachable => "unreachable",
            Cause::Tls => "tls",
            Cause::Credentials => "no_token",
            Cause::Busy => "busy",
            Cause::TimedOut => "timed_out",
            Cause::Broken => "broken",
        }
        .into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use gcsmount_gcs::Kind;

    use super::*;

    #[test]
    fn words_are_those_that_dashboards_look_for() {
        for (errno, word) in [
            (Errno::ENOENT, "NO_FILE_OR_DIR"),
            (Errno::EACCES, "PERM_ERROR"),
            (Errno::ESTALE, "IO_ERROR"),
            (Errno::ENOSPC, "DEVICE_ERROR"),
            (Errno::ETIMEDOUT, "NETWORK_ERROR"),
            (Errno::EBUSY, "PROCESS_RESOURCE_MGMT_ERROR"),
            (Errno::EXDEV, "FILE_DIR_ERROR"),
            (Errno::ENODATA, "MISC_ERROR"),
        ] {
            assert_eq!(category(errno), word, "{errno}");
        }
        assert_eq!(method("storage.objects.get"), "StatObject");
        assert_eq!(method("storage.objects.get.media"), "NewReader");
        assert_eq!(method("storage.buckets.get"), "storage.buckets.get");
        let failed = |cause| retried(Reason::Failed(Kind::Unavailable, cause));
        assert_eq!(failed(Some(Cause::TimedOut)), Some("STALLED_READ_REQUEST"));
        assert_eq!(failed(None), Some("OTHER_ERRORS"));
        assert_eq!(retried(Reason::Slow), None, "nothing has failed");
        let lost = [Cause::Refused, Cause::TimedOut, Cause::Broken].map(Outcome::Lost);
        let words: HashSet<_> = lost.into_iter().map(outcome).collect();
        assert_eq!(words.len(), lost.len());
    }
}
