//! Objects and buckets in the API's JSON.
//!
//! Source: <https://cloud.google.com/storage/docs/json_api/v1/objects#resource>.

mod folder;
mod outgoing;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Deserializer, de};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::object::{Attributes, Bucket};
use crate::store::ListPage;
use crate::{Generation, Metageneration, Object, ObjectName};

pub(super) use folder::{
    NewFolder, Outcome, Progress, parse_folder, parse_folders, parse_layout, parse_operation,
};
pub(super) use outgoing::{Compose, Insert, PatchBody, json};

/// The fields of an object that [`ObjectResource`] reads, for the `fields` parameter of a list.
pub(super) const FIELDS: &str = "name,generation,metageneration,size,crc32c,md5Hash,timeCreated,updated,\
    componentCount,contentType,contentEncoding,contentDisposition,contentLanguage,cacheControl,storageClass,\
    customTime,metadata";

/// The fields of a bucket that [`parse_bucket`] reads.
pub(super) const BUCKET_FIELDS: &str = "location,storageClass,hierarchicalNamespace,\
    iamConfiguration/uniformBucketLevelAccess/enabled";

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// Text that stays in the answer where it holds no escape.
#[derive(Debug, Default)]
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

/// An object as it arrives. 64-bit numbers are strings, times RFC 3339, checksums big-endian base64.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectResource<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    generation: Text<'a>,
    metageneration: Option<Text<'a>>,
    size: Text<'a>,
    crc32c: Option<Text<'a>>,
    md5_hash: Option<Text<'a>>,
    time_created: Option<Text<'a>>,
    updated: Option<Text<'a>>,
    component_count: Option<u64>,
    content_type: Option<String>,
    content_encoding: Option<String>,
    content_disposition: Option<String>,
    content_language: Option<String>,
    cache_control: Option<String>,
    storage_class: Option<String>,
    custom_time: Option<Text<'a>>,
    metadata: Option<BTreeMap<String, String>>,
}

impl ObjectResource<'_> {
    /// Name, generation and size must be there and right; whatever else is there must be right.
    fn into_object(self) -> Result<Object, Malformed> {
        let name = ObjectName::parse(self.name.0.as_bytes()).map_err(|_| Malformed("name"))?;
        let created = time(self.time_created.as_ref(), "timeCreated")?;
        Ok(Object {
            name,
            generation: Generation(number(&self.generation, "generation")?),
            metageneration: match &self.metageneration {
                Some(text) => Metageneration(number(text, "metageneration")?),
                None => Metageneration(1),
            },
            size: number(&self.size, "size")?,
            crc32c: match &self.crc32c {
                Some(text) => Some(u32::from_be_bytes(bytes(&text.0, "crc32c")?)),
                None => None,
            },
            md5: match &self.md5_hash {
                Some(text) => Some(bytes(&text.0, "md5Hash")?),
                None => None,
            },
            created: created.unwrap_or(SystemTime::UNIX_EPOCH),
            updated: time(self.updated.as_ref(), "updated")?
                .or(created)
                .unwrap_or(SystemTime::UNIX_EPOCH),
            component_count: self.component_count,
            attributes: Attributes {
                content_type: self.content_type,
                content_encoding: self.content_encoding,
                content_disposition: self.content_disposition,
                content_language: self.content_language,
                cache_control: self.cache_control,
                storage_class: self.storage_class,
                custom_time: time(self.custom_time.as_ref(), "customTime")?,
                metadata: self.metadata.unwrap_or_default(),
            },
        })
    }
}

fn number<T: std::str::FromStr>(text: &Text<'_>, field: &'static str) -> Result<T, Malformed> {
    text.0.parse().map_err(|_| Malformed(field))
}

fn time(text: Option<&Text<'_>>, field: &'static str) -> Result<Option<SystemTime>, Malformed> {
    let Some(text) = text else { return Ok(None) };
    let time = OffsetDateTime::parse(&text.0, &Rfc3339).map_err(|_| Malformed(field))?;
    Ok(Some(time.into()))
}

/// Base64 of exactly `N` bytes.
fn bytes<const N: usize>(text: &str, field: &'static str) -> Result<[u8; N], Malformed> {
    // A decoder's estimate of its output may be up to two bytes long of the mark.
    let mut decoded = [0; 24];
    let length = BASE64.decode_slice(text, &mut decoded);
    match length {
        Ok(length) if length == N => decoded[..N].try_into().map_err(|_| Malformed(field)),
        _ => Err(Malformed(field)),
    }
}

/// A CRC32C from `x-goog-hash`, whose form is `crc32c=BASE64,md5=BASE64` in any order and in one or more headers.
pub(super) fn crc32c_of(hash: &str) -> Result<Option<u32>, Malformed> {
    hash.split(',')
        .find_map(|part| part.trim().strip_prefix("crc32c="))
        .map(|text| bytes(text, "x-goog-hash").map(u32::from_be_bytes))
        .transpose()
}

/// A CRC32C as the store writes it.
pub(super) fn crc32c_text(crc32c: u32) -> String {
    BASE64.encode(crc32c.to_be_bytes())
}

pub(super) fn parse_object(json: &[u8]) -> Result<Object, Malformed> {
    let object: ObjectResource<'_> = parsed(json).ok_or(Malformed("object"))?;
    object.into_object()
}

/// Looking at all of the text once is cheaper than at each of its strings.
fn parsed<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    serde_json::from_str(str::from_utf8(json).ok()?).ok()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListResource<'a> {
    #[serde(borrow, default)]
    items: Vec<ObjectResource<'a>>,
    #[serde(default)]
    prefixes: Vec<String>,
    next_page_token: Option<String>,
}

/// A page of a list. Objects whose names this crate does not take (which only a foreign service can hold) are
/// malformed rather than dropped: what is in the bucket is never hidden silently.
pub(super) fn parse_list(json: &[u8]) -> Result<ListPage, Malformed> {
    let list: ListResource<'_> = parsed(json).ok_or(Malformed("list"))?;
    let objects = list.items.into_iter().map(ObjectResource::into_object);
    Ok(ListPage {
        objects: objects.collect::<Result<_, _>>()?,
        prefixes: list.prefixes,
        next_page_token: list.next_page_token.filter(|token| !token.is_empty()),
    })
}

/// Where a rewrite stands.
pub(super) enum Rewrite {
    Done(Box<Object>),
    More(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RewriteResource<'a> {
    done: bool,
    rewrite_token: Option<String>,
    #[serde(borrow)]
    resource: Option<ObjectResource<'a>>,
}

pub(super) fn parse_rewrite(json: &[u8]) -> Result<Rewrite, Malformed> {
    let rewrite: RewriteResource<'_> =
        serde_json::from_slice(json).map_err(|_| Malformed("rewrite"))?;
    match (rewrite.done, rewrite.resource, rewrite.rewrite_token) {
        (true, Some(resource), _) => Ok(Rewrite::Done(Box::new(resource.into_object()?))),
        (false, _, Some(token)) => Ok(Rewrite::More(token)),
        _ => Err(Malformed("rewrite")),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BucketResource {
    #[serde(default)]
    location: String,
    #[serde(default)]
    storage_class: String,
    hierarchical_namespace: Option<Switch>,
    #[serde(default)]
    iam_configuration: IamConfiguration,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct IamConfiguration {
    uniform_bucket_level_access: Option<Switch>,
}

#[derive(Deserialize)]
struct Switch {
    #[serde(default)]
    enabled: bool,
}

pub(super) fn parse_bucket(json: &[u8]) -> Result<Bucket, Malformed> {
    let bucket: BucketResource = serde_json::from_slice(json).map_err(|_| Malformed("bucket"))?;
    Ok(Bucket {
        location: bucket.location.to_uppercase(),
        storage_class: bucket.storage_class,
        hierarchical: bucket.hierarchical_namespace.is_some_and(|h| h.enabled),
        uniform_access: bucket
            .iam_configuration
            .uniform_bucket_level_access
            .map(|uniform| uniform.enabled),
    })
}

#[derive(Deserialize)]
struct PermissionsResource {
    #[serde(default)]
    permissions: Vec<String>,
}

/// The permissions that the caller holds; an answer without the field says none.
pub(super) fn parse_permissions(json: &[u8]) -> Result<Vec<String>, Malformed> {
    let held: PermissionsResource =
        serde_json::from_slice(json).map_err(|_| Malformed("list of permissions"))?;
    Ok(held.permissions)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FULL: &str = r#"{"kind":"storage#object","name":"a\/b","generation":"1700000000000001","metageneration":"3",
        "size":"5","crc32c":"mnG7TA==","md5Hash":"XUFAKrxLKna5cZ2REBfFkg==","timeCreated":"2026-01-02T03:04:05.678Z",
        "updated":"2026-01-02T03:04:06Z","componentCount":2,"contentType":"text/plain","metadata":{"k":"v"},
        "customTime":"2026-01-01T00:00:00+01:00","storageClass":"STANDARD","unknown":[{"a":1}]}"#;

    #[test]
    fn an_object_is_read_field_by_field() {
        let object = parse_object(FULL.as_bytes()).unwrap();
        assert_eq!(object.name.as_str(), "a/b");
        assert_eq!(object.generation, Generation(1_700_000_000_000_001));
        assert_eq!(object.metageneration, Metageneration(3));
        assert_eq!(object.size, 5);
        assert_eq!(object.crc32c, Some(crc32c::crc32c(b"hello")));
        assert_eq!(object.md5.unwrap()[..2], [0x5d, 0x41]);
        assert_eq!(object.component_count, Some(2));
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(
            since(object.created),
            Duration::from_millis(1_767_323_045_678)
        );
        assert_eq!(since(object.updated), Duration::from_secs(1_767_323_046));
        assert_eq!(
            since(object.attributes.custom_time.unwrap()).as_secs(),
            1_767_222_000
        );
        assert_eq!(object.attributes.metadata["k"], "v");
        assert_eq!(
            object.attributes.content_type.as_deref(),
            Some("text/plain")
        );
    }

    #[test]
    fn missing_fields_have_meanings() {
        let object = parse_object(br#"{"name":"o","generation":"7","size":"0"}"#).unwrap();
        assert_eq!(object.metageneration, Metageneration(1));
        assert_eq!(
            (object.crc32c, object.md5, object.component_count),
            (None, None, None)
        );
        assert_eq!(object.created, SystemTime::UNIX_EPOCH);
        assert_eq!(object.attributes, Attributes::default());
    }

    #[test]
    fn wrong_fields_are_named() {
        for (json, field) in [
            (r#"{"name":"o","generation":"7"}"#, "object"),
            (r#"{"name":"","generation":"7","size":"1"}"#, "name"),
            (r#"{"name":"o","generation":"x","size":"1"}"#, "generation"),
            (r#"{"name":"o","generation":"7","size":"-1"}"#, "size"),
            (
                r#"{"name":"o","generation":"7","size":"1","crc32c":"AAAA"}"#,
                "crc32c",
            ),
            (
                r#"{"name":"o","generation":"7","size":"1","crc32c":"?"}"#,
                "crc32c",
            ),
            (
                r#"{"name":"o","generation":"7","size":"1","md5Hash":"AAAAAA=="}"#,
                "md5Hash",
            ),
            (
                r#"{"name":"o","generation":"7","size":"1","updated":"today"}"#,
                "updated",
            ),
            ("<html>", "object"),
        ] {
            assert_eq!(
                parse_object(json.as_bytes()),
                Err(Malformed(field)),
                "{json}"
            );
        }
    }

    #[test]
    fn lists_may_lack_everything() {
        assert_eq!(parse_list(b"{}").unwrap(), ListPage::default());
        let page = parse_list(br#"{"items":[],"prefixes":["a/"],"nextPageToken":"t"}"#).unwrap();
        assert_eq!(page.prefixes, ["a/"]);
        assert_eq!(page.next_page_token.as_deref(), Some("t"));
        assert_eq!(parse_list(b"[]"), Err(Malformed("list")));
    }

    #[test]
    fn uniform_access_is_on_or_off_or_unknown() {
        for (json, uniform) in [
            ("{}", None),
            (r#"{"iamConfiguration":{}}"#, None),
            (
                r#"{"iamConfiguration":{"uniformBucketLevelAccess":{"enabled":true}}}"#,
                Some(true),
            ),
            (
                r#"{"iamConfiguration":{"uniformBucketLevelAccess":{"enabled":false}}}"#,
                Some(false),
            ),
            (
                r#"{"iamConfiguration":{"uniformBucketLevelAccess":{}}}"#,
                Some(false),
            ),
        ] {
            let bucket = parse_bucket(json.as_bytes()).unwrap();
            assert_eq!(bucket.uniform_access, uniform, "{json}");
        }
        assert_eq!(parse_bucket(b"[]"), Err(Malformed("bucket")));
    }

    #[test]
    fn permissions_may_be_missing() {
        assert!(parse_permissions(b"{}").unwrap().is_empty());
        assert!(
            parse_permissions(br#"{"permissions":[]}"#)
                .unwrap()
                .is_empty()
        );
        let some = br#"{"kind":"k","permissions":["storage.objects.get"]}"#;
        assert_eq!(parse_permissions(some).unwrap(), ["storage.objects.get"]);
        let wrong = Err(Malformed("list of permissions"));
        assert_eq!(parse_permissions(br#"{"permissions":"all"}"#), wrong);
    }

    #[test]
    fn hashes_come_in_any_order() {
        let crc32c = Some(crc32c::crc32c(b"hello"));
        for (header, expected) in [
            ("crc32c=mnG7TA==", Ok(crc32c)),
            ("md5=XUFAKrxLKna5cZ2REBfFkg==, crc32c=mnG7TA==", Ok(crc32c)),
            ("md5=XUFAKrxLKna5cZ2REBfFkg==", Ok(None)),
            ("crc32c=", Err(Malformed("x-goog-hash"))),
        ] {
            assert_eq!(crc32c_of(header), expected, "{header}");
        }
        assert_eq!(crc32c_text(crc32c::crc32c(b"hello")), "mnG7TA==");
    }
}
