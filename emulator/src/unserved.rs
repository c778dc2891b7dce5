//! What the storage API has and the emulator has not. A client must not take it for something else: "not found" would
//! say that a bucket is missing, and a call that is about a part of an object would be carried out on the whole of it.

use http::request::Parts;
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;

use crate::error::{ApiError, Dialect, Kind};
use crate::name::BucketName;
use crate::query::Query;
use crate::route::Route;

/// The parameters of the XML API that are honoured.
const PARAMETERS: [&str; 4] = [
    "generation",
    "response-content-disposition",
    "response-content-type",
    "userProject",
];

/// Headers that make another call of a `PUT`: the body is not what is to be stored then.
const CALLS: [&str; 2] = ["x-goog-copy-source", "x-amz-copy-source"];

const ROOTS: [&str; 5] = [
    "/storage/",
    "/upload/storage/",
    "/resumable/upload/storage/",
    "/download/storage/",
    "/batch/",
];

/// Whether a path is the JSON API's, served or not.
pub(crate) fn is_json(path: &str) -> bool {
    ROOTS.iter().any(|root| path.starts_with(root))
}

/// What makes a request to an XML path something else than a plain call of its object or bucket, and is not served.
pub(crate) fn foreign<'a>(query: &'a Query, headers: &HeaderMap) -> Option<&'a str> {
    let header = CALLS.into_iter().find(|name| headers.contains_key(*name));
    let parameter = query.names().find(|name| !PARAMETERS.contains(name));
    header.or(parameter)
}

/// Why a request without an operation is refused.
pub(crate) fn refusal(route: &Route, query: &Query, parts: &Parts) -> ApiError {
    let path = parts.uri.path();
    if percent_decode_str(path).decode_utf8().is_err() {
        return ApiError::invalid("The path of the request is not UTF-8.");
    }
    let of_storage = match route.dialect {
        Dialect::Json => is_json(path),
        Dialect::Xml => is_bucket(path) || (path == "/" && parts.method == Method::GET),
        Dialect::Text | Dialect::Iam | Dialect::OAuth => false,
    };
    if !of_storage {
        return ApiError::new(Kind::NothingHere, "Not Found");
    }
    let method = &parts.method;
    let what = match route.dialect {
        Dialect::Xml => foreign(query, &parts.headers),
        _ => None,
    };
    let with = what.map_or_else(String::new, |what| format!(" with {what}"));
    let message = format!("The emulator does not implement {method} {path}{with}.");
    ApiError::new(Kind::NotImplemented, message)
}

/// Whether the first segment of a path could name a bucket.
fn is_bucket(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    BucketName::parse(first).is_ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn refused(method: &str, uri: &str, header: &str) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(uri);
        if !header.is_empty() {
            request = request.header(header, "/bucket/other");
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let query = Query::parse(parts.uri.query());
        let route = Route::of(&parts, &query);
        assert_eq!(route.operation.name(), "unknown", "{method} {uri}");
        let error = refusal(&route, &query, &parts);
        (error.kind.status().as_u16(), error.to_string())
    }

    #[test]
    fn only_what_is_no_api_is_not_found() {
        for (method, uri, header, status) in [
            ("PUT", "/bucket/o?acl", "", 501),
            ("GET", "/bucket/o?acl", "", 501),
            ("PUT", "/bucket/o?compose", "", 501),
            ("PUT", "/bucket/o?tagging", "", 501),
            ("PUT", "/bucket/o?partNumber=1&uploadId=x", "", 501),
            ("DELETE", "/bucket/o?uploadId=x", "", 501),
            ("DELETE", "/bucket/o?generation=1&uploadId=x", "", 501),
            ("POST", "/bucket/o?uploads", "", 501),
            ("POST", "/bucket/o", "x-goog-resumable", 501),
            ("PUT", "/bucket/o", "x-goog-copy-source", 501),
            ("PUT", "/bucket/o", "x-amz-copy-source", 501),
            ("GET", "/bucket", "", 501),
            ("GET", "/bucket/?list-type=2", "", 501),
            ("HEAD", "/bucket?location", "", 501),
            ("PUT", "/bucket", "", 501),
            ("GET", "/", "", 501),
            ("GET", "/storage/v1/b/bucket/iam", "", 501),
            ("GET", "/storage/v1/b/bucket/o/a/acl", "", 501),
            ("GET", "/storage/v1/projects/p/serviceAccount", "", 501),
            ("PUT", "/upload/storage/v1/b/bucket/o", "", 501),
            ("GET", "/batch/storage/v1", "", 501),
            ("GET", "/storage/v1/b/bucket/o/%ff", "", 400),
            ("GET", "/bucket/%ff", "", 400),
            ("GET", "/v1/token", "", 404),
            ("GET", "/x", "", 404),
            ("POST", "/", "", 404),
        ] {
            let (told, message) = refused(method, uri, header);
            assert_eq!(told, status, "{method} {uri}: {message}");
            let path = uri.split('?').next().unwrap();
            assert!(status != 501 || message.contains(&format!("{method} {path}")));
        }
        assert!(refused("PUT", "/bucket/o?acl", "").1.ends_with("with acl."));
    }

    #[test]
    fn honoured_parameters_leave_a_call_plain() {
        let query = Query::parse(Some(
            "generation=1&userProject=p&response-content-type=text/plain&response-content-disposition=inline",
        ));
        assert_eq!(foreign(&query, &HeaderMap::new()), None);
    }
}
