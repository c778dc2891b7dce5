//! What is sent: objects, patches and composes as JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::crc32c_text;
use crate::ObjectName;
use crate::object::Attributes;
use crate::store::{ComposeSource, Patch, Sources};

/// An object as it is sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::client::json) struct Insert<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crc32c: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_disposition: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_language: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_time: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: &'a BTreeMap<String, String>,
}

impl<'a> Insert<'a> {
    pub(in crate::client::json) fn new(
        name: Option<&'a ObjectName>,
        attributes: &'a Attributes,
        crc32c: Option<u32>,
    ) -> Self {
        Self {
            name: name.map(ObjectName::as_str),
            crc32c: crc32c.map(crc32c_text),
            content_type: attributes.content_type.as_deref(),
            content_encoding: attributes.content_encoding.as_deref(),
            content_disposition: attributes.content_disposition.as_deref(),
            content_language: attributes.content_language.as_deref(),
            cache_control: attributes.cache_control.as_deref(),
            storage_class: attributes.storage_class.as_deref(),
            // A year outside 0..=9999 has no RFC 3339 form, and no meaning to the store either.
            custom_time: attributes
                .custom_time
                .and_then(|time| OffsetDateTime::from(time).format(&Rfc3339).ok()),
            metadata: &attributes.metadata,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::client::json) struct Compose<'a> {
    source_objects: Vec<ComposePart<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    delete_source_objects: bool,
    destination: Insert<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ComposePart<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_preconditions: Option<ComposeCondition>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ComposeCondition {
    /// A number as text, as every 64-bit integer of the API.
    if_generation_match: String,
}

impl<'a> Compose<'a> {
    pub(in crate::client::json) fn new(
        attributes: &'a Attributes,
        sources: &'a [ComposeSource],
        after: Sources,
    ) -> Self {
        let part = |source: &'a ComposeSource| ComposePart {
            name: source.name.as_str(),
            object_preconditions: source.generation.map(|generation| ComposeCondition {
                if_generation_match: generation.to_string(),
            }),
        };
        Self {
            source_objects: sources.iter().map(part).collect(),
            delete_source_objects: after == Sources::Delete,
            destination: Insert::new(None, attributes, None),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::client::json) struct PatchBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    /// A `null` removes its key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<&'a str, Option<&'a str>>,
}

impl<'a> PatchBody<'a> {
    pub(in crate::client::json) fn new(patch: &'a Patch) -> Self {
        let entry = |(key, value): &'a (String, Option<String>)| (key.as_str(), value.as_deref());
        Self {
            content_type: patch.content_type.as_deref(),
            metadata: patch.metadata.iter().map(entry).collect(),
        }
    }
}

/// JSON of a value of this module. Keys are strings and nothing in it can fail.
pub(in crate::client::json) fn json(value: &impl Serialize) -> Vec<u8> {
    #[expect(
        clippy::expect_used,
        reason = "no map of these types has keys but strings"
    )]
    serde_json::to_vec(value).expect("the API's own types are JSON")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn what_is_sent_leaves_out_what_is_not_set() {
        let name = ObjectName::parse("o").unwrap();
        let mut attributes = Attributes::default();
        let sent = |attributes: &Attributes| {
            String::from_utf8(json(&Insert::new(Some(&name), attributes, Some(0)))).unwrap()
        };
        assert_eq!(sent(&attributes), r#"{"name":"o","crc32c":"AAAAAA=="}"#);
        attributes.custom_time = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1500));
        attributes
            .metadata
            .insert("k".to_owned(), "\"\n".to_owned());
        assert_eq!(
            sent(&attributes),
            r#"{"name":"o","crc32c":"AAAAAA==","customTime":"1970-01-01T00:00:01.5Z","metadata":{"k":"\"\n"}}"#
        );
        let patch = Patch {
            content_type: None,
            metadata: vec![
                ("a".to_owned(), None),
                ("b".to_owned(), Some("1".to_owned())),
            ],
        };
        let patch = String::from_utf8(json(&PatchBody::new(&patch))).unwrap();
        assert_eq!(patch, r#"{"metadata":{"a":null,"b":"1"}}"#);
    }
}
