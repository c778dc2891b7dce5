//! The options that ride in the same list from the driver to the sidecar, typed.

use super::grammar::{Spelled, parse_bool};
use super::{Fault, rules};

/// What the driver tells the sidecar; anybody may have written it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Internal {
    /// `hnw-ksa`: the volume opted in to the pod's own identity on the host's network.
    pub host_network_ksa: Option<bool>,
    /// `token-server-identity-provider`: the audience's provider.
    pub identity_provider: Option<String>,
    /// `token-server-identity-pool`: the audience's pool.
    pub identity_pool: Option<String>,
    /// `enable-sidecar-bucket-access-check`: look whether the bucket can be reached before it is served.
    pub bucket_access_check: Option<bool>,
    /// `pod-namespace`.
    pub pod_namespace: Option<String>,
    /// `service-account-name`: the pod's Kubernetes service account.
    pub service_account_name: Option<String>,
    /// `pod-name`.
    pub pod_name: Option<String>,
    /// `pod-uid`.
    pub pod_uid: Option<String>,
    /// `enable-cloud-profiler-for-sidecar`.
    pub cloud_profiler: Option<bool>,
    /// `file-cache-medium`: where the driver wants the file cache.
    pub file_cache_medium: Option<Medium>,
    /// `gcs-fuse-numa-node`: the node of the network card that the driver chose; a negative one is none.
    pub numa_node: Option<u32>,
    /// `enable-gcsfuse-kernel-params`: the driver reads [`crate::kernel_params`].
    pub kernel_params: Option<bool>,
    /// `enable-auto-gomemlimit`: keep a stock gcsfuse below the cgroup's limit.
    pub auto_gomemlimit: Option<bool>,
    /// `auto-gomemlimit-ratio`: how far below, more than 0 and at most 1.
    pub auto_gomemlimit_ratio: Option<f64>,
    /// `storage-endpoint-internal`: `HOST:443` of the driver's universe.
    pub storage_endpoint: Option<String>,
    /// `disable-metrics-for-gke`: the driver collects no metrics of this volume.
    pub disable_metrics: Option<bool>,
}

/// Where a file cache may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// `ram`.
    Ram,
    /// `lssd`: a local solid-state disk.
    LocalSsd,
}

impl Internal {
    /// Takes `option` if it is one of these; says whether it was.
    pub(super) fn take(&mut self, option: &Spelled<'_>) -> Result<bool, Fault> {
        let value = option.value.unwrap_or_default();
        match option.canonical().as_str() {
            "hnw-ksa" => self.host_network_ksa = switch(value)?,
            rules::PROVIDER => self.identity_provider = text(value)?,
            rules::POOL => self.identity_pool = text(value)?,
            "enable-sidecar-bucket-access-check" => self.bucket_access_check = switch(value)?,
            "pod-namespace" => self.pod_namespace = text(value)?,
            "service-account-name" => self.service_account_name = text(value)?,
            "pod-name" => self.pod_name = text(value)?,
            "pod-uid" => self.pod_uid = text(value)?,
            "enable-cloud-profiler-for-sidecar" => self.cloud_profiler = switch(value)?,
            "file-cache-medium" => self.file_cache_medium = medium(value)?,
            "gcs-fuse-numa-node" => self.numa_node = numa_node(value)?,
            "enable-gcsfuse-kernel-params" => self.kernel_params = switch(value)?,
            "enable-auto-gomemlimit" => self.auto_gomemlimit = switch(value)?,
            "auto-gomemlimit-ratio" => self.auto_gomemlimit_ratio = ratio(value)?,
            rules::STORAGE_ENDPOINT => self.storage_endpoint = text(value)?,
            "disable-metrics-for-gke" => self.disable_metrics = switch(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn switch(value: &str) -> Result<Option<bool>, Fault> {
    match parse_bool(value) {
        None => Err(Fault::Malformed("true or false")),
        value => Ok(value),
    }
}

fn text(value: &str) -> Result<Option<String>, Fault> {
    match value {
        "" => Err(Fault::Malformed("some text behind =")),
        _ => Ok(Some(value.to_owned())),
    }
}

fn medium(value: &str) -> Result<Option<Medium>, Fault> {
    match value {
        "ram" => Ok(Some(Medium::Ram)),
        "lssd" => Ok(Some(Medium::LocalSsd)),
        _ => Err(Fault::Malformed("ram or lssd")),
    }
}

fn numa_node(value: &str) -> Result<Option<u32>, Fault> {
    let number: i32 = value
        .parse()
        .map_err(|_| Fault::Malformed("the number of a NUMA node"))?;
    Ok(u32::try_from(number).ok())
}

fn ratio(value: &str) -> Result<Option<f64>, Fault> {
    match value.parse::<f64>() {
        Ok(ratio) if ratio > 0.0 && ratio <= 1.0 => Ok(Some(ratio)),
        _ => Err(Fault::Malformed("a number above 0 and up to 1")),
    }
}
