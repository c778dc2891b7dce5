//! Folders as resources of a bucket with a hierarchical namespace, the pages of their list, and the long-running
//! operations that rename them. See "Folders" in the reference of the JSON API.
//!
//! A folder's parents exist as long as it does, and so do the folders that an object is in.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use crate::clock::Timestamp;
use crate::error::ApiError;
use crate::listing::{page_token, successor};
use crate::name::FolderName;
use crate::query::Query;

/// The folders of a bucket in the order of their names.
pub(crate) type Folders = BTreeMap<FolderName, Arc<Folder>>;

/// The largest page that GCS serves.
const MAX_PAGE: usize = 1000;

/// Renames that can still be asked after; the oldest is forgotten first.
const REMEMBERED: usize = 1024;

/// A folder. Never changes; a rename makes another one.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) name: FolderName,
    pub(crate) metageneration: u64,
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
}

impl Folder {
    pub(crate) fn new(name: FolderName, now: Timestamp) -> Self {
        Self {
            name,
            metageneration: 1,
            created: now,
            updated: now,
        }
    }

    /// This folder under another name, as a rename leaves it.
    pub(crate) fn moved(&self, name: FolderName, now: Timestamp) -> Self {
        Self {
            name,
            updated: now,
            ..self.clone()
        }
    }
}

/// A rename that was carried out.
#[derive(Clone, Debug)]
pub(crate) struct Rename {
    pub(crate) id: String,
    pub(crate) source: FolderName,
    pub(crate) target: Arc<Folder>,
    pub(crate) at: Timestamp,
}

/// The last renames of a bucket, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Renames(VecDeque<Arc<Rename>>);

impl Renames {
    pub(crate) fn add(&mut self, rename: Arc<Rename>) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(rename);
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Rename>> {
        self.0.iter().find(|rename| rename.id == id).cloned()
    }
}

/// What a list of folders asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct FolderQuery {
    prefix: String,
    /// The folder of the prefix and those one level below it; else everything below.
    children_only: bool,
    start_offset: String,
    end_offset: Option<String>,
    limit: usize,
    after: Option<String>,
}

/// One page.
#[derive(Debug, Default)]
pub(crate) struct FolderPage {
    pub(crate) items: Vec<Arc<Folder>>,
    pub(crate) next_page_token: Option<String>,
}

impl FolderQuery {
    pub(crate) fn parse(query: &Query) -> Result<Self, ApiError> {
        let prefix = query.text("prefix").unwrap_or_default();
        if !prefix.is_empty() && !prefix.ends_with('/') {
            return Err(ApiError::invalid("The prefix must end with '/'."));
        }
        let children_only = match query.filled("delimiter") {
            None => false,
            Some("/") => true,
            Some(_) => return Err(ApiError::invalid("The only supported delimiter is '/'.")),
        };
        let limit = match query.number("pageSize")? {
            None | Some(0) => MAX_PAGE,
            Some(wanted) => usize::try_from(wanted).map_or(MAX_PAGE, |n| n.min(MAX_PAGE)),
        };
        let after = page_token(query).map(|token| {
            let decoded = BASE64.decode(token).ok();
            let name = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            name.filter(|name| name.starts_with(prefix))
                .ok_or_else(|| ApiError::invalid("Invalid page token."))
        });
        Ok(Self {
            prefix: prefix.to_owned(),
            children_only,
            start_offset: query.text("startOffset").unwrap_or_default().to_owned(),
            end_offset: query.filled("endOffset").map(str::to_owned),
            limit,
            after: after.transpose()?,
        })
    }

    fn first(&self) -> Bound<Vec<u8>> {
        match &self.after {
            Some(name) => self.behind(name),
            None => {
                let start = self.prefix.as_bytes().max(self.start_offset.as_bytes());
                Bound::Included(start.to_vec())
            }
        }
    }

    /// Where the list goes on behind a folder.
    fn behind(&self, name: &str) -> Bound<Vec<u8>> {
        if self.children_only && name != self.prefix {
            Bound::Included(successor(name))
        } else {
            Bound::Excluded(name.as_bytes().to_vec())
        }
    }

    fn is_past_end(&self, name: &str) -> bool {
        let end = self.end_offset.as_deref();
        !name.starts_with(&self.prefix) || end.is_some_and(|end| name >= end)
    }

    /// Whether a list that began in the middle of a child is still there.
    fn is_too_deep(&self, name: &str) -> bool {
        self.children_only && name[self.prefix.len()..].matches('/').count() > 1
    }
}

/// Collects one page. A child costs one step, whatever lies below it.
pub(crate) fn page(folders: &Folders, query: &FolderQuery) -> FolderPage {
    let mut page = FolderPage::default();
    let mut from = query.first();
    loop {
        let bounds = (from.as_ref().map(Vec::as_slice), Bound::Unbounded);
        let Some((name, folder)) = folders.range::<[u8], _>(bounds).next() else {
            return page;
        };
        let name = name.as_str();
        if query.is_past_end(name) {
            return page;
        }
        if page.items.len() == query.limit {
            let last = page.items.last();
            page.next_page_token = last.map(|last| BASE64.encode(last.name.as_str()));
            return page;
        }
        from = query.behind(name);
        if !query.is_too_deep(name) {
            page.items.push(Arc::clone(folder));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TREE: [&str; 6] = ["a-/", "a/", "a/x/", "a/x/y/", "a/z/", "b/"];

    fn folders() -> Folders {
        let folder = |name: &&str| {
            let name = FolderName::parse(name).unwrap();
            let folder = Folder::new(name.clone(), Duration::ZERO);
            (name, Arc::new(folder))
        };
        TREE.iter().map(folder).collect()
    }

    fn parse(text: &str) -> Result<FolderQuery, ApiError> {
        FolderQuery::parse(&Query::parse(Some(text)))
    }

    fn names(text: &str) -> Vec<String> {
        let folders = folders();
        let mut query = parse(text).unwrap();
        let mut names = Vec::new();
        loop {
            let page = page(&folders, &query);
            assert!(page.items.len() <= query.limit);
            names.extend(page.items.iter().map(|folder| folder.name.to_string()));
            let Some(token) = page.next_page_token else {
                return names;
            };
            query.after = parse(&format!("{text}&pageToken={token}")).unwrap().after;
        }
    }

    #[test]
    fn table() {
        for (text, expected) in [
            ("", &TREE[..]),
            ("delimiter=/", &["a-/", "a/", "b/"]),
            ("prefix=a/", &["a/", "a/x/", "a/x/y/", "a/z/"]),
            ("prefix=a/&delimiter=/", &["a/", "a/x/", "a/z/"]),
            ("prefix=c/", &[]),
            ("startOffset=a/x/", &["a/x/", "a/x/y/", "a/z/", "b/"]),
            ("prefix=a/&delimiter=/&startOffset=a/x/y/", &["a/z/"]),
            ("endOffset=a/x/y/", &["a-/", "a/", "a/x/"]),
        ] {
            for limit in ["", "&pageSize=1", "&pageSize=2", "&pageSize=3"] {
                assert_eq!(names(&format!("{text}{limit}")), expected, "{text}{limit}");
            }
        }
    }

    #[test]
    fn refuses_bad_parameters() {
        for text in [
            "prefix=a",
            "delimiter=-",
            "pageSize=x",
            "pageToken=!",
            "prefix=a/&pageToken=Yi8",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
