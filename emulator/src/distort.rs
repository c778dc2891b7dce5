//! Replies that fault rules make wrong after the verb gave the right one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use crate::body::ReplyBody;
use crate::fault::FaultAction;
use crate::listing::START_TOKEN;

/// The reply that a fault makes of the right one; `page_token` is what the request asked for.
pub(crate) fn reply(
    fault: Option<&FaultAction>,
    page_token: Option<&str>,
    reply: Response<ReplyBody>,
) -> Response<ReplyBody> {
    match fault {
        Some(FaultAction::WrongChecksum) => wrong_checksum(reply),
        Some(FaultAction::EmptyPage) => empty_page(page_token.unwrap_or(START_TOKEN), reply),
        _ => reply,
    }
}

fn wrong_checksum(mut reply: Response<ReplyBody>) -> Response<ReplyBody> {
    let headers = reply.headers_mut().iter_mut();
    for (_, value) in headers.filter(|(name, _)| *name == "x-goog-hash") {
        let wrong = value.to_str().ok().and_then(wrong_hash);
        if let Some(wrong) = wrong.and_then(|text| HeaderValue::try_from(text).ok()) {
            *value = wrong;
        }
    }
    rewrite(reply, |mut resource| {
        falsify(&mut resource);
        resource
    })
}

/// A page of a list without what is on it, and with the token that leads there again.
fn empty_page(token: &str, reply: Response<ReplyBody>) -> Response<ReplyBody> {
    rewrite(reply, |page| match page["kind"].as_str() {
        Some("storage#objects" | "storage#folders") => {
            json!({"kind": page["kind"], "nextPageToken": token})
        }
        _ => page,
    })
}

/// Changes the JSON of a reply that was to tell a success.
fn rewrite(reply: Response<ReplyBody>, change: impl FnOnce(Value) -> Value) -> Response<ReplyBody> {
    let resource = reply
        .body()
        .at_hand()
        .map(|body| serde_json::from_slice(body));
    match resource {
        Some(Ok(resource)) if reply.status() == StatusCode::OK => {
            reply.map(|_| ReplyBody::full(change(resource).to_string()))
        }
        _ => reply,
    }
}

/// Makes every checksum in a resource a wrong one.
fn falsify(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(falsify),
        Value::Object(entries) => {
            for (key, value) in entries {
                let hash = value
                    .as_str()
                    .filter(|_| key == "crc32c" || key == "md5Hash");
                match hash.and_then(flipped) {
                    Some(wrong) => *value = wrong.into(),
                    None => falsify(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `crc32c=…` or `md5=…` with another value.
fn wrong_hash(text: &str) -> Option<String> {
    let (kind, value) = text.split_once('=')?;
    Some(format!("{kind}={}", flipped(value)?))
}

/// Another checksum of the same length.
fn flipped(base64: &str) -> Option<String> {
    let mut bytes = BASE64.decode(base64).ok()?;
    *bytes.first_mut()? ^= 1;
    Some(BASE64.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(body: &Value) -> Response<ReplyBody> {
        Response::new(ReplyBody::full(body.to_string()))
    }

    fn told(reply: &Response<ReplyBody>) -> Value {
        serde_json::from_slice(reply.body().at_hand().unwrap()).unwrap()
    }

    #[test]
    fn every_checksum_is_wrong_and_nothing_else_is() {
        let resource = json!({"resource": {"crc32c": "4waSgw==", "md5Hash": "JfnnlDI7RTiF9RgfG2JNCw==", "size": "9"}});
        let mut right = full(&resource);
        let hashes = right.headers_mut();
        hashes.append("x-goog-hash", "crc32c=4waSgw==".parse().unwrap());
        hashes.append(
            "x-goog-hash",
            "md5=JfnnlDI7RTiF9RgfG2JNCw==".parse().unwrap(),
        );
        let wrong = reply(Some(&FaultAction::WrongChecksum), None, right);
        let told = told(&wrong);
        assert_eq!(told["resource"]["crc32c"], "4gaSgw==");
        assert_eq!(told["resource"]["md5Hash"], "JPnnlDI7RTiF9RgfG2JNCw==");
        assert_eq!(told["resource"]["size"], "9");
        let hashes: Vec<_> = wrong.headers().get_all("x-goog-hash").iter().collect();
        assert_eq!(hashes, ["crc32c=4gaSgw==", "md5=JPnnlDI7RTiF9RgfG2JNCw=="]);
    }

    #[test]
    fn a_page_is_emptied_and_leads_to_itself() {
        let list = json!({"kind": "storage#objects", "items": [1], "prefixes": ["a/"], "nextPageToken": "z"});
        for (asked, token) in [(None, START_TOKEN), (Some("t"), "t")] {
            let empty = reply(Some(&FaultAction::EmptyPage), asked, full(&list));
            assert_eq!(
                told(&empty),
                json!({"kind": "storage#objects", "nextPageToken": token})
            );
        }
        let bucket = json!({"kind": "storage#bucket"});
        let other = reply(Some(&FaultAction::EmptyPage), None, full(&bucket));
        assert_eq!(told(&other), bucket);
    }
}
