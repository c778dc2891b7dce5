//! The Retry Test API of Google's storage testbench, as rules of the same kind as all others.
//!
//! `POST /retry_test` takes `{"instructions": {"storage.objects.get": ["return-503", …]}}` and answers with an `id`.
//! A request that names it in `x-retry-test-id` is struck by the next instruction of its method. See the README of
//! <https://github.com/googleapis/storage-testbench>.

use std::collections::BTreeMap;

use http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Condition, FaultAction, Faults};
use crate::error::{ApiError, Kind};
use crate::operation::Operation;

/// The header that names a test.
pub(crate) const HEADER: &str = "x-retry-test-id";

/// Tests that may exist at a time.
const MAX_TESTS: usize = 1000;

/// Instructions of one test.
const MAX_INSTRUCTIONS: usize = 1000;

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    instructions: BTreeMap<String, Vec<String>>,
    #[serde(default = "http")]
    transport: String,
}

fn http() -> String {
    "HTTP".to_owned()
}

/// A test with what is left of it.
#[derive(Debug, Serialize)]
pub(crate) struct RetryTest {
    pub(crate) id: String,
    pub(crate) instructions: BTreeMap<String, Vec<String>>,
    pub(crate) completed: bool,
    pub(crate) transport: &'static str,
}

/// One instruction of a test.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) method: String,
    pub(crate) text: String,
    pub(crate) action: FaultAction,
    pub(crate) condition: Condition,
}

/// Whether a path is of this API.
pub(crate) fn is_path(path: &str) -> bool {
    path == "/retry_tests" || path == "/retry_test" || path.starts_with("/retry_test/")
}

/// Answers a request to one of the API's paths.
pub(crate) fn answer(
    faults: &Faults,
    parts: &Parts,
    body: &[u8],
    new_id: impl FnOnce() -> String,
) -> Result<Value, ApiError> {
    let path = parts.uri.path().trim_start_matches('/');
    match (parts.method.as_str(), path.split_once('/')) {
        ("GET", None) if path == "retry_tests" => Ok(json!({"retry_test": faults.retry_tests()})),
        ("POST", None) if path == "retry_test" => {
            let instructions = parse(body)?;
            let id = new_id();
            if !faults.add_retry_test(&id, instructions, MAX_TESTS) {
                let message =
                    "there are too many retry tests: DELETE /retry_test/ID those that are over";
                return Err(ApiError::invalid(message));
            }
            Ok(json!(faults.retry_test(&id)))
        }
        ("GET", Some((_, id))) => {
            let test = faults.retry_test(id).ok_or_else(|| unknown(id))?;
            Ok(json!(test))
        }
        ("DELETE", Some((_, id))) if faults.remove_retry_test(id) => Ok(json!({})),
        ("DELETE", Some((_, id))) => Err(unknown(id)),
        _ => Err(ApiError::new(
            Kind::MethodNotAllowed,
            "the retry test API has no such call",
        )),
    }
}

/// The refusal of a test that nobody created.
pub(crate) fn unknown(id: &str) -> ApiError {
    ApiError::new(Kind::NothingHere, format!("there is no retry test {id:?}"))
}

fn parse(body: &[u8]) -> Result<Vec<Instruction>, ApiError> {
    let body: Body = serde_json::from_slice(body)
        .map_err(|error| ApiError::new(Kind::Unparsable, error.to_string()))?;
    if !body.transport.eq_ignore_ascii_case("HTTP") {
        let message = "the only transport here is HTTP";
        return Err(ApiError::invalid(message));
    }
    let count: usize = body.instructions.values().map(Vec::len).sum();
    if !(1..=MAX_INSTRUCTIONS).contains(&count) {
        return Err(ApiError::invalid(format!(
            "instructions must hold 1 to {MAX_INSTRUCTIONS} instructions by method"
        )));
    }
    let mut instructions = Vec::with_capacity(count);
    for (method, texts) in body.instructions {
        if !Operation::ALL.iter().any(|known| known.name() == method) {
            return Err(ApiError::invalid(format!(
                "there is no method {method:?} here"
            )));
        }
        for text in texts {
            let (action, condition) = instruction(&text, method == "storage.objects.insert")
                .ok_or_else(|| {
                    ApiError::invalid(format!("{text:?} is no instruction for {method}"))
                })?;
            instructions.push(Instruction {
                method: method.clone(),
                text,
                action,
                condition,
            });
        }
    }
    Ok(instructions)
}

/// The action that an instruction is, and of which requests.
fn instruction(text: &str, is_upload: bool) -> Option<(FaultAction, Condition)> {
    let any = |action| Some((action, Condition::Any));
    if let Some(rest) = text.strip_prefix("stall-for-") {
        let (seconds, kib) = rest.strip_suffix('K')?.split_once("s-after-")?;
        let after = kib.parse::<u64>().ok()?.checked_mul(1024)?;
        let duration = std::time::Duration::from_secs(seconds.parse().ok()?);
        let action = FaultAction::StallBody { after, duration };
        return Some(match is_upload {
            true => (action, Condition::Reaches(after)),
            false => (action, Condition::Any),
        });
    }
    match text.strip_prefix("return-")? {
        "reset-connection" => any(FaultAction::Reset),
        "broken-stream" if is_upload => any(FaultAction::CutAnswer { after: 4 }),
        "broken-stream" => any(FaultAction::Truncate { after: 4 }),
        rest => return_after(rest, is_upload),
    }
}

fn return_after(rest: &str, is_upload: bool) -> Option<(FaultAction, Condition)> {
    if let Some(bytes) = rest.strip_prefix("broken-stream-final-chunk-after-") {
        let after = bytes.strip_suffix('B')?.parse().ok()?;
        let action = FaultAction::CutAnswer { after };
        return is_upload.then_some((action, Condition::Completes));
    }
    if let Some(kib) = rest.strip_prefix("broken-stream-after-") {
        let after = kib
            .strip_suffix('K')?
            .parse::<u64>()
            .ok()?
            .checked_mul(1024)?;
        return (!is_upload).then_some((FaultAction::Truncate { after }, Condition::Any));
    }
    let (code, kib) = match rest.split_once("-after-") {
        None => (rest, None),
        Some((code, kib)) => (code, Some(kib.strip_suffix('K')?)),
    };
    let code = code.parse().ok().filter(|code| (300..600).contains(code))?;
    let Some(kib) = kib else {
        let action = FaultAction::Status {
            code,
            reason: None,
            retry_after: None,
        };
        return Some((action, Condition::Any));
    };
    let after = kib.parse::<u64>().ok()?.checked_mul(1024)?;
    let action = FaultAction::StatusInBody { after, code };
    is_upload.then_some((action, Condition::Reaches(after)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn instructions_are_actions() {
        let status = |code| FaultAction::Status {
            code,
            reason: None,
            retry_after: None,
        };
        let stall = |after| FaultAction::StallBody {
            after,
            duration: Duration::from_secs(2),
        };
        const K256: u64 = 256 * 1024;
        for (text, is_upload, expected) in [
            ("return-503", false, Some((status(503), Condition::Any))),
            (
                "return-reset-connection",
                true,
                Some((FaultAction::Reset, Condition::Any)),
            ),
            (
                "return-broken-stream",
                false,
                Some((FaultAction::Truncate { after: 4 }, Condition::Any)),
            ),
            (
                "return-broken-stream",
                true,
                Some((FaultAction::CutAnswer { after: 4 }, Condition::Any)),
            ),
            (
                "return-broken-stream-after-256K",
                false,
                Some((FaultAction::Truncate { after: K256 }, Condition::Any)),
            ),
            (
                "return-broken-stream-final-chunk-after-9B",
                true,
                Some((FaultAction::CutAnswer { after: 9 }, Condition::Completes)),
            ),
            (
                "return-503-after-256K",
                true,
                Some((
                    FaultAction::StatusInBody {
                        after: K256,
                        code: 503,
                    },
                    Condition::Reaches(K256),
                )),
            ),
            (
                "stall-for-2s-after-256K",
                true,
                Some((stall(K256), Condition::Reaches(K256))),
            ),
            (
                "stall-for-2s-after-1K",
                false,
                Some((stall(1024), Condition::Any)),
            ),
            ("return-503-after-256K", false, None),
            ("return-broken-stream-final-chunk-after-9B", false, None),
            ("return-200", false, None),
            ("return-503-after-256", true, None),
            ("return-", false, None),
            ("stall-for-s-after-1K", false, None),
            ("redirect-send-token-T", false, None),
        ] {
            assert_eq!(instruction(text, is_upload), expected, "{text}");
        }
    }

    #[test]
    fn bodies_that_are_refused() {
        for body in [
            "",
            "{}",
            r#"{"instructions":{"storage.objects.get":[]}}"#,
            r#"{"instructions":{"storage.nothing":["return-503"]}}"#,
            r#"{"instructions":{"storage.objects.get":["return-x"]}}"#,
            r#"{"instructions":{"storage.objects.get":["return-503"]},"transport":"GRPC"}"#,
        ] {
            assert!(parse(body.as_bytes()).is_err(), "{body}");
        }
    }
}
