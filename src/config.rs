//! What a mount is told, with every text turned into what it means.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gcsmount_gcs::BucketName;

use crate::cli::Settings;
use crate::exit::{Exit, Failure};
use crate::identity::{self, Identity, Place};

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

impl MountConfig {
    /// Reads the settings of `gcsmount mount`.
    ///
    /// # Errors
    /// [`Exit::Usage`].
    pub fn read(settings: &Settings) -> Result<Self, Failure> {
        let [bucket, _] = settings.arguments.as_slice() else {
            return Err(wrong_arguments(
                "BUCKET and DIR",
                settings,
                "gcsmount [mount] [flags] BUCKET DIR",
            ));
        };
        let dir = settings.path_argument(1)?.unwrap_or_default();
        Self::of(settings, Place::Machine, bucket, dir)
    }

    /// Reads the settings of `gcsmount doctor`, which is told no directory.
    ///
    /// # Errors
    /// [`Exit::Usage`].
    pub fn for_doctor(settings: &Settings) -> Result<Self, Failure> {
        let [bucket] = settings.arguments.as_slice() else {
            return Err(wrong_arguments(
                "BUCKET",
                settings,
                "gcsmount doctor [flags] BUCKET",
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
        if let Some((name, prefix)) = bucket.split_once('/') {
            let sentence =
                format!("{name}/{prefix} is not a bucket: say --only-dir {prefix} {name}");
            return Err(usage(sentence));
        }
        let bucket = BucketName::parse(bucket)
            .map_err(|why| usage(format!("{bucket:?} is not a bucket name: {why}")))?;
        let identity = identity::choose(settings, place, Path::exists, |name| {
            std::env::var(name).ok()
        })?;
        let endpoint = match settings.text("custom-endpoint") {
            Some(url) => url.to_owned(),
            None => format!("https://storage.{}", identity.universe),
        };
        let id = |flag| settings.number(flag).and_then(|n| u32::try_from(n).ok());
        let mode = |flag, default| {
            settings
                .number(flag)
                .and_then(|n| u16::try_from(n).ok())
                .unwrap_or(default)
        };
        let mebibytes = settings
            .number("memory-limit")
            .and_then(|n| usize::try_from(n).ok());
        Ok(Self {
            bucket,
            dir,
            identity,
            endpoint,
            billing_project: settings.text("billing-project").map(Into::into),
            retry: settings.duration("mount-retry-timeout"),
            only_dir: settings.text("only-dir").map(Into::into),
            options: settings.mount_options.clone(),
            uid: id("uid"),
            gid: id("gid"),
            file_mode: mode("file-mode", 0o644),
            dir_mode: mode("dir-mode", 0o755),
            ttl: settings.duration("metadata-cache-ttl"),
            temp_dir: settings
                .path("temp-dir")
                .unwrap_or(Path::new("/tmp"))
                .into(),
            memory: mebibytes.unwrap_or(128) << 20,
            foreground: settings.switch("foreground"),
            die_with_parent: settings.switch("die-with-parent"),
            shutdown: settings.duration("shutdown-timeout"),
            log_severity: settings.text("log-severity").unwrap_or("info").to_owned(),
            log_file: settings.path("log-file").map(Into::into),
        })
    }
}

fn wrong_arguments(expected: &str, settings: &Settings, form: &str) -> Failure {
    let got = settings.arguments.join(" ");
    Failure::new(
        Exit::Usage,
        format!("expected {expected}, got {got:?}: {form}"),
    )
}
