//! The file that asks the node driver to tune the kernel for a volume. The driver looks every few seconds and applies what
//! it finds, as long as the volume is mounted.

use gcsmount_k8s_contract::kernel_params::{self, KernelParams, Parameter};
use gcsmount_k8s_contract::layout::Volume;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::directory::{remove, replace};
use crate::mounter::Order;

/// As gcsfuse leaves it: the driver is root, and nobody else has to read it.
const MODE: u32 = 0o600;

/// Whether the driver reads the file for this volume. It does not where a mount is of every bucket.
pub(crate) fn is_asked(order: &Order) -> bool {
    order.options.internal.kernel_params == Some(true) && order.bucket != "_"
}

/// A wish that stands until this is dropped.
#[derive(Debug)]
pub(crate) struct Wish<'a>(&'a Volume);

impl<'a> Wish<'a> {
    /// Asks for `parameters`. A volume that cannot ask is served all the same, only slower.
    pub(crate) fn make(volume: &'a Volume, parameters: Vec<Parameter>) -> Self {
        let params = KernelParams {
            request_id: request_id(rand::random()),
            timestamp: timestamp(OffsetDateTime::now_utc()),
            parameters,
        };
        let (path, content) = (volume.kernel_params(), kernel_params::write(&params));
        match replace(&path, content.as_bytes(), MODE) {
            Ok(()) => tracing::info!(volume = volume.name, content, "asked the node to tune"),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "the node cannot be asked to tune");
            }
        }
        Self(volume)
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        clear(self.0);
    }
}

/// Takes back what was asked for, here or by whoever served the volume before: the driver would apply it to the mount that
/// is there now.
pub(crate) fn clear(volume: &Volume) {
    let path = volume.kernel_params();
    if let Err(error) = remove(&path) {
        let path = path.display();
        tracing::warn!(%path, %error, "what the node was asked to tune cannot be taken back");
    }
}

/// A random UUID (RFC 9562, version 4), as gcsfuse writes.
fn request_id(random: u128) -> String {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

fn timestamp(now: OffsetDateTime) -> String {
    // It fails for years that RFC 3339 cannot write, and the driver only logs it.
    now.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use gcsmount_k8s_contract::defaulting::Defaulting;
    use gcsmount_k8s_contract::kernel_params::Name;
    use gcsmount_k8s_contract::layout::Base;
    use gcsmount_k8s_contract::options::{Options, Policy};

    use super::*;

    fn order(bucket: &str, options: &[&str]) -> Order {
        let options: Vec<String> = options.iter().map(|&option| option.into()).collect();
        Order {
            volume: Base::default().volume("pv-1"),
            bucket: bucket.into(),
            options: Options::parse(&options, Policy::default()).unwrap(),
            defaulting: Defaulting::default(),
        }
    }

    #[test]
    fn it_is_asked_by_the_option_of_section_2_2_and_never_for_every_bucket() {
        for (bucket, options, want) in [
            ("b", &["enable-gcsfuse-kernel-params=true"][..], true),
            ("b", &["enable-gcsfuse-kernel-params=false"], false),
            ("b", &[], false),
            ("_", &["enable-gcsfuse-kernel-params=true"], false),
        ] {
            assert_eq!(
                is_asked(&order(bucket, options)),
                want,
                "{bucket} {options:?}"
            );
        }
    }

    #[test]
    fn a_wish_is_the_file_of_section_2_6_until_it_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let volume = Base(dir.path().into()).volume("pv-1");
        std::fs::create_dir(&volume.dir).unwrap();
        let parameters = vec![Parameter::new(Name::MaxReadAheadKb, 16384).unwrap()];
        let wish = Wish::make(&volume, parameters.clone());
        let path = volume.kernel_params();
        let content = std::fs::read_to_string(&path).unwrap();
        let end = r#","parameters":[{"name":"max-read-ahead-kb","value":"16384"}]}"#;
        assert!(content.starts_with(r#"{"request_id":""#), "{content}");
        assert!(content.ends_with(end), "{content}");
        let read = kernel_params::read(content.as_bytes()).unwrap();
        assert_eq!(read.parameters, parameters);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        drop(wish);
        assert_eq!(std::fs::read_dir(&volume.dir).unwrap().count(), 0);
    }

    #[test]
    fn number_and_time_are_written_as_gcsfuse_does() {
        assert_eq!(request_id(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(
            request_id(u128::MAX),
            "ffffffff-ffff-4fff-bfff-ffffffffffff"
        );
        let time = OffsetDateTime::from_unix_timestamp_nanos(1_770_171_965_622_211_445).unwrap();
        assert_eq!(timestamp(time), "2026-02-04T02:26:05.622211445Z");
    }
}
