//! Source, claims, audience, token service: the way of workload identity.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::{Exchange, Grant, Identity};
use crate::audience::{Audience, StsAudience};
use crate::claims::Claims;
use crate::error::{Error, Kind, SourceFault};
use crate::secret::SubjectToken;
use crate::source::Source;
use crate::sts::Endpoint;
use crate::sts::answer::{Useless, grant};
use crate::sts::client::Client;
use crate::sts::refusal::Asked;
use crate::sts::request;
use crate::universe::Universe;

/// How long each part of an exchange may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// Reading the subject token.
    pub source: Duration,
    /// Connecting to the token service (name lookup, TCP).
    pub connect: Duration,
    /// The whole conversation with it, the connection included.
    pub exchange: Duration,
}

impl Default for Timeouts {
    /// 4 s, 4 s and 10 s: an exchange takes some 100 ms, and the callers of a file system wait.
    fn default() -> Self {
        Self {
            source: Duration::from_secs(4),
            connect: Duration::from_secs(4),
            exchange: Duration::from_secs(10),
        }
    }
}

/// Reads the subject token from a source and exchanges it at a token service.
#[derive(Debug)]
pub struct Federation {
    source: Arc<dyn Source>,
    audience: Audience,
    scope: String,
    universe: Universe,
    subject_type: String,
    options: Option<String>,
    client: Client,
    source_timeout: Duration,
    identity: ArcSwap<Identity>,
}

impl Federation {
    /// An exchange of the tokens of `source` at `endpoint` for tokens that may do `scope`.
    ///
    /// # Errors
    /// [`Kind::Config`] if the endpoint needs TLS and the system trusts no certificate, or the
    /// environment names a proxy of a kind that is not spoken here.
    pub fn new(
        source: Arc<dyn Source>,
        audience: Audience,
        endpoint: Endpoint,
        scope: String,
        timeouts: Timeouts,
    ) -> Result<Self, Error> {
        if endpoint.is_cleartext() {
            tracing::warn!(%endpoint, "the subject token is sent over plain HTTP to another machine");
        }
        let identity = Identity {
            source: source.describe(),
            ..Identity::default()
        };
        Ok(Self {
            source,
            audience,
            scope,
            universe: Universe::default(),
            subject_type: request::JWT.to_owned(),
            options: None,
            client: Client::new(endpoint, timeouts.connect, timeouts.exchange)?,
            source_timeout: timeouts.source,
            identity: ArcSwap::from_pointee(identity),
        })
    }

    /// The same for tokens of another universe.
    #[must_use]
    pub fn in_universe(self, universe: Universe) -> Self {
        Self { universe, ..self }
    }

    /// The same for subject tokens of another type (RFC 8693 section 3). One that is no JWT has no
    /// claims, so its audience must be explicit.
    #[must_use]
    pub fn of_type(self, subject_type: String) -> Self {
        Self {
            subject_type,
            ..self
        }
    }

    /// The same with the `options` of the token service, in JSON.
    #[must_use]
    pub(crate) fn with_options(self, options: Option<String>) -> Self {
        Self { options, ..self }
    }

    async fn subject_token(&self) -> Result<SubjectToken, Error> {
        tokio::time::timeout(self.source_timeout, self.source.subject_token())
            .await
            .unwrap_or_else(|_| {
                let message = format!(
                    "the subject token at {} could not be read within {} s: does what is there \
                     answer, such as a network file system?",
                    self.source.describe(),
                    self.source_timeout.as_secs_f32()
                );
                Err(Error::new(Kind::Timeout, message))
            })
    }

    fn claims(&self, subject: &SubjectToken) -> Result<Claims, Error> {
        const JWTS: [&str; 2] = [request::JWT, "urn:ietf:params:oauth:token-type:id_token"];
        if !JWTS.contains(&&*self.subject_type) {
            return Ok(Claims::default());
        }
        Claims::of(subject).map_err(|malformed| {
            let message = format!(
                "the subject token at {} is not a JWT: it {}; is it half written? else name the \
                 token of a service account there, for example with --token-file",
                self.source.describe(),
                malformed.explain()
            );
            Error::new(Kind::Source(SourceFault::Malformed), message)
        })
    }

    fn note_identity(&self, claims: &Claims, audience: Option<&StsAudience>) {
        self.identity.store(Arc::new(Identity {
            source: self.source.describe(),
            audience: audience.map(StsAudience::to_string),
            subject: claims.subject.clone(),
            principal: audience.and_then(|audience| audience.principal(claims)),
        }));
    }
}

#[async_trait]
impl Exchange for Federation {
    async fn exchange(&self) -> Result<Grant, Error> {
        let subject = self.subject_token().await?;
        let claims = self.claims(&subject)?;
        let audience = self.audience.resolve(&claims);
        self.note_identity(&claims, audience.as_ref().ok());
        let audience = audience?;
        let form = request::Exchange {
            audience: audience.as_str(),
            scope: &self.scope,
            subject: &subject,
            subject_type: &self.subject_type,
            options: self.options.as_deref(),
        };
        let answer = self.client.post(form.body()).await?;
        let host = self.client.endpoint().authority();
        if answer.status.is_success() {
            return grant(&answer.body).map_err(|Useless(what)| {
                let message =
                    format!("the token service at {host} {what}: is --sts-endpoint right?");
                Error::new(Kind::BadAnswer, message)
            });
        }
        let mut secrets = self.client.endpoint().secrets();
        secrets.push(subject.expose());
        let asked = Asked {
            host,
            audience: audience.as_str(),
            source: &self.source.describe(),
            claims: &claims,
            secrets: &secrets,
            now: SystemTime::now(),
        };
        Err(asked.explain(&answer))
    }

    fn identity(&self) -> Identity {
        Identity::clone(&self.identity.load())
    }

    fn universe_domain(&self) -> Option<String> {
        self.universe.unusual()
    }
}
