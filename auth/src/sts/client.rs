//! The token service as one asks it: a form goes there, an answer comes back.

use std::time::Duration;

use bytes::Bytes;

use super::Endpoint;
use crate::error::Error;
use crate::transport::{Answer, Peer, Transport, form};

#[derive(Clone, Debug)]
pub(crate) struct Client {
    transport: Transport,
    endpoint: Endpoint,
}

impl Client {
    /// A client for one endpoint. Nothing is connected yet.
    pub(crate) fn new(
        endpoint: Endpoint,
        connect: Duration,
        total: Duration,
    ) -> Result<Self, Error> {
        Ok(Self {
            transport: Transport::new(endpoint.uri(), connect, total)?,
            endpoint,
        })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Posts a form and reads the answer to its end.
    pub(crate) async fn post(&self, body: Bytes) -> Result<Answer, Error> {
        let name = format!("the token service at {}", self.endpoint.authority());
        let peer = Peer {
            name: &name,
            setting: "--sts-endpoint",
        };
        self.transport
            .call(form(self.endpoint.uri().clone(), body), peer)
            .await
    }
}
