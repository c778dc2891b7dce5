//! What holds for any sequence of events and times.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

fn cause() -> impl Strategy<Value = Cause> {
    prop_oneof![
        Just(Cause::Local),
        Just(Cause::Unavailable),
        Just(Cause::Refused),
        Just(Cause::Throttled)
    ]
}

fn duration(longest_ms: u64) -> impl Strategy<Value = Duration> {
    prop_oneof![0..longest_ms, 0..10_000_u64].prop_map(Duration::from_millis)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Woken),
        2 => Just(Event::Demanded),
        1 => Just(Event::Rejected),
        2 => duration(90_000_000).prop_map(|lifetime| Event::Granted { lifetime }),
        2 => (cause(), option::of(duration(600_000)))
            .prop_map(|(cause, retry_after)| Event::Failed { cause, retry_after }),
    ]
}

/// What the schedule is held to, kept apart from it.
#[derive(Default)]
struct Witness {
    in_flight: Option<Moment>,
    last_start: Option<Moment>,
    ends_at: Option<Moment>,
    longest_life: Duration,
}

impl Witness {
    fn check(&mut self, before: &State, event: Event, now: Moment) -> Result<State, TestCaseError> {
        let served_before = before.holds_usable(now);
        let (after, action) = before.clone().step(event, now);
        if let Some(since) = self.in_flight {
            match event {
                Event::Granted { lifetime } => {
                    self.in_flight = None;
                    // One that is already at its end does not replace what is held.
                    if after.holds_usable(now) && now < since + lifetime {
                        self.ends_at = self.ends_at.max(Some(since + lifetime));
                    }
                    self.longest_life = self.longest_life.max(lifetime);
                }
                Event::Failed { .. } => self.in_flight = None,
                Event::Woken | Event::Demanded | Event::Rejected => {}
            }
        }
        if !matches!(event, Event::Granted { .. }) {
            prop_assert_eq!(
                after.holds_usable(now),
                served_before,
                "only time ends a token"
            );
        }
        if after.holds_usable(now) {
            prop_assert!(Some(now) < self.ends_at, "an expired token is served");
        }
        match action {
            Action::Exchange => {
                prop_assert!(self.in_flight.is_none(), "two exchanges at once");
                if let Some(last) = self.last_start {
                    prop_assert!(now >= last + SPACING, "exchanges too near to each other");
                }
                (self.in_flight, self.last_start) = (Some(now), Some(now));
            }
            Action::AwaitAnswer => prop_assert!(self.in_flight.is_some(), "waits for nothing"),
            Action::SleepUntil(until) => {
                prop_assert!(self.in_flight.is_none() && until > now);
                let mut longest = LONGEST_RETRY_AFTER;
                if after.holds_usable(now) {
                    longest = longest.max(self.longest_life.mul_f64(0.8));
                }
                prop_assert!(until.since(now) <= longest, "stopped trying: {action:?}");
            }
        }
        Ok(after)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_events_at_any_times(seed: u64, events in vec((event(), duration(4_000_000)), 0..60)) {
        let (mut now, mut witness) = (Moment::ORIGIN, Witness::default());
        let mut state = State::new(now, seed);
        for (event, passed) in events {
            now = now + passed;
            state = witness.check(&state, event, now)?;
        }
    }

    /// The driver's own loop: it sleeps as told, unless somebody demands; every exchange fails.
    #[test]
    fn an_outage_is_met_with_few_exchanges(seed: u64, cause in cause(), demand_every_ms in 50..5000_u64) {
        let most_in_a_minute = match cause {
            Cause::Local => 61,
            Cause::Unavailable => 24,
            Cause::Refused => 17,
            Cause::Throttled => 9,
        };
        let mut now = Moment::ORIGIN;
        let mut state = State::new(now, seed);
        let mut starts = Vec::new();
        let mut event = Event::Woken;
        while now.since(Moment::ORIGIN) < Duration::from_secs(300) {
            let (next, action) = state.step(event, now);
            state = next;
            event = match action {
                Action::Exchange => {
                    starts.push(now);
                    prop_assert!(starts.len() < 1000, "a storm of exchanges");
                    Event::Failed { cause, retry_after: None }
                }
                Action::AwaitAnswer => unreachable!("each exchange ends at once"),
                Action::SleepUntil(until) => {
                    let demand = now + Duration::from_millis(demand_every_ms);
                    now = until.min(demand);
                    if until < demand { Event::Woken } else { Event::Demanded }
                }
            };
        }
        for start in &starts {
            let minute = starts.iter().filter(|at| *at >= start && at.since(*start) < Duration::from_secs(60));
            prop_assert!(minute.count() <= most_in_a_minute, "{starts:?}");
        }
        prop_assert!(starts.len() >= 10, "300 s of outage hold at least ten attempts: {starts:?}");
    }

    /// A token service that fails for a tenth of a token's life, whenever, is not noticed; and when
    /// it fails for longer, tokens are back within the longest delay of its return.
    #[test]
    fn an_outage_inside_a_life_is_not_noticed(
        seed: u64,
        cause in cause(),
        lifetime_s in 60..4000_u64,
        starts_at in 0.0..3.0_f64,
        long: bool,
    ) {
        let lifetime = Duration::from_secs(lifetime_s);
        let outage_start = Moment::ORIGIN + lifetime.mul_f64(starts_at);
        let outage_end = outage_start + lifetime.mul_f64(if long { 3.0 } else { 0.1 });
        let outage = |at: Moment| at > outage_start && at < outage_end;
        let mut now = Moment::ORIGIN;
        let mut state = State::new(now, seed);
        let mut event = Event::Woken;
        let mut exchanges = 0;
        while now.since(Moment::ORIGIN) < lifetime * 8 {
            let (next, action) = state.step(event, now);
            state = next;
            exchanges += usize::from(action == Action::Exchange);
            prop_assert!(exchanges < 3000, "a storm of exchanges");
            event = match action {
                Action::Exchange if outage(now) => Event::Failed { cause, retry_after: None },
                Action::Exchange => Event::Granted { lifetime },
                Action::AwaitAnswer => unreachable!("each exchange ends at once"),
                Action::SleepUntil(until) => {
                    let back_by = outage_end + LONGEST_DELAY;
                    let excused = long && until > outage_start && until <= back_by;
                    prop_assert!(state.holds_usable(until) || excused, "no token at {until:?}");
                    now = until;
                    Event::Woken
                }
            };
        }
    }
}
