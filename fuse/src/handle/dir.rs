//! An open directory: its listing as a stream of entries with stable offsets.
//!
//! Offset 0 is before `.`, 1 before `..`, and every entry that follows has the next number, for as long as the
//! directory is open. Only the pages around the reader are held; going back to one that was dropped fetches it again.

use std::collections::HashSet;
use std::sync::Arc;

use gcsmount_gcs::store::{ListPage, ListRequest};
use tokio::time::Instant;

use crate::names::{Entry, Pages};

/// The offsets of `.` and `..` come first.
pub const DOTS: u64 = 2;

/// Where a page begins, and what has to be known to turn it into the same entries again.
#[derive(Debug, Clone)]
struct Mark {
    /// Offset of the page's first entry.
    first: u64,
    token: Option<String>,
    names: Pages,
}

/// A page as entries.
#[derive(Debug)]
struct Held {
    /// Which of the marks is its own.
    number: usize,
    first: u64,
    entries: Vec<Entry>,
}

impl Held {
    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }
}

/// A walk through the listing of one directory.
#[derive(Debug)]
pub struct Listing {
    prefix: String,
    page_size: u32,
    /// Whether placeholders of directories are listed too.
    placeholders: bool,
    /// Entries of this mount's own that the bucket does not have yet; they come first, and not again from the bucket.
    local: Vec<Entry>,
    local_names: HashSet<Arc<str>>,
    /// One for each page that was met, and one for the next if there is one.
    marks: Vec<Mark>,
    /// The page in use. An entry is asked for again when the kernel's buffer was full, so never further back than this.
    held: Option<Held>,
    begun: Instant,
    /// Changes that this mount had made in the directory when the listing was begun.
    pub changes: u64,
}

/// What to do to have the entries at an offset.
#[derive(Debug)]
pub enum Next {
    /// Fetch this and pass it to [`Listing::add`].
    Fetch(ListRequest),
    /// There are no more.
    End,
}

impl Listing {
    /// A walk through the names that begin with `prefix`, after `local` ones.
    #[must_use]
    pub fn new(
        prefix: String,
        root: bool,
        page_size: u32,
        local: Vec<Entry>,
        changes: u64,
    ) -> Self {
        let local_names = local.iter().map(|e| e.name.clone()).collect();
        let first = Mark {
            first: DOTS + local.len() as u64,
            token: None,
            names: Pages::new(prefix.clone(), root),
        };
        Self {
            prefix,
            page_size,
            placeholders: false,
            local,
            local_names,
            marks: vec![first],
            held: None,
            begun: Instant::now(),
            changes,
        }
    }

    /// Lists the placeholders of directories too.
    #[must_use]
    pub fn with_placeholders(self, placeholders: bool) -> Self {
        Self {
            placeholders,
            ..self
        }
    }

    /// When it was begun.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Entries at and behind `offset` that are at hand, with the offset behind each.
    pub fn at_hand(&self, offset: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let local_end = DOTS + self.local.len() as u64;
        let (first, entries): (u64, &[Entry]) = match &self.held {
            _ if offset < local_end => (DOTS, &self.local),
            Some(held) if (held.first..held.end()).contains(&offset) => (held.first, &held.entries),
            _ => (offset, &[]),
        };
        let skip = usize::try_from(offset.saturating_sub(first)).unwrap_or(usize::MAX);
        (first + 1..).zip(entries).skip(skip)
    }

    /// Whether the entry before `offset` is one of this mount's own.
    #[must_use]
    pub fn is_local(&self, offset: u64) -> bool {
        offset <= DOTS + self.local.len() as u64
    }

    /// What to fetch when nothing is at hand for `offset`.
    #[must_use]
    pub fn next(&self, offset: u64) -> Next {
        let page = self.page_of(offset);
        match self.marks.get(page) {
            None => Next::End,
            Some(mark) => Next::Fetch(ListRequest {
                prefix: self.prefix.clone(),
                delimiter: Some("/".to_owned()),
                page_token: mark.token.clone(),
                max_results: Some(self.page_size),
                include_trailing_delimiter: self.placeholders,
                ..ListRequest::default()
            }),
        }
    }

    /// The page that has `offset`, or the one behind the last if none of those that were met has.
    fn page_of(&self, offset: u64) -> usize {
        let behind = self.marks.partition_point(|mark| mark.first <= offset);
        let page = behind.saturating_sub(1);
        let is_done = self
            .held
            .as_ref()
            .is_some_and(|held| held.number == page && offset >= held.end());
        if is_done { behind } else { page }
    }

    /// Takes in the page that [`Listing::next`] asked for at `offset`. Returns its entries, and whether the listing is
    /// complete with it: every page was met, and this is the last.
    pub fn add(&mut self, offset: u64, page: ListPage) -> (&[Entry], bool) {
        let number = self.page_of(offset);
        let Some(mark) = self.marks.get(number).cloned() else {
            return (&[], false);
        };
        let mut names = mark.names;
        let token = page.next_page_token.clone();
        let mut entries = names.add(page);
        entries.retain(|entry| !self.local_names.contains(&entry.name));
        let is_last = token.is_none();
        let held = Held {
            number,
            first: mark.first,
            entries,
        };
        // A page that was met before may have become shorter: what follows begins where it ends now.
        self.marks.truncate(number + 1);
        if !is_last {
            self.marks.push(Mark {
                first: held.end(),
                token,
                names,
            });
        } else if names.hidden() > 0 {
            tracing::debug!(
                prefix = self.prefix,
                hidden = names.hidden(),
                "names that the kernel cannot hold are hidden"
            );
        }
        (&self.held.insert(held).entries, is_last)
    }
}

#[cfg(test)]
mod tests;
