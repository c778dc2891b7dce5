//! `gcsmount mount`: from settings to a served mount, and from there to its end.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use gcsmount_auth::boundary::Access as Allowed;
use gcsmount_fuse::session::{self, MountOptions, MountPoint, Mounted};
use gcsmount_gcs::error::Cause;
use gcsmount_gcs::object::Bucket;
use gcsmount_gcs::store::ListRequest;
use gcsmount_gcs::{Kind, Store};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::cli::Settings;
use crate::config::MountConfig;
use crate::exit::{Exit, Failure};
use crate::lifecycle::StopSignals;
use crate::wire::{self, ATTEMPT, Access, Shared};
use crate::{background, explain, lifecycle, telemetry};

/// The first and the longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// What a client's own deadline may be late by.
const GRACE: Duration = Duration::from_secs(1);
/// How often somebody who waits for the mount is told that it is still being tried.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// Runs the role, in the foreground or in the background.
///
/// # Errors
/// Whatever keeps the bucket from being mounted; [`Exit::Unsaved`] where data was left at the end.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    let config = MountConfig::read(settings)?;
    if config.foreground {
        return serve(&config, false);
    }
    if !background::is_background() {
        let sentence = background::launch()?;
        return say(&sentence);
    }
    background::detach()?;
    serve(&config, true).inspect_err(background::fail)
}

fn serve(config: &MountConfig, in_background: bool) -> Result<(), Failure> {
    telemetry::start(&config.log_severity, config.log_file.as_deref())?;
    if config.die_with_parent {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)
            .map_err(|errno| Failure::new(Exit::Other, format!("--die-with-parent: {errno}")))?;
    }
    let runtime = lifecycle::runtime()?;
    let outcome = runtime.block_on(async {
        let mut signals = StopSignals::listen()?;
        let (fs, mounted, _recovery) = tokio::select! {
            started = start(config) => started?,
            () = signals.next() => {
                return Err(Failure::new(Exit::Other, "stopped before the bucket was mounted"));
            }
        };
        let sentence = format!(
            "bucket {} is mounted on {}",
            config.bucket,
            config.dir.display()
        );
        if in_background {
            background::announce(&sentence)?;
        } else {
            say(&sentence)?;
        }
        attend(config, &fs, mounted, &mut signals).await
    });
    // A request of the kernel that nobody answers any more must not hold up the exit.
    runtime.shutdown_timeout(Duration::from_secs(2));
    outcome
}

type Fs = std::sync::Arc<gcsmount_fuse::Fs>;

/// Proves identity and bucket, then mounts, and begins to finish what a crash has left.
async fn start(config: &MountConfig) -> Result<(Fs, Mounted, JoinSet<()>), Failure> {
    let point = MountPoint::parse(&config.dir).map_err(|error| explain::mount(&error))?;
    point.check().map_err(|error| explain::mount(&error))?;
    check_temp_dir(&config.temp_dir)?;
    tracing::info!(identity = %config.identity, "identity chosen");
    for warning in config.warnings().chain(covers(&config.dir)) {
        tracing::warn!("{warning}");
    }
    // Before a broker is there, which asks for a token at once.
    config.limited_to()?;
    let shared = Shared::new(config.memory);
    let access = shared.access(&config.identity)?;
    let stores = wire::stores(config, &access, &shared, None)?;
    reach(config, &access, &*stores.probe).await?;
    if let Some(warning) = cannot_write(config, &*stores.probe).await {
        tracing::warn!("{warning}");
    }
    let fs = wire::file_system(config, stores.store, &shared, None, Handle::current());
    let options = mount_options(config);
    let mounted =
        session::mount(fs.clone(), point, &options).map_err(|error| explain::mount(&error))?;
    let recovery = wire::recover(&fs);
    Ok((fs, mounted, recovery))
}

/// What to say where the directory is about to disappear behind the mount.
fn covers(dir: &Path) -> Option<String> {
    // What cannot be read is not judged: the mount itself does not need it.
    let holds_something = std::fs::read_dir(dir).ok()?.next().is_some();
    holds_something.then(|| {
        format!(
            "{} is not empty: what it holds is hidden until the bucket is unmounted",
            dir.display()
        )
    })
}

/// What to say where writes are bound to fail, before the first of them does. Nobody is told who mounts read-only.
async fn cannot_write(config: &MountConfig, store: &dyn Store) -> Option<String> {
    if config.options.iter().any(|option| option == "ro") {
        return None;
    }
    let bucket = &config.bucket;
    if config.limited_to() == Ok(Allowed::Read) {
        return Some(format!(
            "writes will be refused: --access-boundary allows {bucket} to be read only; -o ro says so to whoever writes"
        ));
    }
    if !config.root().is_empty() {
        // Rights on a part of the bucket are none on the bucket, where they are asked for.
        return None;
    }
    let needed = ["storage.objects.create", "storage.objects.delete"];
    match store.permissions(&needed).await {
        Ok(held) if held.is_empty() => Some(format!(
            "writes will be refused: the identity may not change objects of {bucket}; grant it roles/storage.objectUser, \
             or mount with -o ro"
        )),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "whether writes are allowed is not known");
            None
        }
    }
}

/// Waits until the identity has a token and the bucket answers; transient failures are tried again for as long as the
/// settings allow, permanent ones end it.
async fn reach(config: &MountConfig, access: &Access, store: &dyn Store) -> Result<(), Failure> {
    let begun = Instant::now();
    let (mut pause, mut told) = (PAUSE.0, Instant::now());
    loop {
        let (failure, permanent) = match attempt(config, access, store).await {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        if permanent || begun.elapsed() + pause > config.retry {
            return Err(failure);
        }
        if told.elapsed() >= SIGN_OF_LIFE {
            told = Instant::now();
            tracing::warn!(waited = ?begun.elapsed(), limit = ?config.retry, "not mounted yet: {failure}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// One attempt; the flag of an error says that repeating it cannot help. The deadlines are those of the clients; the
/// ones here are for a client that does not keep its own.
pub(crate) async fn attempt(
    config: &MountConfig,
    access: &Access,
    store: &dyn Store,
) -> Result<(), (Failure, bool)> {
    let late = |whom: &str| {
        let sentence = format!(
            "{whom} gave no answer within {} s: check the address and the network",
            ATTEMPT.as_secs()
        );
        (Failure::new(Exit::Unreachable, sentence), false)
    };
    let deadline = tokio::time::Instant::now() + ATTEMPT + GRACE;
    if access.has_tokens() {
        let token = timeout_at(deadline, access.prove()).await;
        token.map_err(|_| late(&access.giver()))?.map_err(|error| {
            let failure = config.hint_at_sts(access.explain(&error));
            (failure, error.is_permanent_for_mount())
        })?;
        access.check_universe().map_err(|failure| (failure, true))?;
    }
    let probe = timeout_at(deadline, ask(config, store)).await;
    let bucket = probe
        .map_err(|_| late(&format!("the storage service at {}", config.endpoint)))?
        .map_err(|error| {
            let permanent = !error.kind.is_transient()
                || matches!(error.cause, Some(Cause::UnknownHost | Cause::Tls));
            (access.explain_bucket(&error, config).failure(), permanent)
        })?;
    tracing::debug!(?bucket, "bucket answers");
    Ok(())
}

/// Asks for the bucket; where that is refused and no more than a directory of it is wanted, whether that can be listed.
/// `None` where nothing else is known.
pub(crate) async fn ask(
    config: &MountConfig,
    store: &dyn Store,
) -> Result<Option<Bucket>, gcsmount_gcs::Error> {
    let root = config.root();
    match store.bucket().await {
        Err(error) if error.kind == Kind::Denied && !root.is_empty() => {
            let inside = ListRequest {
                prefix: root,
                max_results: Some(1),
                ..ListRequest::default()
            };
            store.list(&inside).await.map(|_| None)
        }
        answer => answer.map(Some),
    }
}

/// Finds out at the start, rather than at the first file that needs it, whether files can be staged.
pub(crate) fn check_temp_dir(dir: &Path) -> Result<(), Failure> {
    tempfile::tempfile_in(dir).map(drop).map_err(|error| {
        let sentence = format!(
            "--temp-dir {} cannot hold staged files: {error}; name a directory that exists and is writable",
            dir.display()
        );
        Failure::new(Exit::Usage, sentence)
    })
}

fn mount_options(config: &MountConfig) -> MountOptions {
    // What has a field of its own goes there; to be writable is the rule.
    let for_kernel = |o: &&String| !matches!(o.as_str(), "rw" | "ro" | "allow_other");
    let has = |name: &str| config.options.iter().any(|o| o == name);
    MountOptions {
        allow_other: has("allow_other"),
        read_only: has("ro"),
        fs_name: config.bucket.as_str().to_owned(),
        extra: config.options.iter().filter(for_kernel).cloned().collect(),
        ..MountOptions::default()
    }
}

/// Serves until somebody unmounts or stops the process, then saves what is unsaved.
async fn attend(
    config: &MountConfig,
    fs: &Fs,
    mounted: Mounted,
    signals: &mut StopSignals,
) -> Result<(), Failure> {
    let asked = tokio::select! {
        () = mounted.wait() => false,
        () = signals.next() => true,
    };
    tracing::info!(
        reason = if asked { "signal" } else { "unmounted" },
        "stopping"
    );
    let unsaved = tokio::select! {
        unsaved = fs.drain(config.shutdown) => unsaved,
        () = signals.next() => {
            tracing::warn!("told to stop a second time: giving up what is unsaved");
            fs.drain(Duration::ZERO).await
        }
    };
    for file in &unsaved {
        tracing::error!(path = %file.path, error = %file.error, "not saved");
    }
    // Unmounting waits for nobody, but it must not run on a thread that serves the mount.
    let unmounted = tokio::task::spawn_blocking(move || {
        let result = mounted.unmount();
        drop(mounted);
        result
    });
    match unmounted.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(explain::mount(&error)),
        Err(_) => return Err(Failure::new(Exit::Other, "unmounting broke off")),
    }
    match unsaved.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(Failure::new(
            Exit::Unsaved,
            match unsaved.len() {
                1 => format!("{} could not be saved: {}", first.path, first.error),
                n => format!(
                    "{n} files could not be saved, {} among them: {}",
                    first.path, first.error
                ),
            },
        )),
    }
}

fn say(sentence: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{sentence}")
        .map_err(|error| Failure::new(Exit::Other, format!("standard output: {error}")))
}
