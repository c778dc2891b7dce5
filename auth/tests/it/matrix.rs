//! Each fault at each time: at the start, while a token is valid, after it expired. The expected
//! outcome of each cell, and that all of them recover without a restart.

use std::time::Duration;

use gcsmount_auth::Kind;
use gcsmount_auth::error::{Reach, Refusal, SourceFault};

use crate::doubles::{Scripted, Step, broker, pass};

/// How long after the fault ended a token is back, at the latest.
const BACK_WITHIN: u64 = 31;

#[tokio::test(start_paused = true)]
async fn every_fault_at_every_time() {
    for (fault, kind) in [
        (Step::Throttle { retry_after: 7 }, Kind::Throttled),
        (Step::Fail(Kind::Throttled), Kind::Throttled),
        (
            Step::Fail(Kind::Refused(Refusal::Grant)),
            Kind::Refused(Refusal::Grant),
        ),
        (
            Step::Fail(Kind::Refused(Refusal::Denied)),
            Kind::Refused(Refusal::Denied),
        ),
        (Step::Fail(Kind::Unavailable), Kind::Unavailable),
        (Step::Hang, Kind::Timeout),
        (Step::Junk, Kind::BadAnswer),
        (
            Step::Fail(Kind::Unreachable(Reach::Network)),
            Kind::Unreachable(Reach::Network),
        ),
        (
            Step::Fail(Kind::Unreachable(Reach::UnknownHost)),
            Kind::Unreachable(Reach::UnknownHost),
        ),
        (
            Step::Fail(Kind::Source(SourceFault::Missing)),
            Kind::Source(SourceFault::Missing),
        ),
        (
            Step::Fail(Kind::Source(SourceFault::Empty)),
            Kind::Source(SourceFault::Empty),
        ),
        (
            Step::Fail(Kind::Source(SourceFault::Unreadable)),
            Kind::Source(SourceFault::Unreadable),
        ),
        (
            Step::Fail(Kind::Source(SourceFault::Malformed)),
            Kind::Source(SourceFault::Malformed),
        ),
        (
            Step::Fail(Kind::Source(SourceFault::Expired)),
            Kind::Source(SourceFault::Expired),
        ),
        (Step::Panic, Kind::Internal),
    ] {
        at_start(fault, kind).await;
        while_valid_and_after(fault, kind).await;
    }
}

async fn at_start(fault: Step, kind: Kind) {
    let exchange = Scripted::new([fault]);
    let (broker, _clock) = broker(&exchange);
    assert_eq!(broker.token().await.unwrap_err().kind(), kind, "at start");
    pass(300).await;
    exchange.now_follow([Step::Grant(3600)]);
    // A hang that began before the fault was mended is sat out first.
    pass(BACK_WITHIN + 20).await;
    broker.token().await.unwrap();
}

async fn while_valid_and_after(fault: Step, kind: Kind) {
    let exchange = Scripted::new([Step::Grant(600), fault]);
    let (broker, _clock) = broker(&exchange);
    broker.token().await.unwrap();
    for _ in 0..594 {
        let token = tokio::time::timeout(Duration::ZERO, broker.token()).await;
        assert_eq!(
            token.unwrap().unwrap().expose(),
            "tok-1",
            "{fault:?} while valid"
        );
        pass(1).await;
    }
    assert!(
        exchange.count() > 1,
        "{fault:?} was met while a token was valid"
    );
    pass(5).await;
    let error = broker.token().await.unwrap_err();
    assert_eq!(error.kind(), kind, "{fault:?} after expiry");
    exchange.now_follow([Step::Grant(3600)]);
    pass(BACK_WITHIN + 20).await;
    broker.token().await.unwrap();
    assert_eq!(exchange.most_at_once(), 1);
}
