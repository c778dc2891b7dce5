//! One immutable version of an object, and the attributes that a caller may set on it.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::Timestamp;
use crate::content::Content;
use crate::error::{ApiError, Kind};
use crate::hold::Holds;
use crate::name::{BucketName, ObjectName};
use crate::precondition::Version;

/// GCS takes at most 8 KiB of custom keys and values.
const CUSTOM_METADATA_LIMIT: usize = 8 * 1024;

/// A version of an object. Never changes; an update of its metadata makes another one with the same content.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) bucket: BucketName,
    pub(crate) name: ObjectName,
    pub(crate) generation: u64,
    pub(crate) metageneration: u64,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    /// When the retention period began: at its creation, or when an event-based hold was released.
    pub(crate) retained_from: Timestamp,
    pub(crate) content: Content,
    pub(crate) attributes: Attributes,
}

impl Object {
    pub(crate) fn size(&self) -> u64 {
        self.content.rope.len()
    }

    pub(crate) fn version(&self) -> Version {
        Version {
            generation: self.generation,
            metageneration: self.metageneration,
            md5: self.content.md5,
        }
    }

    pub(crate) fn crc32c(&self) -> String {
        BASE64.encode(self.content.crc32c.to_be_bytes())
    }

    pub(crate) fn md5(&self) -> Option<String> {
        self.content.md5.map(|md5| BASE64.encode(md5))
    }

    pub(crate) fn etag(&self) -> String {
        self.version().etag()
    }
}

/// The writable part of an object resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attributes {
    pub(crate) content_type: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) content_disposition: Option<String>,
    pub(crate) content_language: Option<String>,
    pub(crate) cache_control: Option<String>,
    pub(crate) storage_class: Option<String>,
    /// RFC 3339, as it was given.
    pub(crate) custom_time: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) holds: Holds,
}

impl Attributes {
    /// The attributes that a resource names; keys that are not the caller's to write are passed over.
    pub(crate) fn from_resource(resource: &Map<String, Value>) -> Result<Self, ApiError> {
        let mut attributes = Self::default();
        attributes.merge(resource)?;
        Ok(attributes)
    }

    /// RFC 7386 as `objects.patch` has it: what is named is set, `null` clears, `metadata` merges key by key.
    pub(crate) fn merge(&mut self, patch: &Map<String, Value>) -> Result<(), ApiError> {
        for (key, value) in patch {
            let Some(field) = self.field(key) else {
                continue;
            };
            *field = optional_text(key, value)?;
        }
        self.holds.merge(patch)?;
        match patch.get("metadata") {
            None => {}
            Some(Value::Null) => self.metadata.clear(),
            Some(Value::Object(entries)) => self.merge_metadata(entries)?,
            Some(_) => {
                return Err(ApiError::invalid(
                    "Invalid value for field metadata: an object is wanted",
                ));
            }
        }
        self.check()
    }

    fn field(&mut self, key: &str) -> Option<&mut Option<String>> {
        match key {
            "contentType" => Some(&mut self.content_type),
            "contentEncoding" => Some(&mut self.content_encoding),
            "contentDisposition" => Some(&mut self.content_disposition),
            "contentLanguage" => Some(&mut self.content_language),
            "cacheControl" => Some(&mut self.cache_control),
            "storageClass" => Some(&mut self.storage_class),
            "customTime" => Some(&mut self.custom_time),
            _ => None,
        }
    }

    fn merge_metadata(&mut self, entries: &Map<String, Value>) -> Result<(), ApiError> {
        for (key, value) in entries {
            match optional_text(key, value)? {
                Some(text) => self.metadata.insert(key.clone(), text),
                None => self.metadata.remove(key),
            };
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ApiError> {
        let size: usize = self
            .metadata
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if size > CUSTOM_METADATA_LIMIT {
            return Err(ApiError::invalid(
                "The total size of metadata is too large: at most 8 KiB",
            ));
        }
        if let Some(class) = &self.storage_class {
            check_class(class)?;
        }
        let custom_time = self.custom_time.as_deref();
        if custom_time.is_some_and(|text| OffsetDateTime::parse(text, &Rfc3339).is_err()) {
            return Err(ApiError::invalid(
                "Invalid value for customTime: RFC 3339 is wanted",
            ));
        }
        Ok(())
    }

    pub(crate) fn is_gzip(&self) -> bool {
        self.content_encoding.as_deref() == Some("gzip")
    }

    pub(crate) fn forbids_transform(&self) -> bool {
        let directives = self.cache_control.as_deref().unwrap_or_default();
        directives
            .split(',')
            .any(|directive| directive.trim() == "no-transform")
    }
}

/// Refuses what is no storage class. The last three are those of old, which are still taken.
pub(crate) fn check_class(class: &str) -> Result<(), ApiError> {
    let known = [
        "STANDARD",
        "NEARLINE",
        "COLDLINE",
        "ARCHIVE",
        "MULTI_REGIONAL",
        "REGIONAL",
        "DURABLE_REDUCED_AVAILABILITY",
    ];
    match known.contains(&class) {
        true => Ok(()),
        false => Err(ApiError::invalid("Invalid storage class")),
    }
}

/// Parses the JSON of a request as an object. An empty body is an empty object, and so is `null`, which Go's
/// library sends for a resource that is not given.
pub(crate) fn parse_resource(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(resource)) => Ok(resource),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) | Err(_) => Err(ApiError::new(Kind::Unparsable, "Parse Error")),
    }
}

/// A string that may be null. GCS takes numbers and booleans for strings, too.
fn optional_text(key: &str, value: &Value) -> Result<Option<String>, ApiError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Number(_) | Value::Bool(_) => Ok(Some(value.to_string())),
        Value::Array(_) | Value::Object(_) => Err(ApiError::invalid(format!(
            "Invalid value for field {key}: a string is wanted"
        ))),
    }
}

/// Seconds and milliseconds in UTC, as the JSON API prints times. Digit by digit: a page of a list has thousands of them.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let date = crate::clock::calendar(at);
    let mut text = String::with_capacity("1994-11-06T08:49:37.045Z".len());
    for (width, number, behind) in [
        (4, date.year().unsigned_abs(), '-'),
        (2, u32::from(u8::from(date.month())), '-'),
        (2, u32::from(date.day()), 'T'),
        (2, u32::from(date.hour()), ':'),
        (2, u32::from(date.minute()), ':'),
        (2, u32::from(date.second()), '.'),
        (3, u32::from(date.millisecond()), 'Z'),
    ] {
        let digits = (0..width).rev();
        let digits =
            digits.filter_map(|place| char::from_digit(number / 10_u32.pow(place) % 10, 10));
        text.extend(digits);
        text.push(behind);
    }
    text
}

/// Whole seconds in UTC, as Google's newer APIs print times.
pub(crate) fn rfc3339_seconds(at: Timestamp) -> String {
    const SECONDS: &[time::format_description::BorrowedFormatItem<'_>] =
        time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    format_date(at, SECONDS)
}

/// The date form of HTTP headers (RFC 9110 section 5.6.7).
pub(crate) fn http_date(at: Timestamp) -> String {
    const IMF: &[time::format_description::BorrowedFormatItem<'_>] = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    format_date(at, IMF)
}

fn format_date(at: Duration, form: &[time::format_description::BorrowedFormatItem<'_>]) -> String {
    let date = crate::clock::calendar(at);
    date.format(&form)
        .expect("a UTC date has every component that the forms name")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(start: &Value, patch: &Value) -> Result<Attributes, ApiError> {
        let mut attributes = Attributes::from_resource(start.as_object().unwrap())?;
        attributes.merge(patch.as_object().unwrap())?;
        Ok(attributes)
    }

    #[test]
    fn merge_sets_clears_and_keeps() {
        let start = json!({"contentType": "text/plain", "cacheControl": "no-store", "metadata": {"a": "1", "b": "2"}});
        let patch = json!({"contentType": null, "contentLanguage": "de", "metadata": {"a": null, "c": 3}, "size": "9"});
        let attributes = merged(&start, &patch).unwrap();
        assert_eq!(attributes.content_type, None);
        assert_eq!(attributes.cache_control.as_deref(), Some("no-store"));
        assert_eq!(attributes.content_language.as_deref(), Some("de"));
        let expected = [("b", "2"), ("c", "3")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(attributes.metadata, BTreeMap::from(expected));
        assert!(
            merged(&start, &json!({"metadata": null}))
                .unwrap()
                .metadata
                .is_empty()
        );
    }

    #[test]
    fn merge_refuses_what_gcs_refuses() {
        let large = json!({"metadata": {"k": "x".repeat(9000)}});
        for patch in [
            json!({"metadata": {"k": ["x"]}}),
            json!({"metadata": "x"}),
            json!({"storageClass": "TAPE"}),
            json!({"customTime": "yesterday"}),
            large,
        ] {
            assert!(merged(&json!({}), &patch).is_err(), "{patch}");
        }
    }

    #[test]
    fn a_resource_is_an_object_or_nothing() {
        for (body, entries) in [
            ("", 0),
            (" ", 0),
            ("null", 0),
            ("{}", 0),
            (r#"{"a": 1}"#, 1),
        ] {
            assert_eq!(
                parse_resource(body.as_bytes()).unwrap().len(),
                entries,
                "{body}"
            );
        }
        for body in ["[]", "{", "1", "{} x"] {
            assert!(parse_resource(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn dates_in_both_forms() {
        let at = Duration::from_millis(784_111_777_045);
        assert_eq!(rfc3339(at), "1994-11-06T08:49:37.045Z");
        assert_eq!(http_date(at), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
