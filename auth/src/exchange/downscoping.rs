//! A token that may do less than the one it is made of: the token service's second exchange, with a
//! credential access boundary.

use std::sync::Arc;

use async_trait::async_trait;

use super::trouble::{Advice, explain};
use super::{Exchange, Grant, Identity, Timeouts};
use crate::boundary::Boundary;
use crate::error::{Error, Kind};
use crate::sts::Endpoint;
use crate::sts::answer::{Useless, grant_or};
use crate::sts::client::Client;
use crate::sts::request::form;
use crate::transport::Peer;

/// Limits the tokens of another exchange to a boundary.
#[derive(Debug)]
pub struct Downscoping {
    inner: Arc<dyn Exchange>,
    options: String,
    client: Client,
}

impl Downscoping {
    /// Tokens of `inner` within `boundary`, made by the token service at `endpoint`.
    ///
    /// # Errors
    /// [`Kind::Config`] if the endpoint needs TLS and the system trusts no certificate, or the
    /// environment names a proxy of a kind that is not spoken here.
    pub fn new(
        inner: Arc<dyn Exchange>,
        boundary: &Boundary,
        endpoint: Endpoint,
        timeouts: Timeouts,
    ) -> Result<Self, Error> {
        Ok(Self {
            inner,
            options: boundary.options(),
            client: Client::new(endpoint, timeouts.connect, timeouts.exchange)?,
        })
    }
}

#[async_trait]
impl Exchange for Downscoping {
    async fn exchange(&self) -> Result<Grant, Error> {
        const TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";
        let whole = self.inner.exchange().await?;
        let body = form(&[
            (
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ),
            ("requested_token_type", TYPE),
            ("subject_token_type", TYPE),
            ("options", &self.options),
            ("subject_token", whole.token.expose()),
        ]);
        let answer = self.client.post(body).await?;
        let name = format!(
            "the token service at {}, asked to limit a token,",
            self.client.endpoint().authority()
        );
        if !answer.status.is_success() {
            let peer = Peer {
                name: &name,
                setting: "--sts-endpoint",
            };
            let advice = Advice {
                denied: "may this identity use credential access boundaries? else leave out \
                         --access-boundary",
                refused: "check bucket and prefix in --access-boundary",
            };
            let mut secrets = self.client.endpoint().secrets();
            secrets.push(whole.token.expose());
            return Err(explain(&answer, peer, advice, &secrets));
        }
        // No part of a token outlives the whole, and the answer may leave the life out.
        grant_or(&answer.body, whole.lifetime)
            .map(|part| Grant {
                lifetime: part.lifetime.min(whole.lifetime),
                ..part
            })
            .map_err(|Useless(what)| {
                let message = format!("{name} {what}: is --sts-endpoint right?");
                Error::new(Kind::BadAnswer, message)
            })
    }

    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn universe_domain(&self) -> Option<String> {
        self.inner.universe_domain()
    }
}
