//! What a stock driver sends for a pod, whole, as sections 2.2 to 2.6 have it: from its bytes to sorted options.

use gcsmount_k8s_contract::handoff::{Form, MountMessage};
use gcsmount_k8s_contract::options::{Options, Policy};

/// The message whose bytes are `json`. It is read by its options here; `handoff` reads it from a socket.
fn message(bucket: &str, options: &[&str], json: &str) -> Options {
    let message = MountMessage {
        volume_name: None,
        bucket_name: bucket.into(),
        options: options.iter().map(|&option| option.into()).collect(),
    };
    let encoded = message.encode(Form::Stock).unwrap();
    assert_eq!(encoded, json.as_bytes());
    Options::parse(&message.options, Policy::default()).unwrap()
}

#[test]
fn a_volume_that_opted_in_on_the_hosts_network_as_section_2_4_has_it() {
    let options = message(
        "bucket-a",
        &[
            "hnw-ksa=true",
            "implicit-dirs",
            "token-server-identity-provider=https://container.googleapis.com/v1/projects/p/locations/l/clusters/c",
        ],
        r#"{"bucketName":"bucket-a","options":["hnw-ksa=true","implicit-dirs","token-server-identity-provider=https://container.googleapis.com/v1/projects/p/locations/l/clusters/c"]}"#,
    );
    assert_eq!(options.internal.host_network_ksa, Some(true));
    assert_eq!(
        options.internal.identity_provider.as_deref(),
        Some("https://container.googleapis.com/v1/projects/p/locations/l/clusters/c")
    );
    // It is turned on for the others only.
    assert_eq!(options.internal.bucket_access_check, None);
    assert!(options.flags.contains_key("implicit-dirs"));
}

#[test]
fn a_volume_that_did_not_opt_in_has_its_bucket_looked_at_as_section_2_4_has_it() {
    let options = message(
        "bucket-a",
        &["enable-sidecar-bucket-access-check=true"],
        r#"{"bucketName":"bucket-a","options":["enable-sidecar-bucket-access-check=true"]}"#,
    );
    assert_eq!(options.internal.bucket_access_check, Some(true));
    assert_eq!(options.internal.host_network_ksa, None);
    assert_eq!(options.internal.identity_provider, None);
}

#[test]
fn the_words_for_the_kernel_are_those_of_section_2_5() {
    let options = message(
        "bucket-a",
        &["o=noexec", "o=noatime", "o=sync", "o=dirsync", "ro"],
        r#"{"bucketName":"bucket-a","options":["o=noexec","o=noatime","o=sync","o=dirsync","ro"]}"#,
    );
    assert_eq!(
        options.kernel,
        ["noexec", "noatime", "sync", "dirsync", "ro"]
    );
    assert!(options.flags.is_empty() && options.config.is_empty());
}

#[test]
fn the_nodes_choice_of_card_and_the_wish_for_kernel_parameters_are_those_of_section_2_6() {
    let options = message(
        "bucket-a",
        &[
            "enable-gcsfuse-kernel-params=true",
            "experimental-local-socket-address=10.0.0.7",
            "gcs-fuse-numa-node=1",
        ],
        r#"{"bucketName":"bucket-a","options":["enable-gcsfuse-kernel-params=true","experimental-local-socket-address=10.0.0.7","gcs-fuse-numa-node=1"]}"#,
    );
    assert_eq!(options.internal.kernel_params, Some(true));
    assert_eq!(options.internal.numa_node, Some(1));
    let address = &options.flags["experimental-local-socket-address"];
    assert_eq!(address, &[Some("10.0.0.7".to_owned())]);
}
