//! Folders, layouts and long-running operations in the API's JSON.
//!
//! Source: <https://cloud.google.com/storage/docs/json_api/v1/folders>; an operation carries the folder in the form of
//! the control service, whose names are whole paths.

use std::borrow::Cow;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::{Malformed, Switch, Text, number, time};
use crate::object::{Folder, Layout};
use crate::store::FolderPage;
use crate::{FolderName, Kind, Metageneration};

/// A folder as it is sent.
#[derive(Serialize)]
pub(in crate::client::json) struct NewFolder<'a> {
    name: &'a str,
}

impl<'a> NewFolder<'a> {
    pub(in crate::client::json) fn new(name: &'a FolderName) -> Self {
        let name = name.as_str();
        Self { name }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FolderResource<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    metageneration: Option<Text<'a>>,
    create_time: Option<Text<'a>>,
    update_time: Option<Text<'a>>,
    pending_rename_info: Option<Pending>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pending {
    operation_id: Option<String>,
}

impl FolderResource<'_> {
    /// The folder in an operation's answer, whose name is `projects/_/buckets/BUCKET/folders/NAME`.
    fn into_moved(mut self) -> Result<Folder, Malformed> {
        let (_, name) = self
            .name
            .0
            .strip_prefix("projects/_/buckets/")
            .and_then(|rest| rest.split_once("/folders/"))
            .ok_or(Malformed("name"))?;
        self.name = Text(Cow::Owned(name.to_owned()));
        self.into_folder()
    }

    fn into_folder(self) -> Result<Folder, Malformed> {
        let created = time(self.create_time.as_ref(), "createTime")?;
        Ok(Folder {
            name: FolderName::parse(&*self.name.0).map_err(|_| Malformed("name"))?,
            metageneration: match &self.metageneration {
                Some(text) => Metageneration(number(text, "metageneration")?),
                None => Metageneration(1),
            },
            created: created.unwrap_or(SystemTime::UNIX_EPOCH),
            updated: time(self.update_time.as_ref(), "updateTime")?
                .or(created)
                .unwrap_or(SystemTime::UNIX_EPOCH),
        })
    }
}

/// A folder, and the rename that it is in the middle of.
pub(in crate::client::json) fn parse_folder(
    json: &[u8],
) -> Result<(Folder, Option<String>), Malformed> {
    let mut folder: FolderResource<'_> =
        serde_json::from_slice(json).map_err(|_| Malformed("folder"))?;
    let pending = folder.pending_rename_info.take();
    let pending = pending.and_then(|pending| pending.operation_id);
    Ok((folder.into_folder()?, pending))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListResource<'a> {
    #[serde(borrow, default)]
    items: Vec<FolderResource<'a>>,
    next_page_token: Option<String>,
}

pub(in crate::client::json) fn parse_folders(json: &[u8]) -> Result<FolderPage, Malformed> {
    let list: ListResource<'_> =
        serde_json::from_slice(json).map_err(|_| Malformed("list of folders"))?;
    let folders = list.items.into_iter().map(FolderResource::into_folder);
    Ok(FolderPage {
        folders: folders.collect::<Result<_, _>>()?,
        next_page_token: list.next_page_token.filter(|token| !token.is_empty()),
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutResource {
    #[serde(default)]
    location: String,
    #[serde(default)]
    location_type: String,
    hierarchical_namespace: Option<Switch>,
}

/// A layout; a flat bucket's says nothing of a namespace.
pub(in crate::client::json) fn parse_layout(json: &[u8]) -> Result<Layout, Malformed> {
    let layout: LayoutResource = serde_json::from_slice(json).map_err(|_| Malformed("layout"))?;
    Ok(Layout {
        location: layout.location.to_uppercase(),
        location_type: layout.location_type,
        hierarchical: layout.hierarchical_namespace.is_some_and(|h| h.enabled),
    })
}

/// Where a long-running operation stands.
#[derive(Debug)]
pub(in crate::client::json) struct Progress {
    /// By which it is asked after.
    pub(in crate::client::json) id: String,
    pub(in crate::client::json) percent: Option<u64>,
    /// What came of it, once it is done.
    pub(in crate::client::json) outcome: Option<Outcome>,
}

/// What came of a rename.
#[derive(Debug)]
pub(in crate::client::json) enum Outcome {
    /// It is done; the folder, where the answer holds it.
    Renamed(Option<Folder>),
    /// It is not; why.
    Failed(Kind, String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OperationResource<'a> {
    name: String,
    #[serde(default)]
    done: bool,
    error: Option<Status>,
    #[serde(borrow)]
    response: Option<FolderResource<'a>>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    common_metadata: Common,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Common {
    progress_percent: Option<u64>,
}

pub(in crate::client::json) fn parse_operation(json: &[u8]) -> Result<Progress, Malformed> {
    let operation: OperationResource<'_> =
        serde_json::from_slice(json).map_err(|_| Malformed("operation"))?;
    let id = operation.name.rsplit('/').next().unwrap_or_default();
    if id.is_empty() {
        return Err(Malformed("name of an operation"));
    }
    let outcome = match (operation.done, operation.error) {
        (false, _) => None,
        (true, Some(status)) => Some(Outcome::Failed(kind(status.code), status.message)),
        (true, None) => {
            let folder = operation.response.map(FolderResource::into_moved);
            Some(Outcome::Renamed(folder.transpose()?))
        }
    };
    Ok(Progress {
        id: id.to_owned(),
        percent: operation.metadata.common_metadata.progress_percent,
        outcome,
    })
}

/// The kind of a code of `google.rpc.Code`, in which operations fail.
fn kind(code: i64) -> Kind {
    match code {
        1 => Kind::Canceled,
        3 => Kind::Invalid,
        5 => Kind::NotFound,
        6 => Kind::Exists,
        7 => Kind::Denied,
        8 => Kind::Throttled,
        9 => Kind::Precondition,
        11 => Kind::OutOfRange,
        12 => Kind::Unsupported,
        15 => Kind::Corrupt,
        16 => Kind::Unauthenticated,
        _ => Kind::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const FOLDER: &str = r#"{"kind":"storage#folder","bucket":"b","name":"a/b\/","metageneration":"2",
        "createTime":"2026-10-02T19:10:28.854Z","updateTime":"2026-10-02T19:10:29Z"}"#;

    #[test]
    fn a_folder_is_read_field_by_field() {
        let (folder, pending) = parse_folder(FOLDER.as_bytes()).unwrap();
        assert_eq!((folder.name.as_str(), pending), ("a/b/", None));
        assert_eq!(folder.metageneration, Metageneration(2));
        let lasted = folder.updated.duration_since(folder.created).unwrap();
        assert_eq!(lasted, Duration::from_millis(146));

        let odd = br#"{"name":"projects/_/buckets/b/folders/z/"}"#;
        let (folder, _) = parse_folder(odd).unwrap();
        assert_eq!(folder.name.as_str(), "projects/_/buckets/b/folders/z/");

        let moving = br#"{"name":"a/","pendingRenameInfo":{"operationId":"Ci"}}"#;
        let (folder, pending) = parse_folder(moving).unwrap();
        assert_eq!(pending.as_deref(), Some("Ci"));
        assert_eq!(
            (folder.metageneration, folder.created),
            (Metageneration(1), SystemTime::UNIX_EPOCH)
        );
        for (json, part) in [
            ("[]", "folder"),
            (r#"{"name":"a"}"#, "name"),
            (r#"{"name":"a/","metageneration":"x"}"#, "metageneration"),
            (r#"{"name":"a/","createTime":"now"}"#, "createTime"),
        ] {
            assert_eq!(parse_folder(json.as_bytes()).unwrap_err(), Malformed(part));
        }
    }

    #[test]
    fn lists_and_layouts_may_lack_everything() {
        assert_eq!(parse_folders(b"{}").unwrap(), FolderPage::default());
        let page = format!(r#"{{"items":[{FOLDER}],"nextPageToken":"t"}}"#);
        let page = parse_folders(page.as_bytes()).unwrap();
        assert_eq!(page.folders.len(), 1);
        assert_eq!(page.next_page_token.as_deref(), Some("t"));

        let flat = br#"{"location":"us-central1","locationType":"region"}"#;
        let layout = Layout {
            location: "US-CENTRAL1".to_owned(),
            location_type: "region".to_owned(),
            hierarchical: false,
        };
        assert_eq!(parse_layout(flat).unwrap(), layout);
        let hierarchical = parse_layout(br#"{"hierarchicalNamespace":{"enabled":true}}"#);
        assert!(hierarchical.unwrap().hierarchical);
        assert_eq!(parse_layout(b"1"), Err(Malformed("layout")));
    }

    #[test]
    fn operations_go_on_end_well_or_fail() {
        let pending = br#"{"name":"projects/_/buckets/b/operations/Ci","done":false,
            "metadata":{"commonMetadata":{"progressPercent":40}}}"#;
        let pending = parse_operation(pending).unwrap();
        assert_eq!((&*pending.id, pending.percent), ("Ci", Some(40)));
        assert!(pending.outcome.is_none());

        let done = br#"{"name":"projects/_/buckets/b/operations/Ci","done":true,
            "response":{"name":"projects/_/buckets/b/folders/x/folders/y/","metageneration":"1"}}"#;
        match parse_operation(done).unwrap().outcome {
            Some(Outcome::Renamed(Some(folder))) => {
                assert_eq!(folder.name.as_str(), "x/folders/y/");
            }
            other => panic!("{other:?}"),
        }
        let nameless = br#"{"name":"Ci","done":true,"response":{"name":"y/"}}"#;
        assert_eq!(parse_operation(nameless).unwrap_err(), Malformed("name"));
        let bare = parse_operation(br#"{"name":"Ci","done":true}"#).unwrap();
        assert!(matches!(bare.outcome, Some(Outcome::Renamed(None))));
        let failed = br#"{"name":"Ci","done":true,"error":{"code":9,"message":"changed"}}"#;
        match parse_operation(failed).unwrap().outcome {
            Some(Outcome::Failed(kind, message)) => {
                assert_eq!((kind, &*message), (Kind::Precondition, "changed"));
            }
            other => panic!("{other:?}"),
        }
        for json in [r#"{"name":"a/","done":true}"#, r#"{"name":""}"#] {
            let error = parse_operation(json.as_bytes()).unwrap_err();
            assert_eq!(error, Malformed("name of an operation"));
        }
    }
}
