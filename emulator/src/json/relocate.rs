//! `objects.move`: an atomic rename within a bucket.

use crate::call::{Call, Outcome};
use crate::mutation::Move;
use crate::precondition::Preconditions;
use crate::role::Permission;
use crate::store::Terms;

pub(crate) fn relocate(call: &Call) -> Outcome {
    let (bucket, source) = call.object(Permission::Move)?;
    let (_, target) = call.destination(Permission::Create)?;
    let request = Move {
        source: &source,
        source_conditions: Preconditions::source(&call.query)?,
        target: &target,
        target_terms: Terms {
            conditions: Preconditions::target(&call.query, &call.headers)?,
            replacing: call.replacing(&bucket, target.as_str()),
        },
    };
    let object = call.state.store.relocate(&bucket, &request)?;
    call.object_json(&object)
}
