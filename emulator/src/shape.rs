//! Latency by method and rate of bodies.

use std::time::Duration;

use parking_lot::RwLock;

use crate::operation::Operation;
use crate::pattern::Pattern;

/// How slow the service is. Changes apply to requests that arrive later.
#[derive(Debug)]
pub(crate) struct Shape {
    inner: RwLock<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// In the order they were set; the last that matches counts. One entry a pattern.
    latencies: Vec<(Pattern, Duration)>,
    stream_rate: Option<u64>,
}

impl Shape {
    pub(crate) fn new(latency: Duration, stream_rate: Option<u64>) -> Self {
        let inner = Inner {
            latencies: vec![(Pattern::whole("*"), latency)],
            stream_rate,
        };
        Self {
            inner: RwLock::new(inner),
        }
    }

    pub(crate) fn set_latency(&self, method: &str, latency: Duration) {
        let pattern = Pattern::whole(method);
        let mut inner = self.inner.write();
        inner.latencies.retain(|(known, _)| *known != pattern);
        inner.latencies.push((pattern, latency));
    }

    pub(crate) fn set_stream_rate(&self, rate: Option<u64>) {
        self.inner.write().stream_rate = rate.filter(|&rate| rate > 0);
    }

    pub(crate) fn latency(&self, operation: Operation) -> Duration {
        let inner = self.inner.read();
        let mut newest_first = inner.latencies.iter().rev();
        let found = newest_first.find(|(pattern, _)| pattern.matches(operation.name()));
        found.map_or(Duration::ZERO, |(_, latency)| *latency)
    }

    pub(crate) fn stream_rate(&self) -> Option<u64> {
        self.inner.read().stream_rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_latency_that_matches_counts() {
        let shape = Shape::new(Duration::from_millis(1), None);
        shape.set_latency("storage.objects.*", Duration::from_millis(20));
        shape.set_latency("storage.objects.list", Duration::from_millis(30));
        shape.set_latency("storage.objects.list", Duration::from_millis(40));
        let millis = |operation| shape.latency(operation).as_millis();
        assert_eq!(millis(Operation::ObjectsGet), 20);
        assert_eq!(millis(Operation::ObjectsList), 40);
        assert_eq!(millis(Operation::StsToken), 1);
    }
}
