//! The word for a kind that a token socket answers with, and back: a broker that asks another one
//! finds the same fault that the other one has. Pure.

use super::{Kind, Reach, Refusal, SourceFault};

impl Kind {
    /// The word, in the form of the error codes of RFC 6749 section 5.2, whose own are used where they
    /// fit.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Source(fault) => match fault {
                SourceFault::Missing => "subject_token_missing",
                SourceFault::Unreadable => "subject_token_unreadable",
                SourceFault::Empty => "subject_token_empty",
                SourceFault::Malformed => "subject_token_malformed",
                SourceFault::TooLarge => "subject_token_too_large",
                SourceFault::Expired => "subject_token_expired",
            },
            Self::Refused(refusal) => match refusal {
                Refusal::Audience => "invalid_target",
                Refusal::Grant => "invalid_grant",
                Refusal::Request => "invalid_request",
                Refusal::Denied => "access_denied",
            },
            Self::Throttled => "quota_exceeded",
            Self::Unreachable(_) => "service_unreachable",
            Self::BadAnswer => "bad_answer",
            Self::Unavailable => "temporarily_unavailable",
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
            Self::Config => "misconfigured",
            Self::Internal => "server_error",
        }
    }

    /// The kind of a fault that lies behind the server that answers with this word: at its own files
    /// and settings, or between it and the services that it asks. `None` for a word that tells no
    /// more than the status does.
    pub(crate) fn behind(code: &str) -> Option<Self> {
        let behind = [
            Self::Source(SourceFault::Missing),
            Self::Source(SourceFault::Unreadable),
            Self::Source(SourceFault::Empty),
            Self::Source(SourceFault::Malformed),
            Self::Source(SourceFault::TooLarge),
            Self::Source(SourceFault::Expired),
            Self::Unreachable(Reach::Network),
            Self::BadAnswer,
            Self::Timeout,
            Self::Config,
        ];
        behind.into_iter().find(|kind| kind.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_behind_a_server_is_the_same_fault_to_who_asks_it() {
        for (code, kind) in [
            (
                "subject_token_missing",
                Some(Kind::Source(SourceFault::Missing)),
            ),
            (
                "subject_token_expired",
                Some(Kind::Source(SourceFault::Expired)),
            ),
            ("misconfigured", Some(Kind::Config)),
            ("timeout", Some(Kind::Timeout)),
            (
                "service_unreachable",
                Some(Kind::Unreachable(Reach::Network)),
            ),
            // Its broker is stopped, and ours is not; any server may have a defect.
            ("stopped", None),
            ("server_error", None),
            ("access_denied", None),
            ("temporarily_unavailable", None),
            ("", None),
        ] {
            assert_eq!(Kind::behind(code), kind, "{code}");
        }
    }
}
