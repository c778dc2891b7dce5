//! The token broker: it turns what says who a workload is (a subject token, such as the one that
//! Kubernetes projects into a pod, or a credential file) into access tokens for Google Cloud, and
//! keeps a valid one ready. No metadata server is asked for anything, unless it is the chosen source.
//!
//! A token takes five steps: a [`source`] reads the subject token afresh; its [`claims`] lead to
//! the [`audience`]; the token service ([`sts`]) exchanges it; the [`broker`] publishes the result
//! ahead of expiry, as a pure schedule says; the [`provider`] hands it to Google's client
//! libraries. An [`exchange`] is the seam in the middle: whatever gets a token in one attempt can
//! stand behind a broker, such as a [`CredentialFile`], a [`TokenUrl`] or a [`Metadata`] server, and
//! any may be followed by [`Steps`], which are exchanges around it ([`Impersonation`],
//! [`Downscoping`]).
//!
//! [`Identities`] lets all who hold one identity share its broker, and [`serve`] lets other
//! processes share it over a unix socket.
//!
//! Servers are reached through the proxies that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`
//! name when an exchange or a source is made (HTTP, also over TLS, and SOCKS 5); unix sockets, this
//! machine and metadata servers never are. No connection is kept between two exchanges.
//!
//! # From another crate
//!
//! The crate is in no registry: name its directory, or the repository and a commit of it. It needs no
//! other crate of the workspace, runs on tokio, and serves any program that asks Google Cloud for
//! something.
//!
//! ```toml
//! [dependencies]
//! gcsmount-auth = { path = "../gcsmount/auth" } # or { git = "URL OF THE REPOSITORY", rev = "COMMIT" }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! A token, the header that carries it, and what to do with a token that a service answers with 401:
//!
//! ```no_run
//! # async fn send(_: gcsmount_auth::http::Request<()>) -> u16 { 200 }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use gcsmount_auth::http::{Request, header::AUTHORIZATION};
//! use gcsmount_auth::{AccessToken, Broker, BrokerConfig, FileSource};
//!
//! let source = FileSource::new("/var/run/secrets/tokens/gcs/token");
//! let broker = Broker::spawn(BrokerConfig::new(Arc::new(source)))?; // ends with its last clone
//!
//! let request = |token: &AccessToken| {
//!     let url = "https://storage.googleapis.com/storage/v1/b/my-bucket/o";
//!     Request::get(url).header(AUTHORIZATION, token.header()).body(())
//! };
//! let token = broker.token().await?; // at once, while one is valid: ask for each request
//! if send(request(&token)?).await == 401 {
//!     // One exchange, however many requests tell of the same token.
//!     let other = broker.replacement(token.tag()).await?;
//!     send(request(&other)?).await;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Broker::reject`] tells of a 401 without waiting, [`AccessToken::expose`] is the token without the
//! header, and [`Broker::status`] says who the tokens stand for and how the last exchange went. An
//! [`Error`] has a [`Kind`] to act on and one sentence for an operator.
//!
//! Google's own client libraries take the broker as [`Credentials`]. Their types that are in this
//! crate's interface are re-exported, and so is [`http`], so that their versions cannot differ:
//!
//! ```no_run
//! # fn example(broker: gcsmount_auth::Broker) {
//! let credentials: gcsmount_auth::Credentials = broker.credentials();
//! // Storage::builder().with_credentials(credentials).build().await?
//! # drop(credentials);
//! # }
//! ```
//!
//! Another way to the token changes the first lines only:
//!
//! ```no_run
//! # async fn example() -> Result<(), gcsmount_auth::Error> {
//! use std::sync::Arc;
//!
//! use gcsmount_auth::{Broker, CredentialFile, CredentialFileConfig, Routes, SocketConfig, TokenSocket};
//!
//! let file = CredentialFileConfig::new("/etc/gcsmount/key.json");
//! let tuning = file.tuning();
//! let broker = Broker::with_exchange(Arc::new(CredentialFile::new(file)), tuning);
//! let config = SocketConfig::new("/run/gcsmount/token.sock", Routes::Any(broker));
//! let socket = TokenSocket::bind(config).await?; // for `gcsfuse --token-url unix:///run/…`
//! socket.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! More examples: a token that the program hands in ([`Pushed`]), with a socket as a CSI driver has
//! one; impersonation and a boundary ([`Steps`]); many identities ([`Identities`]) and many on one
//! socket ([`Routes`]); Google's protocol for headers ([`provider`]). `examples/` holds two whole
//! programs.

pub mod application_default;
pub mod audience;
pub mod boundary;
pub mod broker;
pub mod claims;
pub mod clock;
pub mod credential_file;
pub mod error;
pub mod exchange;
pub mod provider;
mod schedule;
pub mod secret;
pub mod serve;
pub mod source;
pub mod sts;
pub mod token;
mod transport;
pub mod universe;

pub use application_default::ApplicationDefault;
pub use audience::Audience;
pub use boundary::Boundary;
pub use broker::{Broker, BrokerConfig, Failures, Identities, Status, Tuning};
pub use credential_file::{CredentialFile, CredentialFileConfig};
pub use error::{Error, Family, Kind};
pub use exchange::{
    Downscoping, Exchange, Federation, FromUrl, Grant, Identity, Impersonate, Impersonation,
    Metadata, Shipped, Steps, Timeouts, TokenUrl, Whose,
};
pub use http;
pub use provider::{
    CacheableResource, Credentials, CredentialsError, CredentialsProvider, EntityTag, EveryTime,
    Provider,
};
pub use serve::{Routes, SocketConfig, TokenSocket};
pub use source::{ExecutableSource, FileSource, Format, Pushed, Source, UrlSource};
pub use sts::Endpoint;
pub use token::AccessToken;
pub use universe::Universe;
