//! The calls of the API, and what repeating each of them can do.

use super::retry::Safety;
use crate::store::Preconditions;

macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A call of the JSON API that this client makes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Operation {
            $($(#[$doc])* $variant),+
        }

        impl Operation {
            /// The call in Google's words.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

operations! {
    BucketGet = "storage.buckets.get",
    Permissions = "storage.buckets.testIamPermissions",
    List = "storage.objects.list",
    Get = "storage.objects.get",
    /// The bytes of an object.
    Media = "storage.objects.get",
    /// A whole object in one request.
    Insert = "storage.objects.insert",
    SessionBegin = "storage.objects.insert",
    SessionChunk = "storage.objects.insert",
    SessionQuery = "storage.objects.insert",
    SessionEnd = "storage.objects.insert",
    Patch = "storage.objects.patch",
    Delete = "storage.objects.delete",
    Compose = "storage.objects.compose",
    Rewrite = "storage.objects.rewrite",
    Move = "storage.objects.move",
    Layout = "storage.buckets.getStorageLayout",
    FolderGet = "storage.folders.get",
    FolderList = "storage.folders.list",
    FolderInsert = "storage.folders.insert",
    FolderRename = "storage.folders.rename",
    FolderDelete = "storage.folders.delete",
    /// How far a long-running operation is.
    Progress = "storage.buckets.operations.get",
}

impl Operation {
    /// What repeating it can do under these preconditions.
    ///
    /// The rules are Google's (<https://cloud.google.com/storage/docs/retry-strategy>), with less trust where they leave
    /// room: a metageneration does not keep a write from acting twice, nor the target's generation a move.
    pub(super) fn safety(self, target: &Preconditions, source: &Preconditions) -> Safety {
        let conditional = |holds: bool| {
            if holds {
                Safety::Conditional
            } else {
                Safety::Once
            }
        };
        match self {
            Self::BucketGet
            | Self::Permissions
            | Self::List
            | Self::Get
            | Self::Media
            | Self::Layout
            | Self::FolderGet
            | Self::FolderList
            | Self::Progress => Safety::Read,
            // It succeeds once: a folder that is there is in the way of its like.
            Self::FolderInsert => Safety::Conditional,
            // A session that nobody fills is forgotten; asking how far it is changes nothing that the answer does not tell.
            Self::SessionBegin | Self::SessionQuery => Safety::Read,
            // A chunk that may have arrived is asked after, not sent again.
            Self::SessionChunk | Self::SessionEnd => Safety::Once,
            Self::Insert | Self::Delete | Self::Compose | Self::Rewrite => {
                conditional(target.generation.is_some())
            }
            Self::Patch | Self::FolderDelete => conditional(target.metageneration.is_some()),
            Self::FolderRename => conditional(source.metageneration.is_some()),
            Self::Move => conditional(source.generation.is_some()),
        }
    }

    /// The same for an observer, which also learns whether the bytes of the object were asked for.
    pub(super) fn observed(self) -> &'static str {
        match self {
            Self::Media => "storage.objects.get.media",
            other => other.name(),
        }
    }

    /// Whether the store's id of the request is the secret of an upload session.
    pub(super) fn is_session(self) -> bool {
        matches!(
            self,
            Self::SessionBegin | Self::SessionChunk | Self::SessionQuery | Self::SessionEnd
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::json::retry::repeats;
    use crate::{Cause, Error, Generation, Kind, Metageneration};

    /// Safety of each call by what is known: nothing, the target's generation, its metageneration, the source's
    /// generation, its metageneration.
    const SAFETY: &[(Operation, [Safety; 5])] = {
        use Operation as O;
        use Safety::{Conditional as C, Once as N, Read as R};
        &[
            (O::BucketGet, [R, R, R, R, R]),
            (O::Permissions, [R, R, R, R, R]),
            (O::List, [R, R, R, R, R]),
            (O::Get, [R, R, R, R, R]),
            (O::Media, [R, R, R, R, R]),
            (O::Insert, [N, C, N, N, N]),
            (O::SessionBegin, [R, R, R, R, R]),
            (O::SessionChunk, [N, N, N, N, N]),
            (O::SessionQuery, [R, R, R, R, R]),
            (O::SessionEnd, [N, N, N, N, N]),
            (O::Patch, [N, N, C, N, N]),
            (O::Delete, [N, C, N, N, N]),
            (O::Compose, [N, C, N, N, N]),
            (O::Rewrite, [N, C, N, N, N]),
            (O::Move, [N, N, N, C, N]),
            (O::Layout, [R, R, R, R, R]),
            (O::FolderGet, [R, R, R, R, R]),
            (O::FolderList, [R, R, R, R, R]),
            (O::FolderInsert, [C, C, C, C, C]),
            (O::FolderRename, [N, N, N, N, C]),
            (O::FolderDelete, [N, N, C, N, N]),
            (O::Progress, [R, R, R, R, R]),
        ]
    };

    fn preconditions() -> [(Preconditions, Preconditions); 5] {
        let none = Preconditions::default();
        let generation = Preconditions::generation(Generation(7));
        let metageneration = Preconditions {
            metageneration: Some(Metageneration(3)),
            ..none
        };
        [
            (none, none),
            (generation, none),
            (metageneration, none),
            (none, generation),
            (none, metageneration),
        ]
    }

    #[test]
    fn safety_follows_operation_and_preconditions() {
        assert_eq!(SAFETY.len(), Operation::ALL.len());
        for (operation, expected) in SAFETY {
            let got = preconditions().map(|(target, source)| operation.safety(&target, &source));
            assert_eq!(got, *expected, "{operation:?}");
        }
    }

    fn answered(status: u16) -> Error {
        let kind = Kind::of(status, None, true);
        Error::new(kind, "storage.objects.get", "o", "x")
    }

    fn unanswered(cause: Cause) -> Error {
        Error {
            cause: Some(cause),
            ..Error::new(Kind::Unavailable, "storage.objects.get", "o", "x")
        }
    }

    /// Every failure, and whether a read, a conditional change and any other change is repeated after it.
    fn failures() -> Vec<(Error, [bool; 3])> {
        let always = [true, true, true];
        let safely = [true, true, false];
        let never = [false, false, false];
        let mut failures = Vec::new();
        for status in [408, 500, 502, 503, 504] {
            failures.push((answered(status), safely));
        }
        // Nothing was done: the store says so, or nobody was asked.
        failures.push((answered(429), always));
        for before in [
            Cause::UnknownHost,
            Cause::Refused,
            Cause::Unreachable,
            Cause::Credentials,
            Cause::Busy,
        ] {
            failures.push((unanswered(before), always));
        }
        for after in [Cause::TimedOut, Cause::Broken] {
            failures.push((unanswered(after), safely));
        }
        failures.push((unanswered(Cause::Tls), never));
        for permanent in [
            302, 304, 307, 400, 401, 403, 404, 405, 407, 409, 410, 411, 412, 413, 416, 499, 501,
        ] {
            failures.push((answered(permanent), never));
        }
        failures
    }

    #[test]
    fn every_operation_is_repeated_where_that_cannot_act_twice_and_nowhere_else() {
        for operation in Operation::ALL {
            for (target, source) in preconditions() {
                let safety = operation.safety(&target, &source);
                for (error, [read, conditional, once]) in failures() {
                    let expected = match safety {
                        Safety::Read => read,
                        Safety::Conditional => conditional,
                        Safety::Once => once,
                    };
                    assert_eq!(
                        repeats(safety, &error),
                        expected,
                        "{operation:?} {target:?} {source:?} {error:?}"
                    );
                }
            }
        }
    }
}
