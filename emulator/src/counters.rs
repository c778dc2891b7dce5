//! What an emulator counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::operation::Operation;

/// A reading of the counters. Requests to the admin interface are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Requests that arrived, by method name; methods that were never called are absent.
    pub requests: BTreeMap<String, u64>,
    /// Answers by class: `2xx`, `3xx`, `4xx`, `5xx`.
    pub statuses: BTreeMap<String, u64>,
    /// Requests that a fault left without an answer.
    pub dropped: u64,
    /// Token exchanges that STS granted, downscoping among them.
    pub exchanges: u64,
    /// Those of them that put an access token inside an access boundary.
    pub downscopings: u64,
    /// Tokens of service accounts that `generateAccessToken` granted.
    pub impersonations: u64,
    /// Tokens that the OAuth endpoint `/token` granted.
    pub oauth_tokens: u64,
    /// Calls of the metadata server's paths.
    pub metadata_calls: u64,
    /// Access tokens of the node that the metadata server gave away.
    pub node_tokens: u64,
    /// Access tokens of a pod that the metadata server gave.
    pub pod_tokens: u64,
    /// Bytes of request bodies.
    pub bytes_in: u64,
    /// Bytes of reply bodies.
    pub bytes_out: u64,
    /// Connections accepted.
    pub connections: u64,
}

impl Counters {
    /// Requests to one method, zero if there were none.
    pub fn of(&self, method: &str) -> u64 {
        self.requests.get(method).copied().unwrap_or(0)
    }
}

/// The running counts.
#[derive(Debug)]
pub(crate) struct Tally {
    requests: Vec<AtomicU64>,
    statuses: [AtomicU64; 4],
    dropped: AtomicU64,
    exchanges: AtomicU64,
    downscopings: AtomicU64,
    impersonations: AtomicU64,
    oauth_tokens: AtomicU64,
    node_tokens: AtomicU64,
    pod_tokens: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    connections: AtomicU64,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            requests: Operation::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            statuses: Default::default(),
            dropped: AtomicU64::new(0),
            exchanges: AtomicU64::new(0),
            downscopings: AtomicU64::new(0),
            impersonations: AtomicU64::new(0),
            oauth_tokens: AtomicU64::new(0),
            node_tokens: AtomicU64::new(0),
            pod_tokens: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Tally {
    pub(crate) fn arrived(&self, operation: Operation) {
        add(&self.requests[operation as usize], 1);
    }

    pub(crate) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(2, 5);
        add(&self.statuses[class - 2], 1);
    }

    pub(crate) fn dropped(&self) {
        add(&self.dropped, 1);
    }

    pub(crate) fn exchanged(&self) {
        add(&self.exchanges, 1);
    }

    pub(crate) fn downscoped(&self) {
        add(&self.downscopings, 1);
    }

    pub(crate) fn impersonated(&self) {
        add(&self.impersonations, 1);
    }

    pub(crate) fn logged_in(&self) {
        add(&self.oauth_tokens, 1);
    }

    pub(crate) fn gave_node_token(&self) {
        add(&self.node_tokens, 1);
    }

    pub(crate) fn gave_pod_token(&self) {
        add(&self.pod_tokens, 1);
    }

    pub(crate) fn connected(&self) {
        add(&self.connections, 1);
    }

    pub(crate) fn received(&self, bytes: usize) {
        add(&self.bytes_in, bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        add(&self.bytes_out, bytes as u64);
    }

    pub(crate) fn read(&self) -> Counters {
        let requests = Operation::ALL.iter().zip(&self.requests);
        let classes = ["2xx", "3xx", "4xx", "5xx"].into_iter().zip(&self.statuses);
        let named = |(name, counter): (&str, &AtomicU64)| (name.to_owned(), read(counter));
        Counters {
            requests: requests
                .map(|(operation, counter)| named((operation.name(), counter)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            statuses: classes.map(named).filter(|(_, count)| *count > 0).collect(),
            dropped: read(&self.dropped),
            exchanges: read(&self.exchanges),
            downscopings: read(&self.downscopings),
            impersonations: read(&self.impersonations),
            oauth_tokens: read(&self.oauth_tokens),
            metadata_calls: read(&self.requests[Operation::Metadata as usize]),
            node_tokens: read(&self.node_tokens),
            pod_tokens: read(&self.pod_tokens),
            bytes_in: read(&self.bytes_in),
            bytes_out: read(&self.bytes_out),
            connections: read(&self.connections),
        }
    }

    pub(crate) fn reset(&self) {
        let single = [
            &self.dropped,
            &self.exchanges,
            &self.downscopings,
            &self.impersonations,
            &self.oauth_tokens,
            &self.node_tokens,
            &self.pod_tokens,
            &self.bytes_in,
            &self.bytes_out,
            &self.connections,
        ];
        let all = self.requests.iter().chain(&self.statuses).chain(single);
        all.for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_name_and_resets() {
        let tally = Tally::default();
        tally.arrived(Operation::ObjectsGet);
        tally.arrived(Operation::Metadata);
        tally.answered(StatusCode::NOT_FOUND);
        let counters = tally.read();
        assert_eq!(
            (
                counters.of("storage.objects.get"),
                counters.of("storage.objects.list")
            ),
            (1, 0)
        );
        assert_eq!(counters.metadata_calls, 1);
        assert_eq!(counters.statuses, BTreeMap::from([("4xx".to_owned(), 1)]));
        tally.reset();
        assert_eq!(tally.read(), Counters::default());
    }
}
