//! What may follow an exchange, whatever it is: impersonation, then downscoping.

use std::sync::Arc;

use super::{Downscoping, Exchange, Impersonate, Impersonation, Timeouts};
use crate::boundary::Boundary;
use crate::broker::{CLOUD_PLATFORM, Tuning};
use crate::error::Error;
use crate::sts::Endpoint;

/// The steps that each token of an exchange goes through before it is handed out. A step runs anew
/// with each exchange, so what the exchange notices by itself (a renewed file, a rejected token) it
/// goes on noticing. A workload identity has its steps in the [`BrokerConfig`](crate::BrokerConfig);
/// any other exchange gets them here:
///
/// ```no_run
/// # fn example() -> Result<(), gcsmount_auth::Error> {
/// use std::sync::Arc;
///
/// use gcsmount_auth::boundary::Access;
/// use gcsmount_auth::{
///     Boundary, Broker, CredentialFile, CredentialFileConfig, Impersonate, Steps, Universe,
/// };
///
/// let api = Universe::default().iam_credentials();
/// let boundary = Boundary::around("my-bucket", "incoming/", Access::Write)?
///     .and("another-bucket", "", Access::Read)?;
/// let steps = Steps {
///     impersonate: Some(Impersonate::account("reader@p.iam.gserviceaccount.com", &api)?),
///     boundary: Some(boundary),
///     ..Steps::default()
/// };
/// let file = CredentialFileConfig::new("/etc/gcsmount/key.json").before(&steps);
/// let tuning = steps.tuning(file.tuning());
/// let exchange = steps.after(Arc::new(CredentialFile::new(file)))?;
/// # async move {
/// let broker = Broker::with_exchange(exchange, tuning);
/// # drop(broker);
/// # };
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Steps {
    /// The service account to impersonate with the tokens of the exchange.
    pub impersonate: Option<Impersonate>,
    /// What the tokens are limited to, those of the service account if one is impersonated.
    pub boundary: Option<Boundary>,
    /// The token service that limits them.
    pub sts: Endpoint,
    /// What the tokens may be used for in the end.
    pub scope: String,
    /// How long each step may take.
    pub timeouts: Timeouts,
}

impl Default for Steps {
    /// No step, for tokens of the cloud-platform scope.
    fn default() -> Self {
        Self {
            impersonate: None,
            boundary: None,
            sts: Endpoint::default(),
            scope: CLOUD_PLATFORM.to_owned(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Steps {
    /// The scope that the exchange before them should ask for: what impersonates needs the one that
    /// allows that, and otherwise it is the scope of the outcome.
    #[must_use]
    pub fn needed_scope(&self) -> &str {
        match self.impersonate {
            Some(_) => CLOUD_PLATFORM,
            None => &self.scope,
        }
    }

    /// Whether the first of them is an API, which takes what a service account signed itself, and not
    /// the token service, which takes what Google issued.
    pub(crate) fn take_a_self_signed_token(&self) -> bool {
        self.impersonate.is_some() || self.boundary.is_none()
    }

    /// The exchange that is `exchange` and then these steps.
    ///
    /// # Errors
    /// [`Kind::Config`](crate::Kind::Config) if a service needs TLS and the system trusts no
    /// certificate, or the environment names a proxy of a kind that is not spoken here.
    pub fn after(self, exchange: Arc<dyn Exchange>) -> Result<Arc<dyn Exchange>, Error> {
        let mut exchange = exchange;
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

    /// `base`, the tuning of the exchange alone, with the time that the steps may take besides. How
    /// long a caller waits stays as it is: that is the caller's patience, and no step that answers
    /// at its usual speed exhausts it.
    #[must_use]
    pub fn tuning(&self, base: Tuning) -> Tuning {
        let steps = u32::from(self.impersonate.is_some()) + u32::from(self.boundary.is_some());
        Tuning {
            exchange_limit: base
                .exchange_limit
                .saturating_add(self.timeouts.exchange.saturating_mul(steps)),
            ..base
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::boundary::Access;

    #[test]
    fn each_step_adds_its_time_and_impersonation_asks_for_its_scope() {
        let whom = || Impersonate::account("a@b", "https://iam.example").unwrap();
        let boundary = || Boundary::around("bucket", "", Access::Read).unwrap();
        let none = Steps {
            scope: "of-the-end".to_owned(),
            timeouts: Timeouts {
                exchange: Duration::from_secs(7),
                ..Timeouts::default()
            },
            ..Steps::default()
        };
        let impersonate = Some(whom());
        let boundary = Some(boundary());
        for (steps, seconds, scope) in [
            (none.clone(), 0, "of-the-end"),
            (
                Steps {
                    boundary: boundary.clone(),
                    ..none.clone()
                },
                7,
                "of-the-end",
            ),
            (
                Steps {
                    impersonate: impersonate.clone(),
                    ..none.clone()
                },
                7,
                CLOUD_PLATFORM,
            ),
            (
                Steps {
                    impersonate,
                    boundary,
                    ..none
                },
                14,
                CLOUD_PLATFORM,
            ),
        ] {
            let base = Tuning::default();
            let tuned = steps.tuning(base.clone());
            let more = tuned.exchange_limit.checked_sub(base.exchange_limit);
            assert_eq!(more, Some(Duration::from_secs(seconds)));
            assert_eq!((tuned.wait, tuned.seed), (base.wait, base.seed));
            assert_eq!(steps.needed_scope(), scope);
        }
    }
}
