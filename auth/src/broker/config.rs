//! What a broker is told at its start.

use std::sync::Arc;
use std::time::Duration;

use crate::audience::Audience;
use crate::boundary::Boundary;
use crate::clock::{BootClock, Clock};
use crate::error::Error;
use crate::exchange::{Downscoping, Exchange, Federation, Impersonate, Impersonation, Timeouts};
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
    /// certificate.
    pub fn exchange(self) -> Result<Arc<dyn Exchange>, Error> {
        // What impersonates needs the scope that allows that.
        let scope = match self.impersonate {
            Some(_) => CLOUD_PLATFORM.to_owned(),
            None => self.scope.clone(),
        };
        let sts = self.sts.clone();
        let federation = Federation::new(self.source, self.audience, sts, scope, self.timeouts)?
            .in_universe(self.universe);
        let mut exchange: Arc<dyn Exchange> = Arc::new(federation);
        if let Some(whom) = self.impersonate {
            let impersonation = Impersonation::new(exchange, whom, self.scope, self.timeouts)?;
            exchange = Arc::new(impersonation);
        }
        if let Some(boundary) = &self.boundary {
            let downscoping = Downscoping::new(exchange, boundary, self.sts, self.timeouts)?;
            exchange = Arc::new(downscoping);
        }
        Ok(exchange)
    }

    /// Deadlines that leave the exchange all the time that its steps may take.
    pub(super) fn tuning(&self) -> Tuning {
        let steps = 1 + u32::from(self.impersonate.is_some()) + u32::from(self.boundary.is_some());
        let exchange_limit = self.timeouts.source + steps * self.timeouts.exchange;
        Tuning {
            wait: self.wait,
            exchange_limit: exchange_limit + Duration::from_secs(1),
            ..Tuning::default()
        }
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
