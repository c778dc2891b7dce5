//! Promises of `list`.

use super::{Bucket, kind};
use crate::Kind;
use crate::store::{ListPage, ListRequest};

async fn fill(store: &Bucket, names: &[&str]) {
    for name in names {
        store.put(name, name.to_string()).await;
    }
}

fn objects(page: &ListPage) -> Vec<&str> {
    page.objects.iter().map(|o| o.name.as_str()).collect()
}

fn under(prefix: &str) -> ListRequest {
    ListRequest {
        prefix: prefix.to_owned(),
        delimiter: Some("/".to_owned()),
        ..ListRequest::default()
    }
}

/// Every page of `request`, and what they hold together.
async fn pages(store: &Bucket, mut request: ListRequest) -> (usize, ListPage) {
    let mut all = ListPage::default();
    for count in 1.. {
        let page = store.list(&request).await.unwrap();
        all.objects.extend(page.objects);
        all.prefixes.extend(page.prefixes);
        request.page_token = page.next_page_token;
        assert!(count < 1000, "a list ends");
        if request.page_token.is_none() {
            return (count, all);
        }
    }
    unreachable!("the loop ends by returning");
}

pub(super) async fn list_is_in_byte_order(store: Bucket) {
    fill(&store, &["b", "a/b", "a", "B", "é", "a/", "a!"]).await;
    let (_, all) = pages(&store, ListRequest::default()).await;
    assert_eq!(objects(&all), ["B", "a", "a!", "a/", "a/b", "b", "é"]);
    assert_eq!(
        all.objects[4],
        store.stat(&super::name("a/b")).await.unwrap()
    );
}

pub(super) async fn list_folds_at_the_delimiter(store: Bucket) {
    fill(
        &store,
        &["a", "a/", "a/1", "a/b/2", "a/c/3", "a/c/d/4", "b/5"],
    )
    .await;
    let (_, root) = pages(&store, under("")).await;
    assert_eq!(objects(&root), ["a"]);
    assert_eq!(root.prefixes, ["a/", "b/"]);
    let (_, inner) = pages(&store, under("a/")).await;
    assert_eq!(objects(&inner), ["a/", "a/1"]);
    assert_eq!(inner.prefixes, ["a/b/", "a/c/"]);
    let (_, partial) = pages(&store, under("a/c")).await;
    assert_eq!(partial.prefixes, ["a/c/"]);
    assert!(partial.objects.is_empty());
}

pub(super) async fn list_takes_any_delimiter(store: Bucket) {
    fill(&store, &["x--1", "x--2", "x-3", "y"]).await;
    let request = ListRequest {
        delimiter: Some("--".to_owned()),
        ..ListRequest::default()
    };
    let (_, all) = pages(&store, request).await;
    assert_eq!(all.prefixes, ["x--"]);
    assert_eq!(objects(&all), ["x-3", "y"]);
}

pub(super) async fn list_shows_the_trailing_delimiter_on_request(store: Bucket) {
    fill(&store, &["a/", "a/1", "b/1", "c/", "d"]).await;
    let request = ListRequest {
        include_trailing_delimiter: true,
        ..under("")
    };
    let (_, all) = pages(&store, request).await;
    assert_eq!(objects(&all), ["a/", "c/", "d"]);
    assert_eq!(all.prefixes, ["a/", "b/", "c/"]);
}

pub(super) async fn list_pages_join_without_gap_or_repeat(store: Bucket) {
    let mut names = Vec::new();
    for i in 0..12 {
        names.push(format!("f{i:02}"));
        for j in 0..3 {
            names.push(format!("d{i:02}/{j}"));
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    fill(&store, &names).await;
    for size in [1, 2, 5, 7, 24, 1000] {
        let request = ListRequest {
            max_results: Some(size),
            ..under("")
        };
        let (count, all) = pages(&store, request).await;
        let objects = objects(&all);
        assert_eq!(objects.len(), 12, "{size}: {objects:?}");
        assert_eq!(all.prefixes.len(), 12, "{size}: {:?}", all.prefixes);
        assert!(objects.is_sorted() && all.prefixes.is_sorted());
        assert!(count >= 24_usize.div_ceil(size as usize), "{size}: {count}");
    }
}

pub(super) async fn list_begins_at_the_offset(store: Bucket) {
    fill(&store, &["a", "b", "b/1", "b/2", "c"]).await;
    let request = ListRequest {
        start_offset: Some("b".to_owned()),
        ..ListRequest::default()
    };
    let (_, all) = pages(&store, request).await;
    assert_eq!(objects(&all), ["b", "b/1", "b/2", "c"]);
    let request = ListRequest {
        prefix: "b/".to_owned(),
        start_offset: Some("b/2".to_owned()),
        max_results: Some(1),
        ..ListRequest::default()
    };
    let (_, all) = pages(&store, request).await;
    assert_eq!(objects(&all), ["b/2"]);
}

pub(super) async fn list_of_nothing_is_empty(store: Bucket) {
    assert_eq!(store.list(&under("")).await.unwrap(), ListPage::default());
    fill(&store, &["a/1"]).await;
    assert_eq!(store.list(&under("b/")).await.unwrap(), ListPage::default());
    assert_eq!(
        store.list(&under("a/1/")).await.unwrap(),
        ListPage::default()
    );
}

pub(super) async fn list_refuses_a_strange_token(store: Bucket) {
    fill(&store, &["a"]).await;
    let request = ListRequest {
        page_token: Some("not a token of yours".to_owned()),
        ..ListRequest::default()
    };
    assert_eq!(kind(store.list(&request).await), Kind::Invalid);
}
