//! The broker as credentials of Google's client libraries.
//!
//! Beyond the library's own protocol (no tag: `New`; a tag that is still right: `NotModified`) a
//! caller that got 401 says so by asking again with the [`EntityTag`] of the headers that it sent
//! **and** [`StatusCode::UNAUTHORIZED`] among the extensions. The call then waits for a token other
//! than that one and returns it. A caller that does not know this protocol loses nothing.

use google_cloud_auth::credentials::{CacheableResource, CredentialsProvider, EntityTag};
use google_cloud_auth::errors::CredentialsError;
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

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn told(error: Error) -> CredentialsError {
    CredentialsError::from_msg(error.is_transient(), error.message())
}
