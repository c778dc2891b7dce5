//! What a mount is told, with every text turned into what it means.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gcsmount_auth::boundary::Access;
use gcsmount_gcs::BucketName;
use gcsmount_gcs::client::json::{Protocol, Rate};

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::identity::{self, Identity, Place, Source};
use crate::limits::{self, Reach};
use crate::memory;
use crate::params::FOR_EVER;

/// One mount.
#[derive(Debug)]
pub struct MountConfig {
    /// The bucket.
    pub bucket: BucketName,
    /// Where to mount: a directory, or `/dev/fd/N`.
    pub dir: PathBuf,
    /// Who asks.
    pub identity: Identity,
    /// Base URL of the store.
    pub endpoint: String,
    /// What was accepted and does nothing.
    pub remarks: Vec<String>,
    /// Whether the token service is Google's although the store is not, and nobody has said so.
    pub lonely_endpoint: bool,
    /// How it is talked to.
    pub transport: Transport,
    /// Who pays where the requester pays.
    pub billing_project: Option<String>,
    /// How long to go on when the service is out of reach at the start.
    pub retry: Duration,
    /// The directory of the bucket that is mounted; `None`: all of it.
    pub only_dir: Option<String>,
    /// Options of `-o` for the kernel.
    pub options: Vec<String>,
    /// Owner and group of everything; `None`: the process's.
    pub uid: Option<u32>,
    /// See [`MountConfig::uid`].
    pub gid: Option<u32>,
    /// Permission bits of files.
    pub file_mode: u16,
    /// Permission bits of directories.
    pub dir_mode: u16,
    /// How long metadata is believed.
    pub ttl: Duration,
    /// Whether modes, owners and times of access are kept with the objects.
    pub posix_attributes: bool,
    /// Whether there are extended attributes.
    pub xattrs: bool,
    /// Whether large files go up in parts.
    pub parallel_uploads: bool,
    /// Where writes are staged.
    pub temp_dir: PathBuf,
    /// Bytes of memory for file data.
    pub memory: usize,
    /// Stay in the foreground.
    pub foreground: bool,
    /// End with the parent.
    pub die_with_parent: bool,
    /// How long to save at the end.
    pub shutdown: Duration,
    /// Least severity to log.
    pub log_severity: String,
    /// Where to log.
    pub log_file: Option<PathBuf>,
}

/// In less time a call that is repeated once cannot succeed.
const SHORTEST_OPERATION: Duration = Duration::from_secs(1);
/// Whoever waits for longer takes the mount for dead.
const LONGEST_OPERATION: Duration = Duration::from_hours(1);

/// How the service is talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// What is spoken on a connection.
    pub protocol: Protocol,
    /// Bytes of bodies a second.
    pub byte_rate: Option<Rate>,
    /// Requests a second.
    pub request_rate: Option<Rate>,
    /// How long one call may take with all its repetitions, while no bytes move.
    pub operation: Duration,
    /// How long an answer may take to begin before a second request is sent; `None`: as long as it likes.
    pub hedge_after: Option<Duration>,
}

impl Transport {
    fn read(settings: &Settings) -> Result<Self, Failure> {
        let operation = settings.duration("operation-timeout");
        if !(SHORTEST_OPERATION..=LONGEST_OPERATION).contains(&operation) {
            let sentence = format!(
                "--operation-timeout: expected from {SHORTEST_OPERATION:?} to {LONGEST_OPERATION:?}, got {operation:?}"
            );
            return Err(Failure::new(Exit::Usage, sentence));
        }
        Ok(Self {
            operation,
            protocol: match settings.text("client-protocol") {
                Some("http2") => Protocol::Http2,
                _ => Protocol::Http1,
            },
            byte_rate: settings.rate("limit-bytes-per-sec"),
            request_rate: settings.rate("limit-ops-per-sec"),
            hedge_after: Some(settings.duration("hedge-reads-after"))
                .filter(|after| !after.is_zero() && *after < FOR_EVER),
        })
    }
}

impl MountConfig {
    /// Reads the settings of `gcsmount mount`.
    ///
    /// # Errors
    /// [`Exit::Usage`].
    pub fn read(settings: &Settings) -> Result<Self, Failure> {
        const FORM: &str = "gcsmount [mount] [flags] BUCKET DIR";
        let [bucket, dir] = settings.arguments.as_slice() else {
            return Err(wrong_arguments("BUCKET and DIR", settings, FORM));
        };
        if bucket.starts_with(['/', '.']) {
            let sentence =
                format!("the bucket comes first: gcsmount {dir} {bucket}, in general {FORM}");
            return Err(Failure::new(Exit::Usage, sentence));
        }
        let dir = settings.path_argument(1)?.unwrap_or_default();
        Self::of(settings, Place::Machine, bucket, dir)
    }

    /// Reads the settings of `gcsmount doctor`, which takes a mount's arguments and leaves the directory alone.
    ///
    /// # Errors
    /// [`Exit::Usage`].
    pub fn for_doctor(settings: &Settings) -> Result<Self, Failure> {
        let ([bucket] | [bucket, _]) = settings.arguments.as_slice() else {
            return Err(wrong_arguments(
                "BUCKET",
                settings,
                "gcsmount doctor [flags] BUCKET [DIR]",
            ));
        };
        Self::of(settings, Place::Machine, bucket, PathBuf::new())
    }

    /// Reads the settings of a volume of `gcsmount sidecar`, which is mounted already.
    ///
    /// # Errors
    /// [`Exit::Usage`].
    pub fn for_volume(settings: &Settings, bucket: &str) -> Result<Self, Failure> {
        Self::of(settings, Place::Sidecar, bucket, PathBuf::new())
    }

    fn of(settings: &Settings, place: Place, bucket: &str, dir: PathBuf) -> Result<Self, Failure> {
        let usage = |sentence: String| Failure::new(Exit::Usage, sentence);
        let bucket = bucket
            .strip_prefix("gs://")
            .unwrap_or(bucket)
            .trim_end_matches('/');
        let inside = bucket.split_once('/').filter(|(name, _)| !name.is_empty());
        if let Some((name, prefix)) = inside {
            let sentence =
                format!("{name}/{prefix} is not a bucket: say --only-dir {prefix} {name}");
            return Err(usage(sentence));
        }
        let bucket = BucketName::parse(bucket)
            .map_err(|why| usage(format!("{bucket:?} is not a bucket name: {why}")))?;
        let identity = identity::choose_here(settings, place)?;
        let endpoint = match settings.text("custom-endpoint") {
            Some(url) => url.to_owned(),
            None => format!("https://storage.{}", identity.universe),
        };
        let lonely_endpoint = uses_sts(&identity)
            && settings.text("sts-endpoint").is_none()
            && !is_below(&endpoint, &identity.universe.to_string());
        let id = |flag| settings.number(flag).and_then(|n| u32::try_from(n).ok());
        let mode = |flag, default| {
            settings
                .number(flag)
                .and_then(|n| u16::try_from(n).ok())
                .unwrap_or(default)
        };
        Ok(Self {
            bucket,
            dir,
            identity,
            endpoint,
            remarks: remarks(settings),
            lonely_endpoint,
            transport: Transport::read(settings)?,
            billing_project: settings.text("billing-project").map(Into::into),
            retry: settings.duration("mount-retry-timeout"),
            only_dir: settings.text("only-dir").map(Into::into),
            options: settings.mount_options.clone(),
            uid: id("uid"),
            gid: id("gid"),
            file_mode: mode("file-mode", 0o644),
            dir_mode: mode("dir-mode", 0o755),
            ttl: settings.duration("metadata-cache-ttl"),
            posix_attributes: settings.switch("posix-attributes"),
            xattrs: settings.switch("xattrs"),
            parallel_uploads: settings.switch("parallel-uploads"),
            temp_dir: settings
                .path("temp-dir")
                .unwrap_or(Path::new("/tmp"))
                .into(),
            memory: memory::for_files(settings),
            foreground: settings.switch("foreground"),
            die_with_parent: settings.switch("die-with-parent"),
            shutdown: settings.duration("shutdown-timeout"),
            log_severity: settings.text("log-severity").unwrap_or("info").to_owned(),
            log_file: settings.path("log-file").map(Into::into),
        })
    }

    /// What the names of the mounted objects begin with.
    #[must_use]
    pub fn root(&self) -> String {
        match self.only_dir.as_deref().map(|dir| dir.trim_matches('/')) {
            None | Some("") => String::new(),
            Some(dir) => format!("{dir}/"),
        }
    }

    /// What `--access-boundary` leaves of what is to be mounted.
    ///
    /// # Errors
    /// [`Exit::Usage`] where that is not the whole of it: the bucket would refuse to list the root.
    pub fn limited_to(&self) -> Result<Access, Failure> {
        let (bucket, root) = (&self.bucket, self.root());
        let usage = |sentence| Err(Failure::new(Exit::Usage, sentence));
        match limits::reach(&self.identity.limits, bucket.as_str(), &root) {
            Reach::Whole(access) => Ok(access),
            Reach::Below(prefix) => usage(format!(
                "--access-boundary leaves of {bucket}/{root} no more than {prefix}, and a root that cannot be listed cannot be \
                 mounted: mount the inside alone with --only-dir {}",
                inside(prefix)
            )),
            Reach::Nothing => usage(format!(
                "--access-boundary leaves out {bucket}/{root}: name it there too, as --access-boundary {bucket}"
            )),
        }
    }

    /// What to say before anything is asked: about options without effect, and about an endpoint that looks half named.
    pub fn warnings(&self) -> impl Iterator<Item = String> + use<'_> {
        let lonely = self.lonely_endpoint.then(|| {
            format!(
                "{} is not Google's, and the token is exchanged at {}: give --sts-endpoint if the token service is another one too",
                self.endpoint, self.identity.steps.sts
            )
        });
        self.remarks.iter().cloned().chain(lonely)
    }

    /// `failure` to get a token, with what may be behind it.
    #[must_use]
    pub fn hint_at_sts(&self, mut failure: Failure) -> Failure {
        let of_service = matches!(failure.exit, Exit::Refused | Exit::Unreachable);
        if self.lonely_endpoint && of_service {
            failure.sentence.push_str(
                "; the storage service is not Google's, and --sts-endpoint is not given: name its token service there",
            );
        }
        failure
    }
}

/// What was accepted and does nothing.
fn remarks(settings: &Settings) -> Vec<String> {
    let mut remarks = settings.warnings.clone();
    if settings.text("client-protocol") == Some("grpc") {
        remarks
            .push("--client-protocol grpc: gcsmount does not speak it yet, and uses http1".into());
    }
    remarks
}

/// The longest directory that `prefix` begins with.
fn inside(prefix: &str) -> &str {
    prefix.rsplit_once('/').map_or(prefix, |(dir, _)| dir)
}

/// Whether the token service is asked for anything.
fn uses_sts(identity: &Identity) -> bool {
    matches!(identity.source, Source::Projected { .. }) || identity.steps.boundary.is_some()
}

/// Whether `endpoint` is a service in `domain`.
fn is_below(endpoint: &str, domain: &str) -> bool {
    let (_, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    host == domain
        || host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.'))
}

fn wrong_arguments(expected: &str, settings: &Settings, form: &str) -> Failure {
    let got = match settings.arguments.as_slice() {
        [] => "nothing".to_owned(),
        some => format!("{:?}", some.join(" ")),
    };
    Failure::new(
        Exit::Usage,
        format!("expected {expected}, got {got}: {form}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Invocation, parse};
    use crate::params::Role;

    fn config(line: &str) -> Result<MountConfig, Failure> {
        let args = format!("gcsmount {line}");
        match parse(args.split_whitespace().map(Into::into), |_| None)? {
            Invocation::Run(Role::Doctor, settings) => MountConfig::for_doctor(&settings),
            Invocation::Run(_, settings) => MountConfig::read(&settings),
            Invocation::Print(text) => panic!("{text}"),
        }
    }

    #[test]
    fn arguments_that_are_wrong_are_named() {
        for (line, part) in [
            (
                "mount /mnt/data my-bucket",
                "the bucket comes first: gcsmount my-bucket /mnt/data",
            ),
            ("mount ./data my-bucket", "the bucket comes first"),
            ("mount my-bucket/a/b /mnt", "--only-dir a/b my-bucket"),
            ("mount", "expected BUCKET and DIR, got nothing"),
            (
                "mount my-bucket",
                "expected BUCKET and DIR, got \"my-bucket\"",
            ),
            ("doctor", "expected BUCKET, got nothing"),
            ("doctor /mnt", "\"/mnt\" is not a bucket name"),
        ] {
            let failure = config(line).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.sentence.contains(part), "{line}: {failure}");
        }
    }

    #[test]
    fn the_way_to_the_service_is_what_was_said() {
        let usual = config("mount my-bucket /m --key-file /k").unwrap();
        assert_eq!(
            usual.transport,
            Transport {
                protocol: Protocol::Http1,
                operation: Duration::from_secs(120),
                byte_rate: None,
                request_rate: None,
                hedge_after: None,
            }
        );
        assert!(usual.parallel_uploads);
        let flags = "--client-protocol http2 --limit-bytes-per-sec 1e6 -o limit_ops_per_sec=2.5 \
                     --hedge-reads-after 300ms --operation-timeout 10s --parallel-uploads=false";
        let chosen = config(&format!("mount my-bucket /m --key-file /k {flags}")).unwrap();
        assert_eq!(
            chosen.transport,
            Transport {
                protocol: Protocol::Http2,
                operation: Duration::from_secs(10),
                byte_rate: Rate::per_second(1e6),
                request_rate: Rate::per_second(2.5),
                hedge_after: Some(Duration::from_millis(300)),
            }
        );
        assert!(!chosen.parallel_uploads);
        let grpc = config("mount my-bucket /m --key-file /k --client-protocol=grpc").unwrap();
        assert!(grpc.warnings().any(|line| line.contains("uses http1")));
        for bad in ["500ms", "-1", "2h"] {
            let line = format!("mount my-bucket /m --key-file /k --operation-timeout={bad}");
            let failure = config(&line).unwrap_err();
            assert!(
                failure.sentence.contains("--operation-timeout"),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_boundary_must_be_around_what_is_mounted() {
        for (flags, want) in [
            ("", Ok(Access::Write)),
            ("--access-boundary my-bucket:ro", Ok(Access::Read)),
            (
                "--access-boundary my-bucket/a/ --only-dir a",
                Ok(Access::Write),
            ),
            (
                "--access-boundary my-bucket/a/ --only-dir /a/b/",
                Ok(Access::Write),
            ),
            ("--access-boundary my-bucket/a/", Err("with --only-dir a")),
            ("--access-boundary my-bucket/a/b", Err("with --only-dir a")),
            (
                "--access-boundary my-bucket/a/ --only-dir b",
                Err("leaves out my-bucket/b/"),
            ),
            (
                "--access-boundary other-bucket",
                Err("leaves out my-bucket/"),
            ),
        ] {
            let config = config(&format!("mount my-bucket /m --key-file /k {flags}")).unwrap();
            match (config.limited_to(), want) {
                (Ok(access), Ok(want)) => assert_eq!(access, want, "{flags}"),
                (Err(failure), Err(part)) => {
                    assert_eq!(failure.exit, Exit::Usage);
                    assert!(failure.sentence.contains(part), "{flags}: {failure}");
                }
                (got, _) => panic!("{flags}: {got:?}"),
            }
        }
    }

    #[test]
    fn an_endpoint_without_its_token_service_is_warned_of() {
        for (flags, warns) in [
            (
                "--token-file /t --custom-endpoint http://127.0.0.1:9000",
                true,
            ),
            ("--token-file /t --custom-endpoint 127.0.0.1:9000", true),
            (
                "--token-file /t --custom-endpoint http://h --sts-endpoint http://h",
                false,
            ),
            (
                "--token-file /t --custom-endpoint https://storage-mine.p.googleapis.com",
                false,
            ),
            (
                "--token-file /t --custom-endpoint https://evilgoogleapis.com",
                true,
            ),
            ("--token-file /t", false),
            (
                "--key-file /k --custom-endpoint http://127.0.0.1:9000",
                false,
            ),
            (
                "--key-file /k --access-boundary my-bucket --custom-endpoint http://h",
                true,
            ),
            ("--anonymous-access --custom-endpoint http://h", false),
        ] {
            let config = config(&format!("mount my-bucket /m {flags}")).unwrap();
            assert_eq!((config.warnings().count() > 0), warns, "{flags}");
            let hinted = config.hint_at_sts(Failure::new(Exit::Unreachable, "no answer"));
            assert_eq!(hinted.sentence.contains("--sts-endpoint"), warns, "{flags}");
            let own = config.hint_at_sts(Failure::new(Exit::NoToken, "no file"));
            assert_eq!(own.sentence, "no file");
        }
    }
}
