//! One request to the storage API: what it asks, who asks, and the replies that all verbs share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::access::{Bearer, Caller};
use crate::body::ReplyBody;
use crate::error::{ApiError, Failure, Kind};
use crate::fields::Mask;
use crate::history::Entry;
use crate::name::{BucketName, FolderName, ObjectName};
use crate::object::Object;
use crate::principal::Principal;
use crate::query::Query;
use crate::resource::ObjectResource;
use crate::role::{Permission, Resource};
use crate::route::{Place, Route};
use crate::state::State;
use crate::store::Replacing;

/// A reply, or why there is none.
pub(crate) type Outcome = Result<Response<ReplyBody>, Failure>;

/// What the resource of an object takes as JSON, which is what most answers are.
const RESOURCE: usize = 1024;

/// A request whose caller is known.
pub(crate) struct Call {
    pub(crate) state: Arc<State>,
    pub(crate) route: Route,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    pub(crate) caller: Caller,
    /// The host and port that the caller asked, which links and upload sessions lead back to.
    pub(crate) host: String,
}

impl Call {
    pub(crate) fn new(
        state: Arc<State>,
        route: Route,
        query: Query,
        parts: Parts,
    ) -> Result<Self, ApiError> {
        let caller = state.caller(&parts.headers)?;
        if let Caller::Known(bearer) = &caller {
            bearer.scopes.permit(route.operation)?;
        }
        let named = parts
            .headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let host = named
            .or(parts.uri.authority().map(http::uri::Authority::as_str))
            .unwrap_or("localhost");
        Ok(Self {
            state,
            route,
            query,
            caller,
            host: host.to_owned(),
            headers: parts.headers,
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The bucket that the request is about, if it exists and the caller may do this with it.
    pub(crate) fn bucket(&self, permission: Permission) -> Result<BucketName, ApiError> {
        let bucket = self.bucket_unguarded()?;
        self.permit(&bucket, permission, Resource::Bucket)?;
        Ok(bucket)
    }

    /// The bucket that the request is about, if the caller may list the objects under the `prefix` of the query.
    pub(crate) fn listing(&self) -> Result<BucketName, ApiError> {
        let bucket = self.bucket_unguarded()?;
        let prefix = self.query.text("prefix").unwrap_or_default();
        self.permit(&bucket, Permission::List, Resource::Listing(prefix))?;
        Ok(bucket)
    }

    /// Refuses a caller without `permission` for something of the bucket.
    pub(crate) fn permit(
        &self,
        bucket: &BucketName,
        permission: Permission,
        resource: Resource<'_>,
    ) -> Result<(), ApiError> {
        let access = &self.state.access;
        access.permit(&self.caller, bucket, permission, resource)
    }

    /// Whether the caller may put an object in the place of one of this name.
    pub(crate) fn replacing(&self, bucket: &BucketName, object: &str) -> Replacing {
        Replacing(self.permit(bucket, Permission::Delete, Resource::Object(object)))
    }

    /// The bucket that the request is about, if it exists, whoever asks.
    pub(crate) fn bucket_unguarded(&self) -> Result<BucketName, ApiError> {
        let (Place::Bucket(bucket)
        | Place::Object { bucket, .. }
        | Place::Folder { bucket, .. }
        | Place::LongRunning { bucket, .. }
        | Place::Pair {
            from: (bucket, _), ..
        }) = &self.route.place
        else {
            return Err(ApiError::bucket_not_found());
        };
        self.admitted(bucket)
    }

    /// The bucket of this name, if it takes this kind of request at all.
    fn admitted(&self, bucket: &str) -> Result<BucketName, ApiError> {
        let info = self.state.store.bucket(bucket)?;
        if info.settings.requester_pays && !self.names_payer() {
            return Err(ApiError::new(
                Kind::UserProjectMissing,
                "Bucket is requester pays bucket but no user project provided.",
            ));
        }
        if !info.settings.uniform_access && self.needs_uniform_access() {
            return Err(ApiError::new(
                Kind::ConditionNotMet,
                "The type of authentication token used for this request requires that Uniform Bucket Level Access be \
                 enabled.",
            ));
        }
        Ok(info.name.clone())
    }

    fn names_payer(&self) -> bool {
        let header = self.header("x-goog-user-project");
        let named = self.query.filled("userProject").or(header);
        named.is_some_and(|project| !project.is_empty())
    }

    /// Object ACLs know neither federated identities nor access boundaries.
    fn needs_uniform_access(&self) -> bool {
        match &self.caller {
            Caller::Known(Bearer {
                principal: Principal::Workload { .. },
                ..
            })
            | Caller::Known(Bearer {
                boundary: Some(_), ..
            }) => true,
            Caller::Known(_) | Caller::Anonymous | Caller::Unchecked => false,
        }
    }

    /// The object that the request is about, if the bucket exists and the caller may do this with the object.
    pub(crate) fn object(
        &self,
        permission: Permission,
    ) -> Result<(BucketName, ObjectName), ApiError> {
        let bucket = self.bucket_unguarded()?;
        let (Place::Object { object, .. }
        | Place::Pair {
            from: (_, object), ..
        }) = &self.route.place
        else {
            return Err(ApiError::bucket_not_found());
        };
        self.permit(&bucket, permission, Resource::Object(object))?;
        Ok((bucket, ObjectName::parse(object)?))
    }

    /// The folder that the request is about, if the bucket exists and the caller may do this with the folder.
    pub(crate) fn folder(
        &self,
        permission: Permission,
    ) -> Result<(BucketName, FolderName), ApiError> {
        let bucket = self.bucket_unguarded()?;
        let (Place::Folder { folder, .. }
        | Place::Pair {
            from: (_, folder), ..
        }) = &self.route.place
        else {
            return Err(ApiError::bucket_not_found());
        };
        self.permit(&bucket, permission, Resource::Folder(folder))?;
        Ok((bucket, FolderName::parse(folder)?))
    }

    /// Where a rewrite, copy or move leads.
    pub(crate) fn destination(
        &self,
        permission: Permission,
    ) -> Result<(BucketName, ObjectName), ApiError> {
        let Place::Pair {
            to: (bucket, object),
            ..
        } = &self.route.place
        else {
            return Err(ApiError::bucket_not_found());
        };
        let bucket = self.admitted(bucket)?;
        self.permit(&bucket, permission, Resource::Object(object))?;
        Ok((bucket, ObjectName::parse(object)?))
    }

    /// A JSON resource, cut down to `fields` where that is asked.
    pub(crate) fn print(&self, resource: &impl Serialize) -> Result<Bytes, ApiError> {
        let mut text = Vec::with_capacity(RESOURCE);
        let printed = match self.query.filled("fields") {
            None => serde_json::to_writer(&mut text, resource),
            Some(fields) => {
                let mask = Mask::parse(fields)?;
                serde_json::to_value(resource)
                    .and_then(|value| serde_json::to_writer(&mut text, &mask.apply(value)))
            }
        };
        printed.expect("resources have string keys and no fallible serializer");
        Ok(text.into())
    }

    /// The reply with a JSON resource.
    pub(crate) fn json(&self, resource: &impl Serialize) -> Outcome {
        let mut reply = Response::new(ReplyBody::full(self.print(resource)?));
        let headers = reply.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json; charset=UTF-8"),
        );
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-cache, no-store, max-age=0, must-revalidate"),
        );
        Ok(reply)
    }

    /// An object's resource, as this caller sees it.
    pub(crate) fn resource<'o>(&self, object: &'o Object) -> ObjectResource<'o> {
        ObjectResource::new(object, &self.host, self.retention(&object.bucket))
    }

    /// The retention period of a bucket.
    pub(crate) fn retention(&self, bucket: &BucketName) -> Option<Duration> {
        let info = self.state.store.bucket(bucket.as_str()).ok()?;
        info.settings.retention
    }

    /// The reply with a live object's resource.
    pub(crate) fn object_json(&self, object: &Arc<Object>) -> Outcome {
        self.entry_json(&Entry::live(Arc::clone(object)))
    }

    /// The reply with a version's resource.
    pub(crate) fn entry_json(&self, entry: &Entry) -> Outcome {
        let object = &entry.object;
        let retention = self.retention(&object.bucket);
        let mut reply = self.json(&ObjectResource::of(entry, &self.host, retention))?;
        if let Ok(etag) = HeaderValue::try_from(object.etag()) {
            reply.headers_mut().insert(header::ETAG, etag);
        }
        Ok(reply)
    }
}

/// A reply without a body.
pub(crate) fn empty(status: StatusCode) -> Response<ReplyBody> {
    let mut reply = Response::new(ReplyBody::full(""));
    *reply.status_mut() = status;
    reply
}
