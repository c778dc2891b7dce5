//! `objects.patch` and `objects.update`: metadata alone.

use crate::call::{Call, Outcome};
use crate::inbound::Inbound;
use crate::mutation::Amendment;
use crate::object::parse_resource;
use crate::precondition::Preconditions;
use crate::role::Permission;

pub(crate) async fn patch(call: &Call, inbound: &mut Inbound) -> Outcome {
    let body = inbound.collect_small().await?;
    amend(call, Amendment::Merge(&parse_resource(&body)?))
}

pub(crate) async fn update(call: &Call, inbound: &mut Inbound) -> Outcome {
    let body = inbound.collect_small().await?;
    amend(call, Amendment::Replace(&parse_resource(&body)?))
}

fn amend(call: &Call, amendment: Amendment<'_>) -> Outcome {
    let (bucket, name) = call.object(Permission::Update)?;
    let generation = call.query.number("generation")?;
    let conditions = Preconditions::target(&call.query, &call.headers)?;
    let store = &call.state.store;
    let version = store.amend(&bucket, &name, generation, &conditions, amendment)?;
    call.entry_json(&version)
}
