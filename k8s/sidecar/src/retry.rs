//! When a volume that failed is tried again. Pure.

use std::time::Duration;

/// Pauses that double from `first` to `longest`, and go on for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// The pause after the failure of this number, counted from zero. `chance` from 0 to 1 spreads it over its upper half,
    /// so that volumes that failed together do not ask together.
    pub(crate) fn pause(&self, failures: u32, chance: f64) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(failures));
        doubled
            .min(self.longest)
            .mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let backoff = Backoff::default();
        let seconds = |failures, chance| backoff.pause(failures, chance).as_secs_f64();
        for (failures, chance, want) in [
            (0, 1.0, 1.0),
            (0, 0.0, 0.5),
            (1, 1.0, 2.0),
            (4, 1.0, 16.0),
            (5, 1.0, 30.0),
            (5, 0.0, 15.0),
            (u32::MAX, 1.0, 30.0),
        ] {
            assert!(
                (seconds(failures, chance) - want).abs() < 1e-9,
                "{failures} {chance}"
            );
        }
    }
}
