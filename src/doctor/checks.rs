//! One function a step. Each says what holds, or fails with the sentence that the mount would end with.

use std::path::Path;
use std::time::{Duration, SystemTime};

use gcsmount_auth::claims::Claims;
use gcsmount_auth::{Broker, FileSource, Source};
use gcsmount_fuse::session;
use gcsmount_gcs::Store;
use gcsmount_gcs::store::ClockOffset;

use crate::config::MountConfig;
use crate::exit::{Exit, Failure};
use crate::explain;
use crate::wire::Access;

/// How a step went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// As it should be.
    Holds,
    /// Works, but will bite.
    Warns,
    /// Keeps the bucket from being mounted.
    Fails,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Holds => "ok",
            Self::Warns => "warn",
            Self::Fails => "FAILED",
        }
    }
}

/// What a step found.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) verdict: Verdict,
    pub(super) text: String,
}

fn holds(text: impl Into<String>) -> Result<Finding, Failure> {
    Ok(Finding {
        verdict: Verdict::Holds,
        text: text.into(),
    })
}

fn warns(text: impl Into<String>) -> Result<Finding, Failure> {
    Ok(Finding {
        verdict: Verdict::Warns,
        text: text.into(),
    })
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
    let text = format!(
        "subject  {}\nissuer   {}\naudience {}\nends     {}",
        claims.subject.as_deref().unwrap_or("not said"),
        claims.issuer.as_deref().unwrap_or("not said"),
        claims.audiences.join(", "),
        claims.expires_at.map_or_else(|| "not said".into(), until),
    );
    match claims.expires_at {
        Some(end) if end <= SystemTime::now() => warns(text),
        _ => holds(text),
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
pub(super) async fn exchange(access: &Access, broker: &Broker) -> Result<Finding, Failure> {
    broker
        .token()
        .await
        .map_err(|error| access.explain(&error))?;
    access.check_universe()?;
    let status = broker.status();
    let left = status.expires_in.map_or_else(|| "unknown".into(), human);
    holds(format!(
        "an access token for {} more\naudience {}",
        left,
        status.identity.audience.as_deref().unwrap_or("none")
    ))
}

/// The line to paste into a grant.
pub(super) fn principal(broker: &Broker) -> Result<Finding, Failure> {
    match broker.status().identity.principal {
        Some(principal) => holds(principal),
        None => warns("the token does not tell which principal it stands for"),
    }
}

/// Asks for the bucket as the mount does.
pub(super) async fn bucket(
    config: &MountConfig,
    access: &Access,
    store: &dyn Store,
) -> Result<Finding, Failure> {
    let bucket = store.bucket().await.map_err(|error| {
        explain::bucket(&error, &config.bucket, &config.endpoint, &access.who())
    })?;
    let known = |text: &str| {
        if text.is_empty() {
            "not readable".to_owned()
        } else {
            text.to_owned()
        }
    };
    let text = format!(
        "{} at {}\nlocation {}, class {}, {}",
        config.bucket,
        config.endpoint,
        known(&bucket.location),
        known(&bucket.storage_class),
        match bucket.uniform_access {
            Some(true) => "uniform access",
            Some(false) => "no uniform access: a federated identity is refused with 412",
            None => "uniform access not readable",
        }
    );
    if bucket.uniform_access == Some(false) {
        warns(text)
    } else {
        holds(text)
    }
}

/// Asks which of the permissions that a file system needs the identity has.
pub(super) async fn permissions(
    config: &MountConfig,
    access: &Access,
    store: &dyn Store,
) -> Result<Finding, Failure> {
    let granted = store.permissions(NEEDED).await.map_err(|error| {
        explain::bucket(&error, &config.bucket, &config.endpoint, &access.who())
    })?;
    let missing: Vec<_> = NEEDED
        .iter()
        .filter(|p| !granted.iter().any(|g| g == **p))
        .copied()
        .collect();
    let reads = ["storage.objects.list", "storage.objects.get"];
    if missing.is_empty() {
        return holds(format!("all {} that a file system needs", NEEDED.len()));
    }
    let grant = grant(config, access);
    if reads.iter().any(|p| missing.contains(p)) {
        return Err(Failure::new(
            Exit::Denied,
            format!("missing {}; {grant}", missing.join(", ")),
        ));
    }
    warns(format!(
        "read-only: missing {}\n{grant}",
        missing.join(", ")
    ))
}

fn grant(config: &MountConfig, access: &Access) -> String {
    format!(
        "grant with: gcloud storage buckets add-iam-policy-binding gs://{} --role roles/storage.objectUser --member '{}'; \
         if the pod's service account is meant to act as a Google service account, that one needs to be impersonated",
        config.bucket,
        access.who()
    )
}

/// Compares the clocks, by what the store's answers so far have told.
pub(super) fn clock(store: &dyn Store) -> Result<Finding, Failure> {
    let Some(ClockOffset(ahead)) = store.clock_offset() else {
        return warns("no answer of the store told its time");
    };
    let difference = Duration::from_secs(ahead.unsigned_abs());
    match (ahead, difference > SKEW) {
        (_, false) => holds(format!("within {} of the store's", human(difference))),
        (0.., true) => warns(format!(
            "the store's clock is {} ahead of this machine's: set the time here",
            human(difference)
        )),
        (_, true) => warns(format!(
            "the store's clock is {} behind this machine's: set the time here",
            human(difference)
        )),
    }
}

/// Whether a mount could be made.
pub(super) fn fuse() -> Result<Finding, Failure> {
    session::check_device().map_err(|error| explain::mount(&error))?;
    holds("/dev/fuse can be opened")
}
