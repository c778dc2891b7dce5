//! `gcsmount doctor` and `gcsmount token show`: the way from the token to the bucket, walked step by step, each step
//! timed and explained. Nothing that is printed is secret.

mod checks;
mod report;

use std::time::Instant;

use crate::cli::Settings;
use crate::config::MountConfig;
use crate::exit::{Exit, Failure};
use crate::identity::{self, Identity, Place, Source};
use crate::lifecycle;
use crate::wire::{self, Shared};
use checks::Verdict;
use report::Report;

/// Who am I: the steps that need no bucket.
///
/// # Errors
/// The first step that failed.
pub fn show_token(settings: &Settings) -> Result<(), Failure> {
    if !settings.arguments.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "expected no arguments: gcsmount token show [flags]",
        ));
    }
    let identity = identity::choose(settings, Place::Machine, std::path::Path::exists, |name| {
        std::env::var(name).ok()
    })?;
    lifecycle::runtime()?.block_on(async {
        let mut report = Report::default();
        walk_identity(&identity, &Shared::new(0), &mut report).await?;
        report.finish(settings.switch("json"))
    })
}

/// All steps.
///
/// # Errors
/// The first step that failed.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    let config = MountConfig::for_doctor(settings)?;
    lifecycle::runtime()?.block_on(async {
        let mut report = Report::default();
        let shared = Shared::new(config.memory);
        let access = walk_identity(&config.identity, &shared, &mut report).await?;
        let stores = wire::stores(&config, &access, &shared)?;
        report
            .step("bucket", checks::bucket(&config, &access, &*stores.probe))
            .await;
        report
            .step(
                "permissions",
                checks::permissions(&config, &access, &*stores.probe),
            )
            .await;
        report
            .step("clock", async { checks::clock(&*stores.probe) })
            .await;
        report.step("fuse", async { checks::fuse() }).await;
        report.finish(settings.switch("json"))
    })
}

/// The steps from the source of identity to an access token.
async fn walk_identity(
    identity: &Identity,
    shared: &Shared,
    report: &mut Report,
) -> Result<wire::Access, Failure> {
    report.add(
        "identity",
        Verdict::Holds,
        identity.to_string(),
        Instant::now(),
    );
    if let Source::Projected { path, .. } = &identity.source {
        report.step("token file", checks::token_file(path)).await;
    }
    let access = shared.access(identity)?;
    if let Some(broker) = &access.broker {
        report
            .step("exchange", checks::exchange(&access, broker))
            .await;
        report
            .step("principal", async { checks::principal(broker) })
            .await;
    }
    Ok(access)
}
