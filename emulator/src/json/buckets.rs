//! Buckets: as much as object clients need of them.

mod fields;

use std::collections::BTreeMap;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::access::{Bearer, Caller};
use crate::call::{Call, Outcome, empty};
use crate::config::BucketSettings;
use crate::error::{ApiError, Kind};
use crate::inbound::Inbound;
use crate::name::BucketName;
use crate::object::{check_class, parse_resource};
use crate::precondition::Preconditions;
use crate::resource;
use crate::role::{Permission, Role};
use crate::store::NewBucket;

/// A hundred years in seconds, the longest that GCS keeps an object.
const MAX_RETENTION: u64 = 3_155_760_000;

/// The buckets that the caller has a role on.
pub(crate) fn list(call: &Call) -> Outcome {
    if call.caller == Caller::Anonymous {
        return Err(ApiError::new(Kind::Anonymous, "Anonymous caller cannot list buckets.").into());
    }
    refuse_bounded(call, "storage.buckets.list")?;
    let prefix = call.query.text("prefix").unwrap_or_default();
    let buckets = call.state.store.buckets();
    let visible = buckets.iter().filter(|info| {
        info.name.as_str().starts_with(prefix) && call.state.access.sees(&call.caller, &info.name)
    });
    let items: Vec<Value> = visible
        .map(|info| resource::bucket(info, &call.host))
        .collect();
    call.json(&json!({"kind": "storage#buckets", "items": items}))
}

/// What is asked of the project and not of a bucket is outside every access boundary.
fn refuse_bounded(call: &Call, permission: &str) -> Result<(), ApiError> {
    let Caller::Known(Bearer {
        principal,
        boundary: Some(_),
        ..
    }) = &call.caller
    else {
        return Ok(());
    };
    Err(ApiError::new(
        Kind::Forbidden,
        format!(
            "{principal} does not have {permission} access to the Google Cloud project. Permission '{permission}' \
             denied on resource (or it may not exist). The access boundary of the token leaves it out."
        ),
    ))
}

/// A flag of a bucket's resource, by the keys that lead to it.
fn flag(resource: &Map<String, Value>, path: &[&str], usual: bool) -> Result<bool, ApiError> {
    let mut value = resource.get(path[0]);
    for key in &path[1..] {
        value = value.and_then(|value| value.get(key));
    }
    match value {
        None | Some(Value::Null) => Ok(usual),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(ApiError::invalid(format!(
            "Invalid value for {}: true or false is wanted",
            path.join(".")
        ))),
    }
}

/// The bucket that a resource asks for. Uniform access is on unless it is turned off.
fn new_bucket(name: BucketName, resource: &Map<String, Value>) -> Result<NewBucket, ApiError> {
    fields::check_known(resource)?;
    let mut labels = BTreeMap::new();
    fields::merge_labels(&mut labels, resource)?;
    Ok(NewBucket {
        name,
        hierarchical: flag(resource, &["hierarchicalNamespace", "enabled"], false)?,
        storage_class: class(resource, "STANDARD")?,
        settings: settings(resource, &BucketSettings::default())?,
        labels,
    })
}

/// The storage class that a resource asks for, and if it names none the `usual` one.
fn class(resource: &Map<String, Value>, usual: &str) -> Result<String, ApiError> {
    let class = resource.get("storageClass").and_then(Value::as_str);
    let class = class.unwrap_or(usual);
    check_class(class)?;
    Ok(class.to_owned())
}

/// The settings that a resource asks for, and for what it does not name the `usual` ones.
fn settings(
    resource: &Map<String, Value>,
    usual: &BucketSettings,
) -> Result<BucketSettings, ApiError> {
    Ok(BucketSettings {
        uniform_access: flag(
            resource,
            &["iamConfiguration", "uniformBucketLevelAccess", "enabled"],
            usual.uniform_access,
        )?,
        requester_pays: flag(
            resource,
            &["billing", "requesterPays"],
            usual.requester_pays,
        )?,
        versioning: flag(resource, &["versioning", "enabled"], usual.versioning)?,
        default_event_based_hold: flag(
            resource,
            &["defaultEventBasedHold"],
            usual.default_event_based_hold,
        )?,
        retention: match resource.get("retentionPolicy") {
            None => usual.retention,
            Some(Value::Null) => None,
            Some(policy) => retention(policy)?,
        },
        soft_delete: match resource.get("softDeletePolicy") {
            None => usual.soft_delete,
            Some(Value::Null) => None,
            Some(policy) => soft_delete(policy)?,
        },
    })
}

/// Whole seconds, in a string as Google prints them, or a number.
fn seconds(policy: &Value, key: &str) -> Option<u64> {
    match policy.get(key)? {
        Value::String(text) => text.parse().ok(),
        number => number.as_u64(),
    }
}

/// The period of a retention policy.
fn retention(policy: &Value) -> Result<Option<Duration>, ApiError> {
    let seconds = seconds(policy, "retentionPeriod");
    let sane = seconds.filter(|seconds| (1..=MAX_RETENTION).contains(seconds));
    sane.map(|seconds| Some(Duration::from_secs(seconds)))
        .ok_or_else(|| {
            ApiError::invalid("Invalid value for retentionPolicy.retentionPeriod: 1 to 3155760000 seconds are wanted")
        })
}

/// The period of a soft delete policy, from seven to ninety days; zero turns it off.
fn soft_delete(policy: &Value) -> Result<Option<Duration>, ApiError> {
    const DAY: u64 = 24 * 3600;
    match seconds(policy, "retentionDurationSeconds") {
        Some(0) => Ok(None),
        Some(seconds) if (7 * DAY..=90 * DAY).contains(&seconds) => {
            Ok(Some(Duration::from_secs(seconds)))
        }
        _ => Err(ApiError::invalid(
            "Invalid value for softDeletePolicy.retentionDurationSeconds: 0, or 604800 to 7776000 seconds are wanted",
        )),
    }
}

/// `buckets.patch`, as far as a bucket has settings here.
pub(crate) async fn patch(call: &Call, inbound: &mut Inbound) -> Outcome {
    let body = parse_resource(&inbound.collect_small().await?)?;
    let bucket = call.bucket(Permission::BucketUpdate)?;
    let conditions = Preconditions::target(&call.query, &call.headers)?;
    let patched = call.state.store.set_bucket(bucket.as_str(), |info| {
        conditions.check_write(info.version())?;
        fields::check_known(&body)?;
        fields::merge_labels(&mut info.labels, &body)?;
        info.storage_class = class(&body, &info.storage_class)?;
        info.settings = settings(&body, &info.settings)?;
        Ok(())
    });
    let patched = patched?;
    call.json(&resource::bucket(&patched, &call.host))
}

/// Anybody who is known, but for the node, may create a bucket and administers it then.
pub(crate) async fn insert(call: &Call, inbound: &mut Inbound) -> Outcome {
    refuse_bounded(call, "storage.buckets.create")?;
    let owner = match &call.caller {
        Caller::Unchecked => None,
        Caller::Known(bearer) => Some(
            bearer
                .principal
                .member()
                .ok_or_else(|| ApiError::new(Kind::Forbidden, "The node cannot create buckets."))?,
        ),
        Caller::Anonymous => {
            return Err(
                ApiError::new(Kind::Anonymous, "Anonymous caller cannot create buckets.").into(),
            );
        }
    };
    let body = parse_resource(&inbound.collect_small().await?)?;
    let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
    let name = BucketName::parse(name).map_err(ApiError::from)?;
    let info = call.state.store.create_bucket(new_bucket(name, &body)?)?;
    if let Some(owner) = owner {
        call.state.access.grant(&info.name, &owner, Role::Admin);
    }
    call.json(&resource::bucket(&info, &call.host))
}

pub(crate) fn get(call: &Call) -> Outcome {
    let bucket = call.bucket(Permission::BucketGet)?;
    let info = call.state.store.bucket(bucket.as_str())?;
    Preconditions::target(&call.query, &call.headers)?.check_read(info.version())?;
    call.json(&resource::bucket(&info, &call.host))
}

/// `buckets.testIamPermissions`: whoever is known may ask what he may do, and hears of a bucket that lets him do
/// nothing just that. The anonymous are asked who they are, unless the bucket is open to everybody.
pub(crate) fn test_permissions(call: &Call) -> Outcome {
    let bucket = call.bucket_unguarded()?;
    let access = &call.state.access;
    if call.caller == Caller::Anonymous && !access.sees(&call.caller, &bucket) {
        let message = "Anonymous caller cannot test permissions on the bucket.";
        return Err(ApiError::new(Kind::Anonymous, message).into());
    }
    call.query.required("permissions")?;
    let held: Vec<&str> = call
        .query
        .all("permissions")
        .filter(|permission| access.holds(&call.caller, &bucket, permission))
        .collect();
    let mut answer = json!({"kind": "storage#testIamPermissionsResponse"});
    if !held.is_empty() {
        answer["permissions"] = held.into();
    }
    call.json(&answer)
}

pub(crate) fn delete(call: &Call) -> Outcome {
    let bucket = call.bucket(Permission::BucketDelete)?;
    call.state.store.delete_bucket(bucket.as_str())?;
    call.state.access.forget(&bucket);
    Ok(empty(StatusCode::NO_CONTENT))
}

/// `buckets.getStorageLayout`, which whoever may list the objects under the `prefix` of the query may call.
pub(crate) fn storage_layout(call: &Call) -> Outcome {
    let bucket = call.listing()?;
    let info = call.state.store.bucket(bucket.as_str())?;
    call.json(&resource::storage_layout(&info))
}
