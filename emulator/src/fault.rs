//! Faults as data: rules that strike requests by method and object name, and the instructions of retry tests, which
//! are rules for the requests that name the test.

pub(crate) mod retry_test;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::operation::Operation;
use crate::pattern::Pattern;
use retry_test::{Instruction, RetryTest};

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

impl FaultRule {
    /// Refuses a rule that never strikes, or that strikes with what is no answer.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        check_method(self.method.as_deref().unwrap_or("*"))?;
        let (FaultAction::Status { code, .. } | FaultAction::StatusInBody { code, .. }) =
            &self.action
        else {
            return Ok(());
        };
        match code {
            100..=599 => Ok(()),
            _ => Err(ApiError::invalid(format!(
                "{code} is no HTTP status: 100 to 599 are"
            ))),
        }
    }
}

/// Refuses a pattern that no method matches which faults and latencies are for.
pub(crate) fn check_method(pattern: &str) -> Result<(), ApiError> {
    let (parsed, all) = (Pattern::whole(pattern), Operation::ALL.iter());
    let names = all.filter(|one| **one != Operation::Admin);
    let known: Vec<&str> = names.map(|one| one.name()).collect();
    if known.iter().any(|name| parsed.matches(name)) {
        return Ok(());
    }
    let known = known.join(", ");
    let message = format!("there is no method {pattern:?} here, but there are {known}");
    Err(ApiError::invalid(message))
}

/// What happens to a request that is struck.
///
/// In JSON: `{"status": {"code": 503, "reason": "backendError", "retry_after": 1}}`, `"reset"`, `"lost_answer"`,
/// `{"stall": {"ms": 500}}`, `{"stall_body": {"after": 1024, "ms": 500}}`, `{"truncate": {"after": 1024}}`,
/// `{"slow_body": {"bytes_per_second": 1024}}`, `{"cut_answer": {"after": 1024}}`,
/// `{"status_in_body": {"after": 1024, "code": 503}}`, `"wrong_checksum"`, `"empty_page"`, `"revoke_token"`.
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
    /// The request is carried out, then the connection drops inside the body of the answer, whatever the method.
    CutAnswer {
        /// Bytes of the answer's body that pass first.
        after: u64,
    },
    /// An upload's request is refused in the middle of its body; a resumable session keeps what it persisted until then.
    /// The body of any other request's reply is cut there.
    StatusInBody {
        /// Body bytes that pass first.
        after: u64,
        /// HTTP status.
        code: u16,
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

/// Which of the requests of its method an instruction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Any,
    /// Uploads whose body takes the object to this size or beyond, from below.
    Reaches(u64),
    /// Requests that complete a resumable upload.
    Completes,
}

/// The part of an object that the body of an upload's request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether it ends an upload of several requests.
    pub(crate) completes: bool,
}

/// What rules look at of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) operation: Operation,
    pub(crate) name: &'a str,
    /// The retry test that it names.
    pub(crate) test: Option<&'a str>,
    /// Of uploads.
    pub(crate) span: Option<Span>,
}

/// The rules in force.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    rules: Mutex<Rules>,
    /// Spares requests the lock while there are no rules, which is nearly always.
    any: AtomicBool,
}

#[derive(Debug, Default)]
struct Rules {
    armed: Vec<Armed>,
    /// The retry tests that exist, whether or not there are instructions left.
    tests: Vec<String>,
}

#[derive(Debug)]
struct Armed {
    method: Pattern,
    name: Option<Pattern>,
    skip: u64,
    left: u64,
    action: FaultAction,
    scripted: Option<Scripted>,
}

/// What makes a rule an instruction of a retry test.
#[derive(Debug)]
struct Scripted {
    test: String,
    method: String,
    text: String,
    condition: Condition,
}

impl Faults {
    pub(crate) fn add(&self, rule: FaultRule) {
        self.change(|rules| rules.armed.push(Armed::new(rule)));
    }

    pub(crate) fn clear(&self) {
        self.change(|rules| *rules = Rules::default());
    }

    fn change<T>(&self, work: impl FnOnce(&mut Rules) -> T) -> T {
        let mut rules = self.rules.lock();
        let outcome = work(&mut rules);
        self.any.store(!rules.armed.is_empty(), Ordering::Release);
        outcome
    }

    /// Whether a rule asks for a name, which some requests keep in their body.
    pub(crate) fn go_by_name(&self) -> bool {
        let rules = || self.rules.lock();
        self.any.load(Ordering::Acquire) && rules().armed.iter().any(|rule| rule.name.is_some())
    }

    /// The action for one request, if a rule strikes it.
    pub(crate) fn strike(&self, target: Target<'_>) -> Option<FaultAction> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.change(|rules| {
            let mut later = false;
            let struck = rules
                .armed
                .iter_mut()
                .find_map(|rule| rule.strike(target, &mut later));
            rules.armed.retain(|rule| rule.left > 0);
            struck
        })
    }

    /// Adds a test, unless there are `most` already.
    pub(crate) fn add_retry_test(
        &self,
        id: &str,
        instructions: Vec<Instruction>,
        most: usize,
    ) -> bool {
        self.change(|rules| {
            if rules.tests.len() >= most {
                return false;
            }
            rules.tests.push(id.to_owned());
            let armed = instructions.into_iter();
            rules
                .armed
                .extend(armed.map(|one| Armed::scripted(id, one)));
            true
        })
    }

    pub(crate) fn knows_retry_test(&self, id: &str) -> bool {
        self.rules.lock().tests.iter().any(|known| known == id)
    }

    /// What is left of a test, if it exists.
    pub(crate) fn retry_test(&self, id: &str) -> Option<RetryTest> {
        let rules = self.rules.lock();
        let known = rules.tests.iter().any(|known| known == id);
        known.then(|| rules.retry_test(id))
    }

    pub(crate) fn retry_tests(&self) -> Vec<RetryTest> {
        let rules = self.rules.lock();
        rules.tests.iter().map(|id| rules.retry_test(id)).collect()
    }

    /// Whether there was such a test.
    pub(crate) fn remove_retry_test(&self, id: &str) -> bool {
        self.change(|rules| {
            let before = rules.tests.len();
            rules.tests.retain(|known| known != id);
            let is_of = |rule: &Armed| rule.scripted.as_ref().is_some_and(|s| s.test == id);
            rules.armed.retain(|rule| !is_of(rule));
            rules.tests.len() < before
        })
    }
}

impl Rules {
    fn retry_test(&self, id: &str) -> RetryTest {
        let mut test = RetryTest {
            id: id.to_owned(),
            instructions: std::collections::BTreeMap::new(),
            completed: true,
            transport: "HTTP",
        };
        let scripted = self.armed.iter().filter_map(|rule| rule.scripted.as_ref());
        for left in scripted.filter(|scripted| scripted.test == id) {
            let of_method = test.instructions.entry(left.method.clone()).or_default();
            of_method.push(left.text.clone());
            test.completed = false;
        }
        test
    }
}

impl Armed {
    fn new(rule: FaultRule) -> Self {
        Self {
            method: Pattern::whole(rule.method.as_deref().unwrap_or("*")),
            name: rule.name.as_deref().map(Pattern::anywhere),
            skip: rule.after,
            left: rule.count,
            action: rule.action,
            scripted: None,
        }
    }

    fn scripted(test: &str, instruction: Instruction) -> Self {
        // The testbench has one name for reads of data and of metadata, and one for every step of an upload.
        let method = match instruction.method.as_str() {
            method @ ("storage.objects.get" | "storage.objects.insert") => format!("{method}*"),
            method => method.to_owned(),
        };
        Self {
            scripted: Some(Scripted {
                test: test.to_owned(),
                method: instruction.method,
                text: instruction.text,
                condition: instruction.condition,
            }),
            ..Self::new(FaultRule::once(method, instruction.action))
        }
    }

    /// Strikes the request, if the rule is for it. Instructions of a test come one after the other: `later` tells that
    /// one before this is still to come.
    fn strike(&mut self, target: Target<'_>, later: &mut bool) -> Option<FaultAction> {
        let matches = self.method.matches(target.operation.name())
            && self
                .name
                .as_ref()
                .is_none_or(|pattern| pattern.matches(target.name));
        if !matches || self.left == 0 {
            return None;
        }
        if let Some(scripted) = &self.scripted {
            if target.test != Some(&scripted.test) || std::mem::replace(later, true) {
                return None;
            }
            let struck = scripted.condition.meets(&self.action, target.span)?;
            self.left = 0;
            return Some(struck);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.left -= 1;
        Some(self.action.clone())
    }
}

impl Condition {
    /// The action as it is for a request that meets the condition: what counts bytes of the object counts those of the
    /// body then.
    fn meets(self, action: &FaultAction, span: Option<Span>) -> Option<FaultAction> {
        match self {
            Self::Any => Some(action.clone()),
            Self::Completes => span.filter(|span| span.completes).map(|_| action.clone()),
            Self::Reaches(size) => {
                let span = span.filter(|span| span.start < size && size <= span.end)?;
                Some(action.clone().behind(span.start))
            }
        }
    }
}

impl FaultAction {
    /// This action with `skipped` bytes less before it.
    fn behind(self, skipped: u64) -> Self {
        match self {
            Self::StallBody { after, duration } => Self::StallBody {
                after: after.saturating_sub(skipped),
                duration,
            },
            Self::StatusInBody { after, code } => Self::StatusInBody {
                after: after.saturating_sub(skipped),
                code,
            },
            other => other,
        }
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
        let strike = |operation, name| {
            let target = Target {
                operation,
                name,
                test: None,
                span: None,
            };
            faults.strike(target).is_some()
        };
        assert!(!strike(Operation::ObjectsList, "dir/"));
        assert!(!strike(Operation::ObjectsGet, "other"));
        let hits: Vec<bool> = (0..5)
            .map(|_| strike(Operation::ObjectsMedia, "dir/x"))
            .collect();
        assert_eq!(hits, [false, true, true, false, false]);
        assert!(!faults.any.load(Ordering::Relaxed));
    }

    #[test]
    fn rules_that_never_strike_are_refused() {
        let status = |code| FaultAction::Status {
            code,
            reason: None,
            retry_after: None,
        };
        let in_body = |code| FaultAction::StatusInBody { after: 1, code };
        for (method, action, good) in [
            ("storage.objects.get", FaultAction::Reset, true),
            ("storage.objects.insert.*", FaultAction::Reset, true),
            ("metadata", FaultAction::Reset, true),
            ("unknown", FaultAction::Reset, true),
            ("*", status(599), true),
            ("*", status(100), true),
            ("*", in_body(503), true),
            ("storage.objects.fetch", FaultAction::Reset, false),
            ("objects.*", FaultAction::Reset, false),
            ("emulator", FaultAction::Reset, false),
            ("", FaultAction::Reset, false),
            ("*", status(99), false),
            ("*", status(600), false),
            ("*", in_body(0), false),
        ] {
            let rule = FaultRule::once(method, action);
            assert_eq!(rule.check().is_ok(), good, "{rule:?}");
        }
        let told = check_method("typo").unwrap_err().to_string();
        assert!(told.contains("storage.objects.get.media"), "{told}");
        for operation in Operation::ALL
            .iter()
            .filter(|one| **one != Operation::Admin)
        {
            assert!(check_method(operation.name()).is_ok());
        }
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
            r#"{"cut_answer":{"after":9}}"#,
            r#"{"status_in_body":{"after":9,"code":503}}"#,
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
