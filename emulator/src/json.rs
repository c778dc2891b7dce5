//! The verbs of the JSON API, one file a family.

pub(crate) mod amend;
pub(crate) mod buckets;
pub(crate) mod compose;
pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod folders;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod relocate;
pub(crate) mod restore;
