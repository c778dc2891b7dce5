//! Credentials that ask anew for each request, as gcsfuse does with
//! `--reuse-token-from-url=false`: for token servers that decide request by request.

use std::sync::Arc;
use std::time::Duration;

use google_cloud_auth::credentials::{CacheableResource, CredentialsProvider, EntityTag};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap};
use tokio::sync::Semaphore;

use super::told;
use crate::clock::Moment;
use crate::error::{Error, Kind};
use crate::exchange::Exchange;
use crate::schedule::Life;
use crate::token::AccessToken;

/// Requests for a token at a time; the ones after them wait for their turn.
const AT_ONCE: usize = 16;

/// A [`CredentialsProvider`] that asks an [`Exchange`] for each request and keeps nothing.
#[derive(Clone, Debug)]
pub struct EveryTime {
    exchange: Arc<dyn Exchange>,
    turns: Arc<Semaphore>,
    wait: Duration,
}

impl EveryTime {
    /// Credentials from `exchange`; a request waits for its token no longer than `wait`.
    #[must_use]
    pub fn new(exchange: Arc<dyn Exchange>, wait: Duration) -> Self {
        Self {
            exchange,
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            wait,
        }
    }

    async fn token(&self) -> Result<AccessToken, Error> {
        let asking = async {
            let _turn = self.turns.acquire().await;
            let grant = self.exchange.exchange().await?;
            AccessToken::new(&grant.token, Life::new(Moment::ORIGIN, grant.lifetime))
        };
        tokio::time::timeout(self.wait, asking)
            .await
            .unwrap_or_else(|_| {
                let message = format!(
                    "no access token within {} s from {}",
                    self.wait.as_secs_f32(),
                    self.exchange.identity().source
                );
                Err(Error::new(Kind::Timeout, message))
            })
    }
}

impl CredentialsProvider for EveryTime {
    async fn headers(
        &self,
        _extensions: Extensions,
    ) -> Result<CacheableResource<HeaderMap>, CredentialsError> {
        let token = self.token().await.map_err(told)?;
        Ok(CacheableResource::New {
            entity_tag: EntityTag::new(),
            data: token.headers().clone(),
        })
    }

    async fn universe_domain(&self) -> Option<String> {
        self.exchange.universe_domain()
    }
}
