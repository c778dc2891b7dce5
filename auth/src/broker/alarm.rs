//! How loudly a failure is told. Whoever waits for a token tells the first failure of a start in words of
//! their own, and the failures of an outage are many and alike. Pure.

use crate::error::Kind;

/// What was told of the failures since the last token.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    failures: u64,
    warned: Option<Warned>,
}

/// What makes a failure news: its kind, and whether a valid token is held still.
type Warned = (Kind, bool);

/// How loudly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loudness {
    /// For those who look for it.
    Quiet,
    /// A warning.
    Loud,
}

impl Alarm {
    /// An exchange failed; `held` says whether a valid token is there all the same.
    pub(super) fn failed(&mut self, kind: Kind, held: bool) -> Loudness {
        self.failures += 1;
        let is_of_a_start = self.failures == 1 && !held;
        if is_of_a_start || self.warned == Some((kind, held)) {
            return Loudness::Quiet;
        }
        self.warned = Some((kind, held));
        Loudness::Loud
    }

    /// An exchange gave a token. Loud if there was a warning that it ends.
    pub(super) fn granted(&mut self) -> Loudness {
        match std::mem::take(self).warned {
            Some(_) => Loudness::Loud,
            None => Loudness::Quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Loudness::{Loud, Quiet};
    use super::*;

    #[test]
    fn the_first_failure_of_a_start_is_quiet_and_each_news_after_it_is_told_once() {
        let (timeout, config) = (Kind::Timeout, Kind::Config);
        for (failures, granted) in [
            (&[(timeout, false, Quiet)][..], Quiet),
            (&[(timeout, true, Loud)], Loud),
            (
                &[
                    (timeout, false, Quiet),
                    (timeout, false, Loud),
                    (timeout, false, Quiet),
                    (config, false, Loud),
                    (config, false, Quiet),
                    (timeout, false, Loud),
                ],
                Loud,
            ),
            // The token that is held ends meanwhile.
            (
                &[
                    (timeout, true, Loud),
                    (timeout, true, Quiet),
                    (timeout, false, Loud),
                    (timeout, false, Quiet),
                ],
                Loud,
            ),
        ] {
            let mut alarm = Alarm::default();
            // A token puts all back to the start.
            for _ in 0..2 {
                for &(kind, held, loudness) in failures {
                    assert_eq!(alarm.failed(kind, held), loudness, "{failures:?}");
                }
                assert_eq!(alarm.granted(), granted, "{failures:?}");
            }
            assert_eq!(alarm.granted(), Quiet);
        }
    }
}
