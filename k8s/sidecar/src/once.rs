//! Things that are looked at again and again, and are wrong in the same way each time. Pure.

/// What was said last of one thing.
#[derive(Debug, Default)]
pub(crate) struct Once(Option<String>);

impl Once {
    /// Whether the sentence is to be said: it was not the last one.
    pub(crate) fn is_new(&mut self, sentence: &str) -> bool {
        let new = self.0.as_deref() != Some(sentence);
        if new {
            self.0 = Some(sentence.to_owned());
        }
        new
    }

    /// Nothing is wrong any more; the same sentence is new again after that.
    pub(crate) fn over(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_is_new_until_it_is_said_and_again_when_it_was_over() {
        let mut once = Once::default();
        let said = ["a", "a", "b", "a"].map(|sentence| once.is_new(sentence));
        assert_eq!(said, [true, false, true, true]);
        once.over();
        assert!(once.is_new("a"));
    }
}
