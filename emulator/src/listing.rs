//! One page of `objects.list`: a pure function of what a bucket holds and the query.

use std::ops::Bound;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;

use crate::error::ApiError;
use crate::hierarchy::Folders;
use crate::history::{Entry, History};
use crate::object::Object;
use crate::query::Query;
use crate::store::Objects;

/// The largest page that GCS serves.
const MAX_RESULTS: usize = 1000;

/// Leads to the beginning of any list.
pub(crate) const START_TOKEN: &str = "start";

/// The token that a list is to go on from.
pub(crate) fn page_token(query: &Query) -> Option<&str> {
    let token = query.filled("pageToken");
    token.filter(|token| *token != START_TOKEN)
}

/// The versions of a name that a listing is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Versions {
    #[default]
    Live,
    /// Live and noncurrent.
    All,
    SoftDeleted,
}

/// What a listing asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ListQuery {
    of: Versions,
    prefix: String,
    delimiter: Option<String>,
    include_trailing_delimiter: bool,
    include_folders: bool,
    start_offset: String,
    end_offset: Option<String>,
    limit: usize,
    resume: Option<Resume>,
}

/// Where the page before ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Resume {
    AfterObject(String),
    /// Behind this generation of the object.
    AfterVersion(String, u64),
    AfterPrefix(String),
    /// The object named like the prefix was given, the prefix is still to come.
    AtPrefix(String),
}

/// One page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) items: Vec<Entry>,
    pub(crate) prefixes: Vec<String>,
    pub(crate) next_page_token: Option<String>,
}

impl Page {
    fn len(&self) -> usize {
        self.items.len() + self.prefixes.len()
    }
}

impl ListQuery {
    pub(crate) fn parse(query: &Query) -> Result<Self, ApiError> {
        for unsupported in ["matchGlob", "filter"] {
            if query.filled(unsupported).is_some() {
                return Err(ApiError::invalid(format!(
                    "Parameter {unsupported} is not supported here."
                )));
            }
        }
        let of = match (query.flag("versions"), query.flag("softDeleted")) {
            (false, false) => Versions::Live,
            (true, false) => Versions::All,
            (false, true) => Versions::SoftDeleted,
            (true, true) => {
                let message = "versions and softDeleted cannot be asked for together.";
                return Err(ApiError::invalid(message));
            }
        };
        let text = |name| query.filled(name).map(str::to_owned);
        let limit = query.number("maxResults")?.map_or(MAX_RESULTS, |wanted| {
            usize::try_from(wanted)
                .unwrap_or(MAX_RESULTS)
                .min(MAX_RESULTS)
        });
        if limit == 0 {
            return Err(ApiError::invalid(
                "Invalid value for maxResults: it must be at least 1.",
            ));
        }
        Ok(Self {
            of,
            prefix: text("prefix").unwrap_or_default(),
            // Folders are prefixes where names are cut at slashes, and nowhere else.
            include_folders: query.flag("includeFoldersAsPrefixes")
                && query.text("delimiter") == Some("/"),
            delimiter: text("delimiter"),
            include_trailing_delimiter: query.flag("includeTrailingDelimiter"),
            start_offset: text("startOffset").unwrap_or_default(),
            end_offset: text("endOffset"),
            limit,
            resume: page_token(query).map(Resume::decode).transpose()?,
        })
    }

    pub(crate) fn of(&self) -> Versions {
        self.of
    }

    /// The prefix that `name` is folded into.
    fn fold<'n>(&self, name: &'n str) -> Option<&'n str> {
        let delimiter = self.delimiter.as_deref()?;
        let at = name[self.prefix.len()..].find(delimiter)?;
        Some(&name[..self.prefix.len() + at + delimiter.len()])
    }

    /// The generation of `name` that the page before ended with.
    fn behind(&self, name: &str) -> u64 {
        match &self.resume {
            Some(Resume::AfterVersion(last, generation)) if last == name => *generation,
            _ => 0,
        }
    }

    fn is_past_end(&self, name: &str) -> bool {
        let end = self.end_offset.as_deref();
        !name.starts_with(&self.prefix) || end.is_some_and(|end| name >= end)
    }

    fn first(&self) -> Bound<Vec<u8>> {
        let start = self.prefix.as_bytes().max(self.start_offset.as_bytes());
        match &self.resume {
            None => Bound::Included(start.to_vec()),
            Some(Resume::AfterObject(name)) => Bound::Excluded(name.clone().into_bytes()),
            Some(Resume::AtPrefix(name) | Resume::AfterVersion(name, _)) => {
                Bound::Included(name.clone().into_bytes())
            }
            Some(Resume::AfterPrefix(prefix)) => Bound::Included(successor(prefix)),
        }
    }
}

impl Resume {
    fn encode(&self) -> String {
        BASE64.encode(match self {
            Self::AfterObject(name) => format!("o{name}"),
            Self::AfterVersion(name, generation) => format!("v{generation}:{name}"),
            Self::AfterPrefix(prefix) => format!("p{prefix}"),
            Self::AtPrefix(prefix) => format!("a{prefix}"),
        })
    }

    fn decode(token: &str) -> Result<Self, ApiError> {
        let decoded = BASE64.decode(token).ok();
        let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        let resume = text.as_deref().and_then(Self::parse);
        resume.ok_or_else(|| ApiError::invalid("Invalid page token."))
    }

    fn parse(text: &str) -> Option<Self> {
        let kind = text.chars().next()?;
        let rest = &text[kind.len_utf8()..];
        match kind {
            'o' => Some(Self::AfterObject(rest.to_owned())),
            'p' => Some(Self::AfterPrefix(rest.to_owned())),
            'a' => Some(Self::AtPrefix(rest.to_owned())),
            'v' => {
                let (generation, name) = rest.split_once(':')?;
                Some(Self::AfterVersion(
                    name.to_owned(),
                    generation.parse().ok()?,
                ))
            }
            _ => None,
        }
    }
}

/// What a list goes through.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) live: Option<&'a Objects>,
    pub(crate) former: Option<&'a History>,
    /// `None` where the namespace is flat.
    pub(crate) folders: Option<&'a Folders>,
}

/// A name in a view, with its versions; a folder has none.
#[derive(Clone, Copy, Debug)]
struct Found<'a> {
    name: &'a str,
    former: &'a [Entry],
    live: Option<&'a Arc<Object>>,
}

impl<'a> View<'a> {
    /// The first name at or behind `from`.
    fn next(self, from: &Bound<Vec<u8>>, with_folders: bool) -> Option<Found<'a>> {
        let from = from.as_ref().map(Vec::as_slice);
        let bounds = (from, Bound::Unbounded);
        let live = self
            .live
            .and_then(|live| live.range::<[u8], _>(bounds).next());
        let former = self.former.and_then(|former| former.next(from));
        let folders = self.folders.filter(|_| with_folders);
        let folder = folders.and_then(|folders| folders.range::<[u8], _>(bounds).next());
        let names = [
            live.map(|(name, _)| name.as_str()),
            former.map(|(name, _)| name.as_str()),
            folder.map(|(name, _)| name.as_str()),
        ];
        let name = names.into_iter().flatten().min()?;
        let former = former.filter(|(other, _)| other.as_str() == name);
        let live = live.filter(|(other, _)| other.as_str() == name);
        Some(Found {
            name,
            former: former.map_or(&[], |(_, entries)| entries),
            live: live.map(|(_, object)| object),
        })
    }
}

impl Found<'_> {
    fn is_folder(&self) -> bool {
        self.former.is_empty() && self.live.is_none()
    }

    /// The versions, the oldest first.
    fn versions(&self) -> impl Iterator<Item = Entry> {
        let live = self.live.cloned().map(Entry::live);
        self.former.iter().cloned().chain(live)
    }

    /// Adds the versions behind a generation to a page; where it is full, how to go on.
    fn fill(&self, page: &mut Page, limit: usize, behind: u64) -> Result<(), Resume> {
        let mut last = behind;
        let mut left = self.versions();
        let left = left
            .by_ref()
            .skip_while(|entry| entry.object.generation <= behind);
        for version in left {
            if page.len() == limit {
                return Err(Resume::AfterVersion(self.name.to_owned(), last));
            }
            last = version.object.generation;
            page.items.push(version);
        }
        Ok(())
    }
}

/// The least byte string above everything that starts with `prefix`. UTF-8 has no byte 0xff, so the last byte
/// can be raised.
pub(crate) fn successor(prefix: &str) -> Vec<u8> {
    let mut bytes = prefix.as_bytes().to_vec();
    if let Some(last) = bytes.last_mut() {
        *last += 1;
    }
    bytes
}

/// Collects one page. A folded prefix costs one step, whatever lies below it.
pub(crate) fn page(view: &View<'_>, query: &ListQuery) -> Page {
    let mut page = Page::default();
    let mut from = query.first();
    let mut given_already = match &query.resume {
        Some(Resume::AtPrefix(prefix)) => Some(prefix.as_str()),
        _ => None,
    };
    let mut last = None;
    loop {
        let Some(found) = view.next(&from, query.include_folders) else {
            return page;
        };
        let name = found.name;
        if query.is_past_end(name) {
            return page;
        }
        if page.len() == query.limit {
            page.next_page_token = last.as_ref().map(Resume::encode);
            return page;
        }
        let prefix = query.fold(name);
        let is_marker = query.include_trailing_delimiter && prefix == Some(name);
        match prefix {
            Some(prefix) if !is_marker || found.is_folder() || given_already == Some(prefix) => {
                page.prefixes.push(prefix.to_owned());
                from = Bound::Included(successor(prefix));
                last = Some(Resume::AfterPrefix(prefix.to_owned()));
            }
            // A marker, an object, or the folder of the prefix itself.
            Some(_) | None => {
                if let Err(resume) = found.fill(&mut page, query.limit, query.behind(name)) {
                    page.next_page_token = Some(resume.encode());
                    return page;
                }
                given_already = prefix;
                if is_marker {
                    from = Bound::Included(name.as_bytes().to_vec());
                    last = Some(Resume::AtPrefix(name.to_owned()));
                } else {
                    from = Bound::Excluded(name.as_bytes().to_vec());
                    last = Some(Resume::AfterObject(name.to_owned()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::content::Content;
    use crate::hierarchy::Folder;
    use crate::history::Standing;
    use crate::name::{BucketName, FolderName, ObjectName};
    use crate::object::Attributes;

    const TREE: [&str; 9] = ["a", "a/", "a/1", "a/2", "b/x/1", "b/x/2", "b/y", "c", "d/z"];

    fn objects(names: &[&str]) -> Objects {
        let object = |name: &str| {
            let name = ObjectName::parse(name).unwrap();
            let object = Object {
                bucket: BucketName::parse("bucket").unwrap(),
                name: name.clone(),
                generation: 1,
                metageneration: 1,
                created: Duration::ZERO,
                updated: Duration::ZERO,
                retained_from: Duration::ZERO,
                content: Content::default(),
                attributes: Attributes::default(),
            };
            (name, Arc::new(object))
        };
        names.iter().map(|name| object(name)).collect()
    }

    fn query(text: &str) -> ListQuery {
        ListQuery::parse(&Query::parse(Some(text))).unwrap()
    }

    fn pages(names: &[&str], text: &str) -> Vec<(Vec<String>, Vec<String>)> {
        pages_of(names, &[], text)
    }

    /// With folders beside the objects; none for a flat namespace.
    fn pages_of(names: &[&str], folders: &[&str], text: &str) -> Vec<(Vec<String>, Vec<String>)> {
        let objects = objects(names);
        let folder = |name: &&str| {
            let name = FolderName::parse(name).unwrap();
            (name.clone(), Arc::new(Folder::new(name, Duration::ZERO)))
        };
        let folders: Folders = folders.iter().map(folder).collect();
        let view = View {
            live: Some(&objects),
            former: None,
            folders: Some(&folders),
        };
        let mut query = query(text);
        let mut pages = Vec::new();
        loop {
            let page = page(&view, &query);
            let items = page
                .items
                .iter()
                .map(|e| e.object.name.to_string())
                .collect();
            pages.push((items, page.prefixes));
            let Some(token) = page.next_page_token else {
                return pages;
            };
            query.resume = Some(Resume::decode(&token).unwrap());
        }
    }

    fn flat(names: &[&str], text: &str) -> (Vec<String>, Vec<String>) {
        let mut all = (Vec::new(), Vec::new());
        for (items, prefixes) in pages(names, text) {
            all.0.extend(items);
            all.1.extend(prefixes);
        }
        all
    }

    #[test]
    fn table() {
        for (text, items, prefixes) in [
            ("", TREE.as_slice(), [].as_slice()),
            ("delimiter=/", &["a", "c"], &["a/", "b/", "d/"]),
            (
                "delimiter=/&includeTrailingDelimiter=true",
                &["a", "a/", "c"],
                &["a/", "b/", "d/"],
            ),
            ("prefix=b/&delimiter=/", &["b/y"], &["b/x/"]),
            ("prefix=a", &["a", "a/", "a/1", "a/2"], &[]),
            ("prefix=a/&delimiter=/", &["a/", "a/1", "a/2"], &[]),
            ("prefix=zz", &[], &[]),
            ("startOffset=b/x/2", &["b/x/2", "b/y", "c", "d/z"], &[]),
            ("startOffset=b/x/2&endOffset=c", &["b/x/2", "b/y"], &[]),
            ("delimiter=/&startOffset=b/y", &["c"], &["b/", "d/"]),
            (
                "delimiter=x",
                &["a", "a/", "a/1", "a/2", "b/y", "c", "d/z"],
                &["b/x"],
            ),
        ] {
            let expected = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
            let whole = (expected(items), expected(prefixes));
            assert_eq!(flat(&TREE, text), whole, "{text}");
            for limit in 1..=4 {
                let text = format!("{text}&maxResults={limit}");
                assert_eq!(flat(&TREE, &text), whole, "{text}");
                let sizes = pages(&TREE, &text)
                    .into_iter()
                    .map(|(i, p)| i.len() + p.len());
                assert!(sizes.max() <= Some(limit), "{text}");
            }
        }
    }

    #[test]
    fn folders_are_prefixes_where_that_is_asked() {
        let (objects, folders) = (["a/1", "a/b/", "c"], ["a/", "a/b/", "a/c/", "d/", "d/e/"]);
        for (text, items, prefixes) in [
            ("delimiter=/", &["c"][..], &["a/"][..]),
            ("includeFoldersAsPrefixes=true", &["a/1", "a/b/", "c"], &[]),
            (
                "delimiter=/&includeFoldersAsPrefixes=true",
                &["c"],
                &["a/", "d/"],
            ),
            (
                "prefix=a/&delimiter=/&includeFoldersAsPrefixes=true",
                &["a/1"],
                &["a/b/", "a/c/"],
            ),
            (
                "prefix=a/&delimiter=/&includeFoldersAsPrefixes=true&includeTrailingDelimiter=true",
                &["a/1", "a/b/"],
                &["a/b/", "a/c/"],
            ),
            (
                "prefix=d/&delimiter=/&includeFoldersAsPrefixes=true",
                &[],
                &["d/e/"],
            ),
        ] {
            for limit in ["", "&maxResults=1", "&maxResults=2"] {
                let text = format!("{text}{limit}");
                let mut all = (Vec::new(), Vec::new());
                for (items, prefixes) in pages_of(&objects, &folders, &text) {
                    all.0.extend(items);
                    all.1.extend(prefixes);
                }
                assert_eq!(all.0, items, "{text}");
                assert_eq!(all.1, prefixes, "{text}");
            }
        }
    }

    #[test]
    fn versions_of_a_name_join_over_pages() {
        let live = objects(&["a/", "b", "d"]);
        let mut former = History::default();
        for (name, generation) in [("a/", 3), ("b", 5), ("b", 4), ("c", 9), ("d", 2)] {
            let name = ObjectName::parse(name).unwrap();
            let object = Object {
                name: name.clone(),
                generation,
                ..Object::clone(live.values().next().unwrap())
            };
            former.put(Entry {
                object: Arc::new(object),
                standing: Standing::Noncurrent {
                    since: Duration::ZERO,
                },
            });
        }
        // The live ones are the last of their names.
        let live: Objects = live
            .into_iter()
            .map(|(name, object)| {
                let newest = Object {
                    generation: 10,
                    ..Object::clone(&object)
                };
                (name, Arc::new(newest))
            })
            .collect();
        let view = View {
            live: Some(&live),
            former: Some(&former),
            folders: None,
        };
        for limit in 1..=8 {
            let text = format!("delimiter=/&includeTrailingDelimiter=true&maxResults={limit}");
            let mut query = query(&text);
            let (mut items, mut prefixes) = (Vec::new(), Vec::new());
            loop {
                let page = page(&view, &query);
                assert!(page.len() <= limit);
                let version = |e: &Entry| format!("{}#{}", e.object.name, e.object.generation);
                items.extend(page.items.iter().map(version));
                prefixes.extend(page.prefixes);
                let Some(token) = page.next_page_token else {
                    break;
                };
                query.resume = Some(Resume::decode(&token).unwrap());
            }
            let all = ["a/#3", "a/#10", "b#4", "b#5", "b#10", "c#9", "d#2", "d#10"];
            assert_eq!(
                (items, prefixes),
                (all.map(str::to_owned).to_vec(), vec!["a/".to_owned()])
            );
        }
    }

    #[test]
    fn a_full_last_page_has_no_token() {
        assert_eq!(pages(&["a", "b"], "maxResults=2").len(), 1);
        assert_eq!(pages(&["a/1", "a/2"], "maxResults=1&delimiter=/").len(), 1);
    }

    #[test]
    fn refuses_bad_parameters() {
        for text in [
            "maxResults=0",
            "maxResults=x",
            "pageToken=!",
            "pageToken=enp6",
            "matchGlob=*",
            "versions=true&softDeleted=true",
        ] {
            assert!(
                ListQuery::parse(&Query::parse(Some(text))).is_err(),
                "{text}"
            );
        }
        assert_eq!(query("maxResults=5000").limit, MAX_RESULTS);
        assert_eq!(query("pageToken=start").resume, None);
    }
}
