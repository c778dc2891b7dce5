//! One operation: attempts, identity, deadline and repetition around single requests.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::{Either, select};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use tokio::time::{Instant, sleep, timeout_at};

use super::answer::Refusal;
use super::call::{Answer, Call, Content, Failed};
use super::clock::Clock;
use super::config::{Config, Hedge, Retry, Timeouts};
use super::deadline::Deadline;
use super::endpoint::Endpoint;
use super::identity::{Identity, Proof};
use super::operation::Operation;
use super::retry::{self, Noise, Safety};
use super::transport::{Arrived, Host, Http, Lost, Sending};
use super::url::Urls;
use super::{InvalidConfig, Observer, Reason};
use crate::{BucketName, Cause, Error, Kind, Result};

/// The most that is read of an error's body.
const REFUSAL: usize = 64 << 10;

/// Headers of most requests, the one of the host included.
const HEADERS: usize = 6;

const USER_PROJECT: HeaderName = HeaderName::from_static("x-goog-user-project");

/// What all calls to one bucket share.
pub(super) struct Client {
    pub(super) urls: Urls,
    pub(super) bucket: BucketName,
    pub(super) endpoint: Endpoint,
    pub(super) timeouts: Timeouts,
    pub(super) retry: Retry,
    hedge: Option<Hedge>,
    pub(super) noise: Noise,
    pub(super) upload_chunk: u64,
    pub(super) clock: Clock,
    pub(super) host: Arc<Host>,
    pub(super) observer: Option<Arc<dyn Observer>>,
    http: Http,
    identity: Identity,
    /// Sent with every request.
    headers: HeaderMap,
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
            host: http.host(config.endpoint.authority()),
            endpoint: config.endpoint,
            timeouts: config.timeouts,
            retry: config.retry,
            hedge: config.hedge,
            noise: Noise::new(config.retry.seed),
            upload_chunk: config.upload_chunk,
            clock: Clock::new(),
            observer: config.observer,
            http,
            identity: Identity::new(config.credentials),
            headers,
        })
    }

    /// Sends `call` until it succeeds, cannot succeed, or its time is over.
    pub(super) async fn run(&self, call: &Call<'_>) -> Result<Answer, Failed> {
        self.host.retries.earn(&self.retry.budget);
        let turn = self.host.silence.begin(call.payload.len(), &self.timeouts);
        let mut deadline = Deadline::after(turn.limit());
        let tokens_until = Instant::now() + self.timeouts.token;
        let mut may_have_acted = false;
        let mut unavailable = 0;
        for next in 1.. {
            let mut error = match self.attempt(call, &mut deadline).await {
                Ok(answer) => {
                    turn.end();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            error.attempts = u16::try_from(next).unwrap_or(u16::MAX);
            may_have_acted |= call.safety() != Safety::Read && retry::may_have_acted(&error);
            unavailable += u32::from(error.kind == Kind::Unavailable);
            let left = deadline.end().saturating_duration_since(Instant::now());
            let pause = self.pause(&error, next, left);
            let late = pause.is_none();
            // Whoever gives tokens has tried again all the while.
            let tokenless =
                error.cause == Some(Cause::Credentials) && Instant::now() >= tokens_until;
            let allowed = retry::repeats(call.safety(), &error)
                && unavailable < self.retry.attempts
                && !tokenless;
            let pause = pause.filter(|_| allowed);
            let Some(pause) = pause.and_then(|pause| self.in_turn(pause, left)) else {
                let unheard = retry::is_unheard(&error);
                let short = turn.is_short();
                if (late && unheard) || tokenless {
                    turn.end_in_vain();
                } else {
                    turn.end();
                }
                return Err(Failed {
                    error,
                    may_have_acted,
                    moving: deadline.moving(),
                    in_vain: short && unheard,
                });
            };
            tracing::debug!(
                operation = call.operation.name(),
                kind = ?error.kind,
                cause = ?error.cause,
                attempt = next,
                ?pause,
                "repeating"
            );
            self.failed_once(call.operation, &error, pause);
            sleep(pause).await;
        }
        unreachable!("attempts are counted to the end of time");
    }

    /// How long to wait before repetition number `next` after `error`; `None` where that is beyond `limit`.
    fn pause(&self, error: &Error, next: u32, limit: Duration) -> Option<Duration> {
        let pause = retry::pause(&self.retry, error, next, self.noise.next());
        (pause < limit).then_some(pause)
    }

    /// `pause`, or longer where many others repeat; `None` where that is beyond `limit`.
    fn in_turn(&self, pause: Duration, limit: Duration) -> Option<Duration> {
        let turn = self.host.retries.take(&self.retry.budget, limit)?;
        Some(pause.max(turn))
    }

    /// How long a body that made `futile` attempts since its last byte waits before the next, after `error`; `None`
    /// where that is beyond `limit`. The first goes on at once: it was not the store that failed, most likely.
    pub(super) fn pause_of_body(
        &self,
        error: &Error,
        futile: u32,
        limit: Duration,
    ) -> Option<Duration> {
        let pause = match futile {
            0 => Duration::ZERO,
            _ => self.pause(error, futile, limit)?,
        };
        self.in_turn(pause, limit)
    }

    /// One attempt; two where the store rejects a token that can be replaced.
    ///
    /// What few calls do is on the heap, so that the others are small: a future that is moved and awaited costs by its
    /// size.
    async fn attempt(&self, call: &Call<'_>, deadline: &mut Deadline) -> Result<Answer> {
        let start = self.now_if_observed();
        let proof = self.proof(call, deadline.end()).await;
        let proof = proof.inspect_err(|_| self.tokenless(call, start))?;
        let hedge = self
            .hedge
            .filter(|_| matches!(call.operation, Operation::Get | Operation::Media));
        let answer = match hedge {
            Some(hedge) => Box::pin(self.hedged(&hedge, call, proof.as_ref(), deadline)).await,
            None => self.exchange(call, proof.as_ref(), deadline).await,
        };
        match (answer, &proof) {
            (Err(error), Some(proof)) if error.kind == Kind::Unauthenticated => {
                Box::pin(self.reject(call, proof, error, deadline)).await
            }
            (answer, _) => answer,
        }
    }

    /// Another request where there is a token in place of `proof`, else the `error` by which the store rejects it.
    async fn reject(
        &self,
        call: &Call<'_>,
        proof: &Proof,
        error: Error,
        deadline: &mut Deadline,
    ) -> Result<Answer> {
        tracing::debug!(
            operation = call.operation.name(),
            "the store rejects the token"
        );
        let reported = timeout_at(deadline.end(), self.identity.reject(proof)).await;
        match reported {
            Ok(Ok(Some(fresh))) => {
                self.repeating(call.operation, Reason::Token, Duration::ZERO);
                self.exchange(call, Some(&fresh), deadline).await
            }
            Ok(Ok(None)) => Err(error),
            Ok(Err(error)) => Err(self.no_token(call, &error)),
            Err(_) => Err(self.lost(call, &no_token_in_time())),
        }
    }

    async fn proof(&self, call: &Call<'_>, deadline: Instant) -> Result<Option<Proof>> {
        if self.identity.is_nobody() || !self.endpoint.serves(&call.uri) {
            return Ok(None);
        }
        match timeout_at(deadline, self.identity.proof()).await {
            Ok(Ok(proof)) => Ok(proof),
            Ok(Err(error)) => Err(self.no_token(call, &error)),
            Err(_) => Err(self.lost(call, &no_token_in_time())),
        }
    }

    /// One request and its answer, or the answer to a second one where the first is slow.
    async fn hedged(
        &self,
        hedge: &Hedge,
        call: &Call<'_>,
        proof: Option<&Proof>,
        deadline: &mut Deadline,
    ) -> Result<Answer> {
        self.host.hedges.earn(hedge);
        let mut of_second = *deadline;
        let first = Box::pin(self.exchange(call, proof, deadline));
        let first = match select(first, pin!(sleep(hedge.after))).await {
            Either::Left((answer, _)) => return answer,
            Either::Right(((), first)) => first,
        };
        if !self.host.hedges.take(hedge) {
            return first.await;
        }
        tracing::debug!(operation = call.operation.name(), "asking twice");
        self.repeating(call.operation, Reason::Slow, Duration::ZERO);
        let second = Box::pin(self.exchange(call, proof, &mut of_second));
        let (answer, of_second) = match select(first, second).await {
            Either::Left((answer, _)) if is_told(&answer) => (answer, false),
            Either::Right((answer, _)) if is_told(&answer) => (answer, true),
            Either::Left((_, second)) => (second.await, true),
            Either::Right((_, first)) => (first.await, false),
        };
        if of_second && is_told(&answer) {
            self.host.hedges.win();
        }
        answer
    }

    /// One request and its answer.
    async fn exchange(
        &self,
        call: &Call<'_>,
        proof: Option<&Proof>,
        deadline: &mut Deadline,
    ) -> Result<Answer> {
        let lost = |lost: Lost| self.lost(call, &lost);
        let arrived = self.ask(call, proof, deadline).await.map_err(lost)?;
        let deadline = deadline.end();
        self.host.silence.heard();
        self.clock.hear(&arrived.headers, SystemTime::now());
        let success =
            arrived.status.is_success() || arrived.status == StatusCode::PERMANENT_REDIRECT;
        if !success {
            return Err(Box::pin(self.refused(call, proof, arrived, deadline)).await);
        }
        let body = match call.collect {
            None => Content::Flow(arrived.flow.counted_by(self.observer.clone())),
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

    /// One request and the head of its answer; another, once, where that head needs more room than is made for it.
    async fn ask(
        &self,
        call: &Call<'_>,
        proof: Option<&Proof>,
        deadline: &mut Deadline,
    ) -> Result<Arrived, Lost> {
        let is_media = call.collect.is_none();
        loop {
            let wide = is_media && self.http.is_wide();
            let sending = Sending {
                method: &call.method,
                uri: &call.uri,
                headers: self.headers(call, proof),
                payload: &call.payload,
                meter: self.meter(call),
                wide,
            };
            let watch = self.watch(call);
            let arrived = self.http.send(sending, &self.timeouts, deadline).await;
            if let Some(watch) = watch {
                watch.end(&arrived);
            }
            match arrived {
                Err(lost) if lost.too_large && is_media && !wide => {
                    self.http.widen();
                    self.repeating(call.operation, Reason::Headers, Duration::ZERO);
                }
                arrived => return arrived,
            }
        }
    }

    fn headers(&self, call: &Call<'_>, proof: Option<&Proof>) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(HEADERS);
        headers.extend(call.headers.iter().cloned());
        if let Some(proof) = proof {
            proof.add_to(&mut headers);
        }
        // Behind the provider's, whose idea of the project to bill is a default.
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        headers
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
            reason: refusal.reason.map(String::into_boxed_str),
            retry_after: refusal.retry_after,
            // The id of a request to an upload session is part of the session's URL.
            request_id: refusal
                .request_id
                .filter(|_| !call.operation.is_session())
                .map(String::into_boxed_str),
            ..Error::new(refusal.kind, call.operation.name(), call.subject, message)
        }
    }

    /// The error of a call that got no answer.
    pub(super) fn lost(&self, call: &Call<'_>, lost: &Lost) -> Error {
        let message = lost.message(self.endpoint.authority());
        Error {
            cause: Some(lost.cause),
            ..Error::new(
                Kind::Unavailable,
                call.operation.name(),
                call.subject,
                message,
            )
        }
    }

    fn no_token(
        &self,
        call: &Call<'_>,
        error: &google_cloud_auth::errors::CredentialsError,
    ) -> Error {
        // A provider of ours says all of it in the source; what is around it is the library's.
        let said =
            std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        let lost = Lost::new(Cause::Credentials, &said);
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

/// Whether the store has said how it is. A failure of one request says nothing of another.
fn is_told(answer: &Result<Answer>) -> bool {
    !matches!(answer, Err(error) if matches!(error.kind, Kind::Unavailable | Kind::Throttled))
}

fn no_token_in_time() -> Lost {
    Lost::new(Cause::Credentials, "none came before the deadline")
}

/// An [`Arc`] of it is what bodies and uploads hold on to.
pub(super) type Shared = Arc<Client>;
