//! `objects.move`: an atomic rename within a bucket.

use crate::access::Permission;
use crate::call::{Call, Outcome};
use crate::mutation::Move;
use crate::precondition::Preconditions;

pub(crate) fn relocate(call: &Call) -> Outcome {
    let (bucket, source) = call.object(Permission::Delete)?;
    let (_, target) = call.destination(Permission::Create)?;
    let request = Move {
        source: &source,
        source_conditions: Preconditions::source(&call.query)?,
        target: &target,
        target_conditions: Preconditions::target(&call.query)?,
    };
    let object = call.state.store.relocate(&bucket, request)?;
    call.object_json(&object)
}
