//! From the errors of the crates to an exit code and one sentence: what is wrong, where, and how to fix it.

use gcsmount_auth::error as auth;
use gcsmount_fuse::session;
use gcsmount_gcs as gcs;

use crate::exit::{Exit, Failure};

/// Why there is no access token.
#[must_use]
pub fn identity(error: &auth::Error) -> Failure {
    let exit = match error.kind() {
        auth::Kind::Source(_) | auth::Kind::Config => Exit::NoToken,
        auth::Kind::Refused(_) => Exit::Refused,
        auth::Kind::Unreachable(_)
        | auth::Kind::Timeout
        | auth::Kind::Throttled
        | auth::Kind::Unavailable
        | auth::Kind::BadAnswer => Exit::Unreachable,
        auth::Kind::Stopped | auth::Kind::Internal => Exit::Other,
    };
    Failure::new(exit, error.message())
}

/// Why the bucket cannot be used. `who` names the identity as the bucket sees it.
#[must_use]
pub fn bucket(error: &gcs::Error, bucket: &gcs::BucketName, endpoint: &str, who: &str) -> Failure {
    let message = &error.message;
    if error.cause == Some(gcs::error::Cause::Credentials) {
        // The source said why, and is named in that.
        return Failure::new(
            Exit::NoToken,
            format!("there is no token to ask for bucket {bucket} with: {message}"),
        );
    }
    match error.kind {
        gcs::Kind::NotFound => Failure::new(
            Exit::NoBucket,
            format!(
                "bucket {bucket} does not exist at {endpoint}: check the name, or create the bucket first"
            ),
        ),
        gcs::Kind::Denied => Failure::new(
            Exit::Denied,
            format!(
                "bucket {bucket} refuses {who} ({message}): grant it roles/storage.objectUser on the bucket, which needs uniform bucket-level access"
            ),
        ),
        gcs::Kind::Unauthenticated => Failure::new(
            Exit::Denied,
            format!(
                "bucket {bucket} at {endpoint} does not accept {who} ({message}): name an identity with --token-file"
            ),
        ),
        gcs::Kind::Unavailable | gcs::Kind::Throttled | gcs::Kind::Canceled => Failure::new(
            Exit::Unreachable,
            format!(
                "no answer about bucket {bucket} from {endpoint}: {message}; check --custom-endpoint and the network"
            ),
        ),
        gcs::Kind::Exists
        | gcs::Kind::NotEmpty
        | gcs::Kind::Precondition
        | gcs::Kind::Corrupt
        | gcs::Kind::OutOfRange
        | gcs::Kind::Gone
        | gcs::Kind::TooLarge
        | gcs::Kind::Held
        | gcs::Kind::Unsupported
        | gcs::Kind::Invalid => Failure::new(
            Exit::Other,
            format!(
                "{endpoint} gives an answer about bucket {bucket} that a storage service does not give ({message}): check --custom-endpoint"
            ),
        ),
    }
}

/// Why there is no mount.
#[must_use]
pub fn mount(error: &session::Error) -> Failure {
    let exit = match error {
        session::Error::Missing(_)
        | session::Error::NotADirectory(_)
        | session::Error::AlreadyMounted { .. }
        | session::Error::Stale(_)
        | session::Error::Descriptor { .. }
        | session::Error::Covered(_) => Exit::MountPoint,
        session::Error::NoDevice
        | session::Error::DeviceDenied { .. }
        | session::Error::NoHelper => Exit::NoFuse,
        session::Error::Option { .. } => Exit::Usage,
        _ => Exit::Other,
    };
    Failure::new(exit, error.to_string())
}
