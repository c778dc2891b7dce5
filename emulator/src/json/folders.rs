//! Folders of a bucket with a hierarchical namespace, and the operations that rename them.
//!
//! A rename is carried out when it is asked for; its first answer says that it goes on, as that of GCS does, and
//! whoever asks after the operation learns that it is done.

use http::StatusCode;
use serde_json::{Value, json};

use crate::call::{Call, Outcome, empty};
use crate::error::{ApiError, Kind};
use crate::hierarchy::FolderQuery;
use crate::inbound::Inbound;
use crate::name::FolderName;
use crate::object::parse_resource;
use crate::precondition::Preconditions;
use crate::resource;
use crate::role::{Permission, Resource};
use crate::route::Place;

pub(crate) async fn insert(call: &Call, inbound: &mut Inbound) -> Outcome {
    let bucket = call.bucket_unguarded()?;
    let body = parse_resource(&inbound.collect_small().await?)?;
    let name = body
        .get("name")
        .and_then(Value::as_str)
        .ok_or_else(|| ApiError::new(Kind::MissingParameter, "Required: name"))?;
    call.permit(&bucket, Permission::FolderCreate, Resource::Folder(name))?;
    let name = FolderName::parse(name).map_err(ApiError::from)?;
    let recursive = call.query.flag("recursive");
    let folder = call.state.store.create_folder(&bucket, &name, recursive)?;
    call.json(&resource::folder(&bucket, &folder, &call.host))
}

pub(crate) fn get(call: &Call) -> Outcome {
    let (bucket, name) = call.folder(Permission::FolderGet)?;
    let folder = call.state.store.folder(&bucket, &name)?;
    Preconditions::numbers(&call.query)?.check_read(crate::precondition::Version {
        generation: 1,
        metageneration: folder.metageneration,
        md5: None,
    })?;
    call.json(&resource::folder(&bucket, &folder, &call.host))
}

pub(crate) fn list(call: &Call) -> Outcome {
    let bucket = call.bucket_unguarded()?;
    let prefix = call.query.text("prefix").unwrap_or_default();
    call.permit(&bucket, Permission::FolderList, Resource::Listing(prefix))?;
    let query = FolderQuery::parse(&call.query)?;
    let page = call.state.store.list_folders(&bucket, &query)?;
    let items = page.items.iter();
    let items = items.map(|folder| resource::folder(&bucket, folder, &call.host));
    let mut list = json!({"kind": "storage#folders", "items": items.collect::<Vec<_>>()});
    if let Some(token) = page.next_page_token {
        list["nextPageToken"] = token.into();
    }
    call.json(&list)
}

pub(crate) fn delete(call: &Call) -> Outcome {
    let (bucket, name) = call.folder(Permission::FolderDelete)?;
    let conditions = Preconditions::numbers(&call.query)?;
    call.state
        .store
        .delete_folder(&bucket, &name, &conditions)?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(crate) fn rename(call: &Call) -> Outcome {
    let (bucket, source) = call.folder(Permission::FolderRename)?;
    let Place::Pair {
        to: (_, target), ..
    } = &call.route.place
    else {
        return Err(ApiError::bucket_not_found().into());
    };
    call.permit(&bucket, Permission::FolderCreate, Resource::Folder(target))?;
    let target = FolderName::parse(target).map_err(ApiError::from)?;
    let id = call.state.signer.nonce();
    let names = (&source, &target);
    let conditions = rename_conditions(call)?;
    let rename = call
        .state
        .store
        .rename_folder(&bucket, names, &conditions, id)?;
    call.json(&resource::operation(&bucket, &rename, false))
}

/// Google's reference names the conditions on the source `ifMetagenerationMatch`, its discovery document
/// `ifSourceMetagenerationMatch`; both are taken.
fn rename_conditions(call: &Call) -> Result<Preconditions, ApiError> {
    let (plain, source) = (
        Preconditions::numbers(&call.query)?,
        Preconditions::source(&call.query)?,
    );
    Ok(Preconditions {
        metageneration_match: source.metageneration_match.or(plain.metageneration_match),
        metageneration_not_match: source
            .metageneration_not_match
            .or(plain.metageneration_not_match),
        ..Preconditions::default()
    })
}

/// Whoever may rename a folder may ask after it.
pub(crate) fn operation(call: &Call) -> Outcome {
    let bucket = call.bucket(Permission::FolderRename)?;
    let Place::LongRunning { id, .. } = &call.route.place else {
        return Err(ApiError::bucket_not_found().into());
    };
    let rename = call.state.store.rename(&bucket, id)?;
    call.json(&resource::operation(&bucket, &rename, true))
}
