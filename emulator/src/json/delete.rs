//! `objects.delete`.

use http::StatusCode;

use crate::call::{Call, Outcome, empty};
use crate::precondition::Preconditions;
use crate::role::Permission;

pub(crate) fn delete(call: &Call) -> Outcome {
    delete_if(call, &Preconditions::target(&call.query, &call.headers)?)
}

/// Deletes the live version if it meets `conditions`.
pub(crate) fn delete_if(call: &Call, conditions: &Preconditions) -> Outcome {
    let (bucket, name) = call.object(Permission::Delete)?;
    let generation = call.query.number("generation")?;
    call.state
        .store
        .delete(&bucket, &name, generation, conditions)?;
    Ok(empty(StatusCode::NO_CONTENT))
}
