//! What a pod's mount option may say, whoever wrote it.

use super::grammar::Spelled;
use super::{Fault, Policy};

pub(super) const PROVIDER: &str = "token-server-identity-provider";
pub(super) const POOL: &str = "token-server-identity-pool";
pub(super) const STORAGE_ENDPOINT: &str = "storage-endpoint-internal";

/// What the sidecar sets, in both spellings. The stock sidecar drops the flags with a line in its log and lets the
/// keys pass.
const RESERVED: [&str; 14] = [
    "log-file",
    "logging:file-path",
    "log-format",
    "logging:format",
    "cache-dir",
    "temp-dir",
    "file-system:temp-dir",
    "config-file",
    "foreground",
    "prometheus-port",
    "metrics:prometheus-port",
    "kernel-params-file",
    "file-system:kernel-params-file",
    "file-system:fuse-options",
];

/// What chooses a source of identity, here or in gcsfuse, and all that is nested below.
const SOURCES: [&str; 7] = [
    "gcs-auth",
    "key-file",
    "token-url",
    "reuse-token-from-url",
    "token-file",
    "metadata-server",
    "anonymous-access",
];

/// What mount(2) may have been given: the driver's own, and those that it takes from a pod.
const KERNEL: [&str; 13] = [
    "ro",
    "rw",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "sync",
    "async",
    "dirsync",
    "nodev",
    "nosuid",
    "allow_other",
    "default_permissions",
];

/// Words of the kernel that cannot both be meant.
pub(super) const OPPOSITES: [[&str; 2]; 4] = [
    ["ro", "rw"],
    ["exec", "noexec"],
    ["atime", "noatime"],
    ["sync", "async"],
];

/// The words that `option` has for the kernel, if it is one of those.
pub(super) fn kernel_words<'a>(option: &Spelled<'a>) -> Result<Option<Vec<&'a str>>, Fault> {
    if option.name == "o" {
        let words: Vec<_> = option.value.unwrap_or_default().split(',').collect();
        return match words.iter().all(|word| KERNEL.contains(word)) {
            true if !option.is_key => Ok(Some(words)),
            _ => Err(Fault::Reserved),
        };
    }
    let is_word = option.value.is_none() && KERNEL.contains(&option.name);
    Ok(is_word.then(|| vec![option.name]))
}

/// Whether an option may stand in a volume at all.
pub(super) fn judge(option: &Spelled<'_>, policy: Policy) -> Result<(), Fault> {
    let name = option.canonical();
    let is = |listed: &str| {
        let below = name.strip_prefix(listed);
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    };
    if SOURCES.into_iter().any(is) {
        return Err(Fault::Identity);
    }
    if RESERVED.into_iter().any(is) {
        return Err(Fault::Reserved);
    }
    let value = option.value.unwrap_or_default();
    if is_endpoint(&name) && !policy.allow_endpoints && !has_tls(&name, value) {
        return Err(Fault::Endpoint);
    }
    Ok(())
}

/// By the ending of the name, so that an endpoint that is added one day is judged too.
fn is_endpoint(name: &str) -> bool {
    name.ends_with("endpoint") || name == STORAGE_ENDPOINT
}

/// `HOST:443` is TLS where the driver says it; elsewhere this program takes a bare host and port for plain HTTP.
fn has_tls(name: &str, value: &str) -> bool {
    let scheme = "https://";
    let https = value
        .get(..scheme.len())
        .is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
    let is_host = |host: &str| {
        !host.is_empty()
            && host
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
    };
    https || name == STORAGE_ENDPOINT && value.strip_suffix(":443").is_some_and(is_host)
}

/// Whether several values of `option` are a list and no contradiction.
pub(super) fn is_list(option: &Spelled<'_>) -> bool {
    !option.is_key && option.name == "trace-exporters"
}
