//! `gcsmount doctor` and `gcsmount token show`: the way from the token to the bucket, walked step by step, each step
//! timed and explained. A step whose ground has given way is skipped, so that a report has one failure and not its
//! echoes. Nothing that is printed is secret.

mod checks;
mod layout;
mod report;

use crate::cli::Settings;
use crate::config::MountConfig;
use crate::exit::{Exit, Failure};
use crate::identity::{self, Identity, Place, Source};
use crate::lifecycle;
use crate::wire::{self, Access, Shared};
use report::Report;

/// Who am I: the steps that need no bucket. The arguments of a mount are accepted and left alone.
///
/// # Errors
/// The first step that failed.
pub fn show_token(settings: &Settings) -> Result<(), Failure> {
    if settings.arguments.len() > 2 {
        return Err(Failure::new(
            Exit::Usage,
            "expected no arguments but those of a mount: gcsmount token show [flags] [BUCKET] [DIR]",
        ));
    }
    let identity = identity::choose_here(settings, Place::Machine)?;
    lifecycle::runtime()?.block_on(async {
        let mut report = Report::default();
        walk_identity(&identity, &Shared::new(0), &mut report, |failure| failure).await;
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
        let hint = |failure| config.hint_at_sts(failure);
        let access = walk_identity(&config.identity, &shared, &mut report, hint).await;
        walk_bucket(&config, access, &shared, &mut report).await?;
        report.step("fuse", async { checks::fuse() }).await;
        report.finish(settings.switch("json"))
    })
}

/// The steps from the source of identity to an access token. `None` where there is none in the end.
async fn walk_identity(
    identity: &Identity,
    shared: &Shared,
    report: &mut Report,
    hint: impl Fn(Failure) -> Failure,
) -> Option<Access> {
    report
        .step("identity", async { Ok(checks::identity(identity)) })
        .await;
    if let Source::Projected { path, .. } = &identity.source
        && !report.step("token file", checks::token_file(path)).await
    {
        report.skip(&["exchange", "principal"], "no token to exchange");
        return None;
    }
    let access = match shared.access(identity) {
        Ok(access) => access,
        Err(failure) => {
            report.step("exchange", async { Err(failure) }).await;
            report.skip(&["principal"], "no token");
            return None;
        }
    };
    if !access.has_tokens() {
        return Some(access);
    }
    let exchange = async { checks::exchange(&access).await.map_err(hint) };
    if !report.step("exchange", exchange).await {
        report.skip(&["principal"], "no token");
        return None;
    }
    if let Some(broker) = &access.broker {
        report
            .step("principal", async { Ok(checks::principal(broker)) })
            .await;
    }
    Some(access)
}

/// The steps that ask the bucket.
async fn walk_bucket(
    config: &MountConfig,
    access: Option<Access>,
    shared: &Shared,
    report: &mut Report,
) -> Result<(), Failure> {
    const STEPS: [&str; 3] = ["bucket", "permissions", "clock"];
    let inside = async { checks::boundary(config) };
    if !config.identity.limits.is_empty() && !report.step("boundary", inside).await {
        report.skip(&STEPS, "outside the boundary");
        return Ok(());
    }
    let Some(access) = access else {
        report.skip(&STEPS, "no token");
        return Ok(());
    };
    let store = wire::stores(config, &access, shared, None)?.probe;
    let permissions = checks::permissions(config, &access, &*store);
    if !report
        .explained("bucket", checks::bucket(config, &access, &*store))
        .await
    {
        report.skip(&["permissions"], "no bucket to ask");
    } else if config.root().is_empty() {
        report.explained("permissions", permissions).await;
    } else {
        let why = "a part of a bucket tells nobody what may be done in it";
        report.skip(&["permissions"], why);
    }
    match store.clock_offset() {
        None => report.skip(&["clock"], "no answer that tells the time"),
        Some(offset) => {
            report
                .step("clock", async { Ok(checks::clock(offset)) })
                .await;
        }
    }
    Ok(())
}
