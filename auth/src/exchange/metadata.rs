//! Tokens from a metadata server, where one is meant to be asked: an ordinary pod on GKE, or a VM.
//! The two are told apart. GKE intercepts the address for a pod and answers for its service
//! account; a pod on the host's network reaches the node's server at the same address, and would
//! act as the node.

use std::sync::OnceLock;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{HeaderValue, SERVER};
use http::{Method, Uri};

use super::trouble::{Advice, explain};
use super::{Exchange, Grant, Identity, Timeouts};
use crate::error::{Error, Kind, Refusal};
use crate::sts::answer::{Useless, grant};
use crate::transport::{self, Answer, Peer, Transport, target};
use crate::universe::Universe;

const SETTING: &str = "GCE_METADATA_HOST";
const FLAVOR: &str = "metadata-flavor";

/// Whom a metadata server answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whose {
    /// A pod: it is GKE's own server.
    Pod,
    /// The machine.
    Node,
}

/// Gets access tokens from a metadata server. It is asked straight, whatever proxy the environment names:
/// a proxy would be answered for the machine that it runs on.
#[derive(Debug)]
pub struct Metadata {
    base: String,
    /// Whom it has to answer for: what was asked for, or what its first token decided.
    whose: OnceLock<Whose>,
    scope: String,
    universe: Universe,
    transport: Transport,
}

impl Metadata {
    /// The server at `host` (`HOST` or `HOST:PORT`, perhaps after `http://`), for tokens that may do `scope`, if it answers
    /// for `whose`. With `None` its first token decides that once and for all: application default
    /// credentials take either, but nobody means them to change from a pod's to the node's.
    ///
    /// # Errors
    /// [`Kind::Config`] for what is no host.
    pub fn new(
        host: &str,
        whose: impl Into<Option<Whose>>,
        scope: String,
        timeouts: Timeouts,
    ) -> Result<Self, Error> {
        let host = host.strip_prefix("http://").unwrap_or(host);
        let base = format!("http://{host}");
        let uri = target::parse(&base, SETTING, "http://metadata.google.internal", "/")?;
        let transport = Transport::direct(&uri, timeouts.connect, timeouts.exchange)?;
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            whose: whose.into().map_or_else(OnceLock::new, OnceLock::from),
            scope,
            universe: Universe::default(),
            transport,
        })
    }

    /// The host that Google's libraries ask: `GCE_METADATA_HOST`, or the usual one.
    #[must_use]
    pub fn usual_host() -> String {
        std::env::var(SETTING)
            .ok()
            .filter(|host| !host.is_empty())
            .unwrap_or_else(|| "metadata.google.internal".to_owned())
    }

    /// The same for tokens of another universe.
    #[must_use]
    pub fn in_universe(self, universe: Universe) -> Self {
        Self { universe, ..self }
    }

    /// Whom the server answers for: what a choice of source needs to know before it is made.
    ///
    /// # Errors
    /// [`Kind::BadAnswer`] for a server that is no metadata server, and whatever kept it from
    /// answering.
    pub async fn probe(&self) -> Result<Whose, Error> {
        let answer = self.ask("/computeMetadata/v1/instance/").await?;
        self.whose(&answer)
    }

    async fn ask(&self, target: &str) -> Result<Answer, Error> {
        let uri: Uri = format!("{}{target}", self.base)
            .parse()
            .map_err(|_| Error::new(Kind::Config, "the scope makes no URL"))?;
        let mut request = transport::request(Method::GET, uri, Bytes::new());
        request
            .headers_mut()
            .insert(FLAVOR, HeaderValue::from_static("Google"));
        let name = self.name();
        self.transport.call(request, peer(&name)).await
    }

    /// GKE's server calls itself so; the one of a VM has another name.
    fn whose(&self, answer: &Answer) -> Result<Whose, Error> {
        if answer
            .headers
            .get(FLAVOR)
            .is_none_or(|flavor| flavor != "Google")
        {
            let message = format!(
                "{} is not one: it has no {FLAVOR} in its answer; what else answers there? check {SETTING}",
                self.name()
            );
            return Err(Error::new(Kind::BadAnswer, message));
        }
        let server = answer.headers.get(SERVER).map(HeaderValue::as_bytes);
        Ok(match server {
            Some(name) if name.starts_with(b"GKE Metadata Server") => Whose::Pod,
            _ => Whose::Node,
        })
    }

    /// Refuses tokens of anybody but whom the server has to answer for, which an answer that holds
    /// a token decides if nothing did before.
    fn check(&self, found: Whose) -> Result<(), Error> {
        if *self.whose.get_or_init(|| found) == found {
            return Ok(());
        }
        let why = match found {
            Whose::Node => {
                "answers for the node and not for this pod, whose identity its tokens would not \
                 have: is the pod on the host's network, or workload identity off in this node \
                 pool? name another source, such as a projected token"
            }
            Whose::Pod => {
                "answers for this pod and not for the node, whose identity its tokens would not \
                 have: was workload identity turned on in this node pool? start anew to act as \
                 the pod"
            }
        };
        let message = format!("{} {why}", self.name());
        Err(Error::new(Kind::Refused(Refusal::Denied), message))
    }

    fn name(&self) -> String {
        format!("the metadata server at {}", self.base)
    }
}

fn peer(name: &str) -> Peer<'_> {
    Peer {
        name,
        setting: SETTING,
    }
}

#[async_trait]
impl Exchange for Metadata {
    async fn exchange(&self) -> Result<Grant, Error> {
        let scopes: String =
            form_urlencoded::byte_serialize(self.scope.replace(' ', ",").as_bytes()).collect();
        let target =
            format!("/computeMetadata/v1/instance/service-accounts/default/token?scopes={scopes}");
        let answer = self.ask(&target).await?;
        let name = self.name();
        if answer.status.is_success() {
            let found = self.whose(&answer)?;
            let grant = grant(&answer.body).map_err(|Useless(what)| {
                let message = format!("{name} {what}: is {SETTING} right?");
                Error::new(Kind::BadAnswer, message)
            })?;
            return self.check(found).map(|()| grant);
        }
        let advice = Advice {
            denied: "may this service account be used from here? bind it to this pod or machine, \
                     or name another source",
            refused: "has this pod or machine a service account? attach one, or name another source",
        };
        Err(explain(&answer, peer(&name), advice, &[]))
    }

    fn identity(&self) -> Identity {
        let name = self.name();
        let source = match self.whose.get() {
            Some(Whose::Pod) => format!("{name}, for this pod"),
            Some(Whose::Node) => format!("{name}, for the node"),
            None => name,
        };
        Identity {
            source,
            ..Identity::default()
        }
    }

    fn universe_domain(&self) -> Option<String> {
        self.universe.unusual()
    }
}
