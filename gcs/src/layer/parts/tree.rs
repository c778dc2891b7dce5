//! How many objects are joined to one: pure decisions.

use std::ops::Range;

/// The most sources of one compose.
pub(super) const FAN_IN: usize = 32;

/// `count` objects in groups that are joined to one each, in order; a group of one is left as it is.
pub(super) fn groups(count: usize) -> Vec<Range<usize>> {
    (0..count)
        .step_by(FAN_IN)
        .map(|first| first..(first + FAN_IN).min(count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
