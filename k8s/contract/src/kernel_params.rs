//! `kernel-params.json`: what a file system without privilege asks the driver to tune on the node. The driver looks
//! every few seconds and applies what it knows and finds safe, so the file must be replaced in one step.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::{Error, Kind};

/// The longest file that is read, in bytes.
pub const MAX_FILE: usize = 64 << 10;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// `max-read-ahead-kb`: the readahead of the mount, KiB.
    MaxReadAheadKb,
    /// `fuse-max-background-requests`: requests that the kernel sends ahead of their use.
    MaxBackgroundRequests,
    /// `fuse-congestion-window-threshold`: how many of those make the mount congested.
    CongestionWindowThreshold,
}

impl Name {
    const ALL: [Self; 3] = [
        Self::MaxReadAheadKb,
        Self::MaxBackgroundRequests,
        Self::CongestionWindowThreshold,
    ];

    /// As the file has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxReadAheadKb => "max-read-ahead-kb",
            Self::MaxBackgroundRequests => "fuse-max-background-requests",
            Self::CongestionWindowThreshold => "fuse-congestion-window-threshold",
        }
    }

    /// The values that the driver applies.
    #[must_use]
    pub fn range(self) -> RangeInclusive<u32> {
        match self {
            Self::MaxReadAheadKb => 0..=1_048_576,
            Self::MaxBackgroundRequests => 1..=1000,
            Self::CongestionWindowThreshold => 0..=1000,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One request, within the range that the driver accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    name: Name,
    value: u32,
}

impl Parameter {
    /// `name` at `value`.
    ///
    /// # Errors
    /// The driver would ignore the value.
    pub fn new(name: Name, value: u32) -> Result<Self, Error> {
        let range = name.range();
        if range.contains(&value) {
            return Ok(Self { name, value });
        }
        Err(Error::new(
            Kind::Malformed,
            format!(
                "kernel parameter {name} is {value}, and the node driver applies {} to {}",
                range.start(),
                range.end()
            ),
        ))
    }

    /// What is asked for.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// In the unit of the name.
    #[must_use]
    pub fn value(&self) -> u32 {
        self.value
    }
}

/// The file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelParams {
    /// Which request this is, for the driver's log.
    pub request_id: String,
    /// When it was made, RFC 3339.
    pub timestamp: String,
    /// What is asked for.
    pub parameters: Vec<Parameter>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    #[serde(default)]
    request_id: String,
    #[serde(default)]
    timestamp: String,
    parameters: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    name: String,
    value: String,
}

/// The content of the file.
#[must_use]
pub fn write(params: &KernelParams) -> String {
    let entry = |parameter: &Parameter| Entry {
        name: parameter.name.to_string(),
        value: parameter.value.to_string(),
    };
    let content = Content {
        request_id: params.request_id.clone(),
        timestamp: params.timestamp.clone(),
        parameters: params.parameters.iter().map(entry).collect(),
    };
    serde_json::to_string(&content).expect("text and lists of text always are JSON")
}

/// Reads the content of the file as the driver does: what it does not know or finds unsafe is passed over.
///
/// # Errors
/// [`Kind::TooLong`] beyond [`MAX_FILE`], [`Kind::Malformed`] if the bytes are not such a file at all.
pub fn read(bytes: &[u8]) -> Result<KernelParams, Error> {
    if bytes.len() > MAX_FILE {
        return Err(Error::new(
            Kind::TooLong,
            format!(
                "kernel-params.json has {} bytes, and {MAX_FILE} is the most",
                bytes.len()
            ),
        ));
    }
    let content: Content = serde_json::from_slice(bytes).map_err(|error| {
        Error::new(
            Kind::Malformed,
            format!(
                "kernel-params.json is not a list of parameters: {:?} error of JSON in line {}, column {}",
                error.classify(),
                error.line(),
                error.column()
            ),
        )
    })?;
    Ok(KernelParams {
        request_id: content.request_id,
        timestamp: content.timestamp,
        parameters: content.parameters.iter().filter_map(applied).collect(),
    })
}

fn applied(entry: &Entry) -> Option<Parameter> {
    let name = Name::ALL
        .into_iter()
        .find(|name| name.as_str() == entry.name)?;
    Parameter::new(name, entry.value.trim().parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn params() -> KernelParams {
        let parameter = |name, value| Parameter::new(name, value).unwrap();
        KernelParams {
            request_id: "10c8148f".into(),
            timestamp: "2026-01-12T16:23:05.636831Z".into(),
            parameters: vec![
                parameter(Name::MaxReadAheadKb, 16384),
                parameter(Name::CongestionWindowThreshold, 12),
                parameter(Name::MaxBackgroundRequests, 16),
            ],
        }
    }

    #[test]
    fn the_file_is_that_of_section_2_6_about_kernel_parameters() {
        let text = r#"{"request_id":"10c8148f","timestamp":"2026-01-12T16:23:05.636831Z","parameters":[{"name":"max-read-ahead-kb","value":"16384"},{"name":"fuse-congestion-window-threshold","value":"12"},{"name":"fuse-max-background-requests","value":"16"}]}"#;
        assert_eq!(write(&params()), text);
        assert_eq!(read(text.as_bytes()).unwrap(), params());
    }

    #[test]
    fn values_are_bounded_as_in_section_2_6() {
        for (name, value, fits) in [
            (Name::MaxReadAheadKb, 0, true),
            (Name::MaxReadAheadKb, 1_048_576, true),
            (Name::MaxReadAheadKb, 1_048_577, false),
            (Name::MaxBackgroundRequests, 0, false),
            (Name::MaxBackgroundRequests, 1, true),
            (Name::MaxBackgroundRequests, 1000, true),
            (Name::MaxBackgroundRequests, 1001, false),
            (Name::CongestionWindowThreshold, 0, true),
            (Name::CongestionWindowThreshold, 1000, true),
            (Name::CongestionWindowThreshold, 1001, false),
        ] {
            let made = Parameter::new(name, value);
            assert_eq!(made.is_ok(), fits, "{name} {value}");
            if let Err(error) = made {
                assert!(error.to_string().contains(name.as_str()), "{error}");
            }
        }
    }

    #[test]
    fn parameters_that_the_driver_passes_over_are_passed_over() {
        let text = r#"{"later":1,"parameters":[
            {"name":"transparent-hugepages","value":"always"},
            {"name":"max-read-ahead-kb","value":"-1"},
            {"name":"fuse-max-background-requests","value":"many"},
            {"name":"fuse-congestion-window-threshold","value":" 7\n"}]}"#;
        let read = read(text.as_bytes()).unwrap();
        let seven = Parameter::new(Name::CongestionWindowThreshold, 7).unwrap();
        assert_eq!(read.parameters, [seven]);
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"parameters":[{"name":"max-read-ahead-kb","value":1}]}"#,
        ] {
            assert_eq!(
                read(text.as_bytes()).unwrap_err().kind(),
                Kind::Malformed,
                "{text}"
            );
        }
        let long = " ".repeat(MAX_FILE + 1);
        assert_eq!(read(long.as_bytes()).unwrap_err().kind(), Kind::TooLong);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            request_id in ".{0,40}",
            timestamp in ".{0,40}",
            values in prop::collection::vec((prop::sample::select(&Name::ALL[..]), 1u32..=1000), 0..8),
        ) {
            let parameters = values
                .into_iter()
                .map(|(name, value)| Parameter::new(name, value).unwrap())
                .collect();
            let params = KernelParams { request_id, timestamp, parameters };
            prop_assert_eq!(read(write(&params).as_bytes()).unwrap(), params);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
