//! `uploadType=multipart`: `multipart/related` of the object's resource, its data and, from some clients, a
//! resource with the checksums.

use bytes::Bytes;
use tokio::task::yield_now;

use super::{Expected, Inserted, Upload};
use crate::call::Call;
use crate::content::{Content, ContentBuilder};
use crate::gate::MAX_FRAME;
use crate::inbound::Inbound;
use crate::multipart::{boundary, malformed, split};
use crate::object::parse_resource;

pub(crate) async fn insert(call: &Call, inbound: &mut Inbound) -> Inserted {
    let boundary = boundary(call.header("content-type").unwrap_or_default())?;
    let body = inbound.collect().await?;
    let parts = split(&body, boundary.as_bytes())?;
    let (resource, data, trailer) = match parts.as_slice() {
        [resource, data] => (resource, data, None),
        [resource, data, trailer] => (resource, data, Some(trailer)),
        _ => return Err(malformed("it must have two or three parts").into()),
    };
    let mut upload = Upload::parse(
        call,
        &parse_resource(&resource.body)?,
        data.header("content-type"),
    )?;
    if let Some(trailer) = trailer {
        let claimed = Expected::from_resource(&parse_resource(&trailer.body)?)?;
        upload.expected = upload.expected.and(claimed);
    }
    upload.check(call)?;
    let content = digest(call, data.body.clone()).await;
    Ok(upload.publish(call, content)?)
}

/// Hashes data that is in memory, a frame at a time so that other connections get their turn.
async fn digest(call: &Call, mut data: Bytes) -> Content {
    let mut builder = ContentBuilder::new(call.state.limits.md5);
    while data.len() > MAX_FRAME {
        builder.push(data.split_to(MAX_FRAME));
        yield_now().await;
    }
    builder.push(data);
    builder.finish()
}
