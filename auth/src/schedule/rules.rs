//! The rules of the schedule, one by one.

use super::*;

/// A schedule and its time.
struct Run {
    state: State,
    now: Moment,
}

impl Run {
    fn new() -> Self {
        Self {
            state: State::new(Moment::ORIGIN, 7),
            now: Moment::ORIGIN,
        }
    }

    /// One that holds a token asked for just now.
    fn holding(lifetime: u64) -> Self {
        let mut run = Self::new();
        assert_eq!(run.feed(Event::Woken), Action::Exchange);
        run.grant(lifetime);
        run
    }

    fn feed(&mut self, event: Event) -> Action {
        let (state, action) = self.state.clone().step(event, self.now);
        self.state = state;
        action
    }

    fn grant(&mut self, seconds: u64) -> Action {
        self.feed(Event::Granted {
            lifetime: Duration::from_secs(seconds),
        })
    }

    fn fail(&mut self, cause: Cause, retry_after: Option<u64>) -> Action {
        let retry_after = retry_after.map(Duration::from_secs);
        self.feed(Event::Failed { cause, retry_after })
    }

    /// Sleeps as told and starts the exchange that is due then. How long the sleep was.
    fn sleep(&mut self, action: Action) -> Duration {
        let Action::SleepUntil(until) = action else {
            panic!("{action:?}")
        };
        let slept = until.since(self.now);
        self.now = until;
        assert_eq!(self.feed(Event::Woken), Action::Exchange);
        slept
    }

    fn pass(&mut self, seconds: f64) {
        self.now = self.now + Duration::from_secs_f64(seconds);
    }
}

fn delay(run: &Run, action: Action) -> f64 {
    match action {
        Action::SleepUntil(until) => until.since(run.now).as_secs_f64(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_exchange_is_due_at_once() {
    assert_eq!(Run::new().feed(Event::Woken), Action::Exchange);
}

#[test]
fn refresh_lies_between_half_and_four_fifths_and_differs_between_processes() {
    let mut points: Vec<_> = (0..100)
        .map(|seed| {
            let (state, _) = State::new(Moment::ORIGIN, seed).step(Event::Woken, Moment::ORIGIN);
            let granted = Event::Granted {
                lifetime: Duration::from_secs(3600),
            };
            match state.step(granted, Moment::ORIGIN).1 {
                Action::SleepUntil(at) => at.since(Moment::ORIGIN).as_secs(),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    assert!(
        points.iter().all(|point| (1800..=2880).contains(point)),
        "{points:?}"
    );
    points.sort_unstable();
    points.dedup();
    assert!(points.len() > 80, "{points:?}");
}

#[test]
fn a_short_token_is_refreshed_before_its_half() {
    let mut run = Run::new();
    run.feed(Event::Woken);
    let action = run.grant(8);
    let after = delay(&run, action);
    assert!((3.2..=4.0).contains(&after), "{after}");
}

#[test]
fn life_is_counted_from_the_start_of_the_exchange() {
    let mut run = Run::new();
    run.feed(Event::Woken);
    run.pass(6.0);
    run.grant(8);
    assert!(run.state.holds_usable(run.now));
    run.pass(2.0);
    assert!(!run.state.holds_usable(run.now));
}

#[test]
fn the_margin_is_a_twentieth_and_at_most_five_seconds() {
    for (lifetime, last, first_not) in [(8, 7.5, 7.7), (3600, 3594.9, 3595.1)] {
        let mut run = Run::holding(lifetime);
        run.pass(last);
        assert!(run.state.holds_usable(run.now), "{lifetime}");
        run.pass(first_not - last);
        assert!(!run.state.holds_usable(run.now), "{lifetime}");
    }
}

#[test]
fn delays_double_up_to_the_cap_for_each_cause() {
    for (cause, first) in [
        (Cause::Local, 1.0),
        (Cause::Unavailable, 1.0),
        (Cause::Refused, 4.0),
        (Cause::Throttled, 2.0),
    ] {
        let mut run = Run::new();
        run.feed(Event::Woken);
        for failure in 0..20 {
            let whole = (first * 2_f64.powi(failure)).min(30.0);
            let action = run.fail(cause, None);
            let slept = run.sleep(action).as_secs_f64();
            assert!(
                slept <= whole && slept >= (whole / 2.0).max(1.0) - 1e-9,
                "{cause:?} {failure} {slept}"
            );
        }
    }
}

#[test]
fn retry_after_is_honoured_up_to_two_minutes_and_a_demand_does_not_shorten_it() {
    for (asked, obeyed) in [(20, 20.0), (90, 90.0), (86_400, 120.0)] {
        let mut run = Run::new();
        run.feed(Event::Woken);
        let action = run.fail(Cause::Throttled, Some(asked));
        assert!((delay(&run, action) - obeyed).abs() < 1e-9);
        assert_eq!(run.feed(Event::Demanded), action);
    }
}

#[test]
fn attempts_come_earlier_while_a_token_runs_out() {
    let mut run = Run::holding(8);
    run.pass(4.0);
    assert_eq!(run.feed(Event::Woken), Action::Exchange);
    for _ in 0..2 {
        let action = run.fail(Cause::Refused, None);
        run.sleep(action);
        assert!(run.state.holds_usable(run.now));
    }
}

#[test]
fn a_demand_brings_the_attempt_forward_as_far_as_the_cause_allows() {
    for (cause, nearest) in [
        (Cause::Local, 1.0),
        (Cause::Unavailable, 3.0),
        (Cause::Refused, 4.0),
    ] {
        let mut run = Run::new();
        run.feed(Event::Woken);
        for _ in 0..6 {
            let action = run.fail(cause, None);
            run.sleep(action);
        }
        run.fail(cause, None);
        let action = run.feed(Event::Demanded);
        assert!((delay(&run, action) - nearest).abs() < 1e-9, "{cause:?}");
    }
}

#[test]
fn a_demand_changes_nothing_while_a_token_is_valid() {
    let mut run = Run::holding(3600);
    let before = run.feed(Event::Woken);
    run.pass(60.0);
    assert_eq!(run.feed(Event::Demanded), before);
}

#[test]
fn a_demand_after_a_suspend_exchanges_at_once() {
    let mut run = Run::holding(3600);
    run.pass(100_000.0);
    assert_eq!(run.feed(Event::Demanded), Action::Exchange);
}

#[test]
fn a_rejection_forces_one_exchange() {
    let mut run = Run::holding(3600);
    run.pass(60.0);
    assert_eq!(run.feed(Event::Rejected), Action::Exchange);
    assert_eq!(run.feed(Event::Rejected), Action::AwaitAnswer);
    assert!(run.state.holds_usable(run.now));
}

#[test]
fn rejections_in_a_row_get_slower() {
    let mut run = Run::holding(3600);
    let mut apart = Vec::new();
    for _ in 0..7 {
        let action = run.feed(Event::Rejected);
        apart.push(run.sleep(action).as_secs());
        run.grant(3600);
    }
    assert_eq!(apart, [1, 2, 4, 8, 16, 30, 30]);
    // A token that lasts until its refresh ends the row.
    let action = run.feed(Event::Woken);
    run.sleep(action);
    run.grant(3600);
    let action = run.feed(Event::Rejected);
    assert_eq!(run.sleep(action).as_secs(), 1);
}

#[test]
fn a_rejection_does_not_override_what_the_server_asked_for() {
    let mut run = Run::holding(3600);
    let action = run.feed(Event::Woken);
    run.sleep(action);
    let action = run.fail(Cause::Throttled, Some(60));
    assert_eq!(run.feed(Event::Rejected), action);
}

#[test]
fn a_rejection_of_an_expired_token_is_a_demand() {
    let mut run = Run::holding(8);
    run.pass(7.9);
    run.feed(Event::Woken);
    for _ in 0..6 {
        let action = run.fail(Cause::Unavailable, None);
        run.sleep(action);
    }
    run.fail(Cause::Unavailable, None);
    let action = run.feed(Event::Rejected);
    assert!(delay(&run, action) <= 3.0);
}

#[test]
fn a_token_that_comes_too_late_leaves_the_one_that_is_held() {
    let mut run = Run::holding(100);
    run.pass(80.0);
    assert_eq!(run.feed(Event::Woken), Action::Exchange);
    run.pass(10.0);
    run.grant(5);
    assert!(run.state.holds_usable(run.now));
    assert!(run.state.earliest().is_some());
}
