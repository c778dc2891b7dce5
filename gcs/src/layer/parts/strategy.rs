//! How an object should come into a bucket: a pure decision.

/// How an object comes into a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// One request, kept for repetition until it is answered.
    Whole,
    /// One resumable session, chunk after chunk.
    Stream,
    /// Parts side by side, joined by compose.
    Parts,
}

/// What is known of an object and of its bucket. Each field says what it costs, or forbids, to leave objects behind for
/// a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// Bytes of the object, or those that there are so far.
    pub size: u64,
    /// Whether its class is Standard, so that no object costs more than the time it is there; another class bills weeks
    /// for a part that is there for seconds.
    pub standard_class: bool,
    /// Whether a retention policy, a default hold or an object's hold was seen in the bucket: parts could not be removed.
    pub retained: bool,
    /// Whether the identity may delete; `None`: nobody has found out.
    pub may_delete: Option<bool>,
    /// Whether a key of the caller's own encrypts it, which every part and every compose would have to carry.
    pub own_key: bool,
}

/// Sizes between which strategies change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Below it one request is cheapest.
    pub stream: u64,
    /// From it on, parts are worth their further requests.
    pub parts: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            stream: 8 << 20,
            parts: 64 << 20,
        }
    }
}

impl Strategy {
    /// The cheapest that is fast, and the one stream where parts might stay behind.
    #[must_use]
    pub fn choose(circumstances: &Circumstances, thresholds: &Thresholds) -> Self {
        let Circumstances {
            size,
            standard_class,
            retained,
            may_delete,
            own_key,
        } = *circumstances;
        if size < thresholds.stream {
            return Self::Whole;
        }
        let safe = standard_class && !retained && !own_key && may_delete == Some(true);
        if safe && size >= thresholds.parts {
            Self::Parts
        } else {
            Self::Stream
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_for_what_is_large_and_can_be_cleared_away() {
        const MIB: u64 = 1 << 20;
        let good = Circumstances {
            size: 1024 * MIB,
            standard_class: true,
            retained: false,
            may_delete: Some(true),
            own_key: false,
        };
        let sized = |size| Circumstances { size, ..good };
        #[rustfmt::skip]
        let table = [
            (sized(0), Strategy::Whole),
            (sized(8 * MIB - 1), Strategy::Whole),
            (sized(8 * MIB), Strategy::Stream),
            (sized(64 * MIB - 1), Strategy::Stream),
            (sized(64 * MIB), Strategy::Parts),
            (good, Strategy::Parts),
            (Circumstances { standard_class: false, ..good }, Strategy::Stream),
            (Circumstances { retained: true, ..good }, Strategy::Stream),
            (Circumstances { may_delete: Some(false), ..good }, Strategy::Stream),
            (Circumstances { may_delete: None, ..good }, Strategy::Stream),
            (Circumstances { own_key: true, ..good }, Strategy::Stream),
            (Circumstances { retained: true, ..sized(1) }, Strategy::Whole),
        ];
        for (circumstances, expected) in table {
            let chosen = Strategy::choose(&circumstances, &Thresholds::default());
            assert_eq!(chosen, expected, "{circumstances:?}");
        }
    }
}
