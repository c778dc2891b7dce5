//! The XML API as far as object clients use it: `GET`, `HEAD`, `PUT` and `DELETE` of `/bucket/object`, `HEAD` of
//! `/bucket`.

use http::{HeaderValue, Response, StatusCode, header};

use crate::body::ReplyBody;
use crate::call::{Call, Outcome, empty};
use crate::error::{ApiError, Kind};
use crate::hold::Holds;
use crate::inbound::Inbound;
use crate::json::{delete, get};
use crate::object::Attributes;
use crate::operation::Operation;
use crate::precondition::Preconditions;
use crate::role::Permission;
use crate::store::Terms;
use crate::{download, upload};

pub(crate) async fn answer(call: &Call, inbound: &mut Inbound) -> Outcome {
    match call.route.operation {
        Operation::ObjectsMedia | Operation::ObjectsGet => read(call),
        Operation::BucketsGet => bucket(call),
        Operation::ObjectsInsert => put(call, inbound).await,
        Operation::ObjectsDelete => {
            delete::delete_if(call, &Preconditions::headers(&call.headers)?)
        }
        _ => Err(ApiError::new(
            Kind::MethodNotAllowed,
            "The specified method is not allowed.",
        )
        .into()),
    }
}

/// A `HEAD` gets the same reply; the connection leaves its body out.
fn read(call: &Call) -> Outcome {
    let object = get::find(call, &Preconditions::headers(&call.headers)?)?;
    let mut reply = download::reply(call, &object)?;
    for (parameter, header) in [
        ("response-content-type", header::CONTENT_TYPE),
        ("response-content-disposition", header::CONTENT_DISPOSITION),
    ] {
        let Some(wanted) = call.query.filled(parameter) else {
            continue;
        };
        let value = HeaderValue::try_from(wanted)
            .map_err(|_| ApiError::invalid(format!("Invalid value for parameter {parameter}")))?;
        reply.headers_mut().insert(header, value);
    }
    Ok(reply)
}

/// Whether the bucket is there.
fn bucket(call: &Call) -> Outcome {
    call.bucket(Permission::BucketGet)?;
    Ok(empty(StatusCode::OK))
}

async fn put(call: &Call, inbound: &mut Inbound) -> Outcome {
    let (bucket, name) = call.object(Permission::Create)?;
    let terms = Terms {
        conditions: Preconditions::headers(&call.headers)?,
        replacing: call.replacing(&bucket, name.as_str()),
    };
    let upload = upload::Upload {
        bucket,
        name,
        terms,
        attributes: attributes(call),
        expected: upload::Expected::from_headers(&call.headers)?,
    };
    upload.check(call)?;
    let content = upload::media::collect(call, inbound).await?;
    let object = upload.publish(call, content)?;
    let mut reply = Response::new(ReplyBody::full(""));
    *reply.status_mut() = StatusCode::OK;
    let headers = reply.headers_mut();
    headers.insert("x-goog-generation", HeaderValue::from(object.generation));
    headers.insert(
        "x-goog-metageneration",
        HeaderValue::from(object.metageneration),
    );
    if let Ok(etag) = HeaderValue::try_from(download::etag(&object, call.route.dialect)) {
        headers.insert(header::ETAG, etag);
    }
    Ok(reply)
}

fn attributes(call: &Call) -> Attributes {
    let text = |name: &str| call.header(name).map(str::to_owned);
    let custom = call.headers.iter().filter_map(|(name, value)| {
        let key = name.as_str().strip_prefix("x-goog-meta-")?;
        Some((key.to_owned(), value.to_str().ok()?.to_owned()))
    });
    Attributes {
        content_type: text("content-type"),
        content_encoding: text("content-encoding"),
        content_disposition: text("content-disposition"),
        content_language: text("content-language"),
        cache_control: text("cache-control"),
        storage_class: text("x-goog-storage-class"),
        custom_time: text("x-goog-custom-time"),
        metadata: custom.collect(),
        holds: Holds::default(),
    }
}
