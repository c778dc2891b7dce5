//! The start of a stock gcsfuse, held against what section 3 of the sidecar mounter says.

use std::ffi::OsString;
use std::path::Path;

use gcsmount_k8s_contract::defaulting::Defaulting;
use gcsmount_k8s_contract::gcsfuse::{FUSE_FD, Launch, Start, launch};
use gcsmount_k8s_contract::layout::Base;
use gcsmount_k8s_contract::options::{Fault, Mistake, Options, Policy};
use proptest::prelude::*;
use serde_json::{Value, json};

fn options(options: &[&str]) -> Options {
    let options: Vec<_> = options.iter().copied().map(str::to_owned).collect();
    Options::parse(&options, Policy::default()).unwrap()
}

fn try_start(
    given: &[&str],
    defaulting: &Defaulting,
    token_socket: bool,
) -> Result<Launch, Mistake> {
    launch(Start {
        volume: &Base::default().volume("pv-1"),
        bucket: "bucket-a",
        options: &options(given),
        defaulting,
        prometheus_port: 62990,
        token_socket,
    })
}

fn start(given: &[&str]) -> Launch {
    try_start(given, &Defaulting::default(), false).unwrap()
}

fn config(launch: &Launch) -> Value {
    serde_json::from_str(&launch.config).unwrap()
}

#[test]
fn without_options_it_has_the_defaults_of_section_3() {
    let launch = start(&[]);
    assert_eq!(
        launch.args,
        [
            "--app-name=gke-gcs-fuse-csi",
            "--config-file=/gcsfuse-tmp/.volumes/pv-1/config.yaml",
            "--foreground=true",
            "--gid=0",
            "--prometheus-port=62990",
            "--temp-dir=/gcsfuse-buffer/.volumes/pv-1/temp-dir",
            "--uid=0",
            "bucket-a",
            "/dev/fd/3",
        ]
    );
    assert_eq!(FUSE_FD, 3);
    let expected =
        json!({"cache-dir": "", "logging": {"file-path": "/dev/fd/1", "format": "json"}});
    assert_eq!(config(&launch), expected);
    assert_eq!((launch.numa_node, launch.gomemlimit_ratio), (None, None));
}

#[test]
fn the_pods_flags_come_over_the_defaults() {
    let launch = start(&[
        "uid=100",
        "gid=200",
        "debug_gcs",
        "implicit-dirs=true",
        "only-dir=",
        "app-name=Vertex",
        "trace-exporters=stdout",
        "trace-exporters=gcpexporter",
        "disable-metrics-for-gke:true",
        "token-server-identity-provider=https://issuer",
        "ro",
    ]);
    assert_eq!(
        launch.args,
        [
            "--app-name=gke-gcs-fuse-csi-Vertex",
            "--config-file=/gcsfuse-tmp/.volumes/pv-1/config.yaml",
            "--debug_gcs=true",
            "--foreground=true",
            "--gid=200",
            "--implicit-dirs=true",
            "--only-dir=",
            "--prometheus-port=0",
            "--temp-dir=/gcsfuse-buffer/.volumes/pv-1/temp-dir",
            "--trace-exporters=stdout",
            "--trace-exporters=gcpexporter",
            "--uid=100",
            "bucket-a",
            "/dev/fd/3",
        ]
    );
}

#[test]
fn keys_are_nested_and_their_values_typed() {
    let launch = start(&[
        "logging:severity:error",
        "logging:log-rotate:max-file-size-mb:100",
        "logging:log-rotate:compress:T",
        "write:create-empty-file:false",
        "metadata-cache:ttl-secs:-1",
        "implicit-dirs:1",
        "file-cache:include-regex:^a b$",
        "metadata-cache:x:9223372036854775808",
    ]);
    let expected = json!({
        "cache-dir": "",
        "file-cache": {"include-regex": "^a b$"},
        "implicit-dirs": 1,
        "logging": {
            "file-path": "/dev/fd/1",
            "format": "json",
            "log-rotate": {"compress": true, "max-file-size-mb": 100},
            "severity": "error",
        },
        "metadata-cache": {"ttl-secs": -1, "x": "9223372036854775808"},
        "write": {"create-empty-file": false},
    });
    assert_eq!(config(&launch), expected);
}

#[test]
fn a_cache_is_where_the_driver_or_else_the_pod_wants_it() {
    for (given, dir) in [
        (&["file-cache:max-size-mb:0"][..], ""),
        (
            &["file-cache:max-size-mb:100"],
            "/gcsfuse-cache/.volumes/pv-1",
        ),
        (
            &["file-cache:max-size-mb:-1"],
            "/gcsfuse-cache/.volumes/pv-1",
        ),
        (
            &["file-cache-medium=ram", "file-cache:max-size-mb:0"],
            "/gcsfuse-file-cache-ram-disk/.volumes/pv-1",
        ),
        (
            &["file-cache-medium=lssd", "file-cache:max-size-mb:100"],
            "/gcsfuse-file-cache-ephemeral-disk/.volumes/pv-1",
        ),
    ] {
        assert_eq!(config(&start(given))["cache-dir"], dir, "{given:?}");
    }
}

#[test]
fn tokens_come_from_the_volumes_socket() {
    let launch = try_start(&["hnw-ksa=true"], &Defaulting::default(), true).unwrap();
    let expected = json!({"token-url": "unix:///gcsfuse-tmp/.volumes/pv-1/token.sock"});
    assert_eq!(config(&launch)["gcs-auth"], expected);
    assert_eq!(config(&start(&["hnw-ksa=true"])).get("gcs-auth"), None);
}

#[test]
fn kernel_parameters_are_asked_for_where_the_driver_reads_them() {
    let launch = start(&["enable-gcsfuse-kernel-params=true"]);
    assert_eq!(
        config(&launch)["file-system"]["kernel-params-file"],
        "/gcsfuse-tmp/.volumes/pv-1/kernel-params.json"
    );
}

#[test]
fn what_is_known_of_the_machine_fills_what_nobody_set() {
    let defaulting = Defaulting::parse("machine-type:a3-highgpu-8g\ndisable-autoconfig:false\n");
    let filled = config(&try_start(&[], &defaulting, false).unwrap());
    assert_eq!(filled["machine-type"], "a3-highgpu-8g");
    assert_eq!(filled["disable-autoconfig"], false);
    let set = try_start(&["disable-autoconfig:true"], &defaulting, false).unwrap();
    assert_eq!(config(&set)["disable-autoconfig"], true);
}

#[test]
fn profiles_carry_the_pod_and_never_the_nodes_identity() {
    let given = [
        "enable-cloud-profiler-for-sidecar=true",
        "pod-name=my-pod",
        "pod-uid=my-uid",
    ];
    let profiled = |launch: &Launch| {
        let [switch, label] = [
            "--enable-cloud-profiler=true",
            "--cloud-profiler-label=my-pod_my-uid",
        ]
        .map(|arg| launch.args.iter().any(|given| given == arg));
        assert_eq!(switch, label);
        switch
    };
    assert!(profiled(&start(&given)));
    assert!(!profiled(&start(
        &[&given[..], &["enable-cloud-profiler=false"]].concat()
    )));
    let with_socket = try_start(&given, &Defaulting::default(), true).unwrap();
    assert!(!profiled(&with_socket));
}

#[test]
fn no_flag_can_take_the_argument_behind_it_for_its_value() {
    let launch = start(&["cloud-profiler-service-name", "only-dir="]);
    let (flags, places) = launch.args.split_at(launch.args.len() - 2);
    assert!(
        flags
            .iter()
            .all(|flag| flag.starts_with("--") && flag.contains('='))
    );
    assert_eq!(places, ["bucket-a", "/dev/fd/3"]);
}

#[test]
fn a_bucket_that_could_be_a_flag_is_a_mistake() {
    for (bucket, starts) in [
        ("my-bucket_1.example.com", true),
        ("_", true),
        ("", false),
        ("--key-file=/x", false),
        ("-o", false),
        ("a b", false),
        ("a/b", false),
    ] {
        let launched = launch(Start {
            volume: &Base::default().volume("v"),
            bucket,
            options: &Options::default(),
            defaulting: &Defaulting::default(),
            prometheus_port: 0,
            token_socket: false,
        });
        assert_eq!(launched.is_ok(), starts, "{bucket}");
    }
}

#[test]
fn a_key_that_is_a_part_of_another_is_a_mistake() {
    for (given, option) in [
        (&["a:b:1", "a:b:c:1"][..], "a:b:c"),
        (&["logging:debug"], "logging:file-path"),
    ] {
        let mistake = try_start(given, &Defaulting::default(), false).unwrap_err();
        assert_eq!(mistake.option, option);
        assert!(matches!(mistake.fault, Fault::Malformed(_)));
    }
}

#[test]
fn memory_and_numa_node_are_as_the_driver_says() {
    let launch = start(&["enable-auto-gomemlimit=true", "gcs-fuse-numa-node=1"]);
    assert_eq!(launch.gomemlimit(1000), Some(950));
    let command = launch.command(Path::new("/gcsfuse"), true);
    let begin = ["numactl", "--cpunodebind=1", "--membind=1", "/gcsfuse"].map(OsString::from);
    assert_eq!(command[..4], begin);
    let plain = launch.command(Path::new("/gcsfuse"), false);
    assert_eq!(plain, command[3..]);
    assert_eq!(
        plain[1..],
        launch.args.iter().map(OsString::from).collect::<Vec<_>>()
    );
    let half = start(&["enable-auto-gomemlimit=true", "auto-gomemlimit-ratio=0.5"]);
    assert_eq!(half.gomemlimit(1000), Some(500));
    let off = start(&["auto-gomemlimit-ratio=0.5"]);
    assert_eq!(off.gomemlimit(1000), None);
}

proptest! {
    #[test]
    fn whatever_passes_as_options_starts_or_is_a_mistake(
        given in prop::collection::vec(
            "(a|b|logging|file-cache|cache-dir|gcs-auth)(:(a|b|format|max-size-mb)){0,9}[:=].{0,12}",
            0..12,
        ),
        token_socket: bool,
    ) {
        let Ok(options) = Options::parse(&given, Policy::default()) else {
            return Ok(());
        };
        let started = launch(Start {
            volume: &Base::default().volume("v"),
            bucket: "b",
            options: &options,
            defaulting: &Defaulting::default(),
            prometheus_port: 0,
            token_socket,
        });
        if let Ok(launch) = started {
            let config = config(&launch);
            prop_assert_eq!(config.get("gcs-auth").is_some(), token_socket);
            prop_assert_eq!(launch.args.last().map(String::as_str), Some("/dev/fd/3"));
        }
    }
}
