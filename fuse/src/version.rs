//! Which of two answers about one object is the newer.
//!
//! Answers overtake each other: a stat that was asked before a publication may arrive after it. What is known of an
//! object therefore only moves forward, and everything that takes an [`Object`] from the store asks here first.
//! Generations of one name grow, also across a deletion, and metagenerations of one generation do; the numbers of two
//! names say nothing about each other, so under another name the later answer counts.
//! Source: <https://cloud.google.com/storage/docs/metadata#generation-number>.

use std::sync::Arc;

use gcsmount_gcs::Object;

/// Whether `found` is from before `known`.
#[must_use]
pub(crate) fn is_older(found: &Object, known: &Object) -> bool {
    let order = |object: &Object| (object.generation, object.metageneration);
    found.name == known.name && order(found) < order(known)
}

/// `found`, unless it is from before what is known.
#[must_use]
pub(crate) fn newest(found: Arc<Object>, known: Option<&Arc<Object>>) -> Arc<Object> {
    match known {
        Some(known) if is_older(&found, known) => known.clone(),
        Some(_) | None => found,
    }
}
