//! The broker as credentials of Google's client libraries.
//!
//! Beyond the library's own protocol (no tag: `New`; a tag that is still right: `NotModified`) a
//! caller that got 401 says so by asking again with the [`EntityTag`] of the headers that it sent
//! **and** [`StatusCode::UNAUTHORIZED`] among the extensions. The call then waits for a token other
//! than that one and returns it. A caller that does not know this protocol loses nothing.
//!
//! A [`CredentialsError`] has the broker's own [`Error`] as its source: its sentence without the words
//! that the library ends its messages with, and its kind.
//!
//! ```no_run
//! # async fn example(broker: gcsmount_auth::Broker) -> Result<(), Box<dyn std::error::Error>> {
//! use gcsmount_auth::http::{Extensions, StatusCode};
//! use gcsmount_auth::provider::CacheableResource;
//!
//! let credentials = broker.credentials(); // for `Storage::builder().with_credentials(..)`
//! let CacheableResource::New { entity_tag, data } = credentials.headers(Extensions::new()).await?
//! else {
//!     return Err("no tag was sent along".into());
//! };
//! // A request with the headers in `data` was answered 401:
//! let mut rejected = Extensions::new();
//! rejected.insert(entity_tag);
//! rejected.insert(StatusCode::UNAUTHORIZED);
//! let others = credentials.headers(rejected).await?;
//! # drop((data, others));
//! # Ok(())
//! # }
//! ```

pub use google_cloud_auth::credentials::{
    CacheableResource, Credentials, CredentialsProvider, EntityTag,
};
pub use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, StatusCode};

use crate::broker::Broker;
use crate::error::Error;
use crate::token::AccessToken;

mod every_time;

pub use every_time::EveryTime;

/// A [`CredentialsProvider`] that asks a [`Broker`].
#[derive(Clone, Debug)]
pub struct Provider {
    broker: Broker,
}

impl Provider {
    /// Credentials that live as long as they are held, the broker with them.
    #[must_use]
    pub fn new(broker: Broker) -> Self {
        Self { broker }
    }
}

impl CredentialsProvider for Provider {
    async fn headers(
        &self,
        extensions: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        let known = extensions.get::<EntityTag>();
        let unauthorized = extensions.get::<StatusCode>() == Some(&StatusCode::UNAUTHORIZED);
        if let (Some(rejected), true) = (known, unauthorized) {
            let token = self.broker.replacement(rejected).await.map_err(told)?;
            return Ok(new(&token));
        }
        if let Some(resource) = self.broker.with_current(|token| resource(token, known)) {
            return Ok(resource);
        }
        let token = self.broker.token().await.map_err(told)?;
        Ok(resource(&token, known))
    }

    async fn universe_domain(&self) -> Option<String> {
        self.broker.universe_domain()
    }
}

fn resource(token: &AccessToken, known: Option<&EntityTag>) -> CacheableResource<HeaderMap> {
    match known {
        Some(known) if known == token.tag() => CacheableResource::NotModified,
        _ => new(token),
    }
}

fn new(token: &AccessToken) -> CacheableResource<HeaderMap> {
    CacheableResource::New {
        entity_tag: token.tag().clone(),
        data: token.headers().clone(),
    }
}

/// The library ends every message with words of its own about later attempts. In brackets our sentence
/// stays whole before them; alone it is the source.
fn told(error: Error) -> CredentialsError {
    let message = format!("no access token ({error})");
    CredentialsError::new(error.is_transient(), message, error)
}
