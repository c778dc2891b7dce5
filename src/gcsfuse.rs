//! The names of gcsfuse's options, and what becomes of each here. Whoever moves to gcsmount brings a list of them along.
//!
//! Source: the parameter table of gcsfuse 3, with its flags and the paths of its configuration file.

/// What an option of gcsfuse comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The flag of ours that says the same.
    Flag(&'static str),
    /// Accepted, and without effect: it tunes a part of gcsfuse that has no counterpart, or turns on what is always on.
    NoEffect,
    /// Cannot be obeyed, and not to obey would change what is mounted; why.
    Refused(&'static str),
}

use Meaning::{Flag, NoEffect, Refused};

/// The meaning of a flag of gcsfuse, given as on its command line; `_` may stand for `-`. `None`: gcsfuse has none of that name.
#[must_use]
pub fn flag(name: &str) -> Option<Meaning> {
    let name = name.replace('_', "-");
    let found = OPTIONS
        .iter()
        .find(|(flag, ..)| flag.replace('_', "-") == name);
    found.map(|(.., meaning)| *meaning)
}

/// The meaning of a path in gcsfuse's configuration file, its parts joined by colons. `None`: there is none.
#[must_use]
pub fn config(path: &str) -> Option<Meaning> {
    let found = OPTIONS.iter().find(|(_, config, _)| *config == Some(path));
    found.map(|(.., meaning)| *meaning)
}

/// Flag, path in the configuration file, meaning.
const OPTIONS: &[(&str, Option<&str>, Meaning)] = &[
    (
        "enable-streaming-writes",
        Some("write:enable-streaming-writes"),
        NoEffect,
    ),
    ("write-block-size-mb", Some("write:block-size-mb"), NoEffect),
    (
        "write-max-blocks-per-file",
        Some("write:max-blocks-per-file"),
        NoEffect,
    ),
    (
        "write-global-max-blocks",
        Some("write:global-max-blocks"),
        NoEffect,
    ),
    (
        "create-empty-file",
        Some("write:create-empty-file"),
        NoEffect,
    ),
    (
        "enable-rapid-appends",
        Some("write:enable-rapid-appends"),
        NoEffect,
    ),
    (
        "enable-rapid-writes",
        Some("write:enable-rapid-writes"),
        NoEffect,
    ),
    (
        "finalize-file-for-rapid",
        Some("write:finalize-file-for-rapid"),
        NoEffect,
    ),
    (
        "enable-buffered-read",
        Some("read:enable-buffered-read"),
        NoEffect,
    ),
    ("read-block-size-mb", Some("read:block-size-mb"), NoEffect),
    (
        "read-global-max-blocks",
        Some("read:global-max-blocks"),
        NoEffect,
    ),
    (
        "read-max-blocks-per-handle",
        Some("read:max-blocks-per-handle"),
        NoEffect,
    ),
    (
        "read-min-blocks-per-handle",
        Some("read:min-blocks-per-handle"),
        NoEffect,
    ),
    (
        "read-start-blocks-per-handle",
        Some("read:start-blocks-per-handle"),
        NoEffect,
    ),
    (
        "read-random-seek-threshold",
        Some("read:random-seek-threshold"),
        NoEffect,
    ),
    (
        "read-inactive-stream-timeout",
        Some("read:inactive-stream-timeout"),
        NoEffect,
    ),
    (
        "enable-grpc-read-checksums",
        Some("read:enable-grpc-read-checksums"),
        NoEffect,
    ),
    ("mrd-pool-size", Some("mrd:pool-size"), NoEffect),
    (
        "sequential-read-size-mb",
        Some("gcs-connection:sequential-read-size-mb"),
        NoEffect,
    ),
    ("enable-new-reader", Some("enable-new-reader"), NoEffect),
    ("cache-dir", Some("cache-dir"), NoEffect),
    (
        "file-cache-max-size-mb",
        Some("file-cache:max-size-mb"),
        NoEffect,
    ),
    (
        "file-cache-cache-file-for-range-read",
        Some("file-cache:cache-file-for-range-read"),
        NoEffect,
    ),
    (
        "file-cache-enable-parallel-downloads",
        Some("file-cache:enable-parallel-downloads"),
        NoEffect,
    ),
    (
        "file-cache-parallel-downloads-per-file",
        Some("file-cache:parallel-downloads-per-file"),
        NoEffect,
    ),
    (
        "file-cache-max-parallel-downloads",
        Some("file-cache:max-parallel-downloads"),
        NoEffect,
    ),
    (
        "file-cache-download-chunk-size-mb",
        Some("file-cache:download-chunk-size-mb"),
        NoEffect,
    ),
    (
        "file-cache-write-buffer-size",
        Some("file-cache:write-buffer-size"),
        NoEffect,
    ),
    (
        "file-cache-enable-o-direct",
        Some("file-cache:enable-o-direct"),
        NoEffect,
    ),
    (
        "file-cache-enable-crc",
        Some("file-cache:enable-crc"),
        NoEffect,
    ),
    (
        "file-cache-include-regex",
        Some("file-cache:include-regex"),
        NoEffect,
    ),
    (
        "file-cache-exclude-regex",
        Some("file-cache:exclude-regex"),
        NoEffect,
    ),
    (
        "file-cache-experimental-parallel-downloads-default-on",
        Some("file-cache:experimental-parallel-downloads-default-on"),
        NoEffect,
    ),
    (
        "file-cache-experimental-enable-chunk-cache",
        Some("file-cache:experimental-enable-chunk-cache"),
        NoEffect,
    ),
    (
        "enable-experimental-shared-chunk-cache",
        Some("file-cache:enable-experimental-shared-chunk-cache"),
        NoEffect,
    ),
    (
        "file-cache-shared-cache-chunk-size-mb",
        Some("file-cache:shared-cache-chunk-size-mb"),
        NoEffect,
    ),
    (
        "file-cache-experimental-disable-size-calculation-fix",
        Some("file-cache:experimental-disable-size-calculation-fix"),
        NoEffect,
    ),
    (
        "metadata-cache-ttl-secs",
        Some("metadata-cache:ttl-secs"),
        Flag("metadata-cache-ttl"),
    ),
    (
        "metadata-cache-negative-ttl-secs",
        Some("metadata-cache:negative-ttl-secs"),
        NoEffect,
    ),
    (
        "stat-cache-max-size-mb",
        Some("metadata-cache:stat-cache-max-size-mb"),
        NoEffect,
    ),
    (
        "type-cache-max-size-mb",
        Some("metadata-cache:type-cache-max-size-mb"),
        NoEffect,
    ),
    (
        "enable-nonexistent-type-cache",
        Some("metadata-cache:enable-nonexistent-type-cache"),
        NoEffect,
    ),
    (
        "enable-metadata-prefetch",
        Some("metadata-cache:enable-metadata-prefetch"),
        NoEffect,
    ),
    (
        "metadata-prefetch-max-workers",
        Some("metadata-cache:metadata-prefetch-max-workers"),
        NoEffect,
    ),
    (
        "metadata-prefetch-entries-limit",
        Some("metadata-cache:metadata-prefetch-entries-limit"),
        NoEffect,
    ),
    (
        "experimental-metadata-prefetch-on-mount",
        Some("metadata-cache:experimental-metadata-prefetch-on-mount"),
        NoEffect,
    ),
    (
        "experimental-enable-optimized-metadata-cache",
        Some("metadata-cache:experimental-enable-optimized-metadata-cache"),
        NoEffect,
    ),
    (
        "stat-cache-capacity",
        Some("metadata-cache:deprecated-stat-cache-capacity"),
        NoEffect,
    ),
    (
        "stat-cache-ttl",
        Some("metadata-cache:deprecated-stat-cache-ttl"),
        NoEffect,
    ),
    (
        "type-cache-ttl",
        Some("metadata-cache:deprecated-type-cache-ttl"),
        NoEffect,
    ),
    (
        "enable-type-cache-deprecation",
        Some("enable-type-cache-deprecation"),
        NoEffect,
    ),
    (
        "enable-empty-managed-folders",
        Some("list:enable-empty-managed-folders"),
        NoEffect,
    ),
    ("implicit-dirs", Some("implicit-dirs"), NoEffect),
    (
        "o",
        Some("file-system:fuse-options"),
        Refused("mount options are given by themselves"),
    ),
    ("uid", Some("file-system:uid"), Flag("uid")),
    ("gid", Some("file-system:gid"), Flag("gid")),
    (
        "file-mode",
        Some("file-system:file-mode"),
        Flag("file-mode"),
    ),
    ("dir-mode", Some("file-system:dir-mode"), Flag("dir-mode")),
    ("temp-dir", Some("file-system:temp-dir"), Flag("temp-dir")),
    (
        "rename-dir-limit",
        Some("file-system:rename-dir-limit"),
        NoEffect,
    ),
    (
        "kernel-list-cache-ttl-secs",
        Some("file-system:kernel-list-cache-ttl-secs"),
        NoEffect,
    ),
    (
        "ignore-interrupts",
        Some("file-system:ignore-interrupts"),
        NoEffect,
    ),
    (
        "strong-consistency-on-open",
        Some("file-system:strong-consistency-on-open"),
        NoEffect,
    ),
    (
        "enable-kernel-reader",
        Some("file-system:enable-kernel-reader"),
        NoEffect,
    ),
    (
        "max-read-ahead-kb",
        Some("file-system:max-read-ahead-kb"),
        NoEffect,
    ),
    (
        "max-background",
        Some("file-system:max-background"),
        NoEffect,
    ),
    (
        "congestion-threshold",
        Some("file-system:congestion-threshold"),
        NoEffect,
    ),
    (
        "fuse-max-request-size-kb",
        Some("file-system:fuse-max-request-size-kb"),
        NoEffect,
    ),
    (
        "fuse-max-write-size-kb",
        Some("file-system:fuse-max-write-size-kb"),
        NoEffect,
    ),
    (
        "kernel-params-file",
        Some("file-system:kernel-params-file"),
        NoEffect,
    ),
    (
        "experimental-enable-dentry-cache",
        Some("file-system:experimental-enable-dentry-cache"),
        NoEffect,
    ),
    (
        "experimental-enable-readdirplus",
        Some("file-system:experimental-enable-readdirplus"),
        NoEffect,
    ),
    (
        "experimental-o-direct",
        Some("file-system:experimental-o-direct"),
        NoEffect,
    ),
    (
        "experimental-enable-pirlo",
        Some("file-system:experimental-enable-pirlo"),
        NoEffect,
    ),
    (
        "disable-parallel-dirops",
        Some("file-system:disable-parallel-dirops"),
        NoEffect,
    ),
    (
        "inactive-mrd-cache-size",
        Some("file-system:inactive-mrd-cache-size"),
        NoEffect,
    ),
    ("key-file", Some("gcs-auth:key-file"), Flag("key-file")),
    ("token-url", Some("gcs-auth:token-url"), Flag("token-url")),
    (
        "reuse-token-from-url",
        Some("gcs-auth:reuse-token-from-url"),
        Flag("reuse-token-from-url"),
    ),
    (
        "anonymous-access",
        Some("gcs-auth:anonymous-access"),
        Flag("anonymous-access"),
    ),
    (
        "enable-google-lib-auth",
        Some("enable-google-lib-auth"),
        NoEffect,
    ),
    (
        "billing-project",
        Some("gcs-connection:billing-project"),
        Flag("billing-project"),
    ),
    (
        "client-protocol",
        Some("gcs-connection:client-protocol"),
        Flag("client-protocol"),
    ),
    (
        "grpc-path-strategy",
        Some("gcs-connection:grpc-path-strategy"),
        NoEffect,
    ),
    (
        "experimental-grpc-conn-pool-size",
        Some("gcs-connection:grpc-conn-pool-size"),
        NoEffect,
    ),
    (
        "custom-endpoint",
        Some("gcs-connection:custom-endpoint"),
        Flag("custom-endpoint"),
    ),
    (
        "experimental-enable-json-read",
        Some("gcs-connection:experimental-enable-json-read"),
        NoEffect,
    ),
    (
        "max-conns-per-host",
        Some("gcs-connection:max-conns-per-host"),
        NoEffect,
    ),
    (
        "max-idle-conns-per-host",
        Some("gcs-connection:max-idle-conns-per-host"),
        NoEffect,
    ),
    (
        "http-client-timeout",
        Some("gcs-connection:http-client-timeout"),
        NoEffect,
    ),
    (
        "enable-http-dns-cache",
        Some("gcs-connection:enable-http-dns-cache"),
        NoEffect,
    ),
    (
        "limit-bytes-per-sec",
        Some("gcs-connection:limit-bytes-per-sec"),
        Flag("limit-bytes-per-sec"),
    ),
    (
        "limit-ops-per-sec",
        Some("gcs-connection:limit-ops-per-sec"),
        Flag("limit-ops-per-sec"),
    ),
    (
        "experimental-local-socket-address",
        Some("gcs-connection:experimental-local-socket-address"),
        NoEffect,
    ),
    (
        "max-retry-attempts",
        Some("gcs-retries:max-retry-attempts"),
        NoEffect,
    ),
    (
        "max-retry-sleep",
        Some("gcs-retries:max-retry-sleep"),
        NoEffect,
    ),
    ("retry-multiplier", Some("gcs-retries:multiplier"), NoEffect),
    (
        "chunk-transfer-timeout-secs",
        Some("gcs-retries:chunk-transfer-timeout-secs"),
        NoEffect,
    ),
    (
        "chunk-retry-deadline-secs",
        Some("gcs-retries:chunk-retry-deadline-secs"),
        NoEffect,
    ),
    (
        "enable-read-stall-retry",
        Some("gcs-retries:read-stall:enable"),
        NoEffect,
    ),
    (
        "read-stall-min-req-timeout",
        Some("gcs-retries:read-stall:min-req-timeout"),
        NoEffect,
    ),
    (
        "read-stall-max-req-timeout",
        Some("gcs-retries:read-stall:max-req-timeout"),
        NoEffect,
    ),
    (
        "read-stall-initial-req-timeout",
        Some("gcs-retries:read-stall:initial-req-timeout"),
        NoEffect,
    ),
    (
        "read-stall-req-target-percentile",
        Some("gcs-retries:read-stall:req-target-percentile"),
        NoEffect,
    ),
    (
        "read-stall-req-increase-rate",
        Some("gcs-retries:read-stall:req-increase-rate"),
        NoEffect,
    ),
    (
        "enable-mount-retries",
        Some("gcs-retries:enable-mount-retries"),
        NoEffect,
    ),
    ("log-file", Some("logging:file-path"), Flag("log-file")),
    ("log-format", Some("logging:format"), NoEffect),
    (
        "log-severity",
        Some("logging:severity"),
        Flag("log-severity"),
    ),
    (
        "log-rotate-max-file-size-mb",
        Some("logging:log-rotate:max-file-size-mb"),
        NoEffect,
    ),
    (
        "log-rotate-backup-file-count",
        Some("logging:log-rotate:backup-file-count"),
        NoEffect,
    ),
    (
        "log-rotate-compress",
        Some("logging:log-rotate:compress"),
        NoEffect,
    ),
    ("wire-log", Some("logging:wire-log"), NoEffect),
    (
        "experimental-enable-otel-logging",
        Some("logging:experimental-enable-otel-logging"),
        NoEffect,
    ),
    (
        "experimental-otel-logging-endpoint",
        Some("logging:experimental-otel-logging-endpoint"),
        NoEffect,
    ),
    (
        "experimental-otel-logging-project-id",
        Some("logging:experimental-otel-logging-project-id"),
        NoEffect,
    ),
    ("prometheus-port", Some("metrics:prometheus-port"), NoEffect),
    (
        "cloud-metrics-export-interval-secs",
        Some("metrics:cloud-metrics-export-interval-secs"),
        NoEffect,
    ),
    (
        "stackdriver-export-interval",
        Some("metrics:stackdriver-export-interval"),
        NoEffect,
    ),
    (
        "experimental-enable-otel-metrics",
        Some("metrics:experimental-enable-otel-metrics"),
        NoEffect,
    ),
    (
        "experimental-otel-metrics-endpoint",
        Some("metrics:experimental-otel-metrics-endpoint"),
        NoEffect,
    ),
    (
        "experimental-otel-metrics-project-id",
        Some("metrics:experimental-otel-metrics-project-id"),
        NoEffect,
    ),
    (
        "experimental-enable-grpc-metrics",
        Some("metrics:experimental-enable-grpc-metrics"),
        NoEffect,
    ),
    ("metrics-workers", Some("metrics:workers"), NoEffect),
    ("metrics-buffer-size", Some("metrics:buffer-size"), NoEffect),
    (
        "metrics-use-new-names",
        Some("metrics:use-new-names"),
        NoEffect,
    ),
    (
        "trace-sampling-ratio",
        Some("trace:sampling-ratio"),
        NoEffect,
    ),
    ("trace-exporters", Some("trace:exporters"), NoEffect),
    ("trace-project-id", Some("trace:project-id"), NoEffect),
    (
        "enable-cloud-profiler",
        Some("cloud-profiler:enabled"),
        NoEffect,
    ),
    ("cloud-profiler-cpu", Some("cloud-profiler:cpu"), NoEffect),
    ("cloud-profiler-heap", Some("cloud-profiler:heap"), NoEffect),
    (
        "cloud-profiler-allocated-heap",
        Some("cloud-profiler:allocated-heap"),
        NoEffect,
    ),
    (
        "cloud-profiler-goroutines",
        Some("cloud-profiler:goroutines"),
        NoEffect,
    ),
    (
        "cloud-profiler-mutex",
        Some("cloud-profiler:mutex"),
        NoEffect,
    ),
    (
        "cloud-profiler-label",
        Some("cloud-profiler:label"),
        NoEffect,
    ),
    (
        "cloud-profiler-service-name",
        Some("cloud-profiler:service-name"),
        NoEffect,
    ),
    (
        "debug_invariants",
        Some("debug:exit-on-invariant-violation"),
        NoEffect,
    ),
    ("debug_mutex", Some("debug:log-mutex"), NoEffect),
    ("debug_fuse", Some("debug:fuse"), NoEffect),
    ("debug_gcs", Some("debug:gcs"), NoEffect),
    ("debug_fs", None, NoEffect),
    ("debug_fuse_errors", None, NoEffect),
    ("debug_http", None, NoEffect),
    ("max-retry-duration", None, NoEffect),
    (
        "enable-dummy-io",
        Some("dummy-io:enable"),
        Refused("data is read and not made up"),
    ),
    (
        "dummy-io-reader-latency",
        Some("dummy-io:reader-latency"),
        NoEffect,
    ),
    (
        "dummy-io-per-mb-latency",
        Some("dummy-io:per-mb-latency"),
        NoEffect,
    ),
    (
        "visualize-workload-insight",
        Some("workload-insight:visualize"),
        NoEffect,
    ),
    (
        "workload-insight-output-file",
        Some("workload-insight:output-file"),
        NoEffect,
    ),
    (
        "workload-insight-forward-merge-threshold-mb",
        Some("workload-insight:forward-merge-threshold-mb"),
        NoEffect,
    ),
    ("foreground", Some("foreground"), Flag("foreground")),
    ("only-dir", Some("only-dir"), Flag("only-dir")),
    ("app-name", Some("app-name"), NoEffect),
    ("mount-id", Some("mount-id"), NoEffect),
    ("profile", Some("profile"), NoEffect),
    ("machine-type", Some("machine-type"), NoEffect),
    ("disable-autoconfig", Some("disable-autoconfig"), NoEffect),
    ("enable-hns", Some("enable-hns"), NoEffect),
    (
        "enable-atomic-rename-object",
        Some("enable-atomic-rename-object"),
        NoEffect,
    ),
    (
        "enable-standard-symlinks",
        Some("enable-standard-symlinks"),
        NoEffect,
    ),
    (
        "enable-unsupported-path-support",
        Some("enable-unsupported-path-support"),
        NoEffect,
    ),
    (
        "config-file",
        None,
        Refused("there is no configuration file"),
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::params::{Role, find};

    #[test]
    fn every_option_stands_once_and_means_a_flag_that_exists() {
        let mut flags = HashSet::new();
        let mut paths = HashSet::new();
        for (flag, path, meaning) in OPTIONS {
            assert!(flags.insert(flag), "{flag} stands twice");
            assert!(
                path.is_none_or(|path| paths.insert(path)),
                "{path:?} stands twice"
            );
            if let Flag(ours) = meaning {
                assert!(find(Role::Mount, ours).is_some(), "{ours}");
            }
        }
    }

    #[test]
    fn options_are_found_by_either_name() {
        for (found, want) in [
            (
                flag("metadata-cache-ttl-secs"),
                Some(Flag("metadata-cache-ttl")),
            ),
            (
                config("metadata-cache:ttl-secs"),
                Some(Flag("metadata-cache-ttl")),
            ),
            (config("file-system:gid"), Some(Flag("gid"))),
            (flag("implicit_dirs"), Some(NoEffect)),
            (flag("debug-gcs"), Some(NoEffect)),
            (config("gcs-retries:read-stall:enable"), Some(NoEffect)),
            (flag("no-such-flag"), None),
            (config("no:such"), None),
        ] {
            assert_eq!(found, want);
        }
        assert!(matches!(flag("enable-dummy-io"), Some(Refused(_))));
    }
}
