//! What a volume has done, and what it holds now, in the text format of Prometheus.
//!
//! A [`Meter`] hears of the volume's work as the observer of its file system and of its store. The rest is asked for when
//! somebody wants to see it. [`table`] has the names.

pub mod table;
pub mod words;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gcsmount_auth::Broker;
use gcsmount_auth::Status;
use gcsmount_cache::Budget;
use gcsmount_fuse::{Answered, Figures, Fs, Operation};
use gcsmount_gcs::client::json::{self, Attempt, Repetition};
use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use table::{Kind, Metric};

/// The counts of one volume.
pub struct Meter {
    registry: Registry,
    /// By operation, in the order of [`Operation::ALL`].
    operations: Vec<(IntCounter, Histogram)>,
    operation_errors: IntCounterVec,
    requests: IntCounterVec,
    request_latency: HistogramVec,
    outcomes: IntCounterVec,
    retries: IntCounterVec,
    read: IntCounter,
    written: IntCounter,
    downloaded: IntCounter,
    uploaded: IntCounter,
    superseded: IntCounter,
    /// Held while it is set and written, so that nobody sees it half set.
    now: Mutex<Now>,
}

/// What is set when somebody asks.
struct Now {
    handles: IntGaugeVec,
    dirty_files: IntGauge,
    staged: IntGauge,
    streams: IntGauge,
    inodes: IntGauge,
    memory_used: IntGauge,
    memory_peak: IntGauge,
    memory_limit: IntGauge,
    exchanges: IntCounterVec,
    token_life: Gauge,
    token_waiters: IntGauge,
    exchange_time: Gauge,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

fn opts(metric: &Metric) -> Opts {
    Opts::new(metric.name, metric.help)
}

/// Adds what `make` makes of the metric's name to the registry.
fn register<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let made = made.expect("names and labels of the table are well formed");
    let added = registry.register(Box::new(made.clone()));
    added.expect("the table has each name once");
    made
}

impl Meter {
    /// With nothing counted.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let counters =
            |metric: &Metric| register(&registry, IntCounterVec::new(opts(metric), metric.labels));
        let counter = |metric: &Metric| register(&registry, IntCounter::with_opts(opts(metric)));
        let gauge = |metric: &Metric| register(&registry, IntGauge::with_opts(opts(metric)));
        let real = |metric: &Metric| register(&registry, Gauge::with_opts(opts(metric)));
        let gauges =
            |metric: &Metric| register(&registry, IntGaugeVec::new(opts(metric), metric.labels));
        let histograms = |metric: &Metric| {
            let buckets = match metric.kind {
                Kind::Histogram(buckets) => buckets.to_vec(),
                Kind::Counter | Kind::Gauge => Vec::new(),
            };
            let opts = HistogramOpts::new(metric.name, metric.help).buckets(buckets);
            register(&registry, HistogramVec::new(opts, metric.labels))
        };
        let ops = counters(&table::OPS);
        let latency = histograms(&table::OP_LATENCY);
        let operations = Operation::ALL
            .iter()
            .map(|op| {
                let label = &[op.name()];
                (
                    ops.with_label_values(label),
                    latency.with_label_values(label),
                )
            })
            .collect();
        Self {
            operations,
            operation_errors: counters(&table::OP_ERRORS),
            requests: counters(&table::REQUESTS),
            request_latency: histograms(&table::REQUEST_LATENCY),
            outcomes: counters(&table::OUTCOMES),
            retries: counters(&table::RETRIES),
            read: counter(&table::READ_BYTES),
            written: counter(&table::WRITTEN_BYTES),
            downloaded: counter(&table::DOWNLOAD_BYTES),
            uploaded: counter(&table::UPLOAD_BYTES),
            superseded: counter(&table::SUPERSEDED_BYTES),
            now: Mutex::new(Now {
                handles: gauges(&table::OPEN_HANDLES),
                dirty_files: gauge(&table::DIRTY_FILES),
                staged: gauge(&table::STAGED_BYTES),
                streams: gauge(&table::UPLOAD_STREAMS),
                inodes: gauge(&table::INODES),
                memory_used: gauge(&table::MEMORY_USED),
                memory_peak: gauge(&table::MEMORY_PEAK),
                memory_limit: gauge(&table::MEMORY_LIMIT),
                exchanges: counters(&table::EXCHANGES),
                token_life: real(&table::TOKEN_LIFE),
                token_waiters: gauge(&table::TOKEN_WAITERS),
                exchange_time: real(&table::EXCHANGE_TIME),
            }),
            registry,
        }
    }
}

/// What a volume's figures are asked of.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Its file system.
    pub fs: Arc<Fs>,
    /// The memory that it shares.
    pub budget: Budget,
    /// What keeps its tokens.
    pub broker: Option<Broker>,
}

impl Meter {
    /// Everything, in the text format of Prometheus, version 0.0.4.
    #[must_use]
    pub fn exposition(&self, sources: &Sources) -> String {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.files(&sources.fs.figures());
        now.memory(&sources.budget);
        if let Some(broker) = &sources.broker {
            now.tokens(&broker.status());
        }
        let mut text = String::new();
        let written = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text);
        written.expect("a string takes everything");
        text
    }
}

/// A count as the gauges take it.
fn whole(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

impl Now {
    fn files(&self, figures: &Figures) {
        let handles = [
            ("file", figures.file_handles),
            ("directory", figures.directory_handles),
        ];
        for (kind, count) in handles {
            self.handles.with_label_values(&[kind]).set(whole(count));
        }
        self.dirty_files.set(whole(figures.dirty_files));
        self.staged.set(whole(figures.staged_bytes));
        self.streams.set(whole(figures.streams));
        self.inodes.set(whole(figures.inodes));
    }

    fn memory(&self, budget: &Budget) {
        self.memory_used.set(whole(budget.used()));
        self.memory_peak.set(whole(budget.peak()));
        self.memory_limit.set(whole(budget.limit()));
    }

    fn tokens(&self, status: &Status) {
        let exchanges = [
            ("granted", status.exchanges_granted),
            ("failed", status.exchanges_failed),
        ];
        for (result, count) in exchanges {
            // The broker counts; this is its count.
            let counter = self.exchanges.with_label_values(&[result]);
            counter.reset();
            counter.inc_by(count);
        }
        let seconds = |time: Option<Duration>| time.map_or(0.0, |time| time.as_secs_f64());
        self.token_life.set(seconds(status.expires_in));
        self.token_waiters.set(whole(status.waiters));
        self.exchange_time.set(seconds(status.last_exchange_took));
    }
}

impl gcsmount_fuse::Observer for Meter {
    fn answered(&self, request: &Answered) {
        let (count, latency) = &self.operations[request.operation as usize];
        count.inc();
        latency.observe(request.took.as_secs_f64() * 1e6);
        match request.operation {
            Operation::ReadFile => self.read.inc_by(request.bytes),
            Operation::WriteFile => self.written.inc_by(request.bytes),
            _ => {}
        }
        if let Some(errno) = request.errno {
            let labels = &[request.operation.name(), words::category(errno)];
            self.operation_errors.with_label_values(labels).inc();
        }
    }

    fn superseded(&self, bytes: u64) {
        self.superseded.inc_by(bytes);
    }
}

impl json::Observer for Meter {
    fn attempted(&self, attempt: &Attempt) {
        let method = &[words::method(attempt.operation)];
        self.requests.with_label_values(method).inc();
        let milliseconds = attempt.took.as_secs_f64() * 1e3;
        self.request_latency
            .with_label_values(method)
            .observe(milliseconds);
        let outcome = words::outcome(attempt.outcome);
        self.outcomes.with_label_values(&[outcome.as_str()]).inc();
    }

    fn repeating(&self, repetition: &Repetition) {
        if let Some(category) = words::retried(repetition.reason) {
            self.retries.with_label_values(&[category]).inc();
        }
    }

    fn sent(&self, bytes: u64) {
        self.uploaded.inc_by(bytes);
    }

    fn received(&self, bytes: u64) {
        self.downloaded.inc_by(bytes);
    }
}
