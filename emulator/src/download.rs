//! Reads of object data, for the JSON and the XML API: ranges, headers, and unpacking of stored gzip.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::body::ReplyBody;
use crate::call::Call;
use crate::error::{ApiError, Dialect, Kind};
use crate::object::{Object, http_date};
use crate::range::{Selection, select};

/// Answers with the object's bytes, or the part of them that a `Range` header selects.
pub(crate) fn reply(call: &Call, object: &Object) -> Result<Response<ReplyBody>, ApiError> {
    let mut headers = describe(object, call.route.dialect);
    if unpacks(call, object) {
        return Ok(unpacked(object, headers));
    }
    let size = object.size();
    let content_encoding = object.attributes.content_encoding.as_deref();
    set(&mut headers, header::CONTENT_ENCODING, content_encoding);
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let (status, range) = match select(call.header("range"), size) {
        Selection::Whole => (StatusCode::OK, 0..size),
        Selection::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Selection::Unsatisfiable => return Err(unsatisfiable(size)),
    };
    if status == StatusCode::PARTIAL_CONTENT {
        let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        set(&mut headers, header::CONTENT_RANGE, Some(&content_range));
    }
    headers.insert(
        header::CONTENT_LENGTH,
        HeaderValue::from(range.end - range.start),
    );
    let mut reply = Response::new(ReplyBody::object(object.content.rope.reader(range)));
    *reply.status_mut() = status;
    *reply.headers_mut() = headers;
    Ok(reply)
}

fn unsatisfiable(size: u64) -> ApiError {
    let content_range = HeaderValue::try_from(format!("bytes */{size}"));
    let content_range = content_range.expect("digits make a header value");
    ApiError::new(Kind::RangeNotSatisfiable, "Request range not satisfiable")
        .with_header(header::CONTENT_RANGE, content_range)
}

/// GCS unpacks stored gzip for callers that do not say they can, unless the object's `Cache-Control` forbids it.
fn unpacks(call: &Call, object: &Object) -> bool {
    let accepted = call.header("accept-encoding").unwrap_or_default();
    object.attributes.is_gzip() && !object.attributes.forbids_transform() && !accepts_gzip(accepted)
}

fn accepts_gzip(accept_encoding: &str) -> bool {
    accept_encoding.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let refused =
            parts.any(|part| part.strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0));
        matches!(name, "gzip" | "x-gzip" | "*") && !refused
    })
}

/// Ranges are not honoured while unpacking, and the length is not known beforehand.
fn unpacked(object: &Object, mut headers: HeaderMap) -> Response<ReplyBody> {
    headers.insert(
        "warning",
        HeaderValue::from_static("214 UploadServer gunzipped"),
    );
    let reader = object.content.rope.reader(0..object.size());
    let mut reply = Response::new(ReplyBody::gunzip(reader));
    *reply.headers_mut() = headers;
    reply
}

/// The headers that describe an object whatever part of it is sent.
fn describe(object: &Object, dialect: Dialect) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let attributes = &object.attributes;
    let content_type = attributes
        .content_type
        .as_deref()
        .unwrap_or("application/octet-stream");
    let cache_control = attributes
        .cache_control
        .as_deref()
        .unwrap_or("private, max-age=0");
    let content_encoding = attributes.content_encoding.as_deref().unwrap_or("identity");
    let storage_class = attributes.storage_class.as_deref().unwrap_or("STANDARD");
    set(&mut headers, header::CONTENT_TYPE, Some(content_type));
    set(&mut headers, header::CACHE_CONTROL, Some(cache_control));
    set(
        &mut headers,
        header::CONTENT_DISPOSITION,
        attributes.content_disposition.as_deref(),
    );
    set(
        &mut headers,
        header::CONTENT_LANGUAGE,
        attributes.content_language.as_deref(),
    );
    set(
        &mut headers,
        header::LAST_MODIFIED,
        Some(&http_date(object.updated)),
    );
    set(&mut headers, header::ETAG, Some(&etag(object, dialect)));
    let own = |name| HeaderName::from_static(name);
    headers.insert(
        own("x-goog-generation"),
        HeaderValue::from(object.generation),
    );
    headers.insert(
        own("x-goog-metageneration"),
        HeaderValue::from(object.metageneration),
    );
    headers.insert(
        own("x-goog-stored-content-length"),
        HeaderValue::from(object.size()),
    );
    set(
        &mut headers,
        own("x-goog-stored-content-encoding"),
        Some(content_encoding),
    );
    set(
        &mut headers,
        own("x-goog-storage-class"),
        Some(storage_class),
    );
    describe_hashes(object, &mut headers);
    for (key, value) in &attributes.metadata {
        if let Ok(name) = HeaderName::try_from(format!("x-goog-meta-{key}")) {
            set(&mut headers, name, Some(value));
        }
    }
    headers
}

fn describe_hashes(object: &Object, headers: &mut HeaderMap) {
    let name = HeaderName::from_static("x-goog-hash");
    let hashes = [
        Some(format!("crc32c={}", object.crc32c())),
        object.md5().map(|md5| format!("md5={md5}")),
    ];
    for hash in hashes.into_iter().flatten() {
        if let Ok(value) = HeaderValue::try_from(hash) {
            headers.append(name.clone(), value);
        }
    }
    if let Some(components) = object.content.components {
        headers.insert("x-goog-component-count", HeaderValue::from(components));
    }
}

/// The XML API's is the MD5 in hexadecimal where there is one, in quotes.
pub(crate) fn etag(object: &Object, dialect: Dialect) -> String {
    match dialect {
        Dialect::Json | Dialect::Text | Dialect::Iam | Dialect::OAuth => object.etag(),
        Dialect::Xml => format!("\"{}\"", object.version().xml_etag()),
    }
}

/// Sets a header to what a caller stored, if a header can carry it.
fn set(headers: &mut HeaderMap, name: HeaderName, value: Option<&str>) {
    if let Some(value) = value.and_then(|text| HeaderValue::from_bytes(text.as_bytes()).ok()) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_unless_refused() {
        for accepted in ["gzip", "deflate, gzip;q=0.5", "*", "x-gzip"] {
            assert!(accepts_gzip(accepted), "{accepted}");
        }
        for refused in ["", "identity", "deflate, br", "gzip;q=0", "gzip; q=0.0"] {
            assert!(!accepts_gzip(refused), "{refused}");
        }
    }
}
