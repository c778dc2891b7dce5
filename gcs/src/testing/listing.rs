//! Folding and paging of a sorted set of names, as the store's list does it.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::store::{ListPage, ListRequest};
use crate::{Object, ObjectName};

const MAX_PAGE: usize = 1000;

/// Where a page ended: behind this object, or behind everything folded into this prefix.
enum Token<'a> {
    Object(&'a str),
    Prefix(&'a str),
}

impl<'a> Token<'a> {
    fn parse(token: &'a str, request: &ListRequest) -> Option<Self> {
        let parsed = match token.split_at_checked(2)? {
            ("o.", name) => Self::Object(name),
            ("p.", name) => Self::Prefix(name),
            _ => return None,
        };
        parsed.name().starts_with(&request.prefix).then_some(parsed)
    }

    fn name(&self) -> &'a str {
        match self {
            Self::Object(name) | Self::Prefix(name) => name,
        }
    }

    /// Whether `name` was listed as an object before. Names before the token's are not looked at again.
    fn listed(&self, name: &str) -> bool {
        matches!(self, Self::Object(last) if *last == name)
    }

    /// Whether `prefix` was listed before: the page ended with it, or with the object of the same name behind it.
    fn folded(&self, prefix: &str) -> bool {
        self.name() == prefix
    }
}

/// One page of `objects`, or `None` for a page token that is not ours.
///
/// A folded prefix stands before the object of the same name, which is listed only where the request asks for
/// trailing delimiters.
pub(super) fn page<'a>(
    objects: &BTreeMap<ObjectName, impl AsRef<Object> + 'a>,
    request: &ListRequest,
) -> Option<ListPage> {
    let token = match &request.page_token {
        Some(token) => Some(Token::parse(token, request)?),
        None => None,
    };
    let limit = match request.max_results {
        Some(0) | None => MAX_PAGE,
        Some(n) => (n as usize).min(MAX_PAGE),
    };
    let from = [
        request.prefix.as_str(),
        request.start_offset.as_deref().unwrap_or(""),
        token.as_ref().map_or("", Token::name),
    ]
    .into_iter()
    .max()
    .unwrap_or("");

    let mut page = ListPage::default();
    let mut last = None;
    let range = (Bound::Included(from), Bound::Unbounded);
    for (name, entry) in objects.range::<str, _>(range) {
        let name = name.as_str();
        if !name.starts_with(&request.prefix) {
            break;
        }
        let folded = fold(name, request);
        if let Some(prefix) = folded {
            let known = page.prefixes.last().is_some_and(|p| p == prefix)
                || token.as_ref().is_some_and(|t| t.folded(prefix));
            if !known {
                if page.objects.len() + page.prefixes.len() == limit {
                    page.next_page_token = last;
                    return Some(page);
                }
                page.prefixes.push(prefix.to_owned());
                last = Some(format!("p.{prefix}"));
            }
            if !(request.include_trailing_delimiter && prefix == name) {
                continue;
            }
        }
        if token.as_ref().is_some_and(|t| t.listed(name)) {
            continue;
        }
        if page.objects.len() + page.prefixes.len() == limit {
            page.next_page_token = last;
            return Some(page);
        }
        page.objects.push(entry.as_ref().clone());
        last = Some(format!("o.{name}"));
    }
    Some(page)
}

fn fold<'n>(name: &'n str, request: &ListRequest) -> Option<&'n str> {
    let delimiter = request.delimiter.as_deref().filter(|d| !d.is_empty())?;
    let rest = &name[request.prefix.len()..];
    let end = request.prefix.len() + rest.find(delimiter)? + delimiter.len();
    Some(&name[..end])
}
