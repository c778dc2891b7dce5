//! `objects.compose`.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::call::{Call, Outcome};
use crate::error::{ApiError, Kind};
use crate::inbound::Inbound;
use crate::mutation::{Compose, ComposeSource};
use crate::name::{BucketName, ObjectName};
use crate::object::Attributes;
use crate::precondition::Preconditions;
use crate::role::{Permission, Resource};
use crate::store::Terms;

/// GCS composes at most this many sources at a time.
const MAX_SOURCES: usize = 32;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(default)]
    source_objects: Vec<Source>,
    #[serde(default)]
    destination: Map<String, Value>,
    #[serde(default)]
    delete_source_objects: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    name: String,
    #[serde(default)]
    generation: Option<Number>,
    #[serde(default)]
    object_preconditions: SourceConditions,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SourceConditions {
    #[serde(default)]
    if_generation_match: Option<Number>,
}

/// Numbers of 64 bits come as strings or as numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(u64),
    Text(String),
}

impl Number {
    fn value(&self) -> Result<u64, ApiError> {
        match self {
            Self::Number(value) => Ok(*value),
            Self::Text(text) => text.parse().map_err(|_| {
                ApiError::invalid("Invalid value for a generation of a source object")
            }),
        }
    }
}

impl Source {
    fn parse(&self) -> Result<ComposeSource, ApiError> {
        let wanted = &self.object_preconditions.if_generation_match;
        Ok(ComposeSource {
            name: ObjectName::parse(&self.name)?,
            generation: self.generation.as_ref().map(Number::value).transpose()?,
            conditions: Preconditions {
                generation_match: wanted.as_ref().map(Number::value).transpose()?,
                ..Preconditions::default()
            },
        })
    }
}

pub(crate) async fn compose(call: &Call, inbound: &mut Inbound) -> Outcome {
    let (bucket, name) = call.object(Permission::Create)?;
    let terms = Terms {
        conditions: Preconditions::target(&call.query, &call.headers)?,
        replacing: call.replacing(&bucket, name.as_str()),
    };
    let body = inbound.collect_small().await?;
    let body: Body = serde_json::from_slice(&body)
        .map_err(|_| ApiError::new(Kind::Unparsable, "Parse Error"))?;
    permit_sources(call, &bucket, &body)?;
    let request = Compose {
        sources: parse_sources(&body.source_objects)?,
        attributes: Attributes::from_resource(&body.destination)?,
        terms,
        delete_sources: body.delete_source_objects,
    };
    let object = call.state.store.compose(&bucket, &name, request)?;
    call.object_json(&object)
}

/// A source is read, and deleted where that is asked.
fn permit_sources(call: &Call, bucket: &BucketName, body: &Body) -> Result<(), ApiError> {
    for source in body.source_objects.iter().take(MAX_SOURCES) {
        let resource = Resource::Object(&source.name);
        call.permit(bucket, Permission::Get, resource)?;
        if body.delete_source_objects {
            call.permit(bucket, Permission::Delete, resource)?;
        }
    }
    Ok(())
}

fn parse_sources(sources: &[Source]) -> Result<Vec<ComposeSource>, ApiError> {
    match sources.len() {
        0 => Err(ApiError::invalid(
            "You must provide at least one source component.",
        )),
        1..=MAX_SOURCES => sources.iter().map(Source::parse).collect(),
        count => Err(ApiError::invalid(format!(
            "The number of source components provided ({count}) exceeds the maximum (32)"
        ))),
    }
}
