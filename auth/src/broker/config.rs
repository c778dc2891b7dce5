//! What a broker is told at its start.

use std::sync::Arc;
use std::time::Duration;

use crate::audience::Audience;
use crate::boundary::Boundary;
use crate::clock::{BootClock, Clock};
use crate::error::Error;
use crate::exchange::{Exchange, Federation, Impersonate, Steps, Timeouts};
use crate::source::Source;
use crate::sts::Endpoint;
use crate::universe::Universe;

/// The scope that Google's own clients ask for: IAM decides what the identity may do.
pub const CLOUD_PLATFORM: &str = "https://www.googleapis.com/auth/cloud-platform";

/// What a broker for a workload identity needs to know.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Where the subject tokens come from.
    pub source: Arc<dyn Source>,
    /// How the audience of the exchange is found.
    pub audience: Audience,
    /// The token service.
    pub sts: Endpoint,
    /// What the access tokens may be used for.
    pub scope: String,
    /// The service account to impersonate with the tokens of the exchange.
    pub impersonate: Option<Impersonate>,
    /// What the tokens are limited to.
    pub boundary: Option<Boundary>,
    /// The universe that the tokens are for. That of `sts` and `impersonate` is chosen there.
    pub universe: Universe,
    /// How long each part of an exchange may take.
    pub timeouts: Timeouts,
    /// How long [`Broker::token`](super::Broker::token) waits when there is no valid token.
    pub wait: Duration,
}

impl BrokerConfig {
    /// The usual configuration: audience from the token, Google's token service, the cloud-platform
    /// scope.
    #[must_use]
    pub fn new(source: Arc<dyn Source>) -> Self {
        Self {
            source,
            audience: Audience::FromToken,
            sts: Endpoint::default(),
            scope: CLOUD_PLATFORM.to_owned(),
            impersonate: None,
            boundary: None,
            universe: Universe::default(),
            timeouts: Timeouts::default(),
            wait: Tuning::default().wait,
        }
    }

    /// The exchange that this describes, to stand behind a broker or in front of another step.
    ///
    /// # Errors
    /// [`Kind::Config`](crate::Kind::Config) if the token service needs TLS and the system trusts no
    /// certificate, or the environment names a proxy of a kind that is not spoken here.
    pub fn exchange(self) -> Result<Arc<dyn Exchange>, Error> {
        let steps = self.steps();
        let scope = steps.needed_scope().to_owned();
        let federation =
            Federation::new(self.source, self.audience, self.sts, scope, self.timeouts)?
                .in_universe(self.universe);
        steps.after(Arc::new(federation))
    }

    fn steps(&self) -> Steps {
        Steps {
            impersonate: self.impersonate.clone(),
            boundary: self.boundary.clone(),
            sts: self.sts.clone(),
            scope: self.scope.clone(),
            timeouts: self.timeouts,
        }
    }

    /// Deadlines that leave the exchange all the time that its steps may take.
    #[must_use]
    pub fn tuning(&self) -> Tuning {
        let Timeouts {
            source, exchange, ..
        } = self.timeouts;
        self.steps().tuning(Tuning {
            wait: self.wait,
            exchange_limit: source + exchange + Duration::from_secs(1),
            ..Tuning::default()
        })
    }
}

/// What does not depend on the way to the token.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// How long a caller waits when there is no valid token. Longer than an exchange may take, so
    /// that the caller gets its error.
    pub wait: Duration,
    /// After this time an exchange is given up, should it have no deadline of its own.
    pub exchange_limit: Duration,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where the jitter of the schedule starts; the same seed replays it.
    pub seed: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            wait: Duration::from_secs(15),
            exchange_limit: Duration::from_secs(20),
            clock: Arc::new(BootClock),
            seed: rand::random(),
        }
    }
}
