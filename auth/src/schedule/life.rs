//! The life of one token: when it began, until when it may be handed out, when to replace it.

use std::time::Duration;

use crate::clock::Moment;

/// Below this, a token is short: no jitter is worth the risk that a slow exchange outlasts it.
const SHORT: Duration = Duration::from_secs(60);

/// A token this near to its end, or with a twentieth of its life left, is not handed out any more:
/// the request that carries it has a way to go.
const LONGEST_MARGIN: Duration = Duration::from_secs(5);

/// The life of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    since: Moment,
    lifetime: Duration,
}

impl Life {
    /// The life of a token that was asked for at `since`.
    pub(crate) const fn new(since: Moment, lifetime: Duration) -> Self {
        Self { since, lifetime }
    }

    /// When it was asked for.
    pub(crate) const fn since(&self) -> Moment {
        self.since
    }

    /// When it ends.
    pub(crate) fn ends_at(&self) -> Moment {
        self.since + self.lifetime
    }

    /// Whether it may be handed out at `now`.
    pub(crate) fn is_usable(&self, now: Moment) -> bool {
        now < self.usable_until()
    }

    /// How long it may still be handed out, if at all.
    pub(crate) fn left(&self, now: Moment) -> Option<Duration> {
        self.is_usable(now).then(|| self.usable_until().since(now))
    }

    /// When to replace it: at a point between half and four fifths of its life that `random`, in
    /// 0 to 1, picks; for a short one between two fifths and half.
    pub(crate) fn refresh_at(&self, random: f64) -> Moment {
        let (earliest, width) = if self.lifetime < SHORT {
            (0.4, 0.1)
        } else {
            (0.5, 0.3)
        };
        self.since
            + self
                .lifetime
                .mul_f64(earliest + width * random.clamp(0.0, 1.0))
    }

    fn usable_until(&self) -> Moment {
        let margin = (self.lifetime / 20).min(LONGEST_MARGIN);
        self.since + (self.lifetime - margin)
    }
}
