//! One operation: attempts, identity, deadline and repetition around single requests.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout_at};

use super::InvalidConfig;
use super::answer::Refusal;
use super::config::{Config, Retry, Timeouts};
use super::endpoint::{Endpoint, Url, Urls};
use super::identity::{Identity, Proof};
use super::payload::Payload;
use super::resource::{self, Malformed};
use super::retry::{self, Noise, Safety};
use super::transport::{Arrived, Flow, Http, Lost, Sending};
use crate::store::Preconditions;
use crate::{BucketName, Cause, Error, Kind, Result};

/// The most that is read of an error's body.
const REFUSAL: usize = 64 << 10;

const USER_PROJECT: HeaderName = HeaderName::from_static("x-goog-user-project");

/// What all calls to one bucket share.
pub(super) struct Client {
    pub(super) urls: Urls,
    pub(super) bucket: BucketName,
    pub(super) endpoint: Endpoint,
    pub(super) timeouts: Timeouts,
    pub(super) retry: Retry,
    pub(super) noise: Noise,
    pub(super) upload_chunk: u64,
    http: Http,
    identity: Identity,
    /// Sent with every request.
    headers: HeaderMap,
}

/// A request that can be sent again.
pub(super) struct Call<'a> {
    pub(super) operation: &'static str,
    pub(super) subject: &'a str,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    pub(super) payload: Payload,
    /// Whether a precondition goes along, which decides what a 412 means.
    pub(super) conditional: bool,
    pub(super) safety: Safety,
    /// The longest body of a success, or `None` to let it flow.
    pub(super) collect: Option<usize>,
    /// Part of the URL that no message may repeat.
    pub(super) secret: Option<&'a str>,
}

/// The longest answer about one object, far above what its metadata may hold.
const ONE_OBJECT: usize = 1 << 20;

impl<'a> Call<'a> {
    /// A read without a body that answers about one object.
    pub(super) fn new(
        operation: &'static str,
        subject: &'a str,
        method: Method,
        url: Url,
    ) -> Result<Self> {
        let uri = url.build().ok_or_else(|| {
            Error::new(
                Kind::Invalid,
                operation,
                subject,
                "the request is too long to be sent",
            )
        })?;
        Ok(Self::at(operation, subject, method, uri))
    }

    pub(super) fn at(operation: &'static str, subject: &'a str, method: Method, uri: Uri) -> Self {
        Self {
            operation,
            subject,
            method,
            uri,
            headers: HeaderMap::new(),
            payload: Payload::default(),
            conditional: false,
            safety: Safety::Read,
            collect: Some(ONE_OBJECT),
            secret: None,
        }
    }

    pub(super) fn json(mut self, body: &impl Serialize) -> Self {
        self.payload = Bytes::from(resource::json(body)).into();
        self.header(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )
    }

    pub(super) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Says that these preconditions are in the URL.
    pub(super) fn under(mut self, preconditions: &Preconditions) -> Self {
        self.conditional |= !preconditions.is_empty();
        self
    }

    /// Says that it changes something, and whether preconditions keep it from doing so twice.
    pub(super) fn mutates(mut self, at_most_once: bool) -> Self {
        self.safety = if at_most_once {
            Safety::Conditional
        } else {
            Safety::Once
        };
        self
    }

    /// What a success that cannot be understood is.
    pub(super) fn malformed(&self, Malformed(part): Malformed) -> Error {
        let message = format!("the answer has no proper {part}");
        self.error(Kind::Corrupt, message)
    }

    pub(super) fn error(&self, kind: Kind, message: impl Into<String>) -> Error {
        Error::new(kind, self.operation, self.subject, message)
    }
}

/// A success: 2xx, or the 308 by which an upload session asks for more.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Content,
}

pub(super) enum Content {
    Whole(Bytes),
    Flow(Flow),
}

impl Answer {
    /// The body of a call that asked to collect it.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.body {
            Content::Whole(bytes) => bytes,
            Content::Flow(_) => &[],
        }
    }
}

/// A call that failed for good.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether the store may have acted, in this attempt or in one before: its answer may be to an echo of our own.
    pub(super) may_have_acted: bool,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

impl Client {
    pub(super) fn new(
        http: Http,
        bucket: BucketName,
        config: Config,
    ) -> Result<Self, InvalidConfig> {
        let mut headers = HeaderMap::new();
        let agent = HeaderValue::from_str(&config.user_agent);
        headers.insert(
            header::USER_AGENT,
            agent.map_err(|_| InvalidConfig::UserAgent)?,
        );
        if let Some(project) = &config.billing_project {
            let project = HeaderValue::from_str(project);
            headers.insert(
                USER_PROJECT,
                project.map_err(|_| InvalidConfig::BillingProject)?,
            );
        }
        Ok(Self {
            urls: Urls::new(&config.endpoint, &bucket),
            bucket,
            endpoint: config.endpoint,
            timeouts: config.timeouts,
            retry: config.retry,
            noise: Noise::new(config.retry.seed),
            upload_chunk: config.upload_chunk,
            http,
            identity: Identity::new(config.credentials),
            headers,
        })
    }

    /// Sends `call` until it succeeds, cannot succeed, or its time is over.
    pub(super) async fn run(&self, call: &Call<'_>) -> Result<Answer, Failed> {
        let deadline = Instant::now() + self.timeouts.operation;
        let mut may_have_acted = false;
        let mut unavailable = 0;
        for next in 1.. {
            let error = match self.attempt(call, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            may_have_acted |= call.safety != Safety::Read && retry::may_have_acted(&error);
            unavailable += u32::from(error.kind == Kind::Unavailable);
            let pause = retry::pause(&self.retry, &error, next, self.noise.next());
            if !retry::repeats(call.safety, &error)
                || unavailable >= self.retry.attempts
                || Instant::now() + pause >= deadline
            {
                return Err(Failed {
                    error,
                    may_have_acted,
                });
            }
            tracing::debug!(
                operation = call.operation,
                kind = ?error.kind,
                cause = ?error.cause,
                attempt = next,
                ?pause,
                "repeating"
            );
            sleep(pause).await;
        }
        unreachable!("attempts are counted to the end of time");
    }

    /// One attempt; two where the store rejects a token that can be replaced.
    async fn attempt(&self, call: &Call<'_>, deadline: Instant) -> Result<Answer> {
        let proof = self.proof(call, deadline).await?;
        let answer = self.exchange(call, proof.as_ref(), deadline).await;
        let (Err(error), Some(proof)) = (&answer, &proof) else {
            return answer;
        };
        if error.kind != Kind::Unauthenticated {
            return answer;
        }
        tracing::debug!(operation = call.operation, "the store rejects the token");
        let reported = timeout_at(deadline, self.identity.reject(proof)).await;
        match reported {
            Ok(Ok(Some(fresh))) => self.exchange(call, Some(&fresh), deadline).await,
            Ok(Ok(None)) => answer,
            Ok(Err(error)) => Err(self.no_token(call, &error)),
            Err(_) => Err(self.lost(call, &no_token_in_time())),
        }
    }

    async fn proof(&self, call: &Call<'_>, deadline: Instant) -> Result<Option<Proof>> {
        if !self.endpoint.serves(&call.uri) {
            return Ok(None);
        }
        match timeout_at(deadline, self.identity.proof()).await {
            Ok(Ok(proof)) => Ok(proof),
            Ok(Err(error)) => Err(self.no_token(call, &error)),
            Err(_) => Err(self.lost(call, &no_token_in_time())),
        }
    }

    /// One request and its answer.
    async fn exchange(
        &self,
        call: &Call<'_>,
        proof: Option<&Proof>,
        deadline: Instant,
    ) -> Result<Answer> {
        let mut headers = call.headers.clone();
        if let Some(proof) = proof {
            proof.add_to(&mut headers);
        }
        // Behind the provider's, whose idea of the project to bill is a default.
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        let sending = Sending {
            method: &call.method,
            uri: &call.uri,
            headers,
            payload: &call.payload,
        };
        let lost = |lost: Lost| self.lost(call, &lost);
        let arrived = self
            .http
            .send(sending, &self.timeouts, deadline)
            .await
            .map_err(lost)?;
        let success =
            arrived.status.is_success() || arrived.status == StatusCode::PERMANENT_REDIRECT;
        if !success {
            return Err(self.refused(call, proof, arrived, deadline).await);
        }
        let body = match call.collect {
            None => Content::Flow(arrived.flow),
            Some(limit) => {
                Content::Whole(arrived.flow.collect(limit, deadline).await.map_err(lost)?)
            }
        };
        Ok(Answer {
            status: arrived.status,
            headers: arrived.headers,
            body,
        })
    }

    async fn refused(
        &self,
        call: &Call<'_>,
        proof: Option<&Proof>,
        arrived: Arrived,
        deadline: Instant,
    ) -> Error {
        let Arrived {
            status,
            headers,
            flow,
        } = arrived;
        // The status already says what happened; a body that cannot be read costs only its words.
        let body = flow.collect(REFUSAL, deadline).await.unwrap_or_default();
        let refusal = Refusal::parse(status, &headers, &body, call.conditional);
        let mut message = refusal.message;
        for secret in proof
            .into_iter()
            .flat_map(Proof::secrets)
            .chain(call.secret)
        {
            if message.contains(secret) {
                message = message.replace(secret, "[redacted]");
            }
        }
        Error {
            status: Some(status.as_u16()),
            reason: refusal.reason,
            retry_after: refusal.retry_after,
            ..Error::new(refusal.kind, call.operation, call.subject, message)
        }
    }

    /// The error of a call that got no answer.
    pub(super) fn lost(&self, call: &Call<'_>, lost: &Lost) -> Error {
        let message = lost.message(self.endpoint.authority());
        Error {
            cause: Some(lost.cause),
            ..Error::new(Kind::Unavailable, call.operation, call.subject, message)
        }
    }

    fn no_token(
        &self,
        call: &Call<'_>,
        error: &google_cloud_auth::errors::CredentialsError,
    ) -> Error {
        let lost = Lost::new(Cause::Credentials, &error.to_string());
        let kind = if error.is_transient() {
            Kind::Unavailable
        } else {
            Kind::Unauthenticated
        };
        Error {
            kind,
            ..self.lost(call, &lost)
        }
    }
}

fn no_token_in_time() -> Lost {
    Lost::new(Cause::Credentials, "none came before the deadline")
}

/// An [`Arc`] of it is what bodies and uploads hold on to.
pub(super) type Shared = Arc<Client>;
