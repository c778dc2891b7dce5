//! From a method and a path to an operation and the names it is about.

use http::request::Parts;
use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;

use crate::error::Dialect;
use crate::fault::retry_test;
use crate::operation::Operation;
use crate::query::Query;
use crate::unserved;

/// What the path of a request leads to. Names are decoded and not yet checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A path with no bucket in it.
    Service,
    Bucket(String),
    Object {
        bucket: String,
        object: String,
    },
    Folder {
        bucket: String,
        folder: String,
    },
    /// A long-running operation of a bucket.
    LongRunning {
        bucket: String,
        id: String,
    },
    /// A service account, of IAM Credentials.
    ServiceAccount(String),
    /// Two objects, of a rewrite, copy or move, or two folders of a rename.
    Pair {
        from: (String, String),
        to: (String, String),
    },
}

/// A request's operation, place and dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) operation: Operation,
    pub(crate) dialect: Dialect,
    pub(crate) place: Place,
}

impl Route {
    pub(crate) fn of(parts: &Parts, query: &Query) -> Self {
        let path = parts.uri.path();
        if let Some(route) = Self::tokens(path) {
            return match parts.method {
                Method::POST => route,
                _ => Self::service(Operation::Unknown),
            };
        }
        if path == "/_emulator" || path.starts_with("/_emulator/") || retry_test::is_path(path) {
            return Self::service(Operation::Admin);
        }
        let asks_metadata = path == "/" && parts.headers.contains_key("metadata-flavor");
        if path == "/computeMetadata" || path.starts_with("/computeMetadata/") || asks_metadata {
            return Self::service(Operation::Metadata);
        }
        if let Some(rest) = strip_any(
            path,
            &["/upload/storage/v1/", "/resumable/upload/storage/v1/"],
        ) {
            return Self::upload(&parts.method, &parts.headers, query, rest);
        }
        if path == "/batch/storage/v1" && parts.method == Method::POST {
            return Self::service(Operation::Batch);
        }
        if let Some(rest) = strip_any(path, &["/storage/v1/", "/download/storage/v1/"]) {
            return Self::json(&parts.method, query, rest);
        }
        if unserved::is_json(path) {
            return Self::service(Operation::Unknown);
        }
        Self::xml(
            &parts.method,
            path,
            unserved::foreign(query, &parts.headers).is_none(),
        )
    }

    /// The name that fault rules are matched against: the object's, the service account's, or the prefix of a list. Of an upload it is
    /// the `name` in the URL; it is empty where only the body has it.
    pub(crate) fn subject<'a>(&'a self, query: &'a Query) -> &'a str {
        match &self.place {
            Place::Object { object, .. } => object,
            Place::Folder { folder, .. } => folder,
            Place::Pair { from, .. } => &from.1,
            Place::ServiceAccount(account) => account,
            Place::Service | Place::LongRunning { .. } => "",
            Place::Bucket(_) => query
                .text("name")
                .or(query.text("prefix"))
                .unwrap_or_default(),
        }
    }

    /// The paths of Google's token endpoints, which are no bucket's: no name of one is as short as `v1`.
    fn tokens(path: &str) -> Option<Self> {
        let of = |operation, dialect| Some(Self::new(operation, dialect, Place::Service));
        match path {
            "/v1/token" => return of(Operation::StsToken, Dialect::OAuth),
            "/token" => return of(Operation::OauthToken, Dialect::OAuth),
            _ => {}
        }
        let place = path.strip_prefix("/v1/projects/")?;
        let account = place
            .strip_prefix("-/serviceAccounts/")
            .and_then(|method| method.strip_suffix(":generateAccessToken"))
            .and_then(decode)
            .filter(|account| !account.contains('/'));
        match account {
            None => of(Operation::Unknown, Dialect::Iam),
            Some(account) => Some(Self::new(
                Operation::GenerateAccessToken,
                Dialect::Iam,
                Place::ServiceAccount(account),
            )),
        }
    }

    fn service(operation: Operation) -> Self {
        Self::new(operation, Dialect::Json, Place::Service)
    }

    fn new(operation: Operation, dialect: Dialect, place: Place) -> Self {
        Self {
            operation,
            dialect,
            place,
        }
    }

    fn upload(method: &Method, headers: &HeaderMap, query: &Query, rest: &str) -> Self {
        let ["b", bucket, "o"] = rest.split('/').collect::<Vec<_>>()[..] else {
            return Self::service(Operation::Unknown);
        };
        let has_session = query.text("upload_id").is_some();
        let asks_status = headers
            .get(header::CONTENT_RANGE)
            .is_some_and(|range| range.as_bytes().starts_with(b"bytes */"));
        let operation = match *method {
            Method::POST | Method::PUT if has_session && asks_status => {
                Operation::ObjectsInsertQuery
            }
            Method::POST | Method::PUT if has_session => Operation::ObjectsInsertChunk,
            Method::DELETE if has_session => Operation::ObjectsInsertCancel,
            Method::POST if query.text("uploadType") == Some("resumable") => {
                Operation::ObjectsInsertStart
            }
            Method::POST => Operation::ObjectsInsert,
            _ => Operation::Unknown,
        };
        match decode(bucket) {
            Some(bucket) => Self::new(operation, Dialect::Json, Place::Bucket(bucket)),
            None => Self::service(Operation::Unknown),
        }
    }

    fn json(method: &Method, query: &Query, rest: &str) -> Self {
        let is_media = query.text("alt") == Some("media");
        let segments: Vec<&str> = rest.split('/').collect();
        Self::json_place(method, &segments, is_media)
            .unwrap_or_else(|| Self::service(Operation::Unknown))
    }

    fn json_place(method: &Method, segments: &[&str], is_media: bool) -> Option<Self> {
        use Operation as Op;
        let (operation, place) = match (method.as_str(), segments) {
            ("GET", ["b"]) => (Op::BucketsList, Place::Service),
            ("POST", ["b"]) => (Op::BucketsInsert, Place::Service),
            ("GET", ["b", bucket]) => (Op::BucketsGet, Place::Bucket(decode(bucket)?)),
            ("PATCH", ["b", bucket]) => (Op::BucketsPatch, Place::Bucket(decode(bucket)?)),
            ("DELETE", ["b", bucket]) => (Op::BucketsDelete, Place::Bucket(decode(bucket)?)),
            ("GET", ["b", bucket, "iam", "testPermissions"]) => {
                (Op::BucketsTestPermissions, Place::Bucket(decode(bucket)?))
            }
            ("GET", ["b", bucket, "storageLayout"]) => {
                (Op::StorageLayout, Place::Bucket(decode(bucket)?))
            }
            ("GET", ["b", bucket, "o"]) => (Op::ObjectsList, Place::Bucket(decode(bucket)?)),
            ("GET" | "HEAD", ["b", bucket, "o", object]) if is_media => {
                (Op::ObjectsMedia, object_place(bucket, object)?)
            }
            ("GET" | "HEAD", ["b", bucket, "o", object]) => {
                (Op::ObjectsGet, object_place(bucket, object)?)
            }
            ("PATCH", ["b", bucket, "o", object]) => {
                (Op::ObjectsPatch, object_place(bucket, object)?)
            }
            ("PUT", ["b", bucket, "o", object]) => {
                (Op::ObjectsUpdate, object_place(bucket, object)?)
            }
            ("DELETE", ["b", bucket, "o", object]) => {
                (Op::ObjectsDelete, object_place(bucket, object)?)
            }
            ("POST", ["b", bucket, "o", object, "restore"]) => {
                (Op::ObjectsRestore, object_place(bucket, object)?)
            }
            ("POST", ["b", bucket, "o", object, "compose"]) => {
                (Op::ObjectsCompose, object_place(bucket, object)?)
            }
            (
                "POST",
                [
                    "b",
                    from,
                    "o",
                    object,
                    verb @ ("rewriteTo" | "copyTo"),
                    "b",
                    to,
                    "o",
                    target,
                ],
            ) => {
                let operation = if *verb == "copyTo" {
                    Op::ObjectsCopy
                } else {
                    Op::ObjectsRewrite
                };
                (operation, pair_place((from, object), (to, target))?)
            }
            ("POST", ["b", bucket, "o", source, "moveTo", "o", target]) => (
                Op::ObjectsMove,
                pair_place((bucket, source), (bucket, target))?,
            ),
            ("POST", ["b", bucket, "folders"]) => {
                (Op::FoldersInsert, Place::Bucket(decode(bucket)?))
            }
            ("GET", ["b", bucket, "folders"]) => (Op::FoldersList, Place::Bucket(decode(bucket)?)),
            ("GET", ["b", bucket, "folders", folder]) => {
                (Op::FoldersGet, folder_place(bucket, folder)?)
            }
            ("DELETE", ["b", bucket, "folders", folder]) => {
                (Op::FoldersDelete, folder_place(bucket, folder)?)
            }
            (
                "POST",
                [
                    "b",
                    bucket,
                    "folders",
                    source,
                    "renameTo",
                    "folders",
                    target,
                ],
            ) => (
                Op::FoldersRename,
                pair_place((bucket, source), (bucket, target))?,
            ),
            ("GET", ["b", bucket, "operations", id]) => (
                Op::OperationsGet,
                Place::LongRunning {
                    bucket: decode(bucket)?,
                    id: decode(id)?,
                },
            ),
            _ => return None,
        };
        let dialect = if operation == Op::ObjectsMedia {
            Dialect::Text
        } else {
            Dialect::Json
        };
        Some(Self::new(operation, dialect, place))
    }

    /// `/bucket/object`: in an XML path the slashes of a name may stand as they are.
    /// A call that is not plain is about something else than the object.
    fn xml(method: &Method, path: &str, is_plain: bool) -> Self {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (bucket, object) = path.split_once('/').unwrap_or((path, ""));
        let place = match object {
            _ if bucket.is_empty() => None,
            "" => decode(bucket).map(Place::Bucket),
            object => object_place(bucket, object),
        };
        let operation = match (&place, method.as_str()) {
            (None, _) => Operation::Unknown,
            _ if !is_plain => Operation::Unknown,
            (Some(Place::Bucket(_)), "HEAD") => Operation::BucketsGet,
            (Some(Place::Object { .. }), "GET") => Operation::ObjectsMedia,
            (Some(Place::Object { .. }), "HEAD") => Operation::ObjectsGet,
            (Some(Place::Object { .. }), "PUT") => Operation::ObjectsInsert,
            (Some(Place::Object { .. }), "DELETE") => Operation::ObjectsDelete,
            _ => Operation::Unknown,
        };
        Self::new(operation, Dialect::Xml, place.unwrap_or(Place::Service))
    }
}

fn strip_any<'p>(path: &'p str, prefixes: &[&str]) -> Option<&'p str> {
    prefixes.iter().find_map(|prefix| path.strip_prefix(prefix))
}

/// A path segment without its percent-encoding; `+` is itself there. `None` if it is not UTF-8.
fn decode(segment: &str) -> Option<String> {
    let decoded = percent_decode_str(segment).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

fn object_place(bucket: &str, object: &str) -> Option<Place> {
    Some(Place::Object {
        bucket: decode(bucket)?,
        object: decode(object)?,
    })
}

fn folder_place(bucket: &str, folder: &str) -> Option<Place> {
    Some(Place::Folder {
        bucket: decode(bucket)?,
        folder: decode(folder)?,
    })
}

fn pair_place(from: (&str, &str), to: (&str, &str)) -> Option<Place> {
    Some(Place::Pair {
        from: (decode(from.0)?, decode(from.1)?),
        to: (decode(to.0)?, decode(to.1)?),
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn route(method: &str, uri: &str) -> Route {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        let (parts, ()) = request.into_parts();
        Route::of(&parts, &Query::parse(parts.uri.query()))
    }

    #[test]
    fn operations_by_method_and_path() {
        for (method, uri, operation) in [
            ("GET", "/storage/v1/b", Operation::BucketsList),
            (
                "GET",
                "/storage/v1/b/bk/iam/testPermissions?permissions=x",
                Operation::BucketsTestPermissions,
            ),
            ("GET", "/storage/v1/b/bk/iam", Operation::Unknown),
            ("GET", "/storage/v1/b/bk/o?prefix=x", Operation::ObjectsList),
            ("GET", "/storage/v1/b/bk/o/x", Operation::ObjectsGet),
            (
                "GET",
                "/storage/v1/b/bk/o/x?alt=media",
                Operation::ObjectsMedia,
            ),
            (
                "GET",
                "/download/storage/v1/b/bk/o/x?alt=media",
                Operation::ObjectsMedia,
            ),
            (
                "POST",
                "/storage/v1/b/bk/o/x/compose",
                Operation::ObjectsCompose,
            ),
            (
                "POST",
                "/storage/v1/b/bk/o/x/rewriteTo/b/bk/o/y",
                Operation::ObjectsRewrite,
            ),
            (
                "POST",
                "/storage/v1/b/bk/o/x/copyTo/b/bk/o/y",
                Operation::ObjectsCopy,
            ),
            (
                "POST",
                "/storage/v1/b/bk/o/x/moveTo/o/y",
                Operation::ObjectsMove,
            ),
            (
                "POST",
                "/upload/storage/v1/b/bk/o?uploadType=media",
                Operation::ObjectsInsert,
            ),
            (
                "POST",
                "/upload/storage/v1/b/bk/o?uploadType=resumable",
                Operation::ObjectsInsertStart,
            ),
            (
                "POST",
                "/upload/storage/v1/b/bk/o?upload_id=1",
                Operation::ObjectsInsertChunk,
            ),
            (
                "DELETE",
                "/upload/storage/v1/b/bk/o?upload_id=1",
                Operation::ObjectsInsertCancel,
            ),
            (
                "POST",
                "/storage/v1/b/bk/folders/a%2F/renameTo/folders/b%2F",
                Operation::FoldersRename,
            ),
            (
                "GET",
                "/storage/v1/b/bk/folders/a%2F",
                Operation::FoldersGet,
            ),
            (
                "GET",
                "/storage/v1/b/bk/operations/1",
                Operation::OperationsGet,
            ),
            ("GET", "/bk/a/b", Operation::ObjectsMedia),
            ("HEAD", "/bk/a", Operation::ObjectsGet),
            ("POST", "/batch/storage/v1", Operation::Batch),
            ("POST", "/v1/token", Operation::StsToken),
            ("GET", "/v1/token", Operation::Unknown),
            ("POST", "/token", Operation::OauthToken),
            (
                "POST",
                "/v1/projects/-/serviceAccounts/a%40b:generateAccessToken",
                Operation::GenerateAccessToken,
            ),
            (
                "POST",
                "/v1/projects/p/serviceAccounts/a@b:generateAccessToken",
                Operation::Unknown,
            ),
            ("GET", "/computeMetadata/v1/", Operation::Metadata),
            ("GET", "/_emulator/counters", Operation::Admin),
            ("POST", "/retry_test", Operation::Admin),
            ("DELETE", "/retry_test/1", Operation::Admin),
            ("GET", "/", Operation::Unknown),
            ("GET", "/storage/v1/b/bk/o/a/b", Operation::Unknown),
            ("GET", "/storage/v1/b/bk/o/%ff", Operation::Unknown),
        ] {
            assert_eq!(route(method, uri).operation, operation, "{method} {uri}");
        }
    }

    #[test]
    fn names_are_decoded_once() {
        for (uri, name) in [
            ("/storage/v1/b/bk/o/a%2F%2Fb", "a//b"),
            ("/storage/v1/b/bk/o/%252F", "%2F"),
            ("/storage/v1/b/bk/o/a+b%20%23%3F", "a+b #?"),
            ("/storage/v1/b/bk/o/compose", "compose"),
            ("/bk/a//b%2Fc", "a//b/c"),
        ] {
            let Place::Object { object, .. } = route("GET", uri).place else {
                panic!("{uri}");
            };
            assert_eq!(object, name);
        }
    }

    #[test]
    fn dialects() {
        assert_eq!(route("GET", "/storage/v1/b/bk/o/x").dialect, Dialect::Json);
        assert_eq!(
            route("GET", "/storage/v1/b/bk/o/x?alt=media").dialect,
            Dialect::Text
        );
        assert_eq!(route("GET", "/bk/x").dialect, Dialect::Xml);
        assert_eq!(route("POST", "/v1/token").dialect, Dialect::OAuth);
        let account = route(
            "POST",
            "/v1/projects/-/serviceAccounts/a%40b:generateAccessToken",
        );
        assert_eq!(account.dialect, Dialect::Iam);
        assert_eq!(account.place, Place::ServiceAccount("a@b".into()));
    }
}
