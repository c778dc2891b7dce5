//! Patterns that faults and latencies are matched by.

/// Text in which `*` stands for anything. `anchored` patterns match the whole text; others any part of it,
/// unless they hold a `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    parts: Vec<String>,
    anchored: bool,
}

impl Pattern {
    /// Matches a whole text.
    pub(crate) fn whole(text: &str) -> Self {
        Self {
            parts: text.split('*').map(str::to_owned).collect(),
            anchored: true,
        }
    }

    /// Matches a whole text if there is a `*` in the pattern, else any text that contains it.
    pub(crate) fn anywhere(text: &str) -> Self {
        Self {
            anchored: text.contains('*'),
            ..Self::whole(text)
        }
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        match self.parts.as_slice() {
            [] => text.is_empty(),
            [only] if self.anchored => text == only,
            [only] => text.contains(only.as_str()),
            [first, middle @ .., last] => {
                let Some(rest) = text.strip_prefix(first.as_str()) else {
                    return false;
                };
                let Some(mut rest) = rest.strip_suffix(last.as_str()) else {
                    return false;
                };
                middle.iter().all(|part| {
                    let found = rest.split_once(part.as_str());
                    rest = found.map_or("", |(_, after)| after);
                    found.is_some()
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (pattern, text, whole, anywhere) in [
            ("a", "a", true, true),
            ("a", "ba", false, true),
            ("a*", "abc", true, true),
            ("*c", "abc", true, true),
            ("a*b*c", "aXbYc", true, true),
            ("a*b*c", "aXc", false, false),
            ("*", "", true, true),
            ("a*a", "a", false, false),
            (
                "storage.objects.get*",
                "storage.objects.get.media",
                true,
                true,
            ),
            ("x*", "ax", false, false),
        ] {
            assert_eq!(
                Pattern::whole(pattern).matches(text),
                whole,
                "whole {pattern} {text}"
            );
            assert_eq!(
                Pattern::anywhere(pattern).matches(text),
                anywhere,
                "anywhere {pattern} {text}"
            );
        }
    }
}
