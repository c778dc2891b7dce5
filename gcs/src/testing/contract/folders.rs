//! Promises of folders, for a bucket with a hierarchical namespace.

use super::{Bucket, kind, name};
use crate::store::{FolderListRequest, FolderRename, Preconditions};
use crate::{FolderName, Kind, Metageneration};

fn folder(name: &str) -> FolderName {
    FolderName::parse(name).unwrap()
}

/// All names below `prefix`, without that of the prefix itself, in pages of `max_results`.
async fn names(
    store: &Bucket,
    prefix: &str,
    children_only: bool,
    max_results: Option<u32>,
) -> Vec<String> {
    let mut request = FolderListRequest {
        prefix: prefix.to_owned(),
        children_only,
        max_results,
        page_token: None,
    };
    let mut names = Vec::new();
    loop {
        let page = store.list_folders(&request).await.unwrap();
        let most = max_results.map_or(usize::MAX, |n| n as usize);
        assert!(page.folders.len() <= most);
        names.extend(page.folders.into_iter().map(|f| f.name.to_string()));
        request.page_token = page.next_page_token;
        if request.page_token.is_none() {
            names.retain(|name| name != prefix);
            return names;
        }
    }
}

pub(super) async fn layout_says_hierarchical(store: Bucket) {
    let layout = store.layout().await.unwrap();
    assert!(layout.hierarchical);
    assert!(!layout.location.is_empty());
}

pub(super) async fn folder_is_created_once(store: Bucket) {
    let made = store.create_folder(&folder("a/"), false).await.unwrap();
    assert_eq!(made.name, folder("a/"));
    assert_eq!(made.metageneration, Metageneration(1));
    assert_eq!(store.folder(&folder("a/")).await.unwrap(), made);
    for recursive in [false, true] {
        let again = store.create_folder(&folder("a/"), recursive).await;
        assert_eq!(kind(again), Kind::Exists);
    }
    assert_eq!(kind(store.folder(&folder("b/")).await), Kind::NotFound);
    assert_eq!(kind(store.stat(&name("a/")).await), Kind::NotFound);
}

pub(super) async fn folder_needs_its_parent(store: Bucket) {
    let deep = folder("a/b/c/");
    let missing = store.create_folder(&deep, false).await;
    assert_eq!(kind(missing), Kind::NotFound);
    store.create_folder(&deep, true).await.unwrap();
    for parent in ["a/", "a/b/"] {
        store.folder(&folder(parent)).await.unwrap();
    }
    store.create_folder(&folder("a/d/"), false).await.unwrap();
}

pub(super) async fn objects_make_their_folders(store: Bucket) {
    store.put("x/y/z", "body").await;
    for made in ["x/", "x/y/"] {
        store.folder(&folder(made)).await.unwrap();
    }
    // They stay when the object goes.
    let any = Preconditions::default();
    store.delete(&name("x/y/z"), &any).await.unwrap();
    store.folder(&folder("x/y/")).await.unwrap();
}

pub(super) async fn folders_are_listed_in_order(store: Bucket) {
    for made in ["b/", "a/x/y/", "a/z/", "a-/"] {
        store.create_folder(&folder(made), true).await.unwrap();
    }
    let all = ["a-/", "a/", "a/x/", "a/x/y/", "a/z/", "b/"];
    for max_results in [None, Some(1), Some(4)] {
        assert_eq!(names(&store, "", false, max_results).await, all);
        let children = names(&store, "", true, max_results).await;
        assert_eq!(children, ["a-/", "a/", "b/"]);
        let inner = names(&store, "a/", true, max_results).await;
        assert_eq!(inner, ["a/x/", "a/z/"]);
        let below = names(&store, "a/", false, max_results).await;
        assert_eq!(below, ["a/x/", "a/x/y/", "a/z/"]);
    }
    let strange = FolderListRequest {
        prefix: "a".to_owned(),
        ..FolderListRequest::default()
    };
    assert_eq!(kind(store.list_folders(&strange).await), Kind::Invalid);
}

pub(super) async fn folder_is_deleted_when_empty(store: Bucket) {
    store.put("a/b/o", "body").await;
    for full in ["a/", "a/b/"] {
        let refused = store.delete_folder(&folder(full), None).await;
        assert_eq!(kind(refused), Kind::NotEmpty, "{full}");
    }
    let any = Preconditions::default();
    store.delete(&name("a/b/o"), &any).await.unwrap();
    let stale = Some(Metageneration(7));
    let refused = store.delete_folder(&folder("a/b/"), stale).await;
    assert_eq!(kind(refused), Kind::Precondition);
    let first = Some(Metageneration(1));
    store.delete_folder(&folder("a/b/"), first).await.unwrap();
    store.delete_folder(&folder("a/"), None).await.unwrap();
    let gone = store.delete_folder(&folder("a/"), None).await;
    assert_eq!(kind(gone), Kind::NotFound);
    assert_eq!(kind(store.folder(&folder("a/b/")).await), Kind::NotFound);
}

fn rename(source: &str, target: &str) -> FolderRename {
    FolderRename {
        source: folder(source),
        target: folder(target),
        source_metageneration: None,
    }
}

pub(super) async fn folder_moves_with_everything(store: Bucket) {
    store.put("a/o", "one").await;
    store.put("a/b/o", "two").await;
    store.put("ab", "beside").await;
    store
        .create_folder(&folder("a/empty/"), false)
        .await
        .unwrap();
    store.create_folder(&folder("t/"), false).await.unwrap();
    let before = store.folder(&folder("a/")).await.unwrap();
    let request = FolderRename {
        source_metageneration: Some(before.metageneration),
        ..rename("a/", "t/new/")
    };
    let moved = store.rename_folder(&request).await.unwrap();
    assert_eq!(
        (moved.name, moved.created),
        (folder("t/new/"), before.created)
    );
    let all = ["t/", "t/new/", "t/new/b/", "t/new/empty/"];
    assert_eq!(names(&store, "", false, None).await, all);
    assert_eq!(store.get("t/new/o").await.unwrap(), "one");
    assert_eq!(store.get("t/new/b/o").await.unwrap(), "two");
    assert_eq!(store.get("ab").await.unwrap(), "beside");
    for gone in ["a/o", "a/b/o"] {
        assert_eq!(kind(store.stat(&name(gone)).await), Kind::NotFound);
    }
}

pub(super) async fn folder_rename_refuses(store: Bucket) {
    store.put("a/o", "one").await;
    store.put("b/o", "two").await;
    let stale = FolderRename {
        source_metageneration: Some(Metageneration(7)),
        ..rename("a/", "c/")
    };
    for (request, why) in [
        (rename("a/", "b/"), Kind::Exists),
        (rename("nothing/", "c/"), Kind::NotFound),
        (rename("a/", "nowhere/c/"), Kind::NotFound),
        (stale, Kind::Precondition),
    ] {
        let refused = store.rename_folder(&request).await;
        assert_eq!(kind(refused), why, "{request:?}");
    }
    let inside = store.rename_folder(&rename("a/", "a/b/")).await;
    assert_eq!(kind(inside), Kind::Invalid);
    assert_eq!(store.get("a/o").await.unwrap(), "one");
    assert_eq!(store.get("b/o").await.unwrap(), "two");
}
