//! Access tokens from a URL, as gcsfuse's `--token-url` has it: another broker's unix socket or an
//! HTTP server. What it gives is a token already; there is nothing to exchange.

use std::borrow::Cow;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::trouble::{Advice, explain};
use super::{Exchange, Grant, Identity, Timeouts};
use crate::error::{Error, Kind};
use crate::sts::answer::{self, Useless};
use crate::transport::unix::Socket;
use crate::transport::{self, Answer, Peer, Transport, target};

const SETTING: &str = "--token-url";
const EXAMPLE: &str = "unix:///run/token.sock or http://127.0.0.1:8080/token";

/// Where to ask for a token.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TokenUrl(Place);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Unix { path: PathBuf, target: PathAndQuery },
    Http(Uri),
}

impl TokenUrl {
    /// Reads `unix:///PATH`, `unix:///PATH#/HTTP/PATH?QUERY` (the fragment is what is asked for at
    /// the socket, `/` without one), `http://…` or `https://…`. `%XX` in a PATH is a byte.
    ///
    /// # Errors
    /// [`Kind::Config`] with the accepted forms.
    pub fn parse(url: &str) -> Result<Self, Error> {
        let refuse = |reason: &str| {
            let message = format!("{SETTING} {reason}; it takes a URL such as {EXAMPLE}");
            Error::new(Kind::Config, message)
        };
        let Some(rest) = url.strip_prefix("unix:") else {
            // Before the URL is looked at closer: what a path lacks is not https:// or http://.
            if url.starts_with('/') {
                return Err(refuse("is a path without unix:// before it"));
            }
            return target::parse(url, SETTING, EXAMPLE, "/").map(|uri| Self(Place::Http(uri)));
        };
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (path, target) = rest.split_once('#').unwrap_or((rest, "/"));
        if !path.starts_with('/') {
            return Err(refuse(
                "needs three slashes and an absolute path after unix:",
            ));
        }
        let path: Vec<u8> = percent_decode_str(path).collect();
        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        if path.file_name().is_none() || path.as_os_str().as_bytes().contains(&0) {
            return Err(refuse("names no socket"));
        }
        let target = Some(target)
            .filter(|target| target.starts_with('/'))
            .and_then(|target| target.parse().ok())
            .ok_or_else(|| refuse("has a fragment that is not the path of a URL"))?;
        Ok(Self(Place::Unix { path, target }))
    }
}

impl TokenUrl {
    fn secrets(&self) -> Vec<&str> {
        target::secrets(match &self.0 {
            Place::Unix { target, .. } => target.query(),
            Place::Http(uri) => uri.query(),
        })
    }
}

impl fmt::Debug for TokenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenUrl({self})")
    }
}

impl fmt::Display for TokenUrl {
    /// Without the query, which may hold a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Place::Unix { path, target } if target.path() == "/" => {
                write!(f, "unix://{}", path.display())
            }
            Place::Unix { path, target } => {
                write!(f, "unix://{}#{}", path.display(), target.path())
            }
            Place::Http(uri) => f.write_str(&target::shown(uri)),
        }
    }
}

/// Asks a URL for access tokens.
pub struct FromUrl {
    url: TokenUrl,
    way: Way,
}

/// The parts of the URL, of which the query may be secret, and who asks for it.
enum Way {
    Unix {
        socket: Socket,
        target: PathAndQuery,
    },
    Http {
        transport: Transport,
        uri: Uri,
    },
}

impl FromUrl {
    /// An exchange that asks `url`, within the time of an exchange.
    ///
    /// # Errors
    /// [`Kind::Config`] if the URL needs TLS and the system trusts no certificate, or the
    /// environment names a proxy of a kind that is not spoken here.
    pub fn new(url: TokenUrl, timeouts: Timeouts) -> Result<Self, Error> {
        let total = timeouts.exchange;
        let way = match &url.0 {
            Place::Unix { path, target } => Way::Unix {
                socket: Socket::new(path.clone(), total),
                target: target.clone(),
            },
            Place::Http(uri) => {
                if target::is_cleartext(uri) {
                    tracing::warn!(%url, "access tokens come over plain HTTP from another machine");
                }
                Way::Http {
                    transport: Transport::new(uri, timeouts.connect, total)?,
                    uri: uri.clone(),
                }
            }
        };
        Ok(Self { url, way })
    }

    async fn ask(&self, peer: Peer<'_>) -> Result<Answer, Error> {
        match &self.way {
            Way::Unix { socket, target } => socket.get(target, peer).await,
            Way::Http { transport, uri } => {
                let request = transport::request(Method::GET, uri.clone(), Bytes::new());
                transport.call(request, peer).await
            }
        }
    }
}

#[async_trait]
impl Exchange for FromUrl {
    async fn exchange(&self) -> Result<Grant, Error> {
        let name = format!("the token server at {}", self.url);
        let peer = Peer {
            name: &name,
            setting: SETTING,
        };
        let answer = self.ask(peer).await?;
        if !answer.status.is_success() {
            let advice = Advice {
                denied: "this process is not one that it serves; its log or its list of uids tells",
                refused: "check --token-url, and the server's own reason",
            };
            let error = explain(&answer, peer, advice, &self.url.secrets());
            return Err(match behind(&answer) {
                Some(kind) => error.of_kind(kind),
                None => error,
            });
        }
        answer::told(&answer, SystemTime::now()).map_err(|Useless(what)| {
            let message = format!("{name} {what}: is {SETTING} right?");
            Error::new(Kind::BadAnswer, message)
        })
    }

    fn identity(&self) -> Identity {
        Identity {
            source: self.url.to_string(),
            ..Identity::default()
        }
    }
}

/// The fault that another broker names, if the status leaves it open whose it is.
fn behind(answer: &Answer) -> Option<Kind> {
    #[derive(Deserialize)]
    struct Failure<'a> {
        #[serde(borrow)]
        error: Cow<'a, str>,
    }
    let failure: Failure<'_> = serde_json::from_slice(&answer.body).ok()?;
    let open = answer.status.is_server_error();
    Kind::behind(&failure.error).filter(|_| open)
}

impl fmt::Debug for FromUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FromUrl").field(&self.url).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_of_every_form_are_read() {
        for (url, path, target) in [
            ("unix:///run/t.sock", "/run/t.sock", "/"),
            ("unix:/run/t.sock", "/run/t.sock", "/"),
            (
                "unix:///run/a%20b#/v1/token?x=y",
                "/run/a b",
                "/v1/token?x=y",
            ),
        ] {
            let parsed = TokenUrl::parse(url).unwrap();
            let expected = Place::Unix {
                path: path.into(),
                target: target.parse().unwrap(),
            };
            assert_eq!(parsed.0, expected, "{url}");
        }
        let http = TokenUrl::parse("http://127.0.0.1:80/token?key=hidden").unwrap();
        assert_eq!(http.to_string(), "http://127.0.0.1:80/token");
        let unix = TokenUrl::parse("unix:///s#/a?key=hidden").unwrap();
        assert_eq!(unix.to_string(), "unix:///s#/a");
    }

    #[test]
    fn what_is_no_url_names_the_forms_that_are() {
        for url in [
            "",
            "/run/t.sock",
            "unix://run/t.sock",
            "unix:",
            "unix:///",
            "unix:///a%00b",
            "unix:///s#no-slash",
            "unix:///s#/a b",
            "ftp://x",
        ] {
            let error = TokenUrl::parse(url).unwrap_err();
            assert_eq!(error.kind(), Kind::Config, "{url}");
            assert!(
                error.message().contains("unix:///run/token.sock"),
                "{error}"
            );
        }
        let path = TokenUrl::parse("/run/t.sock").unwrap_err();
        assert!(path.message().contains("without unix://"), "{path}");
    }

    proptest! {
        #[test]
        fn no_url_makes_it_panic(url in "(unix:)?/{0,3}.{0,40}") {
            let _ = TokenUrl::parse(&url).map(|url| url.to_string());
        }
    }
}
