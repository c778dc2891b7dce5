//! How a stock gcsfuse is started on a descriptor that was handed over: its arguments and its configuration file, as
//! the stock sidecar has them. The pod's flags and keys come over its defaults, and over all of them what the sidecar
//! decides; what is known of the machine fills what nobody set.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde_json::{Map, Value};

use crate::defaulting::Defaulting;
use crate::layout::{CACHE_PATH, DISK_CACHE_PATH, RAM_CACHE_PATH, Volume};
use crate::options::{Fault, Medium, Mistake, Options, parse_bool};

/// The descriptor number that gcsfuse finds the FUSE device under.
pub const FUSE_FD: i32 = 3;
/// How the volumes are told apart in the logs of the storage service; a pod's own name comes behind a hyphen.
const APP_NAME: &str = "gke-gcs-fuse-csi";
/// The value of a switch that was given without one.
const SWITCHED_ON: &str = "true";
/// How much of the cgroup's limit gcsfuse may use, unless the driver says another ratio.
const GOMEMLIMIT_RATIO: f64 = 0.95;

/// What the start of a gcsfuse follows from.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// Its bucket, or `_`.
    pub bucket: &'a str,
    /// The pod's mount options.
    pub options: &'a Options,
    /// What the driver says of the machine.
    pub defaulting: &'a Defaulting,
    /// Where gcsfuse serves metrics, on every address of the machine; 0: nowhere. A pod on the host's network should
    /// have 0.
    pub prometheus_port: u16,
    /// Whether it asks for tokens at [`Volume::token_socket`].
    pub token_socket: bool,
}

/// A gcsfuse that can be started.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The arguments behind the program's name.
    pub args: Vec<String>,
    /// The content of [`Volume::config`], to be written with mode 0400.
    pub config: String,
    /// The NUMA node to start it on, where that is allowed.
    pub numa_node: Option<u32>,
    /// The part of the cgroup's memory that it may use, if the driver wants it kept below the limit.
    pub gomemlimit_ratio: Option<f64>,
}

/// Decides how gcsfuse is started.
///
/// # Errors
/// A bucket that gcsfuse could take for a flag, or two configuration keys of which one is a part of the other.
pub fn launch(start: Start<'_>) -> Result<Launch, Mistake> {
    if !is_bucket(start.bucket) {
        return Err(Mistake {
            option: "bucketName".to_owned(),
            fault: Fault::Malformed("the name of a bucket, or _ for all"),
        });
    }
    let internal = &start.options.internal;
    let auto = internal.auto_gomemlimit == Some(true);
    let ratio = internal.auto_gomemlimit_ratio.unwrap_or(GOMEMLIMIT_RATIO);
    Ok(Launch {
        args: args(start),
        config: config(start)?,
        numa_node: internal.numa_node,
        gomemlimit_ratio: auto.then_some(ratio),
    })
}

impl Launch {
    /// The whole command with gcsfuse at `program`; `numactl` says whether that program may be used here.
    #[must_use]
    pub fn command(&self, program: &Path, numactl: bool) -> Vec<OsString> {
        let mut command = Vec::new();
        if let Some(node) = self.numa_node.filter(|_| numactl) {
            command.push("numactl".into());
            command.push(format!("--cpunodebind={node}").into());
            command.push(format!("--membind={node}").into());
        }
        command.push(program.into());
        command.extend(self.args.iter().map(OsString::from));
        command
    }

    /// The value of `GOMEMLIMIT`, in bytes, below a cgroup with `limit` bytes.
    #[must_use]
    pub fn gomemlimit(&self, limit: u64) -> Option<u64> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a limit that is rounded by some bytes is as good, and the ratio is between 0 and 1"
        )]
        self.gomemlimit_ratio
            .map(|ratio| (limit as f64 * ratio) as u64)
    }
}

/// Wide enough for every bucket there is; who may name one is the store's business.
fn is_bucket(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Flags by name, then the bucket and where the descriptor is. Every flag carries its value behind `=`, which gcsfuse
/// reads like the bare form that a stock sidecar writes: a bare flag that is no switch would take the next argument for
/// its value, such as the configuration file with the source of tokens in it.
fn args(start: Start<'_>) -> Vec<String> {
    let mut args: Vec<_> = flags(start)
        .iter()
        .flat_map(|(name, values)| values.iter().map(move |value| format!("--{name}={value}")))
        .collect();
    args.push(start.bucket.to_owned());
    args.push(format!("/dev/fd/{FUSE_FD}"));
    args
}

fn flags(start: Start<'_>) -> BTreeMap<&str, Vec<String>> {
    let Start {
        volume, options, ..
    } = start;
    let port = match options.internal.disable_metrics {
        Some(true) => 0,
        _ => start.prometheus_port,
    };
    let mut flags = BTreeMap::from([
        ("app-name", vec![APP_NAME.to_owned()]),
        ("temp-dir", vec![path(&volume.temp_dir())]),
        ("config-file", vec![path(&volume.config())]),
        ("foreground", vec![SWITCHED_ON.to_owned()]),
        ("uid", vec!["0".to_owned()]),
        ("gid", vec!["0".to_owned()]),
        ("prometheus-port", vec![port.to_string()]),
    ]);
    for (name, values) in &options.flags {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| SWITCHED_ON.to_owned());
        flags.insert(name, values.iter().map(text).collect());
    }
    if let Some(names) = options.flags.get("app-name") {
        let named = |name: &Option<String>| format!("{APP_NAME}-{}", name.as_deref().unwrap_or(""));
        flags.insert("app-name", names.iter().map(named).collect());
    }
    if is_profiled(start) {
        let internal = &options.internal;
        let [pod, uid] =
            [&internal.pod_name, &internal.pod_uid].map(|part| part.as_deref().unwrap_or(""));
        flags.insert("enable-cloud-profiler", vec![SWITCHED_ON.to_owned()]);
        flags.insert("cloud-profiler-label", vec![format!("{pod}_{uid}")]);
    }
    flags
}

/// Whether the driver wants profiles and the pod does not refuse. gcsfuse sends them with default credentials; where
/// it must ask the token socket for its identity, those are the node's, which is nobody's choice.
fn is_profiled(start: Start<'_>) -> bool {
    let refused = start.options.flags.get("enable-cloud-profiler");
    let refused = refused.is_some_and(|values| {
        values
            .iter()
            .flatten()
            .any(|value| parse_bool(value) == Some(false))
    });
    start.options.internal.cloud_profiler == Some(true) && !refused && !start.token_socket
}

fn config(start: Start<'_>) -> Result<String, Mistake> {
    let mut root = Map::new();
    for (key, value) in settings(start) {
        nest(&mut root, &key, value).map_err(|fault| Mistake { option: key, fault })?;
    }
    // JSON is YAML.
    Ok(serde_json::to_string_pretty(&Value::Object(root)).expect("text and numbers are JSON"))
}

/// Keys and values, the later of two over the earlier.
fn settings(start: Start<'_>) -> BTreeMap<String, Value> {
    let Start {
        volume, options, ..
    } = start;
    let filling = start.defaulting.settings();
    let defaults = [
        ("logging:file-path", "/dev/fd/1".to_owned()),
        ("logging:format", "json".to_owned()),
        ("cache-dir", String::new()),
    ];
    let chosen = options.config.iter();
    let mut settings: BTreeMap<String, Value> = filling
        .chain(defaults)
        .map(|(key, value)| (key.to_owned(), typed(&value)))
        .chain(chosen.map(|(key, value)| (key.clone(), typed(value))))
        .collect();
    let mut set = |key: &str, value: String| settings.insert(key.to_owned(), value.into());
    if let Some(dir) = cache_dir(volume, options) {
        set("cache-dir", dir);
    }
    if options.internal.kernel_params == Some(true) {
        set(
            "file-system:kernel-params-file",
            path(&volume.kernel_params()),
        );
    }
    if start.token_socket {
        let url = format!("unix://{}", path(&volume.token_socket()));
        set("gcs-auth:token-url", url);
    }
    settings
}

/// Where file data is cached: a medium that the driver chose counts more than the pod's wish for a cache.
fn cache_dir(volume: &Volume, options: &Options) -> Option<String> {
    let size = options.config.get("file-cache:max-size-mb");
    let mount = match options.internal.file_cache_medium {
        Some(Medium::Ram) => RAM_CACHE_PATH,
        Some(Medium::LocalSsd) => DISK_CACHE_PATH,
        None if size.is_some_and(|size| size != "0") => CACHE_PATH,
        None => return None,
    };
    Some(path(&volume.below(mount)))
}

/// An integer, else a boolean, else text.
fn typed(value: &str) -> Value {
    if let Ok(number) = value.parse::<i64>() {
        return number.into();
    }
    parse_bool(value).map_or_else(|| value.into(), Value::Bool)
}

/// Puts `value` under `key`, one level for each part of it.
fn nest(root: &mut Map<String, Value>, key: &str, value: Value) -> Result<(), Fault> {
    let clash = Fault::Malformed("no key that is a part of another key");
    let (parents, last) = match key.rsplit_once(':') {
        Some((parents, last)) => (Some(parents), last),
        None => (None, key),
    };
    let mut level = root;
    for part in parents.iter().flat_map(|parents| parents.split(':')) {
        let next = level
            .entry(part)
            .or_insert_with(|| Value::Object(Map::new()));
        level = next.as_object_mut().ok_or_else(|| clash.clone())?;
    }
    match level.insert(last.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(clash),
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
