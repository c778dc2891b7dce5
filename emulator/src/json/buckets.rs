//! Buckets: as much as object clients need of them.

use http::StatusCode;
use serde_json::{Value, json};

use crate::access::{Caller, Permission, Principal, Role};
use crate::call::{Call, Outcome, empty};
use crate::error::{ApiError, Kind};
use crate::inbound::Inbound;
use crate::name::BucketName;
use crate::object::parse_resource;
use crate::resource;

/// The buckets that the caller has a role on.
pub(crate) fn list(call: &Call) -> Outcome {
    if call.caller == Caller::Anonymous {
        return Err(ApiError::new(Kind::Anonymous, "Anonymous caller cannot list buckets.").into());
    }
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

/// Any workload may create a bucket and administers its objects then.
pub(crate) async fn insert(call: &Call, inbound: &mut Inbound) -> Outcome {
    let owner = match &call.caller {
        Caller::Unchecked => None,
        Caller::Known(principal @ Principal::Workload { .. }) => Some(principal),
        Caller::Known(Principal::Node) => {
            return Err(ApiError::new(Kind::Forbidden, "The node cannot create buckets.").into());
        }
        Caller::Anonymous => {
            return Err(
                ApiError::new(Kind::Anonymous, "Anonymous caller cannot create buckets.").into(),
            );
        }
    };
    let body = parse_resource(&inbound.collect_small().await?)?;
    let name = body.get("name").and_then(Value::as_str).unwrap_or_default();
    let name = BucketName::parse(name).map_err(ApiError::from)?;
    let info = call.state.store.create_bucket(name)?;
    if let Some(owner) = owner {
        for role in [Role::ObjectAdmin, Role::BucketReader] {
            call.state
                .access
                .grant(&info.name, &owner.to_string(), role);
        }
    }
    call.json(&resource::bucket(&info, &call.host))
}

pub(crate) fn get(call: &Call) -> Outcome {
    let bucket = call.bucket(Permission::BucketGet)?;
    let info = call.state.store.bucket(bucket.as_str())?;
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
    let bucket = call.bucket(Permission::Delete)?;
    call.state.store.delete_bucket(bucket.as_str())?;
    call.state.access.forget(&bucket);
    Ok(empty(StatusCode::NO_CONTENT))
}

/// `buckets.getStorageLayout`, which whoever may list the objects may call.
pub(crate) fn storage_layout(call: &Call) -> Outcome {
    let bucket = call.bucket(Permission::List)?;
    let info = call.state.store.bucket(bucket.as_str())?;
    call.json(&resource::storage_layout(&info))
}
