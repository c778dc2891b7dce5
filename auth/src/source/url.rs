//! A subject token from a web server of the workload's surroundings, as external-account files name
//! one with `credential_source.url`.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, Method, Uri};

use super::{Format, Source};
use crate::error::{Error, Kind, SourceFault};
use crate::exchange::Timeouts;
use crate::exchange::trouble::{Advice, explain};
use crate::secret::SubjectToken;
use crate::transport::{self, Peer, Transport, target};

/// The headers that say where a message ends and what becomes of its connection, which the client
/// sets. Another's would make it say what it does not do.
const FRAMING: [HeaderName; 4] = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE];

/// Gets the subject token from a URL.
pub struct UrlSource {
    uri: Uri,
    headers: HeaderMap,
    format: Format,
    transport: Transport,
}

impl UrlSource {
    /// A source that asks `url`, with these headers.
    ///
    /// # Errors
    /// [`Kind::Config`] for what is no URL, or needs TLS where the system trusts no certificate, for
    /// a proxy of a kind that is not spoken here, and for headers that are the connection's own.
    pub fn new(
        url: &str,
        headers: HeaderMap,
        format: Format,
        timeouts: Timeouts,
    ) -> Result<Self, Error> {
        let uri = target::parse(
            url,
            "credential_source.url",
            "http://127.0.0.1:8080/token",
            "/",
        )?;
        if let Some(name) = FRAMING.iter().find(|name| headers.contains_key(*name)) {
            let message = format!("credential_source.headers may not set {name}: leave it out");
            return Err(Error::new(Kind::Config, message));
        }
        let transport = Transport::new(&uri, timeouts.connect, timeouts.source)?;
        Ok(Self {
            uri,
            headers,
            format,
            transport,
        })
    }
}

#[async_trait]
impl Source for UrlSource {
    async fn subject_token(&self) -> Result<SubjectToken, Error> {
        let name = format!("the server of subject tokens at {}", self.describe());
        let peer = Peer {
            name: &name,
            setting: "credential_source.url",
        };
        let mut request = transport::request(Method::GET, self.uri.clone(), Bytes::new());
        request.headers_mut().extend(self.headers.clone());
        let answer = self.transport.call(request, peer).await?;
        if !answer.status.is_success() {
            let advice = Advice {
                denied: "check credential_source.headers",
                refused: "check credential_source.url",
            };
            let headers = self
                .headers
                .values()
                .filter_map(|value| value.to_str().ok());
            let secrets: Vec<_> = target::secrets(self.uri.query())
                .into_iter()
                .chain(headers)
                .collect();
            return Err(explain(&answer, peer, advice, &secrets));
        }
        let place = format!("the answer of {name}");
        let text = std::str::from_utf8(&answer.body).map_err(|_| {
            let message = format!("{place} holds bytes that are not text");
            Error::new(Kind::Source(SourceFault::Malformed), message)
        })?;
        self.format.extract(text, &place)
    }

    /// Without the query, which may hold a key.
    fn describe(&self) -> String {
        target::shown(&self.uri)
    }

    fn key(&self) -> String {
        self.uri.to_string()
    }
}

impl fmt::Debug for UrlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UrlSource({})", self.describe())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn headers_of_the_connection_are_not_the_files_to_set() {
        for name in ["Content-Length", "transfer-encoding", "x-fine"] {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static("7"))]);
            let url = "http://127.0.0.1:1/token";
            let made = UrlSource::new(url, headers, Format::Text, Timeouts::default());
            assert_eq!(made.is_ok(), name == "x-fine", "{name}");
            if let Err(error) = made {
                assert_eq!(error.kind(), Kind::Config);
                assert!(error.message().contains(name.as_str()), "{error}");
            }
        }
    }
}
