//! One function a step. Each says what holds, or fails with the sentence that the mount would end with.

use std::path::Path;
use std::time::{Duration, SystemTime};

use gcsmount_auth::boundary::Access as Allowed;
use gcsmount_auth::claims::Claims;
use gcsmount_auth::{Broker, FileSource, Source};
use gcsmount_fuse::session;
use gcsmount_gcs::Store;
use gcsmount_gcs::object::Bucket;
use gcsmount_gcs::store::ClockOffset;

use super::report::{Finding, Verdict};
use crate::config::MountConfig;
use crate::exit::{Exit, Failure};
use crate::explain::{self, Explanation};
use crate::identity::Identity;
use crate::mount;
use crate::wire::Access;

fn holds(text: impl Into<String>) -> Finding {
    Finding::new(Verdict::Holds).text(text)
}

fn warns(text: impl Into<String>) -> Finding {
    Finding::new(Verdict::Warns).text(text)
}

/// What a file system needs, in the order of IAM's documentation.
const NEEDED: &[&str] = &[
    "storage.objects.list",
    "storage.objects.get",
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.update",
];
/// A difference of clocks beyond which token lifetimes and times of files begin to mislead.
const SKEW: Duration = Duration::from_secs(30);

/// Who it is going to be, and why.
pub(super) fn identity(identity: &Identity) -> Finding {
    holds(identity.to_string()).field("reason", identity.why.to_string())
}

/// Reads the file and shows its claims, which are no secret without the signature.
pub(super) async fn token_file(path: &Path) -> Result<Finding, Failure> {
    let source = FileSource::new(path);
    let subject = source
        .subject_token()
        .await
        .map_err(|error| explain::identity(&error))?;
    let claims = Claims::of(&subject).map_err(|malformed| {
        Failure::new(
            Exit::NoToken,
            format!("the token in {} {}", path.display(), malformed.explain()),
        )
    })?;
    let is_over = claims
        .expires_at
        .is_some_and(|end| end <= SystemTime::now());
    let verdict = match is_over {
        true => Verdict::Warns,
        false => Verdict::Holds,
    };
    let or_not = |claim: &Option<String>| claim.clone().unwrap_or_else(|| "not said".into());
    let ends = claims.expires_at.map_or_else(|| "not said".into(), until);
    Ok(Finding::new(verdict)
        .whole(format!("subject  {}", or_not(&claims.subject)))
        .whole(format!("issuer   {}", or_not(&claims.issuer)))
        .whole(format!("audience {}", claims.audiences.join(", ")))
        .text(format!("ends     {ends}"))
        .field("path", path.display().to_string())
        .field("subject", claims.subject)
        .field("issuer", claims.issuer)
        .field("audiences", claims.audiences)
        .field("expires_in", claims.expires_at.map(seconds_until)))
}

/// Seconds from now; below zero for what is over.
fn seconds_until(end: SystemTime) -> i64 {
    let whole = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    match end.duration_since(SystemTime::now()) {
        Ok(left) => whole(left),
        Err(passed) => -whole(passed.duration()),
    }
}

fn until(end: SystemTime) -> String {
    match end.duration_since(SystemTime::now()) {
        Ok(left) => format!("in {}", human(left)),
        Err(passed) => format!("{} ago", human(passed.duration())),
    }
}

fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

/// Gets an access token.
pub(super) async fn exchange(access: &Access) -> Result<Finding, Failure> {
    let proof = access.prove().await;
    proof.map_err(|error| access.explain(&error))?;
    access.check_universe()?;
    let Some(broker) = &access.broker else {
        return Ok(holds("an access token, asked for anew with each request"));
    };
    let status = broker.status();
    let left = status
        .expires_in
        .map_or_else(|| "an unknown time".into(), human);
    let text = holds(format!("an access token for {left} more"));
    // Credential files that are exchanged for nothing have no audience.
    let text = match &status.identity.audience {
        Some(audience) => text.whole(format!("audience {audience}")),
        None => text,
    };
    Ok(text
        .field("expires_in", status.expires_in.map(|left| left.as_secs()))
        .field("audience", status.identity.audience))
}

/// The line to paste into a grant.
pub(super) fn principal(broker: &Broker) -> Finding {
    let Some(principal) = broker.status().identity.principal else {
        return warns("the token does not tell which principal it stands for")
            .field("principal", None::<String>);
    };
    let finding = Finding::new(Verdict::Holds).whole(&principal);
    let finding = match explain::number_of(&principal) {
        Some(how) => finding.whole(how),
        None => finding,
    };
    finding.field("principal", principal)
}

/// Whether the boundary is around what is to be mounted.
pub(super) fn boundary(config: &MountConfig) -> Result<Finding, Failure> {
    let (words, access) = match config.limited_to()? {
        Allowed::Write => ("may be read and written", "write"),
        Allowed::Read => ("may be read, and nothing else", "read"),
    };
    let mounted = format!("{}/{}", config.bucket, config.root());
    Ok(holds(format!("{mounted} {words}")).field("access", access))
}

/// Asks for the bucket as the mount does.
pub(super) async fn bucket(
    config: &MountConfig,
    access: &Access,
    store: &dyn Store,
) -> Result<Finding, Explanation> {
    let answer = mount::ask(config, store).await;
    let bucket = answer.map_err(|error| access.explain_bucket(&error, config))?;
    let finding = match bucket.as_ref().and_then(|bucket| bucket.uniform_access) {
        Some(false) => Finding::new(Verdict::Warns),
        Some(true) | None => Finding::new(Verdict::Holds),
    };
    let finding = finding
        .text(format!("{} at {}", config.bucket, config.endpoint))
        .field("bucket", config.bucket.as_str())
        .field("endpoint", config.endpoint.as_str());
    Ok(match bucket.filter(|bucket| !bucket.location.is_empty()) {
        Some(bucket) => described(finding, &bucket, config),
        None => finding.text(
            "location, class and kind of access cannot be read (that needs storage.buckets.get; a mount does not)",
        ),
    })
}

fn described(finding: Finding, bucket: &Bucket, config: &MountConfig) -> Finding {
    let finding = finding
        .text(format!(
            "location {}, class {}",
            bucket.location, bucket.storage_class
        ))
        .field("location", bucket.location.as_str())
        .field("storage_class", bucket.storage_class.as_str())
        .field("uniform_access", bucket.uniform_access);
    match bucket.uniform_access {
        Some(true) => finding.text("uniform bucket-level access"),
        None => finding,
        Some(false) => finding
            .text("no uniform bucket-level access: a federated identity is refused with 412")
            .whole(format!(
                "gcloud storage buckets update gs://{} --uniform-bucket-level-access",
                config.bucket
            )),
    }
}

/// Asks which of the permissions that a file system needs the identity has.
pub(super) async fn permissions(
    config: &MountConfig,
    access: &Access,
    store: &dyn Store,
) -> Result<Finding, Explanation> {
    let granted = store
        .permissions(NEEDED)
        .await
        .map_err(|error| access.explain_bucket(&error, config))?;
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|p| !granted.iter().any(|g| g == **p))
        .copied()
        .collect();
    let (fix, command) = access.grant(config);
    if ["storage.objects.list", "storage.objects.get"]
        .iter()
        .any(|reads| missing.contains(reads))
    {
        return Err(Explanation {
            exit: Exit::Denied,
            what: format!("missing {}", missing.join(", ")),
            fix,
            command: Some(command),
        });
    }
    let finding = match (missing.as_slice(), config.limited_to()) {
        ([], _) => holds(format!("all {} that a file system needs", NEEDED.len())),
        // No grant would help, and none is wanted.
        (_, Ok(Allowed::Read)) => holds("read-only, as --access-boundary has it"),
        (_, _) => warns(format!("read-only: missing {}", missing.join(", ")))
            .text(fix)
            .whole(command),
    };
    Ok(finding.field("missing_permissions", missing))
}

/// Compares the clocks, by what the store's answers so far have told.
pub(super) fn clock(ClockOffset(ahead): ClockOffset) -> Finding {
    let difference = Duration::from_secs(ahead.unsigned_abs());
    let finding = match (ahead, difference > SKEW) {
        (_, false) => holds(format!("within {} of the store's", human(difference))),
        (0.., true) => warns(format!(
            "the store's clock is {} ahead of this machine's: set the time here",
            human(difference)
        )),
        (_, true) => warns(format!(
            "the store's clock is {} behind this machine's: set the time here",
            human(difference)
        )),
    };
    finding.field("seconds_ahead", ahead)
}

/// Whether a mount could be made.
pub(super) fn fuse() -> Result<Finding, Failure> {
    session::check_device().map_err(|error| explain::mount(&error))?;
    Ok(holds("/dev/fuse can be opened"))
}
