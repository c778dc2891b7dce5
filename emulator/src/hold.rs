//! What keeps an object from being deleted or replaced: holds that a caller sets on it, and the retention policy of its
//! bucket. See "Object holds" and "Bucket Lock" in the documentation of Cloud Storage.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::clock::Timestamp;
use crate::error::{ApiError, Kind};
use crate::object::{Object, rfc3339_seconds};

/// The holds of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holds {
    pub(crate) temporary: bool,
    /// Its release begins the retention period.
    pub(crate) event_based: bool,
}

impl Holds {
    /// What a resource says of them is set, `null` clears.
    pub(crate) fn merge(&mut self, resource: &Map<String, Value>) -> Result<(), ApiError> {
        let holds = [
            ("temporaryHold", &mut self.temporary),
            ("eventBasedHold", &mut self.event_based),
        ];
        for (key, hold) in holds {
            match resource.get(key) {
                None => {}
                Some(Value::Null) => *hold = false,
                Some(Value::Bool(held)) => *hold = *held,
                Some(_) => {
                    let message = format!("Invalid value for field {key}: true or false is wanted");
                    return Err(ApiError::invalid(message));
                }
            }
        }
        Ok(())
    }
}

/// Until when the bucket's policy keeps an object; unknown while an event-based hold is on it.
pub(crate) fn retained_until(object: &Object, retention: Option<Duration>) -> Option<Timestamp> {
    let period = retention.filter(|_| !object.attributes.holds.event_based)?;
    Some(object.retained_from.saturating_add(period))
}

/// Refuses what would end a version that is held or retained.
pub(crate) fn check_free(
    object: &Object,
    retention: Option<Duration>,
    now: Timestamp,
) -> Result<(), ApiError> {
    let Object { bucket, name, .. } = object;
    let holds = object.attributes.holds;
    let kind = match (holds.temporary, holds.event_based) {
        (true, _) => Some("Temporary"),
        (_, true) => Some("Event-Based"),
        _ => None,
    };
    if let Some(kind) = kind {
        return Err(ApiError::new(
            Kind::ObjectUnderActiveHold,
            format!(
                "Object '{bucket}/{name}' is under active {kind} hold and cannot be deleted, overwritten or archived \
                 until hold is removed."
            ),
        ));
    }
    match retained_until(object, retention).filter(|until| *until > now) {
        None => Ok(()),
        Some(until) => Err(ApiError::new(
            Kind::RetentionPolicyNotMet,
            format!(
                "Object '{bucket}/{name}' is subject to bucket's retention policy or object retention and cannot be \
                 deleted or overwritten until {}",
                rfc3339_seconds(until)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::name::{BucketName, ObjectName};
    use crate::object::Attributes;

    #[test]
    fn holds_and_periods_keep_an_object() {
        const PERIOD: Option<Duration> = Some(Duration::from_secs(10));
        for (temporary, event_based, retention, now, kept) in [
            (false, false, None, 0, None),
            (true, false, None, 0, Some(Kind::ObjectUnderActiveHold)),
            (false, true, None, 0, Some(Kind::ObjectUnderActiveHold)),
            (false, true, PERIOD, 99, Some(Kind::ObjectUnderActiveHold)),
            (false, false, PERIOD, 14, Some(Kind::RetentionPolicyNotMet)),
            (false, false, PERIOD, 15, None),
            (true, false, PERIOD, 99, Some(Kind::ObjectUnderActiveHold)),
        ] {
            let object = Object {
                bucket: BucketName::parse("bucket").unwrap(),
                name: ObjectName::parse("a").unwrap(),
                generation: 1,
                metageneration: 1,
                created: Duration::ZERO,
                updated: Duration::ZERO,
                retained_from: Duration::from_secs(5),
                content: Content::default(),
                attributes: Attributes {
                    holds: Holds {
                        temporary,
                        event_based,
                    },
                    ..Attributes::default()
                },
            };
            let checked = check_free(&object, retention, Duration::from_secs(now));
            assert_eq!(checked.err().map(|error| error.kind), kept, "{object:?}");
        }
    }

    #[test]
    fn holds_are_set_and_cleared_by_name() {
        let mut holds = Holds::default();
        let mut merge = |text: &str| {
            let resource = serde_json::from_str(text).unwrap();
            holds
                .merge(&resource)
                .map(|()| (holds.temporary, holds.event_based))
        };
        assert_eq!(merge("{}").unwrap(), (false, false));
        assert_eq!(merge(r#"{"temporaryHold":true}"#).unwrap(), (true, false));
        assert_eq!(merge(r#"{"eventBasedHold":true}"#).unwrap(), (true, true));
        assert_eq!(merge(r#"{"temporaryHold":null}"#).unwrap(), (false, true));
        assert_eq!(
            merge(r#"{"eventBasedHold":false}"#).unwrap(),
            (false, false)
        );
        assert!(merge(r#"{"temporaryHold":"true"}"#).is_err());
    }
}
