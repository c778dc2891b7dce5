//! The broker on paused time: counts of exchanges, outages, rejections, suspend, teardown.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use gcsmount_auth::error::{Reach, Refusal, SourceFault};
use gcsmount_auth::secret::AccessSecret;
use gcsmount_auth::{
    Broker, Error, Exchange, Family, FileSource, Grant, Identity, Kind, Source, Tuning,
};
use tokio::time::Instant;

use crate::doubles::{Scripted, Step, TestClock, broker, pass};

const OUTAGE: Step = Step::Fail(Kind::Unavailable);

#[tokio::test(start_paused = true)]
async fn a_start_of_a_thousand_costs_one_exchange() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, _clock) = broker(&exchange);
    let tokens = join_all((0..1000).map(|_| broker.token())).await;
    assert!(
        tokens
            .iter()
            .all(|token| token.as_ref().unwrap().expose() == "tok-1")
    );
    assert_eq!((exchange.count(), broker.status().waiters), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_waiters_of_a_failed_start_all_get_its_error() {
    let exchange = Scripted::new([OUTAGE]);
    let (broker, _clock) = broker(&exchange);
    let started = Instant::now();
    let tokens = join_all((0..1000).map(|_| broker.token())).await;
    assert!(
        tokens
            .iter()
            .all(|token| token.as_ref().unwrap_err().kind() == Kind::Unavailable)
    );
    assert_eq!(exchange.count(), 1);
    // And a caller right after it does not wait for the next attempt.
    assert_eq!(broker.token().await.unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(started.elapsed(), Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_rejections_of_one_token_cost_one_exchange() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, _clock) = broker(&exchange);
    let rejected = broker.token().await.unwrap();
    pass(60).await;
    let replaced = join_all((0..1000).map(|_| broker.replacement(rejected.tag()))).await;
    assert!(
        replaced
            .iter()
            .all(|token| token.as_ref().unwrap().expose() == "tok-2")
    );
    for _ in 0..1000 {
        broker.reject(&rejected);
    }
    pass(60).await;
    assert_eq!(exchange.count(), 2);
    assert_eq!(
        broker.replacement(rejected.tag()).await.unwrap().expose(),
        "tok-2"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rejection_that_nobody_waits_for_forces_an_exchange_too() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, _clock) = broker(&exchange);
    let rejected = broker.token().await.unwrap();
    pass(60).await;
    broker.reject(&rejected);
    broker.reject(&rejected);
    pass(1).await;
    assert_eq!(broker.current().unwrap().expose(), "tok-2");
    broker.reject(&rejected);
    pass(60).await;
    assert_eq!(exchange.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_token_is_served_until_its_replacement_is_there() {
    let exchange = Scripted::new([Step::Grant(3600), OUTAGE]);
    let (broker, _clock) = broker(&exchange);
    let rejected = broker.token().await.unwrap();
    pass(60).await;
    assert_eq!(
        broker.replacement(rejected.tag()).await.unwrap_err().kind(),
        Kind::Unavailable
    );
    assert_eq!(broker.token().await.unwrap().tag(), rejected.tag());
    exchange.now_follow([Step::Grant(3600)]);
    pass(10).await;
    assert_ne!(broker.current().unwrap().tag(), rejected.tag());
}

#[tokio::test(start_paused = true)]
async fn services_that_reject_every_token_do_not_make_a_storm() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, _clock) = broker(&exchange);
    let mut token = broker.token().await.unwrap();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        if let Ok(replacement) = broker.replacement(token.tag()).await {
            token = replacement;
        }
    }
    assert!(exchange.count() <= 8, "{}", exchange.count());
}

#[tokio::test(start_paused = true)]
async fn short_tokens_are_never_missing_for_an_hour() {
    let exchange = Scripted::new([Step::Grant(8)]);
    let (broker, _clock) = broker(&exchange);
    broker.token().await.unwrap();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(3600) {
        assert!(broker.current().is_some(), "after {:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let count = exchange.count();
    assert!(
        (3600 / 5..3600 / 3).contains(&count),
        "{count} exchanges in an hour"
    );
    assert_eq!(exchange.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_valid_token_is_served_through_an_outage_to_its_end_and_comes_back_after_it() {
    let exchange = Scripted::new([Step::Grant(300), OUTAGE]);
    let (broker, _clock) = broker(&exchange);
    broker.token().await.unwrap();
    for second in 1..294 {
        pass(1).await;
        assert_eq!(
            broker.token().await.unwrap().expose(),
            "tok-1",
            "second {second}"
        );
    }
    pass(6).await;
    assert!(broker.current().is_none());
    assert_eq!(broker.token().await.unwrap_err().kind(), Kind::Unavailable);
    exchange.now_follow([Step::Grant(300)]);
    pass(30).await;
    assert!(broker.current().is_some());
    assert!(broker.status().last_error.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_costs_few_exchanges_though_many_ask() {
    let exchange = Scripted::new([OUTAGE]);
    let (broker, _clock) = broker(&exchange);
    for _ in 0..600 {
        broker.token().await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let count = exchange.count();
    assert!((10..=24).contains(&count), "{count}");
    assert_eq!(exchange.most_at_once(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_after_an_outage_does_not_wait_out_the_backoff() {
    let exchange = Scripted::new([OUTAGE]);
    let (broker, _clock) = broker(&exchange);
    pass(120).await; // nobody asks, so attempts are up to 30 s apart
    exchange.now_follow([Step::Grant(3600)]);
    let last = *exchange.starts().last().unwrap();
    tokio::time::sleep_until(last + Duration::from_secs(4)).await;
    let asked = Instant::now();
    broker.token().await.unwrap();
    assert_eq!(asked.elapsed(), Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_though_many_ask() {
    let exchange = Scripted::new([Step::Throttle { retry_after: 20 }, Step::Grant(3600)]);
    let (broker, _clock) = broker(&exchange);
    for _ in 0..19 {
        assert_eq!(broker.token().await.unwrap_err().kind(), Kind::Throttled);
        pass(1).await;
    }
    assert_eq!(exchange.count(), 1);
    pass(2).await;
    assert_eq!(broker.token().await.unwrap().expose(), "tok-2");
}

#[tokio::test(start_paused = true)]
async fn an_exchange_that_hangs_ends_and_its_waiters_with_it() {
    let exchange = Scripted::new([Step::Hang]);
    let (broker, _clock) = broker(&exchange);
    let asked = Instant::now();
    let error = broker.token().await.unwrap_err();
    assert_eq!(
        (error.kind(), asked.elapsed().as_secs()),
        (Kind::Timeout, 15)
    );
    assert!(error.to_string().contains("/scripted/token"), "{error}");
    exchange.now_follow([Step::Grant(60)]);
    pass(10).await; // given up after 20 s, tried again 1 s later
    assert!(broker.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_exchange_is_an_error_and_not_the_end() {
    let exchange = Scripted::new([Step::Panic, Step::Grant(60)]);
    let (broker, _clock) = broker(&exchange);
    let error = broker.token().await.unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
    assert!(!error.to_string().contains("tok-secret"));
    pass(5).await;
    assert!(broker.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_no_header_can_carry_is_an_answer_to_nothing() {
    let exchange = Scripted::new([Step::Junk, Step::Grant(0), Step::Grant(60)]);
    let (broker, _clock) = broker(&exchange);
    assert_eq!(broker.token().await.unwrap_err().kind(), Kind::BadAnswer);
    pass(20).await;
    assert_eq!(broker.status().exchanges_failed, 2);
    assert!(broker.current().is_some());
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_the_dead_token_is_not_served_and_the_first_caller_gets_a_new_one() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, clock) = broker(&exchange);
    broker.token().await.unwrap();
    clock.suspend(Duration::from_secs(4000));
    assert!(broker.current().is_none());
    let asked = Instant::now();
    assert_eq!(broker.token().await.unwrap().expose(), "tok-2");
    assert_eq!(asked.elapsed(), Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_suspend_is_noticed_though_nobody_asks() {
    let exchange = Scripted::new([Step::Grant(3600)]);
    let (broker, clock) = broker(&exchange);
    broker.token().await.unwrap();
    clock.suspend(Duration::from_secs(4000));
    pass(16).await;
    assert_eq!(broker.current().unwrap().expose(), "tok-2");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hands_out_one_dying_token_again_and_again_is_not_stormed() {
    let dying = (0..10).map(|n| Step::Grant(120 >> n));
    let exchange = Scripted::new(dying.filter(|step| !matches!(step, Step::Grant(0))));
    let (_broker, _clock) = broker(&exchange);
    pass(110).await;
    assert!(exchange.count() < 40, "{}", exchange.count());
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_what_is_held() {
    let exchange = Scripted::new([Step::Grant(100), OUTAGE]);
    let (broker, _clock) = broker(&exchange);
    assert_eq!(broker.status().expires_in, None);
    broker.token().await.unwrap();
    pass(10).await;
    let status = broker.status();
    assert_eq!(status.expires_in.unwrap().as_secs(), 89);
    assert!(status.expires_at.is_some());
    assert_eq!((status.exchanges_granted, status.exchanges_failed), (1, 0));
    assert_eq!(status.identity.source, "/scripted/token");
    pass(80).await;
    let status = broker.status();
    assert!(status.exchanges_failed > 0);
    assert_eq!(status.last_error.unwrap().kind(), Kind::Unavailable);
    assert!(status.expires_in.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_the_age_of_the_token_and_when_the_next_exchange_is_due() {
    let exchange = Scripted::new([Step::Grant(100), Step::Hang]);
    let (broker, clock) = broker(&exchange);
    let took = Duration::from_millis(100);
    let begun = broker.status();
    assert_eq!((begun.age, begun.last_exchange_took), (None, None));
    assert_eq!(begun.next_exchange_in, None, "the first one starts at once");
    broker.token().await.unwrap();
    let status = broker.status();
    assert_eq!(
        (status.age, status.last_exchange_took),
        (Some(took), Some(took))
    );
    let next = status.next_exchange_in.unwrap() + took;
    let due = Duration::from_secs(50)..=Duration::from_secs(80);
    assert!(due.contains(&next), "{next:?}");
    // Age and life are those of the token, whatever became of the timers.
    clock.suspend(Duration::from_secs(40));
    let status = broker.status();
    assert_eq!(status.age, Some(took + Duration::from_secs(40)));
    assert_eq!(
        status.age.unwrap() + status.expires_in.unwrap(),
        Duration::from_secs(100)
    );
    // While one runs, no next one is due; the token that is held goes on to age.
    pass(45).await;
    assert_eq!(exchange.count(), 2);
    let status = broker.status();
    assert_eq!(status.next_exchange_in, None);
    assert_eq!(status.age, Some(took + Duration::from_secs(85)));
    // It is given up at its limit.
    pass(21).await;
    let status = broker.status();
    assert_eq!(
        status.last_exchange_took,
        Some(Tuning::default().exchange_limit)
    );
    assert_eq!(status.age, None, "nothing is held any more");
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_by_their_kind() {
    let refused = Step::Fail(Kind::Refused(Refusal::Grant));
    let denied = Step::Fail(Kind::Refused(Refusal::Denied));
    let throttled = Step::Throttle { retry_after: 3 };
    let exchange = Scripted::new([
        refused,
        denied,
        throttled,
        Step::Panic,
        Step::Junk,
        Step::Hang,
    ]);
    let (broker, _clock) = broker(&exchange);
    while broker.status().exchanges_failed < 6 {
        pass(1).await;
    }
    let failures = broker.status().failures;
    let counted: Vec<_> = failures
        .iter()
        .filter(|(_, number)| *number > 0)
        .map(|(family, number)| (family.name(), number))
        .collect();
    assert_eq!(
        counted,
        [
            ("refused", 2),
            ("timeout", 1),
            ("throttled", 1),
            ("bad_answer", 1),
            ("internal", 1),
        ]
    );
    assert_eq!(failures.of(Family::Refused), 2);
    assert_eq!(failures.total(), 6);
}

#[tokio::test(start_paused = true)]
async fn waiters_are_counted_also_when_they_give_up() {
    let exchange = Scripted::new([Step::Hang]);
    let (broker, _clock) = broker(&exchange);
    let waiting = tokio::time::timeout(Duration::from_secs(1), async {
        tokio::join!(broker.token(), broker.token(), async {
            tokio::task::yield_now().await;
            assert_eq!(broker.status().waiters, 2);
        })
    });
    assert!(waiting.await.is_err());
    assert_eq!(broker.status().waiters, 0);
}

#[tokio::test(start_paused = true)]
async fn with_the_last_handle_the_task_and_its_exchange_end() {
    let exchange = Scripted::new([Step::Hang]);
    let (broker, _clock) = broker(&exchange);
    let other = broker.clone();
    let credentials = other.credentials();
    pass(1).await;
    drop((broker, other));
    pass(1).await;
    assert!(
        Arc::strong_count(&exchange) > 1,
        "the credentials hold the broker"
    );
    drop(credentials);
    pass(1).await;
    assert_eq!(Arc::strong_count(&exchange), 1);
}

/// Gives back what is in a file, as if it were exchanged.
#[derive(Debug)]
struct FromFile(FileSource);

#[async_trait]
impl Exchange for FromFile {
    async fn exchange(&self) -> Result<Grant, Error> {
        let subject = self.0.subject_token().await?;
        let token = AccessSecret::new(subject.expose().to_owned());
        Ok(Grant {
            token,
            lifetime: Duration::from_secs(60),
        })
    }

    fn identity(&self) -> Identity {
        Identity {
            source: self.0.describe(),
            ..Identity::default()
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_missing_comes_back_and_rotates_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let exchange = FromFile(FileSource::new(&path));
    let tuning = Tuning {
        clock: TestClock::new(),
        ..Tuning::default()
    };
    let broker = Broker::with_exchange(Arc::new(exchange), tuning);
    let missing = Kind::Source(SourceFault::Missing);
    assert_eq!(broker.token().await.unwrap_err().kind(), missing);
    std::fs::write(&path, "first").unwrap();
    pass(2).await;
    assert_eq!(broker.token().await.unwrap().expose(), "first");
    std::fs::write(&path, "second").unwrap();
    pass(50).await;
    assert_eq!(broker.token().await.unwrap().expose(), "second");
    std::fs::remove_file(&path).unwrap();
    pass(120).await;
    assert_eq!(broker.token().await.unwrap_err().kind(), missing);
    std::fs::write(&path, "third").unwrap();
    pass(31).await;
    assert_eq!(broker.token().await.unwrap().expose(), "third");
}

#[test]
fn a_broker_whose_runtime_is_gone_says_so() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
    };
    let exchange = Scripted::new([Step::Hang]);
    let first = runtime();
    let broker: Broker = first.block_on(async { broker(&exchange).0 });
    drop(first);
    let error = runtime().block_on(broker.token()).unwrap_err();
    assert_eq!(error.kind(), Kind::Stopped);
}

#[test]
fn a_token_outlives_the_runtime_of_its_broker_and_no_next_one_is_promised() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let exchange = Scripted::new([Step::Grant(3600)]);
    let broker = runtime.block_on(async {
        let tuning = Tuning::default();
        let broker = Broker::with_exchange(Arc::clone(&exchange) as _, tuning);
        broker.token().await.unwrap();
        pass(1).await;
        broker
    });
    assert!(broker.status().next_exchange_in.is_some());
    drop(runtime);
    assert_eq!(broker.status().next_exchange_in, None);
    assert!(broker.current().is_some());
}

#[test]
fn kinds_say_what_a_person_has_to_mend() {
    for (kind, permanent, transient) in [
        (Kind::Source(SourceFault::Missing), true, false),
        (Kind::Source(SourceFault::Empty), false, true),
        (Kind::Source(SourceFault::Expired), true, false),
        (Kind::Refused(Refusal::Audience), true, false),
        (Kind::Unreachable(Reach::UnknownHost), true, true),
        (Kind::Unreachable(Reach::NameService), false, true),
        (Kind::Unreachable(Reach::Network), false, true),
        (Kind::Unreachable(Reach::Tls), true, true),
        (Kind::Config, true, false),
        (Kind::Timeout, false, true),
        (Kind::Throttled, false, true),
        (Kind::Unavailable, false, true),
        (Kind::BadAnswer, false, true),
    ] {
        let error = Error::new(kind, "x");
        assert_eq!(
            (error.is_permanent_for_mount(), error.is_transient()),
            (permanent, transient),
            "{kind:?}"
        );
    }
}
