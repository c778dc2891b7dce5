//! How often one object name may change: a token bucket a name.

use std::collections::HashMap;

use crate::clock::Timestamp;
use crate::config::MutationLimit;
use crate::name::{BucketName, ObjectName};

/// The map is swept when it outgrows this, and then again at twice what was left.
const SWEEP_FLOOR: usize = 4096;

/// Token buckets of the names that changed lately. A name that is not here has a full bucket.
#[derive(Debug)]
pub(crate) struct Limiter {
    limit: MutationLimit,
    buckets: HashMap<(BucketName, String), Level>,
    sweep_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    tokens: f64,
    at: Timestamp,
}

impl Limiter {
    pub(crate) fn new(limit: MutationLimit) -> Self {
        Self {
            limit,
            buckets: HashMap::new(),
            sweep_at: SWEEP_FLOOR,
        }
    }

    /// Takes one token of each name, or none if one of them has none left, which is returned.
    pub(crate) fn spend<'n>(
        &mut self,
        bucket: &BucketName,
        names: &[&'n ObjectName],
        now: Timestamp,
    ) -> Result<(), &'n ObjectName> {
        let level_of = |name: &ObjectName| {
            let known = self
                .buckets
                .get(&(bucket.clone(), name.as_str().to_owned()));
            known.map_or(f64::from(self.limit.burst), |level| {
                self.limit.refilled(*level, now)
            })
        };
        let levels: Vec<f64> = names.iter().map(|name| level_of(name)).collect();
        if let Some(empty) = levels.iter().position(|tokens| *tokens < 1.0) {
            return Err(names[empty]);
        }
        for (name, tokens) in names.iter().zip(levels) {
            let level = Level {
                tokens: tokens - 1.0,
                at: now,
            };
            self.buckets
                .insert((bucket.clone(), name.as_str().to_owned()), level);
        }
        self.sweep(now);
        Ok(())
    }

    fn sweep(&mut self, now: Timestamp) {
        if self.buckets.len() < self.sweep_at {
            return;
        }
        let limit = self.limit;
        self.buckets
            .retain(|_, level| limit.refilled(*level, now) < f64::from(limit.burst));
        self.sweep_at = SWEEP_FLOOR.max(2 * self.buckets.len());
    }
}

impl MutationLimit {
    fn refilled(&self, level: Level, now: Timestamp) -> f64 {
        let elapsed = now.saturating_sub(level.at).as_secs_f64();
        (level.tokens + elapsed * self.per_second).min(f64::from(self.burst))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn names() -> (BucketName, ObjectName, ObjectName) {
        let name = |text| ObjectName::parse(text).unwrap();
        (BucketName::parse("bucket").unwrap(), name("a"), name("b"))
    }

    #[test]
    fn burst_then_one_a_second() {
        let (bucket, a, b) = names();
        let mut limiter = Limiter::new(MutationLimit::default());
        let at = |millis: u64| Duration::from_millis(1_000_000 + millis);
        for _ in 0..5 {
            assert_eq!(limiter.spend(&bucket, &[&a], at(0)), Ok(()));
        }
        assert_eq!(limiter.spend(&bucket, &[&a], at(999)), Err(&a));
        assert_eq!(limiter.spend(&bucket, &[&b], at(999)), Ok(()));
        assert_eq!(limiter.spend(&bucket, &[&a], at(1000)), Ok(()));
        assert_eq!(limiter.spend(&bucket, &[&a], at(1000)), Err(&a));
    }

    #[test]
    fn a_pair_spends_both_or_neither() {
        let (bucket, a, b) = names();
        let limit = MutationLimit {
            per_second: 1.0,
            burst: 1,
        };
        let mut limiter = Limiter::new(limit);
        let now = Duration::from_secs(10);
        assert_eq!(limiter.spend(&bucket, &[&b], now), Ok(()));
        assert_eq!(limiter.spend(&bucket, &[&a, &b], now), Err(&b));
        assert_eq!(limiter.spend(&bucket, &[&a], now), Ok(()));
    }

    #[test]
    fn full_buckets_are_swept() {
        let (bucket, _, _) = names();
        let mut limiter = Limiter::new(MutationLimit::default());
        for index in 0..SWEEP_FLOOR * 3 {
            let name = ObjectName::parse(&format!("n{index}")).unwrap();
            let now = Duration::from_secs(index as u64);
            limiter.spend(&bucket, &[&name], now).unwrap();
        }
        assert!(limiter.buckets.len() < SWEEP_FLOOR);
    }
}
