//! `objects.restore`: a soft-deleted version lives again, under a new generation.

use crate::call::{Call, Outcome};
use crate::error::{ApiError, Kind};
use crate::precondition::Preconditions;
use crate::role::{Permission, Resource};
use crate::store::Terms;

pub(crate) fn restore(call: &Call) -> Outcome {
    let (bucket, name) = call.object(Permission::Restore)?;
    call.permit(&bucket, Permission::Create, Resource::Object(name.as_str()))?;
    let terms = Terms {
        conditions: Preconditions::target(&call.query, &call.headers)?,
        replacing: call.replacing(&bucket, name.as_str()),
    };
    let generation = call.query.number("generation")?;
    let generation = generation
        .ok_or_else(|| ApiError::new(Kind::MissingParameter, "Required parameter: generation"))?;
    let store = &call.state.store;
    let object = store.restore(&bucket, &name, generation, &terms)?;
    call.object_json(&object)
}
