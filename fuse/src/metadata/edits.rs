//! Changes to what is said of an object besides its bytes.

use std::collections::BTreeMap;
use std::time::SystemTime;

use gcsmount_gcs::object::Attributes;
use gcsmount_gcs::store::Patch;
use nix::errno::Errno;

use super::mtime_keys;

/// Changes that ride in an object's next publication, or are made by a patch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edits {
    /// Time of the last modification.
    pub mtime: Option<SystemTime>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Cache-Control`.
    pub cache_control: Option<String>,
    /// Custom metadata to set (`Some`) or remove (`None`).
    pub metadata: BTreeMap<String, Option<String>>,
}

impl Edits {
    /// Whether they change nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds later ones, which win.
    pub fn then(&mut self, later: Self) {
        self.mtime = later.mtime.or(self.mtime);
        self.content_type = later.content_type.or(self.content_type.take());
        self.cache_control = later.cache_control.or(self.cache_control.take());
        self.metadata.extend(later.metadata);
    }

    /// What an object is said to be with them.
    #[must_use]
    pub fn applied(&self, attributes: &Attributes) -> Attributes {
        let mut attributes = attributes.clone();
        let set = |field: &mut Option<String>, value: &Option<String>| {
            if value.is_some() {
                field.clone_from(value);
            }
        };
        set(&mut attributes.content_type, &self.content_type);
        set(&mut attributes.cache_control, &self.cache_control);
        for (key, value) in &self.metadata {
            match value {
                Some(value) => attributes.metadata.insert(key.clone(), value.clone()),
                None => attributes.metadata.remove(key),
            };
        }
        let times = self.mtime.into_iter().flat_map(mtime_keys);
        attributes.metadata.extend(times);
        attributes
    }

    /// What makes `from` to `to`, as far as edits can.
    #[must_use]
    pub fn between(from: &Attributes, to: &Attributes) -> Self {
        let changed = |from: &Option<String>, to: &Option<String>| {
            to.clone().filter(|to| Some(to) != from.as_ref())
        };
        let set = to
            .metadata
            .iter()
            .filter(|(key, value)| from.metadata.get(*key) != Some(value))
            .map(|(key, value)| (key.clone(), Some(value.clone())));
        let removed = from
            .metadata
            .keys()
            .filter(|key| !to.metadata.contains_key(*key))
            .map(|key| (key.clone(), None));
        Self {
            mtime: None,
            content_type: changed(&from.content_type, &to.content_type),
            cache_control: changed(&from.cache_control, &to.cache_control),
            metadata: set.chain(removed).collect(),
        }
    }

    /// The request that makes them on an object that is there.
    ///
    /// # Errors
    /// `ENOTSUP` for what the store's [`Patch`] has no field for.
    pub fn patch(&self) -> Result<Patch, Errno> {
        if self.cache_control.is_some() {
            return Err(Errno::ENOTSUP);
        }
        let times = self.mtime.into_iter().flat_map(mtime_keys);
        let times = times.map(|(key, value)| (key, Some(value)));
        Ok(Patch {
            content_type: self.content_type.clone(),
            metadata: self.metadata.clone().into_iter().chain(times).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edits(content_type: Option<&str>, keys: &[(&str, Option<&str>)]) -> Edits {
        Edits {
            content_type: content_type.map(str::to_owned),
            metadata: keys
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned)))
                .collect(),
            ..Edits::default()
        }
    }

    #[test]
    fn later_edits_win_and_earlier_ones_stay() {
        let mut both = edits(Some("a/b"), &[("x", Some("1")), ("y", Some("1"))]);
        both.then(edits(None, &[("y", None), ("z", Some("2"))]));
        let expected = edits(
            Some("a/b"),
            &[("x", Some("1")), ("y", None), ("z", Some("2"))],
        );
        assert_eq!(both, expected);
    }

    #[test]
    fn what_lies_between_two_objects_makes_one_of_the_other() {
        let from = edits(Some("a/b"), &[("x", Some("1")), ("y", Some("1"))])
            .applied(&Attributes::default());
        let to = edits(Some("c/d"), &[("x", Some("1")), ("z", Some("2"))])
            .applied(&Attributes::default());
        let between = Edits::between(&from, &to);
        assert_eq!(
            between,
            edits(Some("c/d"), &[("y", None), ("z", Some("2"))])
        );
        assert_eq!(between.applied(&from), to);
        assert!(Edits::between(&to, &to).is_empty());
    }

    #[test]
    fn a_patch_has_every_edit_or_is_refused() {
        let mut all = edits(Some("a/b"), &[("x", None)]);
        all.mtime = Some(SystemTime::UNIX_EPOCH);
        let patch = all.patch().unwrap();
        assert_eq!(patch.content_type.as_deref(), Some("a/b"));
        assert_eq!(patch.metadata.len(), 3);
        all.cache_control = Some("no-store".to_owned());
        assert_eq!(all.patch(), Err(Errno::ENOTSUP));
    }
}
