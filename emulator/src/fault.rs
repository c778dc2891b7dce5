//! Faults as data: rules that strike requests by method and object name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::operation::Operation;
use crate::pattern::Pattern;

/// Which requests a fault strikes. Rules are tried in the order they were added; one that is used up is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRule {
    /// Method name with `*` for anything, such as `storage.objects.get*`; absent for every method of the API.
    #[serde(default)]
    pub method: Option<String>,
    /// Part of the object's name (of the prefix, for a list), or the whole of it with `*` for anything. An upload's is
    /// the `name` in the URL, else that in the resource which its body begins with.
    #[serde(default)]
    pub name: Option<String>,
    /// Matching requests that are let through first.
    #[serde(default)]
    pub after: u64,
    /// Matching requests that are struck then.
    #[serde(default = "once")]
    pub count: u64,
    /// What happens to them.
    pub action: FaultAction,
}

fn once() -> u64 {
    1
}

impl FaultRule {
    /// A rule that strikes the next request to `method`, whatever the object.
    pub fn once(method: impl Into<String>, action: FaultAction) -> Self {
        Self {
            method: Some(method.into()),
            name: None,
            after: 0,
            count: 1,
            action,
        }
    }
}

/// What happens to a request that is struck.
///
/// In JSON: `{"status": {"code": 503, "reason": "backendError", "retry_after": 1}}`, `"reset"`, `"lost_answer"`,
/// `{"stall": {"ms": 500}}`, `{"stall_body": {"after": 1024, "ms": 500}}`, `{"truncate": {"after": 1024}}`,
/// `{"slow_body": {"bytes_per_second": 1024}}`, `"wrong_checksum"`, `"empty_page"`, `"revoke_token"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultAction {
    /// This answer, with nothing done.
    Status {
        /// HTTP status.
        code: u16,
        /// The JSON error's `reason`; absent for what GCS usually says with the status.
        #[serde(default)]
        reason: Option<String>,
        /// Seconds for a `Retry-After` header.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// The connection drops with nothing done and nothing answered.
    Reset,
    /// The request is carried out, then the connection drops without an answer.
    LostAnswer,
    /// Silence before the request is carried out and answered.
    Stall {
        /// How long.
        #[serde(rename = "ms", with = "millis")]
        duration: Duration,
    },
    /// Silence inside the body (the request's for uploads, else the reply's).
    StallBody {
        /// Body bytes that pass first.
        after: u64,
        /// How long.
        #[serde(rename = "ms", with = "millis")]
        duration: Duration,
    },
    /// The connection drops inside the body (the request's for uploads, else the reply's).
    Truncate {
        /// Body bytes that pass first.
        after: u64,
    },
    /// The body (the request's for uploads, else the reply's) passes at this rate, or at the rate of all bodies where
    /// that is lower.
    SlowBody {
        /// Bytes a second; zero counts as one.
        bytes_per_second: u64,
    },
    /// The request is carried out, and the answer tells checksums that do not fit the bytes, in `x-goog-hash` and in
    /// resources.
    WrongChecksum,
    /// A list is answered with a page that has nothing but a token, which leads to what the page should have held.
    EmptyPage,
    /// The access token that the request carries becomes worthless: this request, and all later ones with the token,
    /// are refused with 401. A token that a service account signed itself is refused this once.
    RevokeToken,
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        value: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// The rules in force.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Mutex<Vec<Armed>>,
    /// Spares requests the lock while there are no rules, which is nearly always.
    any: AtomicBool,
}

#[derive(Debug)]
struct Armed {
    method: Pattern,
    name: Option<Pattern>,
    skip: u64,
    left: u64,
    action: FaultAction,
}

impl Faults {
    pub(crate) fn add(&self, rule: FaultRule) {
        let armed = Armed {
            method: Pattern::whole(rule.method.as_deref().unwrap_or("*")),
            name: rule.name.as_deref().map(Pattern::anywhere),
            skip: rule.after,
            left: rule.count,
            action: rule.action,
        };
        let mut rules = self.rules.lock();
        rules.push(armed);
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        let mut rules = self.rules.lock();
        rules.clear();
        self.any.store(false, Ordering::Release);
    }

    /// Whether a rule asks for a name, which some requests keep in their body.
    pub(crate) fn go_by_name(&self) -> bool {
        self.any.load(Ordering::Acquire) && self.rules.lock().iter().any(|rule| rule.name.is_some())
    }

    /// The action for one request, if a rule strikes it.
    pub(crate) fn strike(&self, operation: Operation, name: &str) -> Option<FaultAction> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut rules = self.rules.lock();
        let struck = rules
            .iter_mut()
            .find_map(|rule| rule.strike(operation, name));
        rules.retain(|rule| rule.left > 0);
        self.any.store(!rules.is_empty(), Ordering::Release);
        struck
    }
}

impl Armed {
    fn strike(&mut self, operation: Operation, name: &str) -> Option<FaultAction> {
        let matches = self.method.matches(operation.name())
            && self
                .name
                .as_ref()
                .is_none_or(|pattern| pattern.matches(name));
        if !matches || self.left == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.left -= 1;
        Some(self.action.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_then_strikes_then_is_gone() {
        let faults = Faults::default();
        faults.add(FaultRule {
            method: Some("storage.objects.get*".into()),
            name: Some("dir/".into()),
            after: 1,
            count: 2,
            action: FaultAction::Reset,
        });
        let strike = |operation, name| faults.strike(operation, name).is_some();
        assert!(!strike(Operation::ObjectsList, "dir/"));
        assert!(!strike(Operation::ObjectsGet, "other"));
        let hits: Vec<bool> = (0..5)
            .map(|_| strike(Operation::ObjectsMedia, "dir/x"))
            .collect();
        assert_eq!(hits, [false, true, true, false, false]);
        assert!(!faults.any.load(Ordering::Relaxed));
    }

    #[test]
    fn rules_read_as_json() {
        let rule: FaultRule = serde_json::from_str(
            r#"{"method": "storage.objects.get", "action": {"status": {"code": 503, "retry_after": 2}}}"#,
        )
        .unwrap();
        assert_eq!((rule.after, rule.count), (0, 1));
        let action = FaultAction::Status {
            code: 503,
            reason: None,
            retry_after: Some(2),
        };
        assert_eq!(rule.action, action);
        for action in [
            r#""reset""#,
            r#""lost_answer""#,
            r#"{"stall":{"ms":5}}"#,
            r#"{"truncate":{"after":9}}"#,
            r#"{"slow_body":{"bytes_per_second":9}}"#,
            r#""wrong_checksum""#,
            r#""empty_page""#,
            r#""revoke_token""#,
        ] {
            let parsed: FaultAction = serde_json::from_str(action).unwrap();
            assert_eq!(serde_json::to_string(&parsed).unwrap(), action);
        }
        assert!(serde_json::from_str::<FaultRule>(r#"{"action": "reset", "nmae": "x"}"#).is_err());
    }
}
