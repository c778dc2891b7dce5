//! JSON resources as the API prints them: objects, buckets, folders and operations.

use std::collections::BTreeMap;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::hierarchy::{Folder, Rename};
use crate::history::{Entry, Standing};
use crate::hold;
use crate::name::{BucketName, FolderName};
use crate::object::{Object, rfc3339};
use crate::store::BucketInfo;

/// Everything but the unreserved characters of RFC 3986.
const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Percent-encodes one path segment or query value.
pub(crate) fn encode(component: &str) -> String {
    utf8_percent_encode(component, COMPONENT).to_string()
}

/// An object resource. Numbers of 64 bits are strings, as everywhere in Google's JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectResource<'a> {
    kind: &'static str,
    id: String,
    self_link: String,
    media_link: String,
    name: &'a str,
    bucket: &'a str,
    generation: String,
    metageneration: String,
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
    storage_class: &'a str,
    size: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    md5_hash: Option<String>,
    crc32c: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    component_count: Option<u32>,
    etag: String,
    time_created: String,
    updated: String,
    time_storage_class_updated: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    custom_time: Option<&'a str>,
    #[serde(skip_serializing_if = "is_not")]
    temporary_hold: bool,
    #[serde(skip_serializing_if = "is_not")]
    event_based_hold: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention_expiration_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_deleted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    soft_delete_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hard_delete_time: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    metadata: &'a BTreeMap<String, String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_not(flag: &bool) -> bool {
    !flag
}

impl<'a> ObjectResource<'a> {
    /// Links lead to the host that the caller asked; `retention` is the bucket's.
    pub(crate) fn new(object: &'a Object, host: &str, retention: Option<Duration>) -> Self {
        let (bucket, name) = (object.bucket.as_str(), object.name.as_str());
        let path = format!("storage/v1/b/{bucket}/o/{}", encode(name));
        let generation = object.generation;
        let attributes = &object.attributes;
        let created = rfc3339(object.created);
        Self {
            kind: "storage#object",
            id: format!("{bucket}/{name}/{generation}"),
            self_link: format!("http://{host}/{path}"),
            media_link: format!("http://{host}/download/{path}?generation={generation}&alt=media"),
            name,
            bucket,
            generation: generation.to_string(),
            metageneration: object.metageneration.to_string(),
            content_type: attributes.content_type.as_deref(),
            content_encoding: attributes.content_encoding.as_deref(),
            content_disposition: attributes.content_disposition.as_deref(),
            content_language: attributes.content_language.as_deref(),
            cache_control: attributes.cache_control.as_deref(),
            storage_class: attributes.storage_class.as_deref().unwrap_or("STANDARD"),
            size: object.size().to_string(),
            md5_hash: object.md5(),
            crc32c: object.crc32c(),
            component_count: object.content.components,
            etag: object.etag(),
            updated: rfc3339(object.updated),
            time_storage_class_updated: created.clone(),
            time_created: created,
            custom_time: attributes.custom_time.as_deref(),
            temporary_hold: attributes.holds.temporary,
            event_based_hold: attributes.holds.event_based,
            retention_expiration_time: hold::retained_until(object, retention).map(rfc3339),
            time_deleted: None,
            soft_delete_time: None,
            hard_delete_time: None,
            metadata: &attributes.metadata,
        }
    }

    /// As [`Self::new`], of a version that may not be live.
    pub(crate) fn of(entry: &'a Entry, host: &str, retention: Option<Duration>) -> Self {
        let resource = Self::new(&entry.object, host, retention);
        match entry.standing {
            Standing::Live => resource,
            Standing::Noncurrent { since } => Self {
                time_deleted: Some(rfc3339(since)),
                ..resource
            },
            Standing::SoftDeleted { since, until } => Self {
                soft_delete_time: Some(rfc3339(since)),
                hard_delete_time: Some(rfc3339(until)),
                ..resource
            },
        }
    }
}

/// A bucket resource.
pub(crate) fn bucket(info: &BucketInfo, host: &str) -> Value {
    let name = info.name.as_str();
    let mut resource = json!({
        "kind": "storage#bucket",
        "id": name,
        "selfLink": format!("http://{host}/storage/v1/b/{name}"),
        "name": name,
        "projectNumber": crate::principal::PROJECT_NUMBER,
        "generation": info.generation.to_string(),
        "metageneration": info.metageneration.to_string(),
        "location": "US",
        "locationType": "multi-region",
        "storageClass": info.storage_class,
        "etag": info.version().etag(),
        "timeCreated": rfc3339(info.created),
        "updated": rfc3339(info.updated),
        "iamConfiguration": {
            "uniformBucketLevelAccess": {"enabled": info.settings.uniform_access},
            "publicAccessPrevention": "inherited",
        },
        "billing": {"requesterPays": info.settings.requester_pays},
    });
    if let Some(period) = info.settings.retention {
        resource["retentionPolicy"] = json!({
            "retentionPeriod": period.as_secs().to_string(),
            "effectiveTime": rfc3339(info.updated),
        });
    }
    let soft_delete = info.settings.soft_delete.unwrap_or_default().as_secs();
    resource["softDeletePolicy"] = json!({"retentionDurationSeconds": soft_delete.to_string()});
    if soft_delete > 0 {
        resource["softDeletePolicy"]["effectiveTime"] = rfc3339(info.updated).into();
    }
    if info.settings.versioning {
        resource["versioning"] = json!({"enabled": true});
    }
    if info.settings.default_event_based_hold {
        resource["defaultEventBasedHold"] = true.into();
    }
    if !info.labels.is_empty() {
        resource["labels"] = json!(info.labels);
    }
    if info.hierarchical {
        resource["hierarchicalNamespace"] = json!({"enabled": true});
    }
    resource
}

/// A folder resource.
pub(crate) fn folder(bucket: &BucketName, folder: &Folder, host: &str) -> Value {
    let name = folder.name.as_str();
    json!({
        "kind": "storage#folder",
        "id": format!("{bucket}/{name}"),
        "selfLink": format!("http://{host}/storage/v1/b/{bucket}/folders/{}", encode(name)),
        "bucket": bucket.as_str(),
        "name": name,
        "metageneration": folder.metageneration.to_string(),
        "createTime": rfc3339(folder.created),
        "updateTime": rfc3339(folder.updated),
    })
}

/// The operation of a rename, whose folders have the names that Google's control service gives them.
pub(crate) fn operation(bucket: &BucketName, rename: &Rename, done: bool) -> Value {
    let folder_id = |name: &FolderName| format!("projects/_/buckets/{bucket}/folders/{name}");
    let at = rfc3339(rename.at);
    let mut operation = json!({
        "kind": "storage#operation",
        "name": format!("projects/_/buckets/{bucket}/operations/{}", rename.id),
        "metadata": {
            "@type": "type.googleapis.com/google.storage.control.v2.RenameFolderMetadata",
            "commonMetadata": {
                "type": "rename-folder",
                "createTime": at,
                "updateTime": at,
                "requestedCancellation": false,
                "progressPercent": if done { 100 } else { 0 },
            },
            "sourceFolderId": folder_id(&rename.source),
            "destinationFolderId": folder_id(&rename.target.name),
        },
        "done": done,
    });
    if done {
        operation["metadata"]["commonMetadata"]["endTime"] = at.into();
        operation["response"] = json!({
            "@type": "type.googleapis.com/google.storage.control.v2.Folder",
            "name": folder_id(&rename.target.name),
            "metageneration": rename.target.metageneration.to_string(),
            "createTime": rfc3339(rename.target.created),
            "updateTime": rfc3339(rename.target.updated),
        });
    }
    operation
}

/// The storage layout of a bucket.
pub(crate) fn storage_layout(info: &BucketInfo) -> Value {
    json!({
        "kind": "storage#storageLayout",
        "bucket": info.name.as_str(),
        "location": "US",
        "locationType": "multi-region",
        "hierarchicalNamespace": {"enabled": info.hierarchical},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_a_path_segment() {
        assert_eq!(encode("a/b c+#?%ü~-_."), "a%2Fb%20c%2B%23%3F%25%C3%BC~-_.");
    }
}
