//! The OAuth scopes of a token: what it may do at most, whatever roles its principal has. Which scopes a method takes is
//! what the discovery document of Cloud Storage (`storage:v1`) lists for it.

use crate::error::{ApiError, Kind};
use crate::operation::Operation;

const PREFIX: &str = "https://www.googleapis.com/auth/";

/// How far a token goes with Cloud Storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Nothing,
    /// `devstorage.read_only` and `cloud-platform.read-only`.
    Read,
    /// `devstorage.read_write`: data, and not the metadata of what there is.
    Write,
    /// `devstorage.full_control` and `cloud-platform`.
    Control,
}

/// What the scopes of a token come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scopes {
    storage: Reach,
    iam: bool,
}

impl Scopes {
    /// Those of a token that has the `cloud-platform` scope.
    pub(crate) const ALL: Self = Self {
        storage: Reach::Control,
        iam: true,
    };

    /// The union of scopes by their names. Those of other services, and names that are none, add nothing.
    pub(crate) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let nothing = Self {
            storage: Reach::Nothing,
            iam: false,
        };
        let scopes = names
            .into_iter()
            .flat_map(str::split_ascii_whitespace)
            .filter_map(|name| name.strip_prefix(PREFIX));
        scopes.fold(nothing, |sum, scope| Self {
            storage: sum.storage.max(reach(scope)),
            iam: sum.iam || matches!(scope, "cloud-platform" | "iam"),
        })
    }

    /// Whether there is anything in Cloud Storage that they let a token do.
    pub(crate) fn open_storage(self) -> bool {
        self.storage > Reach::Nothing
    }

    /// Refuses an operation of the storage API that needs a wider scope, in the words of GCS.
    pub(crate) fn permit(self, operation: Operation) -> Result<(), ApiError> {
        if self.storage >= needed(operation) {
            return Ok(());
        }
        Err(ApiError::new(
            Kind::ScopeInsufficient,
            "Provided scope(s) are not authorized",
        ))
    }

    /// Refuses a call of IAM Credentials.
    pub(crate) fn permit_iam(self) -> Result<(), ApiError> {
        if self.iam {
            return Ok(());
        }
        Err(ApiError::new(
            Kind::ScopeInsufficient,
            "Request had insufficient authentication scopes.",
        ))
    }
}

fn reach(scope: &str) -> Reach {
    match scope {
        "cloud-platform" | "devstorage.full_control" => Reach::Control,
        "devstorage.read_write" => Reach::Write,
        "cloud-platform.read-only" | "devstorage.read_only" => Reach::Read,
        _ => Reach::Nothing,
    }
}

fn needed(operation: Operation) -> Reach {
    match operation {
        // The URL of an upload session is all that its further requests need.
        Operation::ObjectsInsertChunk
        | Operation::ObjectsInsertQuery
        | Operation::ObjectsInsertCancel
        | Operation::Batch
        | Operation::StsToken
        | Operation::OauthToken
        | Operation::GenerateAccessToken
        | Operation::Metadata
        | Operation::Admin
        | Operation::Unknown => Reach::Nothing,
        Operation::BucketsList
        | Operation::BucketsGet
        | Operation::BucketsTestPermissions
        | Operation::StorageLayout
        | Operation::ObjectsList
        | Operation::ObjectsGet
        | Operation::ObjectsMedia
        | Operation::FoldersGet
        | Operation::FoldersList
        | Operation::OperationsGet => Reach::Read,
        Operation::BucketsInsert
        | Operation::BucketsDelete
        | Operation::ObjectsInsert
        | Operation::ObjectsInsertStart
        | Operation::ObjectsDelete
        | Operation::ObjectsCompose
        | Operation::ObjectsRewrite
        | Operation::ObjectsCopy
        | Operation::ObjectsMove
        | Operation::FoldersInsert
        | Operation::FoldersDelete
        | Operation::FoldersRename => Reach::Write,
        Operation::BucketsPatch
        | Operation::ObjectsPatch
        | Operation::ObjectsUpdate
        | Operation::ObjectsRestore => Reach::Control,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_scope_opens() {
        let (read, write, control) = (
            Operation::ObjectsMedia,
            Operation::ObjectsInsert,
            Operation::ObjectsPatch,
        );
        for (names, opens) in [
            (&["cloud-platform"][..], [true, true, true]),
            (&["devstorage.full_control"], [true, true, true]),
            (&["devstorage.read_write"], [true, true, false]),
            (&["devstorage.read_only"], [true, false, false]),
            (&["cloud-platform.read-only"], [true, false, false]),
            (
                &["devstorage.read_only", "devstorage.read_write"],
                [true, true, false],
            ),
            (&["pubsub"], [false, false, false]),
            (&[], [false, false, false]),
        ] {
            let names: Vec<String> = names.iter().map(|name| format!("{PREFIX}{name}")).collect();
            let scopes = Scopes::of(names.iter().map(String::as_str));
            let permits = |operation| scopes.permit(operation).is_ok();
            assert_eq!([read, write, control].map(permits), opens, "{names:?}");
            assert_eq!(scopes.open_storage(), opens[0], "{names:?}");
            assert_eq!(Scopes::of([names.join(" ").as_str()]), scopes, "{names:?}");
            assert!(permits(Operation::ObjectsInsertChunk));
        }
    }

    #[test]
    fn what_opens_iam() {
        for (scope, opens) in [
            ("cloud-platform", true),
            ("iam", true),
            ("devstorage.full_control", false),
        ] {
            let scopes = Scopes::of([format!("{PREFIX}{scope}").as_str()]);
            assert_eq!(scopes.permit_iam().is_ok(), opens, "{scope}");
        }
        assert_eq!(Scopes::of(["cloud-platform"]).storage, Reach::Nothing);
    }
}
