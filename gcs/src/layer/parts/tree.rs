//! How many objects are joined to one: pure decisions.

use std::ops::Range;

use crate::ObjectName;
use crate::store::{ComposeSource, Sources};

/// The most sources of one compose.
pub(super) const FAN_IN: usize = 32;

/// `count` objects in groups that are joined to one each, in order; a group of one is left as it is.
pub(super) fn groups(count: usize) -> Vec<Range<usize>> {
    (0..count)
        .step_by(FAN_IN)
        .map(|first| first..(first + FAN_IN).min(count))
        .collect()
}

/// What becomes of the sources of the compose that makes `target`. A stranger's object in a part's place is not ours to
/// use up.
pub(super) fn after(sources: &[ComposeSource], target: &ObjectName) -> Sources {
    if sources.iter().any(|source| source.name == *target) {
        Sources::Keep
    } else {
        Sources::Delete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_go_unless_one_of_them_is_the_target() {
        let name = |name: &str| ObjectName::parse(name).unwrap();
        let source = |object| ComposeSource {
            name: name(object),
            generation: None,
            known: None,
        };
        for (sources, expected) in [
            (["p/0", "p/1"], Sources::Delete),
            (["o", "p/1"], Sources::Keep),
            (["p/0", "o"], Sources::Keep),
        ] {
            assert_eq!(after(&sources.map(source), &name("o")), expected);
        }
    }

    /// Composes in all, the last one included, and levels.
    fn joins(mut count: usize) -> (usize, usize) {
        let (mut composes, mut levels) = (1, 1);
        while count > FAN_IN {
            let groups = groups(count);
            composes += groups.iter().filter(|group| group.len() > 1).count();
            count = groups.len();
            levels += 1;
        }
        (composes, levels)
    }

    #[test]
    fn groups_cover_everything_in_order() {
        for count in [1, 31, 32, 33, 64, 65, 1024, 5000] {
            let flat: Vec<_> = groups(count).into_iter().flatten().collect();
            assert_eq!(flat, (0..count).collect::<Vec<_>>());
            assert!(groups(count).iter().all(|group| group.len() <= FAN_IN));
        }
    }

    #[test]
    fn a_tree_is_as_low_as_it_can_be() {
        for (count, expected) in [
            (1, (1, 1)),
            (32, (1, 1)),
            (33, (2, 2)),
            (64, (3, 2)),
            (1024, (33, 2)),
            (1025, (34, 3)),
        ] {
            assert_eq!(joins(count), expected, "{count}");
        }
    }
}
