//! Every metric, in one table: what it is called, what it counts, and in which unit.

/// What a metric's values are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// Only grows while the volume is served.
    Counter,
    /// Is what it is now.
    Gauge,
    /// How many observations were at most so large.
    Histogram(&'static [f64]),
}

impl Kind {
    /// Prometheus' word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// Whose name it is, and so who relies on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// gcsfuse's: its dashboards read it.
    Gcsfuse,
    /// Ours.
    Own,
}

/// One metric. Names and labels stay; more labels' values may come.
#[derive(Debug)]
pub struct Metric {
    /// Name, which is never given another meaning.
    pub name: &'static str,
    /// Form of its values.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// Unit of its values; empty for plain counts.
    pub unit: &'static str,
    /// Whose name it is.
    pub naming: Naming,
    /// What it says, in one line.
    pub help: &'static str,
}

/// Microseconds: from a hit in memory to the longest that an operation may take.
const MICROSECONDS: &[f64] = &[
    10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6,
    2.5e6, 5e6, 1e7, 3e7, 1e8,
];
/// Milliseconds, of requests over a network.
const MILLISECONDS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4,
    3e4, 1e5,
];

const fn own(name: &'static str, kind: Kind, unit: &'static str, help: &'static str) -> Metric {
    Metric {
        name,
        kind,
        labels: &[],
        unit,
        naming: Naming::Own,
        help,
    }
}

const fn gcsfuse(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    unit: &'static str,
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        labels,
        unit,
        naming: Naming::Gcsfuse,
        help,
    }
}

/// Requests of the kernel.
pub const OPS: Metric = gcsfuse(
    "fs_ops_count",
    Kind::Counter,
    &["fs_op"],
    "",
    "Requests of the kernel that were answered, failed ones included",
);
/// Failed requests of the kernel.
pub const OP_ERRORS: Metric = gcsfuse(
    "fs_ops_error_count",
    Kind::Counter,
    &["fs_op", "fs_error_category"],
    "",
    "Requests of the kernel that were answered with an error, a name that is not there among them",
);
/// How long requests of the kernel take.
pub const OP_LATENCY: Metric = gcsfuse(
    "fs_ops_latency",
    Kind::Histogram(MICROSECONDS),
    &["fs_op"],
    "us",
    "From the arrival of a request of the kernel to its answer",
);
/// Requests to the store.
pub const REQUESTS: Metric = gcsfuse(
    "gcs_request_count",
    Kind::Counter,
    &["gcs_method"],
    "",
    "Requests to the store that were answered or failed, repetitions included",
);
/// How long they take.
pub const REQUEST_LATENCY: Metric = gcsfuse(
    "gcs_request_latencies",
    Kind::Histogram(MILLISECONDS),
    &["gcs_method"],
    "ms",
    "From a request to the store to the head of its answer, or to its failure",
);
/// Repetitions.
pub const RETRIES: Metric = gcsfuse(
    "gcs_retry_count",
    Kind::Counter,
    &["retry_error_category"],
    "",
    "Requests to the store that were sent again after a failure",
);
/// Bytes that programs read.
pub const READ_BYTES: Metric = gcsfuse(
    "gcs_read_bytes_count",
    Kind::Counter,
    &[],
    "By",
    "Bytes of files that were handed to readers",
);
/// Bytes that came over the network.
pub const DOWNLOAD_BYTES: Metric = gcsfuse(
    "gcs_download_bytes_count",
    Kind::Counter,
    &[],
    "By",
    "Bytes of objects that came over the network, read ahead and thrown away ones included",
);

/// By HTTP status or cause.
pub const OUTCOMES: Metric = Metric {
    labels: &["outcome"],
    ..own(
        "gcsmount_request_outcomes_count",
        Kind::Counter,
        "",
        "Requests to the store by HTTP status, or by why there was no answer",
    )
};
/// Bytes that programs write.
pub const WRITTEN_BYTES: Metric = own(
    "gcsmount_written_bytes_count",
    Kind::Counter,
    "By",
    "Bytes of files that were taken from writers",
);
/// Bytes that went over the network.
pub const UPLOAD_BYTES: Metric = own(
    "gcsmount_upload_bytes_count",
    Kind::Counter,
    "By",
    "Bytes of objects that went over the network, those that had to be sent again included",
);
/// Bytes that soft delete or versioning may bill.
pub const SUPERSEDED_BYTES: Metric = own(
    "gcsmount_superseded_bytes_count",
    Kind::Counter,
    "By",
    "Bytes of generations that publications replaced, which soft delete and versioning keep and bill",
);
/// Open files and directories.
pub const OPEN_HANDLES: Metric = Metric {
    labels: &["kind"],
    ..own(
        "gcsmount_open_handles",
        Kind::Gauge,
        "",
        "Files and directories that are open",
    )
};
/// Files with unpublished content.
pub const DIRTY_FILES: Metric = own(
    "gcsmount_dirty_files",
    Kind::Gauge,
    "",
    "Open files that hold what the bucket does not have yet",
);
/// Bytes on the local disk.
pub const STAGED_BYTES: Metric = own(
    "gcsmount_staged_bytes",
    Kind::Gauge,
    "By",
    "Bytes of files that are staged in --temp-dir",
);
/// Uploads in order.
pub const UPLOAD_STREAMS: Metric = own(
    "gcsmount_upload_streams",
    Kind::Gauge,
    "",
    "Files that stream to the store while they are written",
);
/// Inodes.
pub const INODES: Metric = own(
    "gcsmount_inodes",
    Kind::Gauge,
    "",
    "Files and directories that the kernel knows or that are open",
);
/// The budget in use.
pub const MEMORY_USED: Metric = own(
    "gcsmount_memory_used_bytes",
    Kind::Gauge,
    "By",
    "Memory that file data takes, of all volumes of the process together",
);
/// The most that was in use.
pub const MEMORY_PEAK: Metric = own(
    "gcsmount_memory_peak_bytes",
    Kind::Gauge,
    "By",
    "The most memory that file data has taken so far, of all volumes together",
);
/// The budget.
pub const MEMORY_LIMIT: Metric = own(
    "gcsmount_memory_limit_bytes",
    Kind::Gauge,
    "By",
    "Memory that file data may take, of all volumes together",
);
/// Exchanges.
pub const EXCHANGES: Metric = Metric {
    labels: &["result"],
    ..own(
        "gcsmount_token_exchanges_count",
        Kind::Counter,
        "",
        "Exchanges for an access token that this identity has made in this process, for all volumes that share it",
    )
};
/// Life that is left.
pub const TOKEN_LIFE: Metric = own(
    "gcsmount_token_remaining_seconds",
    Kind::Gauge,
    "s",
    "How long the access token that is held still lives; 0 without one",
);
/// Callers that wait.
pub const TOKEN_WAITERS: Metric = own(
    "gcsmount_token_waiters",
    Kind::Gauge,
    "",
    "Requests that wait for an access token",
);
/// How long the last exchange took.
pub const EXCHANGE_TIME: Metric = own(
    "gcsmount_token_exchange_seconds",
    Kind::Gauge,
    "s",
    "How long the last exchange for an access token took",
);

/// All of them, in the order of the documentation.
pub const METRICS: &[Metric] = &[
    OPS,
    OP_ERRORS,
    OP_LATENCY,
    REQUESTS,
    REQUEST_LATENCY,
    RETRIES,
    READ_BYTES,
    DOWNLOAD_BYTES,
    OUTCOMES,
    WRITTEN_BYTES,
    UPLOAD_BYTES,
    SUPERSEDED_BYTES,
    OPEN_HANDLES,
    DIRTY_FILES,
    STAGED_BYTES,
    UPLOAD_STREAMS,
    INODES,
    MEMORY_USED,
    MEMORY_PEAK,
    MEMORY_LIMIT,
    EXCHANGES,
    TOKEN_LIFE,
    TOKEN_WAITERS,
    EXCHANGE_TIME,
];

/// The table as a page of the documentation.
#[must_use]
pub fn document() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Made from `src/metrics/table.rs`; `cargo test` compares. Each volume has its own. Names and labels keep their\n\
         meaning; those of gcsfuse mean what they mean there. Latencies are histograms, in the unit that is given.\n\n\
         | name | type | labels | unit | of | says |\n|---|---|---|---|---|---|\n",
    );
    for metric in METRICS {
        let whose = match metric.naming {
            Naming::Gcsfuse => "gcsfuse",
            Naming::Own => "gcsmount",
        };
        page.push_str(&format!(
            "| `{}` | {} | {} | {} | {whose} | {} |\n",
            metric.name,
            metric.kind.word(),
            metric.labels.join(", "),
            metric.unit,
            metric.help,
        ));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/METRICS.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        if std::env::var_os("GCSMOUNT_WRITE_DOCS").is_some() {
            std::fs::write(path, document()).unwrap();
        } else {
            assert_eq!(
                there,
                document(),
                "run the tests once with GCSMOUNT_WRITE_DOCS=1"
            );
        }
    }

    #[test]
    fn names_are_ours_or_gcsfuses() {
        let mut seen = std::collections::HashSet::new();
        for metric in METRICS {
            assert!(seen.insert(metric.name), "{} stands twice", metric.name);
            let own = metric.name.starts_with("gcsmount_");
            assert_eq!(own, metric.naming == Naming::Own, "{}", metric.name);
        }
    }
}
