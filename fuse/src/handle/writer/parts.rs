//! Whether a large file may go up in parts, where they are, and how those that nobody knows are cleared away.
//!
//! Parts are objects of their own for a moment. That is only right where they can be removed again, and where being
//! there for a moment costs no more than that: a bucket is tried before the first large file, with an object of no
//! bytes.

use std::time::Duration;

use bytes::Bytes;
use gcsmount_cache::{Lease, Priority};
use gcsmount_gcs::layer::parts::{Circumstances, Plan, Strategy, Thresholds};
use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::store::{ListRequest, Preconditions, ReadRequest, WriteRequest};
use gcsmount_gcs::{Kind, Object, ObjectName, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Workshop;

/// Without it parts would stay.
const DELETE: &str = "storage.objects.delete";
/// The class in which an object costs the time that it is there; the others bill at least 30 days.
/// Source: <https://cloud.google.com/storage/pricing#early-delete>.
const STANDARD: &str = "STANDARD";
/// How long what a bucket was found to be is believed: somebody may set a retention policy on it, or lift one.
const BELIEVED: Duration = Duration::from_secs(3600);
/// The most bytes that a part's name adds to the plan's prefix, and then some.
const NAME_ROOM: usize = 24;

/// How large files go up in parts that are uploaded side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartsConfig {
    /// Bytes of a file from which on it goes up in parts; 32 MiB by default. A file that is written in order is held in
    /// memory up to here, since what was streamed cannot become a part any more.
    pub from: usize,
    /// Bytes of a part; 4 MiB by default.
    pub part: usize,
    /// Parts of one file that are under way at a time; 8 by default.
    pub in_flight: usize,
}

impl Default for PartsConfig {
    fn default() -> Self {
        Self {
            from: 32 << 20,
            part: 4 << 20,
            in_flight: 8,
        }
    }
}

impl PartsConfig {
    fn plan(&self, prefix: String) -> Plan {
        Plan {
            prefix,
            part: self.part,
            in_flight: self.in_flight,
        }
    }

    /// The most bytes of content that one file holds: the plan's, or what has gathered beside the first part.
    fn memory(&self) -> usize {
        let gathered = self.from.saturating_add(self.part);
        self.plan(String::new()).memory().max(gathered)
    }
}

/// What a bucket does with objects that are there for a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    /// Whether its default class is the one without a least time.
    standard_class: bool,
    /// Whether it keeps what is deleted from being so, or keeps it as a noncurrent version.
    retained: bool,
    may_delete: bool,
}

impl Facts {
    /// Of a bucket in which nothing may be deleted.
    const NO_DELETE: Self = Self {
        standard_class: false,
        retained: false,
        may_delete: false,
    };

    fn circumstances(self, request: &WriteRequest, size: u64) -> Circumstances {
        let class = request.attributes.storage_class.as_deref();
        Circumstances {
            size,
            standard_class: class.map_or(self.standard_class, |class| class == STANDARD),
            retained: self.retained,
            may_delete: Some(self.may_delete),
            // The store has none.
            own_key: false,
        }
    }
}

/// What the uploads in parts of a file system share.
#[derive(Debug)]
pub(super) struct Parts {
    config: PartsConfig,
    /// What was found out, and until when it is believed.
    known: Mutex<Option<(Instant, Facts)>>,
    /// Held by whoever is finding out. Taken before `known`.
    asking: tokio::sync::Mutex<()>,
}

impl Parts {
    pub(super) fn new(config: PartsConfig) -> Self {
        Self {
            config,
            known: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
        }
    }

    fn known(&self) -> Option<Facts> {
        let known = *self.known.lock();
        known
            .filter(|(until, _)| Instant::now() < *until)
            .map(|(_, facts)| facts)
    }

    fn remember(&self, facts: Facts) {
        *self.known.lock() = Some((Instant::now() + BELIEVED, facts));
    }

    /// Whether an object of `size` bytes is to go up in parts in such a bucket.
    fn suit(&self, facts: Facts, request: &WriteRequest, size: u64) -> bool {
        let from = self.config.from as u64;
        let thresholds = Thresholds {
            stream: from,
            parts: from,
        };
        Strategy::choose(&facts.circumstances(request, size), &thresholds) == Strategy::Parts
    }

    /// Whether an object that gets large enough may go up in parts, as far as anybody knows.
    fn may_suit(&self, request: &WriteRequest) -> bool {
        let hoped = Facts {
            standard_class: true,
            retained: false,
            may_delete: true,
        };
        self.suit(self.known().unwrap_or(hoped), request, u64::MAX)
    }
}

impl Workshop {
    /// Bytes of a file from which on it goes up in parts, where any does.
    pub(super) fn parts_from(&self) -> usize {
        let parts = self.parts.as_ref();
        parts.map_or(usize::MAX, |parts| parts.config.from)
    }

    /// What an upload in parts holds beyond a stream; `None` where the object is to be a stream. It is given only where
    /// another stream can still begin and a staged file be uploaded beside it: one file that is fast is not worth others
    /// that are staged.
    pub(super) fn lease_for_parts(&self, request: &WriteRequest) -> Option<Lease> {
        let parts = self.parts.as_ref()?;
        if !parts.may_suit(request) {
            return None;
        }
        let streams = self.store.upload_memory();
        let more = parts.config.memory().saturating_sub(streams);
        let spare = self.put_memory().saturating_add(self.stream_memory());
        let wanted = more.checked_add(spare)?;
        let mut lease = self.cache.budget().try_acquire(wanted, Priority::Upload)?;
        drop(lease.split(spare));
        Some(lease)
    }

    /// How an object that has `size` bytes, or will have more, goes up in parts; `None`: as a stream.
    pub(super) async fn plan(&self, request: &WriteRequest, size: u64) -> Option<Plan> {
        let parts = self.parts.as_ref()?;
        if size < parts.config.from as u64 || !parts.may_suit(request) {
            return None;
        }
        let facts = self.facts(parts).await?;
        if !parts.suit(facts, request, size) {
            return None;
        }
        let prefix = self.hidden("parts") + "-";
        let longest = format!("{prefix}{}", "0".repeat(NAME_ROOM));
        ObjectName::parse(longest).ok()?;
        Some(parts.config.plan(prefix))
    }

    /// What is known of the bucket, or can be found out; `None` where that failed, and is to be tried again.
    async fn facts(&self, parts: &Parts) -> Option<Facts> {
        let _asking = parts.asking.lock().await;
        if let Some(known) = parts.known() {
            return Some(known);
        }
        match self.probe().await {
            Ok(facts) => {
                tracing::debug!(?facts, "tried whether files may go up in parts");
                parts.remember(facts);
                Some(facts)
            }
            Err(error) => {
                tracing::debug!(%error, "not known whether files may go up in parts");
                None
            }
        }
    }

    /// Makes an object and removes it: no field of a bucket that everybody may read tells what becomes of it.
    async fn probe(&self) -> Result<Facts> {
        let granted = self.call(self.store.permissions(&[DELETE])).await?;
        if granted.is_empty() {
            return Ok(Facts::NO_DELETE);
        }
        let request = hidden_request(&self.hidden("probe"))?;
        let made = self.call(self.store.write(&request, Bytes::new())).await?;
        let facts = Facts {
            standard_class: made.attributes.storage_class.as_deref() == Some(STANDARD),
            retained: false,
            may_delete: true,
        };
        let exact = Preconditions::generation(made.generation);
        match self.call(self.store.delete(&made.name, &exact)).await {
            Ok(()) => Ok(Facts {
                retained: self.is_still_there(made).await?,
                ..facts
            }),
            Err(error) if error.kind == Kind::Denied => Ok(Facts::NO_DELETE),
            Err(error) if error.kind == Kind::Held => Ok(Facts {
                retained: true,
                ..facts
            }),
            Err(error) => Err(error),
        }
    }

    /// Whether a generation that was removed can be read: object versioning keeps it, and bills it until somebody removes
    /// that too.
    async fn is_still_there(&self, removed: Object) -> Result<bool> {
        let request = ReadRequest {
            name: removed.name,
            generation: Some(removed.generation),
            range: None,
            preconditions: Preconditions::default(),
        };
        match self.call(self.store.read(&request)).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes what is left below the prefix of an upload that has ended, best effort: a part whose answer was lost is
    /// known to nobody.
    pub(super) async fn sweep(&self, prefix: &str) {
        if let Err(error) = self.try_sweep(prefix).await {
            tracing::warn!(%error, "parts of an upload may stay in the bucket");
        }
    }

    async fn try_sweep(&self, prefix: &str) -> Result<()> {
        let mut request = ListRequest {
            prefix: prefix.to_owned(),
            ..ListRequest::default()
        };
        loop {
            let page = self.call(self.store.list(&request)).await?;
            for part in &page.objects {
                let exact = Preconditions::generation(part.generation);
                match self.call(self.store.delete(&part.name, &exact)).await {
                    Err(error) if error.kind != Kind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            if page.next_page_token.is_none() {
                return Ok(());
            }
            request.page_token = page.next_page_token;
        }
    }
}

/// What is asked of the store to make an object of ours, where nothing is.
pub(super) fn hidden_request(name: &str) -> Result<WriteRequest> {
    let name = ObjectName::parse(name).map_err(|why| {
        gcsmount_gcs::Error::new(
            Kind::Invalid,
            "storage.objects.insert",
            name,
            format!("the name of a temporary object: {why}"),
        )
    })?;
    Ok(WriteRequest {
        name,
        attributes: Attributes::default(),
        preconditions: Preconditions::absent(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_for_large_objects_where_nothing_stays_of_them() {
        let parts = Parts::new(PartsConfig::default());
        let good = Facts {
            standard_class: true,
            retained: false,
            may_delete: true,
        };
        let cold = Facts {
            standard_class: false,
            ..good
        };
        let retained = Facts {
            retained: true,
            ..good
        };
        let large = 32 << 20;
        for (facts, class, size, expected) in [
            (good, None, large, true),
            (good, None, large - 1, false),
            (good, Some("STANDARD"), large, true),
            (good, Some("NEARLINE"), large, false),
            (cold, None, large, false),
            (cold, Some("STANDARD"), large, true),
            (retained, None, large, false),
            (Facts::NO_DELETE, None, large, false),
            (Facts::NO_DELETE, Some("STANDARD"), large, false),
        ] {
            let mut request = hidden_request("o").unwrap();
            request.attributes.storage_class = class.map(str::to_owned);
            let suit = parts.suit(facts, &request, size);
            assert_eq!(suit, expected, "{facts:?} {class:?} {size}");
        }
    }

    #[test]
    fn what_gathers_is_counted_where_it_is_more_than_what_is_sent() {
        let config = PartsConfig {
            from: 10,
            part: 3,
            in_flight: 2,
        };
        assert_eq!(config.memory(), 13);
        let wide = PartsConfig {
            in_flight: 7,
            ..config
        };
        assert_eq!(wide.memory(), 24);
    }
}
