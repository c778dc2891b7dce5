//! `objects.rewrite` and `objects.copy`.
//!
//! A rewrite is done in one call unless `maxBytesRewrittenPerCall` makes it several; the token between them says
//! how far it got and of which source generation. Nothing is copied: versions share their bytes.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Serialize;

use crate::call::{Call, Outcome};
use crate::error::{ApiError, Failure};
use crate::hold::Holds;
use crate::inbound::Inbound;
use crate::object::{Attributes, Object, parse_resource};
use crate::precondition::Preconditions;
use crate::resource::ObjectResource;
use crate::role::Permission;
use crate::store::{Draft, Terms};

/// `maxBytesRewrittenPerCall` counts in these.
const REWRITE_UNIT: u64 = 1 << 20;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RewriteReply<'a> {
    kind: &'static str,
    total_bytes_rewritten: String,
    object_size: String,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    rewrite_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<ObjectResource<'a>>,
}

pub(crate) async fn rewrite(call: &Call, inbound: &mut Inbound) -> Outcome {
    let (source, attributes) = prepare(call, inbound).await?;
    let size = source.size();
    let written = progress(call, &source)?;
    if written < size {
        return call.json(&RewriteReply {
            kind: "storage#rewriteResponse",
            total_bytes_rewritten: written.to_string(),
            object_size: size.to_string(),
            done: false,
            rewrite_token: Some(token(&source, written)),
            resource: None,
        });
    }
    let object = publish(call, &source, attributes)?;
    call.json(&RewriteReply {
        kind: "storage#rewriteResponse",
        total_bytes_rewritten: size.to_string(),
        object_size: size.to_string(),
        done: true,
        rewrite_token: None,
        resource: Some(call.resource(&object)),
    })
}

pub(crate) async fn copy(call: &Call, inbound: &mut Inbound) -> Outcome {
    let (source, attributes) = prepare(call, inbound).await?;
    let object = publish(call, &source, attributes)?;
    call.object_json(&object)
}

/// The source as its conditions want it, and the attributes of the copy: those of the body if it has any, else
/// the source's.
async fn prepare(call: &Call, inbound: &mut Inbound) -> Result<(Arc<Object>, Attributes), Failure> {
    let body = inbound.collect_small().await?;
    let given = Attributes::from_resource(&parse_resource(&body)?)?;
    let (bucket, name) = call.object(Permission::Get)?;
    let generation = call.query.number("sourceGeneration")?;
    let source = call.state.store.find(&bucket, &name, generation)?;
    Preconditions::source(&call.query)?.check_write(source.version())?;
    let attributes = if given == Attributes::default() {
        Attributes {
            holds: Holds::default(),
            ..source.attributes.clone()
        }
    } else {
        given
    };
    Ok((source, attributes))
}

fn publish(call: &Call, source: &Object, attributes: Attributes) -> Result<Arc<Object>, ApiError> {
    let (bucket, name) = call.destination(Permission::Create)?;
    let terms = Terms {
        conditions: Preconditions::target(&call.query, &call.headers)?,
        replacing: call.replacing(&bucket, name.as_str()),
    };
    let draft = Draft {
        content: source.content.clone(),
        attributes,
    };
    call.state.store.insert(&bucket, &name, &terms, draft)
}

/// Bytes rewritten at the end of this call.
fn progress(call: &Call, source: &Object) -> Result<u64, ApiError> {
    let Some(per_call) = call.query.number("maxBytesRewrittenPerCall")? else {
        return Ok(source.size());
    };
    if per_call == 0 || per_call % REWRITE_UNIT != 0 {
        return Err(ApiError::invalid(
            "maxBytesRewrittenPerCall must be a multiple of 1 MiB.",
        ));
    }
    let before = match call.query.filled("rewriteToken") {
        None => 0,
        Some(token) => {
            parse_token(token, source).ok_or_else(|| ApiError::invalid("Invalid rewrite token."))?
        }
    };
    Ok(before.saturating_add(per_call).min(source.size()))
}

fn token(source: &Object, written: u64) -> String {
    BASE64.encode(format!("{}:{written}", source.generation))
}

fn parse_token(token: &str, source: &Object) -> Option<u64> {
    let text = String::from_utf8(BASE64.decode(token).ok()?).ok()?;
    let (generation, written) = text.split_once(':')?;
    (generation == source.generation.to_string()).then(|| written.parse().ok())?
}
