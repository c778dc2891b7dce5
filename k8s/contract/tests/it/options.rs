//! Mount options as a volume has them, sorted and judged.

use gcsmount_k8s_contract::options::{Fault, Internal, Medium, Mistake, Options, Policy};
use proptest::prelude::*;

fn parse(options: &[&str]) -> Result<Options, Vec<Mistake>> {
    parse_by(Policy::default(), options)
}

fn parse_by(policy: Policy, options: &[&str]) -> Result<Options, Vec<Mistake>> {
    let options: Vec<_> = options.iter().copied().map(str::to_owned).collect();
    Options::parse(&options, policy)
}

fn mistakes(options: &[&str]) -> Vec<(String, Fault)> {
    let found = parse(options).expect_err("a mistake");
    found.into_iter().map(|m| (m.option, m.fault)).collect()
}

#[test]
fn options_are_sorted_by_whom_they_are_for() {
    let options = parse(&[
        "implicit-dirs",
        "uid=1000",
        "only-dir=",
        "logging:severity:error",
        "File-Cache:max-size-MB:-1",
        "o=noexec,noatime",
        "ro",
        "hnw-ksa=true",
        "trace-exporters=stdout",
        "trace-exporters=gcpexporter",
    ])
    .unwrap();
    let flags: Vec<_> = options
        .flags
        .iter()
        .map(|(k, v)| (k.as_str(), v.clone()))
        .collect();
    let one = |value: &str| vec![Some(value.to_owned())];
    let both = [one("stdout"), one("gcpexporter")].concat();
    assert_eq!(
        flags,
        [
            ("implicit-dirs", vec![None]),
            ("only-dir", one("")),
            ("trace-exporters", both),
            ("uid", one("1000")),
        ]
    );
    let config: Vec<_> = options
        .config
        .iter()
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    assert_eq!(
        config,
        [
            ("file-cache:max-size-mb", "-1"),
            ("logging:severity", "error")
        ]
    );
    assert_eq!(options.kernel, ["noexec", "noatime", "ro"]);
    assert_eq!(options.internal.host_network_ksa, Some(true));
}

#[test]
fn the_internal_options_of_section_2_2_of_the_volume_context_are_typed() {
    let options = parse(&[
        "hnw-ksa=true",
        "token-server-identity-provider=https://container.googleapis.com/v1/projects/p/locations/l/clusters/c",
        "token-server-identity-pool=p.svc.id.goog",
        "enable-sidecar-bucket-access-check=F",
        "pod-namespace=ns",
        "service-account-name=ksa",
        "pod-name=pod-1",
        "pod-uid=0b1c",
        "enable-cloud-profiler-for-sidecar=1",
        "file-cache-medium=lssd",
        "gcs-fuse-numa-node=2",
        "enable-gcsfuse-kernel-params=true",
        "enable-auto-gomemlimit=TRUE",
        "auto-gomemlimit-ratio=0.95",
        "storage-endpoint-internal=storage.googleapis.com:443",
        "disable-metrics-for-gke:true",
    ])
    .unwrap();
    let text = |text: &str| Some(text.to_owned());
    let expected = Internal {
        host_network_ksa: Some(true),
        identity_provider: text(
            "https://container.googleapis.com/v1/projects/p/locations/l/clusters/c",
        ),
        identity_pool: text("p.svc.id.goog"),
        bucket_access_check: Some(false),
        pod_namespace: text("ns"),
        service_account_name: text("ksa"),
        pod_name: text("pod-1"),
        pod_uid: text("0b1c"),
        cloud_profiler: Some(true),
        file_cache_medium: Some(Medium::LocalSsd),
        numa_node: Some(2),
        kernel_params: Some(true),
        auto_gomemlimit: Some(true),
        auto_gomemlimit_ratio: Some(0.95),
        storage_endpoint: text("storage.googleapis.com:443"),
        disable_metrics: Some(true),
    };
    assert_eq!(options.internal, expected);
    assert!(options.flags.is_empty() && options.config.is_empty());
}

#[test]
fn a_value_that_an_internal_option_cannot_have_is_a_mistake() {
    for option in [
        "hnw-ksa=yes",
        "hnw-ksa",
        "pod-name=",
        "file-cache-medium=tape",
        "gcs-fuse-numa-node=excitement",
        "auto-gomemlimit-ratio=0",
        "auto-gomemlimit-ratio=1.01",
        "auto-gomemlimit-ratio=NaN",
        "disable-metrics-for-gke:maybe",
    ] {
        let found = mistakes(&[option]);
        let name = option.split(['=', ':']).next().unwrap();
        assert!(
            matches!(&found[..], [(n, Fault::Malformed(_))] if n == name),
            "{option}: {found:?}"
        );
    }
    let none = parse(&["gcs-fuse-numa-node=-1"]).unwrap();
    assert_eq!(none.internal.numa_node, None);
}

#[test]
fn the_disallowed_options_of_section_3_are_refused_in_both_spellings() {
    for (option, name, fault) in [
        ("log-file=/x", "log-file", Fault::Reserved),
        ("logging:file-path:/x", "logging:file-path", Fault::Reserved),
        ("log-format=text", "log-format", Fault::Reserved),
        ("logging:format:text", "logging:format", Fault::Reserved),
        ("o=suid", "o", Fault::Reserved),
        ("o", "o", Fault::Reserved),
        ("o:ro", "o", Fault::Reserved),
        (
            "file-system:fuse-options:suid",
            "file-system:fuse-options",
            Fault::Reserved,
        ),
        ("cache-dir=/x", "cache-dir", Fault::Reserved),
        ("cache-dir:/x", "cache-dir", Fault::Reserved),
        ("temp-dir=/x", "temp-dir", Fault::Reserved),
        (
            "file-system:temp-dir:/x",
            "file-system:temp-dir",
            Fault::Reserved,
        ),
        ("config-file=/x", "config-file", Fault::Reserved),
        ("foreground", "foreground", Fault::Reserved),
        ("foreground=false", "foreground", Fault::Reserved),
        ("prometheus-port=1", "prometheus-port", Fault::Reserved),
        (
            "metrics:prometheus-port:1",
            "metrics:prometheus-port",
            Fault::Reserved,
        ),
        (
            "kernel-params-file=/x",
            "kernel-params-file",
            Fault::Reserved,
        ),
        (
            "file-system:kernel-params-file:/x",
            "file-system:kernel-params-file",
            Fault::Reserved,
        ),
        ("key-file=/x", "key-file", Fault::Identity),
        ("gcs-auth:key-file:/x", "gcs-auth:key-file", Fault::Identity),
        ("token-url=http://x", "token-url", Fault::Identity),
        (
            "gcs-auth:token-url:unix:///x",
            "gcs-auth:token-url:unix",
            Fault::Identity,
        ),
        (
            "reuse-token-from-url=false",
            "reuse-token-from-url",
            Fault::Identity,
        ),
        (
            "gcs-auth:reuse-token-from-url:false",
            "gcs-auth:reuse-token-from-url",
            Fault::Identity,
        ),
    ] {
        assert_eq!(mistakes(&[option]), [(name.to_owned(), fault)], "{option}");
    }
}

#[test]
fn no_spelling_of_a_source_of_identity_passes() {
    for option in [
        "token-file=/x",
        "Token_File=/x",
        "metadata-server=node",
        "anonymous-access",
        "anonymous_access=true",
        "gcs-auth:anonymous-access:true",
        "GCS-Auth:Key-File:/x",
        "gcs_auth:key_file:/x",
        "gcs-auth:{}",
        "gcs-auth:new-source:x",
        "key-file:/x",
        "key_file",
    ] {
        let found = mistakes(&[option]);
        assert!(
            matches!(found[..], [(_, Fault::Identity)]),
            "{option}: {found:?}"
        );
    }
    for option in [
        "--key-file=/x",
        "-token-url=x",
        "gcs-auth:token-url:https://x",
        "gcs-auth.key-file:/x",
        "gcs-auth.token-url=https://x",
    ] {
        let found = mistakes(&[option]);
        assert!(
            matches!(found[..], [(_, Fault::Malformed(_))]),
            "{option}: {found:?}"
        );
    }
}

#[test]
fn an_option_may_choose_an_audience_or_a_service_account() {
    let options = parse(&[
        "identity-pool=p.svc.id.goog",
        "identity-provider=https://issuer",
        "impersonate-service-account=a@p.iam.gserviceaccount.com",
        "access-boundary=bucket-a:ro",
    ])
    .unwrap();
    assert_eq!(options.flags.len(), 4);
}

#[test]
fn an_audience_given_twice_is_a_mistake_in_whichever_words() {
    for (flag, internal) in [
        ("identity-pool", "token-server-identity-pool"),
        ("identity-provider", "token-server-identity-provider"),
    ] {
        let [ours, same, other] =
            [[flag, "=x"], [internal, "=x"], [internal, "=y"]].map(|parts| parts.concat());
        assert!(parse(&[&ours, &same]).is_ok());
        assert_eq!(
            mistakes(&[&ours, &other]),
            [(flag.to_owned(), Fault::Conflict)]
        );
        assert_eq!(
            mistakes(&[&same, &other]),
            [(internal.to_owned(), Fault::Conflict)]
        );
    }
}

#[test]
fn an_endpoint_needs_tls_or_the_operators_leave() {
    let plain = [
        "custom-endpoint=http://127.0.0.1:9000",
        "custom-endpoint=storage.example:443",
        "custom-endpoint=",
        "custom-endpoint",
        "Custom_Endpoint=http://h",
        "gcs-connection:custom-endpoint:http://127.0.0.1:9000",
        "sts-endpoint=http://169.254.169.254",
        "iam-endpoint=http://h",
        "storage-endpoint-internal=h:8080",
        "storage-endpoint-internal=http://h:443",
        "storage-endpoint-internal=u@h:443",
        "experimental-otel-metrics-endpoint=localhost",
    ];
    let allowed = Policy {
        allow_endpoints: true,
    };
    for option in plain {
        let found = mistakes(&[option]);
        assert!(
            matches!(found[..], [(_, Fault::Endpoint)]),
            "{option}: {found:?}"
        );
        assert!(parse_by(allowed, &[option]).is_ok(), "{option}");
    }
    for option in [
        "custom-endpoint=https://storage.example",
        "custom-endpoint=HTTPS://storage.example",
        "gcs-connection:custom-endpoint:https://storage.example",
        "sts-endpoint=https://sts.example",
        "storage-endpoint-internal=storage.example:443",
    ] {
        assert!(parse(&[option]).is_ok(), "{option}");
    }
    let source = parse_by(allowed, &["token-url=https://x"]).unwrap_err();
    assert_eq!(source[0].fault, Fault::Identity);
}

#[test]
fn values_that_differ_are_a_mistake_and_the_same_twice_is_none() {
    for options in [
        ["uid=1", "uid=2"],
        ["implicit-dirs", "implicit-dirs=false"],
        ["only-dir=", "only-dir=a"],
        ["debug_gcs", "debug-gcs=false"],
        ["logging:severity:error", "logging:severity:info"],
        ["logging:severity:error", "Logging:Severity:info"],
        ["hnw-ksa=true", "hnw-ksa=false"],
        [
            "disable-metrics-for-gke:true",
            "disable-metrics-for-gke:false",
        ],
        ["ro", "rw"],
        ["o=exec", "o=noexec"],
    ] {
        let found = mistakes(&options);
        assert!(
            matches!(found[..], [(_, Fault::Conflict)]),
            "{options:?}: {found:?}"
        );
    }
    let same = parse(&[
        "uid=1",
        "implicit-dirs",
        "ro",
        "uid=1",
        "implicit-dirs=true",
        "o=ro",
    ]);
    let same = same.unwrap();
    assert_eq!(same.flags["uid"], [Some("1".to_owned())]);
    assert_eq!(same.flags["implicit-dirs"], [None]);
    assert_eq!(same.kernel, ["ro"]);
}

#[test]
fn every_mistake_is_told_in_a_sentence_without_the_value() {
    let found = parse(&[
        "key-file=/secret",
        "foreground",
        "custom-endpoint=http://secret",
        "hnw-ksa=secret",
        "uid=1",
        "uid=secret",
    ])
    .unwrap_err();
    let sentences: Vec<_> = found.iter().map(ToString::to_string).collect();
    let expected = [
        ("key-file", "identity"),
        ("foreground", "remove it"),
        ("custom-endpoint", "https://"),
        ("hnw-ksa", "expected true or false"),
        ("uid", "twice"),
    ];
    assert_eq!(sentences.len(), expected.len());
    for (sentence, (name, word)) in sentences.iter().zip(expected) {
        assert!(
            sentence.starts_with(&format!("mount option {name} ")),
            "{sentence}"
        );
        assert!(sentence.contains(word), "{sentence}");
        assert!(!sentence.contains("secret"), "{sentence}");
    }
}

proptest! {
    #[test]
    fn no_options_make_it_panic_and_each_is_kept_once_at_most(
        options in prop::collection::vec(
            "(gcs-auth|logging|o|uid|ro|hnw-ksa|[a-z_-]{1,8})?[:=]?.{0,12}([:=].{0,8})?",
            0..20,
        ),
    ) {
        if let Ok(sorted) = Options::parse(&options, Policy::default()) {
            let flags: usize = sorted.flags.values().map(Vec::len).sum();
            let words: usize = options.iter().map(|option| option.split(',').count()).sum();
            prop_assert!(flags + sorted.config.len() <= options.len());
            prop_assert!(sorted.kernel.len() <= words);
            prop_assert!(sorted.config.keys().all(|key| !key.to_lowercase().starts_with("gcs-auth")));
        }
    }
}
