//! One attempt to get an access token, in whatever way: the seam between the broker, which decides
//! when, and the ways, which know how.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Error;
use crate::secret::AccessSecret;

mod downscoping;
mod federation;
mod impersonation;
mod metadata;
mod shipped;
mod steps;
mod token_url;
pub(crate) mod trouble;

pub use downscoping::Downscoping;
pub use federation::{Federation, Timeouts};
pub use impersonation::{Impersonate, Impersonation};
pub use metadata::{Metadata, Whose};
pub use shipped::Shipped;
pub use steps::Steps;
pub use token_url::{FromUrl, TokenUrl};

/// A way to get an access token.
#[async_trait]
pub trait Exchange: fmt::Debug + Send + Sync + 'static {
    /// Gets a fresh token: one attempt, with no retries inside. The broker never runs two at once.
    /// Dropping the future cancels the attempt.
    ///
    /// # Errors
    /// Why there is none. The sentence reaches operators, so it names what was asked of whom.
    async fn exchange(&self) -> Result<Grant, Error>;

    /// Who the tokens stand for, as far as it is known by now.
    fn identity(&self) -> Identity;

    /// The universe that the tokens are for; `None` is `googleapis.com`.
    fn universe_domain(&self) -> Option<String> {
        None
    }
}

/// A token that was just given.
#[derive(Debug)]
pub struct Grant {
    /// The token.
    pub token: AccessSecret,
    /// How long it lives, counted from the moment at which it was asked for. Where an answer does not
    /// tell (`expires_in` is optional in RFC 8693), 300 s are assumed.
    pub lifetime: Duration,
}

/// Who a token stands for and where that comes from. Nothing in it is secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Where the subject token comes from, such as a path.
    pub source: String,
    /// The audience of the last exchange.
    pub audience: Option<String>,
    /// The `sub` of the last subject token, such as `system:serviceaccount:NAMESPACE:NAME`.
    pub subject: Option<String>,
    /// The IAM member to grant roles to; see
    /// [`StsAudience::principal`](crate::audience::StsAudience::principal).
    pub principal: Option<String>,
}
