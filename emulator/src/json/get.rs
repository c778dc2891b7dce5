//! `objects.get`: the resource, or with `alt=media` the data.

use std::sync::Arc;

use crate::call::{Call, Outcome};
use crate::download;
use crate::error::ApiError;
use crate::object::Object;
use crate::precondition::Preconditions;
use crate::role::Permission;

pub(crate) fn get(call: &Call) -> Outcome {
    let conditions = Preconditions::target(&call.query, &call.headers)?;
    let (bucket, name) = call.object(Permission::Get)?;
    let store = &call.state.store;
    let entry = match call.query.number("generation")? {
        Some(generation) if call.query.flag("softDeleted") => {
            store.look_soft_deleted(&bucket, &name, generation)?
        }
        None if call.query.flag("softDeleted") => {
            let message = "A soft-deleted object is asked for by its generation.";
            return Err(ApiError::invalid(message).into());
        }
        generation => store.look(&bucket, &name, generation)?,
    };
    conditions.check_read(entry.object.version())?;
    call.entry_json(&entry)
}

pub(crate) fn media(call: &Call) -> Outcome {
    let object = find(call, &Preconditions::target(&call.query, &call.headers)?)?;
    Ok(download::reply(call, &object)?)
}

/// The object version that a read asks for, if its conditions hold.
pub(crate) fn find(call: &Call, conditions: &Preconditions) -> Result<Arc<Object>, ApiError> {
    let (bucket, name) = call.object(Permission::Get)?;
    let generation = call.query.number("generation")?;
    let object = call.state.store.find(&bucket, &name, generation)?;
    conditions.check_read(object.version())?;
    Ok(object)
}
