//! Uploads: what all kinds share. Preconditions are checked before the body is taken, so that a caller learns of
//! a conflict early, and again at publication, which is atomic.

pub(crate) mod media;
pub(crate) mod multipart;
pub(crate) mod resumable;
pub(crate) mod session;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderMap, header};
use serde_json::{Map, Value};

use crate::call::{Call, Outcome};
use crate::content::Content;
use crate::error::{ApiError, Failure, Kind};
use crate::fault::Span;
use crate::inbound::Inbound;
use crate::multipart::{boundary, first};
use crate::name::{BucketName, ObjectName};
use crate::object::{Attributes, Object};
use crate::operation::Operation;
use crate::precondition::{Preconditions, Version};
use crate::role::{Permission, Resource};
use crate::store::{Draft, Terms};

/// `objects.insert` in one request.
pub(crate) async fn insert(call: &Call, inbound: &mut Inbound) -> Outcome {
    let object = match call.query.required("uploadType")? {
        "media" => media::insert(call, inbound).await?,
        "multipart" => multipart::insert(call, inbound).await?,
        other => return Err(ApiError::invalid(format!("Invalid upload type: {other:?}")).into()),
    };
    call.object_json(&object)
}

/// The most of a body that is looked through for a name: above what an object's resource may hold.
const RESOURCE: usize = 64 << 10;

/// The name in the resource that the body of an upload begins with, as far as it can be had without taking the body.
pub(crate) async fn name_ahead(
    operation: Operation,
    headers: &HeaderMap,
    inbound: &mut Inbound,
) -> Option<String> {
    let content_type = headers.get(header::CONTENT_TYPE);
    let boundary = match operation {
        Operation::ObjectsInsert => Some(boundary(content_type?.to_str().ok()?).ok()?),
        Operation::ObjectsInsertStart => None,
        _ => return None,
    };
    let name = |head: &Bytes| {
        let resource = match &boundary {
            Some(boundary) => first(head, boundary.as_bytes())?.body,
            None => head.clone(),
        };
        let resource: Value = serde_json::from_slice(&resource).ok()?;
        Some(resource.get("name")?.as_str()?.to_owned())
    };
    inbound.look_ahead(RESOURCE, name).await
}

/// The part of an object that the body of an upload's request carries; of a body of unknown length, all from its start.
pub(crate) fn span(
    operation: Operation,
    headers: &HeaderMap,
    announced: Option<u64>,
) -> Option<Span> {
    match operation {
        Operation::ObjectsInsert => Some(Span {
            start: 0,
            end: announced.unwrap_or(u64::MAX),
            completes: false,
        }),
        Operation::ObjectsInsertChunk | Operation::ObjectsInsertQuery => {
            let range = headers.get(header::CONTENT_RANGE);
            resumable::span(range.and_then(|value| value.to_str().ok()), announced)
        }
        _ => None,
    }
}

/// Checksums that the caller claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    crc32c: Option<u32>,
    md5: Option<[u8; 16]>,
}

impl Expected {
    /// `crc32c` and `md5Hash` of an object resource.
    pub(crate) fn from_resource(resource: &Map<String, Value>) -> Result<Self, ApiError> {
        let text = |key| resource.get(key).and_then(Value::as_str);
        Ok(Self {
            crc32c: text("crc32c").map(parse_crc32c).transpose()?,
            md5: text("md5Hash").map(parse_md5).transpose()?,
        })
    }

    /// `X-Goog-Hash` and `Content-MD5`.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Result<Self, ApiError> {
        let mut expected = Self::default();
        let lists = headers
            .get_all("x-goog-hash")
            .iter()
            .filter_map(|value| value.to_str().ok());
        for entry in lists.flat_map(|list| list.split(',')) {
            match entry.trim().split_once('=') {
                Some(("crc32c", value)) => expected.crc32c = Some(parse_crc32c(value)?),
                Some(("md5", value)) => expected.md5 = Some(parse_md5(value)?),
                _ => {}
            }
        }
        if let Some(value) = headers
            .get("content-md5")
            .and_then(|value| value.to_str().ok())
        {
            expected.md5 = Some(parse_md5(value)?);
        }
        Ok(expected)
    }

    /// Both sets of claims; those of `other` win.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            crc32c: other.crc32c.or(self.crc32c),
            md5: other.md5.or(self.md5),
        }
    }

    pub(crate) fn check(&self, content: &Content) -> Result<(), ApiError> {
        if let Some(claimed) = self.crc32c.filter(|&claimed| claimed != content.crc32c) {
            let [claimed, actual] =
                [claimed, content.crc32c].map(|crc| BASE64.encode(crc.to_be_bytes()));
            return Err(mismatch("CRC32C", &claimed, &actual));
        }
        let Some(claimed) = self.md5 else {
            return Ok(());
        };
        let actual = content.md5.unwrap_or_else(|| content.rope.md5());
        if claimed != actual {
            return Err(mismatch(
                "MD5 hash",
                &BASE64.encode(claimed),
                &BASE64.encode(actual),
            ));
        }
        Ok(())
    }
}

fn mismatch(what: &str, claimed: &str, actual: &str) -> ApiError {
    ApiError::invalid(format!(
        "Provided {what} \"{claimed}\" doesn't match calculated {what} \"{actual}\"."
    ))
}

fn parse_crc32c(text: &str) -> Result<u32, ApiError> {
    let bytes = BASE64
        .decode(text)
        .ok()
        .and_then(|bytes| bytes.try_into().ok());
    bytes
        .map(u32::from_be_bytes)
        .ok_or_else(|| ApiError::invalid("Invalid crc32c value"))
}

fn parse_md5(text: &str) -> Result<[u8; 16], ApiError> {
    let bytes = BASE64
        .decode(text)
        .ok()
        .and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| ApiError::invalid("Invalid md5Hash value"))
}

/// Where an upload goes and on what terms.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) bucket: BucketName,
    pub(crate) name: ObjectName,
    pub(crate) terms: Terms,
    pub(crate) attributes: Attributes,
    pub(crate) expected: Expected,
}

impl Upload {
    /// Reads the URL and the object resource of an upload request. `content_type` stands in for one that the
    /// resource does not name.
    pub(crate) fn parse(
        call: &Call,
        resource: &Map<String, Value>,
        content_type: Option<&str>,
    ) -> Result<Self, ApiError> {
        let bucket = call.bucket_unguarded()?;
        let name = call
            .query
            .filled("name")
            .or_else(|| resource.get("name").and_then(Value::as_str))
            .ok_or_else(|| ApiError::new(Kind::MissingParameter, "Required"))?;
        call.permit(&bucket, Permission::Create, Resource::Object(name))?;
        let mut attributes = Attributes::from_resource(resource)?;
        let content_type = content_type.unwrap_or("application/octet-stream");
        attributes
            .content_type
            .get_or_insert_with(|| content_type.to_owned());
        if let Some(encoding) = call.query.filled("contentEncoding") {
            attributes.content_encoding = Some(encoding.to_owned());
        }
        let claimed = Expected::from_resource(resource)?;
        Ok(Self {
            terms: Terms {
                conditions: Preconditions::target(&call.query, &call.headers)?,
                replacing: call.replacing(&bucket, name),
            },
            bucket,
            name: ObjectName::parse(name)?,
            attributes,
            expected: claimed.and(Expected::from_headers(&call.headers)?),
        })
    }

    /// Checks the terms against the live version as it is now.
    pub(crate) fn check(&self, call: &Call) -> Result<(), ApiError> {
        let live = match call.state.store.find(&self.bucket, &self.name, None) {
            Ok(object) => object.version(),
            Err(error) if error.kind == Kind::ObjectNotFound => Version::default(),
            Err(error) => return Err(error),
        };
        self.terms.check(live)
    }

    /// Makes the content an object version, if checksums and preconditions hold.
    pub(crate) fn publish(&self, call: &Call, content: Content) -> Result<Arc<Object>, ApiError> {
        self.expected.check(&content)?;
        let draft = Draft {
            content,
            attributes: self.attributes.clone(),
        };
        call.state
            .store
            .insert(&self.bucket, &self.name, &self.terms, draft)
    }
}

/// The result of an upload in one request.
pub(crate) type Inserted = Result<Arc<Object>, Failure>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_from_headers_and_checked() {
        let mut headers = HeaderMap::new();
        headers.append(
            "x-goog-hash",
            "crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfG2JNCw=="
                .parse()
                .unwrap(),
        );
        let expected = Expected::from_headers(&headers).unwrap();
        for with_md5 in [true, false] {
            let content = |data| Content::from_bytes(Bytes::from_static(data), with_md5);
            assert!(expected.check(&content(b"123456789")).is_ok());
            assert!(expected.check(&content(b"12345678")).is_err());
            let md5_only = Expected {
                crc32c: None,
                ..expected
            };
            assert!(md5_only.check(&content(b"x")).is_err());
        }
    }

    #[test]
    fn claims_that_do_not_parse_are_refused() {
        for (name, value) in [
            ("x-goog-hash", "crc32c=x"),
            ("x-goog-hash", "md5=AAAA"),
            ("content-md5", "!"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert!(Expected::from_headers(&headers).is_err(), "{value}");
        }
    }
}
