//! What an object body passes through on its way in or out: a rate, and at most one fault.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::fault::FaultAction;

/// Frames leave in at most this size, so that a connection's other side sees progress.
pub(crate) const MAX_FRAME: usize = 1 << 20;

/// The body was ended by a fault rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cut {
    #[error("the connection was cut by a fault rule")]
    Dropped,
    /// By a refusal with this status.
    #[error("the body was refused by a fault rule")]
    Refused(u16),
}

/// Decides when the next bytes may pass and how many.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    rate: Option<u64>,
    fault: Option<BodyFault>,
    started: Option<Instant>,
    passed: u64,
    pause: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, Debug)]
enum BodyFault {
    Stall { after: u64, duration: Duration },
    Cut { after: u64, how: Cut },
}

impl Gate {
    /// A gate for one body, or `None` when everything passes at once.
    pub(crate) fn new(rate: Option<u64>, action: Option<&FaultAction>) -> Option<Self> {
        let rate = match action {
            Some(&FaultAction::SlowBody { bytes_per_second }) => {
                Some(rate.unwrap_or(u64::MAX).min(bytes_per_second.max(1)))
            }
            _ => rate,
        };
        let fault = match action {
            Some(&FaultAction::StallBody { after, duration }) => {
                Some(BodyFault::Stall { after, duration })
            }
            Some(&FaultAction::Truncate { after } | &FaultAction::CutAnswer { after }) => {
                let how = Cut::Dropped;
                Some(BodyFault::Cut { after, how })
            }
            Some(&FaultAction::StatusInBody { after, code }) => {
                let how = Cut::Refused(code);
                Some(BodyFault::Cut { after, how })
            }
            _ => None,
        };
        (rate.is_some() || fault.is_some()).then(|| Self {
            rate,
            fault,
            ..Self::default()
        })
    }

    /// How many bytes may pass now, at least one.
    pub(crate) fn poll_allowance(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Cut>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match self.fault {
                Some(BodyFault::Cut { after, how }) if self.passed >= after => {
                    return Poll::Ready(Err(how));
                }
                Some(BodyFault::Stall { after, duration }) if self.passed >= after => {
                    self.fault = None;
                    self.pause = Some(Box::pin(sleep_until(Instant::now() + duration)));
                    continue;
                }
                Some(BodyFault::Cut { .. } | BodyFault::Stall { .. }) | None => {}
            }
            let now = Instant::now();
            let due = self.due(now);
            if due > now {
                self.pause = Some(Box::pin(sleep_until(due)));
                continue;
            }
            return Poll::Ready(Ok(self.frame()));
        }
    }

    /// Accounts for bytes that went through.
    pub(crate) fn passed(&mut self, count: usize) {
        self.passed += count as u64;
    }

    /// When what has passed so far is paid for.
    fn due(&mut self, now: Instant) -> Instant {
        let started = *self.started.get_or_insert(now);
        let Some(rate) = self.rate else {
            return now;
        };
        let nanos = u128::from(self.passed) * 1_000_000_000 / u128::from(rate.max(1));
        started + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn frame(&self) -> usize {
        let until_fault = match self.fault {
            Some(BodyFault::Cut { after, .. } | BodyFault::Stall { after, .. }) => {
                after - self.passed
            }
            None => u64::MAX,
        };
        // A fiftieth of a second at a time: timers here are good to a millisecond. At low rates in fewer frames, but
        // never more than a second's worth.
        let by_rate = self
            .rate
            .map_or(u64::MAX, |rate| (rate / 50).max(rate.min(1024)));
        let frame = usize::try_from(until_fault.min(by_rate)).unwrap_or(usize::MAX);
        frame.min(MAX_FRAME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn pass(gate: &mut Gate, count: usize) -> Result<(), Cut> {
        let mut left = count;
        while left > 0 {
            let allowed = std::future::poll_fn(|cx| gate.poll_allowance(cx)).await?;
            let step = left.min(allowed);
            gate.passed(step);
            left -= step;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_paces_what_passes() {
        let mut gate = Gate::new(Some(1_000_000), None).unwrap();
        let start = Instant::now();
        pass(&mut gate, 2_000_000).await.unwrap();
        pass(&mut gate, 1).await.unwrap();
        let elapsed = start.elapsed();
        assert!(
            elapsed >= Duration::from_secs(2) && elapsed < Duration::from_millis(2050),
            "{elapsed:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_has_the_lower_of_two_rates() {
        let slow = FaultAction::SlowBody {
            bytes_per_second: 10,
        };
        for (rate, seconds) in [(None, 5), (Some(1_000), 5), (Some(5), 10)] {
            let mut gate = Gate::new(rate, Some(&slow)).unwrap();
            let start = Instant::now();
            pass(&mut gate, 50).await.unwrap();
            pass(&mut gate, 1).await.unwrap();
            assert_eq!(start.elapsed().as_secs(), seconds, "{rate:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_cut_lets_exactly_the_first_bytes_pass() {
        let mut gate = Gate::new(None, Some(&FaultAction::Truncate { after: 10 })).unwrap();
        assert_eq!(pass(&mut gate, 10).await, Ok(()));
        assert_eq!(pass(&mut gate, 1).await, Err(Cut::Dropped));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_happens_once() {
        let duration = Duration::from_secs(7);
        let mut gate =
            Gate::new(None, Some(&FaultAction::StallBody { after: 3, duration })).unwrap();
        let start = Instant::now();
        pass(&mut gate, 100).await.unwrap();
        assert_eq!(start.elapsed(), duration);
    }

    #[test]
    fn no_rate_and_no_fault_is_no_gate() {
        assert!(Gate::new(None, Some(&FaultAction::Reset)).is_none());
    }
}
