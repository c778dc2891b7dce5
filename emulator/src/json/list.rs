//! `objects.list`.

use serde::Serialize;

use crate::call::{Call, Outcome};
use crate::listing::ListQuery;
use crate::resource::ObjectResource;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectList<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_page_token: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    prefixes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    items: Vec<ObjectResource<'a>>,
}

pub(crate) fn list(call: &Call) -> Outcome {
    let bucket = call.listing()?;
    let query = ListQuery::parse(&call.query)?;
    let page = call.state.store.list(&bucket, &query)?;
    let retention = call.retention(&bucket);
    let resources = page
        .items
        .iter()
        .map(|entry| ObjectResource::of(entry, &call.host, retention));
    call.json(&ObjectList {
        kind: "storage#objects",
        next_page_token: page.next_page_token,
        items: resources.collect(),
        prefixes: page.prefixes,
    })
}
