//! `uploadType=media`: the body is the object.

use serde_json::Map;

use super::{Inserted, Upload};
use crate::call::Call;
use crate::content::{Content, ContentBuilder};
use crate::error::Failure;
use crate::inbound::Inbound;

pub(crate) async fn insert(call: &Call, inbound: &mut Inbound) -> Inserted {
    call.query.required("name")?;
    let upload = Upload::parse(call, &Map::new(), call.header("content-type"))?;
    upload.check(call)?;
    let content = collect(call, inbound).await?;
    Ok(upload.publish(call, content)?)
}

/// Receives the whole body as content.
pub(crate) async fn collect(call: &Call, inbound: &mut Inbound) -> Result<Content, Failure> {
    let mut builder = ContentBuilder::new(call.state.limits.md5);
    while let Some(piece) = inbound.next().await? {
        builder.push(piece);
    }
    Ok(builder.finish())
}
