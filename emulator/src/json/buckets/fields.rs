//! The fields of a bucket's resource: those that have an effect here, those that are not the caller's to set, and labels.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::{ApiError, Kind};

/// Those that have an effect here.
const SETTABLE: [&str; 10] = [
    "billing",
    "defaultEventBasedHold",
    "hierarchicalNamespace",
    "iamConfiguration",
    "labels",
    "name",
    "retentionPolicy",
    "softDeletePolicy",
    "storageClass",
    "versioning",
];

/// Those that a client sends back as it was told them. Every bucket has the location of all.
const TOLD: [&str; 15] = [
    "etag",
    "generation",
    "hardDeleteTime",
    "id",
    "kind",
    "location",
    "locationType",
    "metageneration",
    "owner",
    "projectNumber",
    "satisfiesPZI",
    "satisfiesPZS",
    "selfLink",
    "softDeleteTime",
    "timeCreated",
];

/// Refuses a field that would be forgotten. One that says nothing, or what holds anyway, is as good as absent.
pub(super) fn check_known(resource: &Map<String, Value>) -> Result<(), ApiError> {
    let is_known = |key: &str| key == "updated" || SETTABLE.contains(&key) || TOLD.contains(&key);
    let unknown = resource
        .iter()
        .find(|(key, value)| !is_known(key) && !says_nothing(value));
    unknown.map_or(Ok(()), |(key, _)| {
        let message = format!("The emulator does not implement {key} of buckets.");
        Err(ApiError::new(Kind::NotImplemented, message))
    })
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(_) | Value::String(_) => false,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
    }
}

/// Merges what a resource says of labels: a string sets one, `null` removes it, or all of them.
pub(super) fn merge_labels(
    labels: &mut BTreeMap<String, String>,
    resource: &Map<String, Value>,
) -> Result<(), ApiError> {
    match resource.get("labels") {
        None => return Ok(()),
        Some(Value::Null) => labels.clear(),
        Some(Value::Object(entries)) => {
            for (key, value) in entries {
                match value {
                    Value::Null => labels.remove(key),
                    Value::String(text) if is_label(key, text) => {
                        labels.insert(key.clone(), text.clone())
                    }
                    _ => return Err(invalid(key)),
                };
            }
        }
        Some(_) => return Err(invalid("labels")),
    }
    match labels.len() {
        0..=64 => Ok(()),
        _ => Err(ApiError::invalid("A bucket has at most 64 labels.")),
    }
}

fn invalid(key: &str) -> ApiError {
    ApiError::invalid(format!("Invalid value for label {key}"))
}

/// "Requirements for bucket labels" in the documentation of Cloud Storage.
fn is_label(key: &str, value: &str) -> bool {
    let is_fit = |text: &str| {
        let fits = |c: char| (c.is_alphanumeric() && !c.is_uppercase()) || matches!(c, '_' | '-');
        text.chars().count() <= 63 && text.chars().all(fits)
    };
    key.starts_with(char::is_alphabetic) && is_fit(key) && is_fit(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_would_be_forgotten_is_refused_by_name() {
        for (resource, refused) in [
            (
                json!({"labels": {"a": "b"}, "etag": "x", "timeCreated": "x", "updated": "x"}),
                None,
            ),
            (json!({"cors": [], "website": {}, "logging": null}), None),
            (
                json!({"lifecycle": {"rule": []}, "autoclass": {"enabled": false}}),
                None,
            ),
            (json!({"lifecycle": {"rule": [{}]}}), Some("lifecycle")),
            (
                json!({"encryption": {"defaultKmsKeyName": "k"}}),
                Some("encryption"),
            ),
            (json!({"nonsense": 0}), Some("nonsense")),
        ] {
            let message = check_known(&map(&resource)).err().map(|e| e.to_string());
            let told = message
                .as_deref()
                .map(|text| text.contains(refused.unwrap_or("?")));
            assert_eq!(told, refused.map(|_| true), "{resource}: {message:?}");
        }
    }

    #[test]
    fn labels_are_set_and_removed_one_by_one() {
        let mut labels = BTreeMap::new();
        let mut merge = |value: Value| {
            merge_labels(&mut labels, &map(&json!({ "labels": value }))).map(|()| json!(labels))
        };
        assert_eq!(
            merge(json!({"a": "1", "b": ""})).unwrap(),
            json!({"a": "1", "b": ""})
        );
        assert_eq!(
            merge(json!({"b": null, "c-d_e": "é"})).unwrap(),
            json!({"a": "1", "c-d_e": "é"})
        );
        for wrong in [
            json!({"A": "x"}),
            json!({"a": "X"}),
            json!({"1": "x"}),
            json!({"a": 1}),
            json!([]),
        ] {
            assert!(merge(wrong.clone()).is_err(), "{wrong}");
        }
        assert_eq!(merge(Value::Null).unwrap(), json!({}));
        let many: Map<String, Value> = (0..65).map(|i| (format!("k{i}"), "".into())).collect();
        assert!(merge(many.into()).is_err());
    }
}
