//! A person's login, as `gcloud auth application-default login` leaves it, and what it has in
//! common with other grants of OAuth: a form to a token URL (RFC 6749 section 6).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use http::Uri;
use serde::Deserialize;

use super::CredentialFileConfig;
use crate::error::{Error, Kind};
use crate::exchange::trouble::{Advice, explain};
use crate::exchange::{Exchange, Grant, Identity, Timeouts};
use crate::secret::AccessSecret;
use crate::sts::answer::{Useless, grant};
use crate::sts::request::form;
use crate::transport::{self, Peer, Transport, target};

const GOOGLE: &str = "https://oauth2.googleapis.com/token";

/// The fields of the file.
#[derive(Deserialize)]
pub(super) struct AuthorizedUser {
    client_id: String,
    client_secret: AccessSecret,
    refresh_token: AccessSecret,
    token_uri: Option<String>,
}

impl AuthorizedUser {
    pub(super) fn exchange(
        self,
        config: &CredentialFileConfig,
    ) -> Result<Arc<dyn Exchange>, Error> {
        let url = self.token_uri.as_deref().unwrap_or(GOOGLE);
        let uri = target::parse(url, "token_uri", GOOGLE, "/")?;
        Ok(Arc::new(Login {
            granting: Granting::new(uri, config.timeouts)?,
            client_id: self.client_id,
            client_secret: self.client_secret,
            refresh_token: self.refresh_token,
        }))
    }
}

#[derive(Debug)]
struct Login {
    granting: Granting,
    client_id: String,
    client_secret: AccessSecret,
    refresh_token: AccessSecret,
}

#[async_trait]
impl Exchange for Login {
    async fn exchange(&self) -> Result<Grant, Error> {
        let refresh_token = self.refresh_token.expose();
        let client_secret = self.client_secret.expose();
        let fields = [
            ("grant_type", "refresh_token"),
            ("client_id", &*self.client_id),
            ("client_secret", client_secret),
            ("refresh_token", refresh_token),
        ];
        self.granting
            .ask(&fields, &[client_secret, refresh_token])
            .await
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}

/// A token URL that grants tokens to a form.
pub(super) struct Granting {
    uri: Uri,
    transport: Transport,
}

impl Granting {
    pub(super) fn new(uri: Uri, timeouts: Timeouts) -> Result<Self, Error> {
        if target::is_cleartext(&uri) {
            let host = target::host(&uri);
            tracing::warn!(
                host,
                "a credential is sent over plain HTTP to another machine"
            );
        }
        let transport = Transport::new(&uri, timeouts.connect, timeouts.exchange)?;
        Ok(Self { uri, transport })
    }

    pub(super) fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Posts a form; the `secrets` in it are taken out of what the server says.
    pub(super) async fn ask(
        &self,
        fields: &[(&str, &str)],
        secrets: &[&str],
    ) -> Result<Grant, Error> {
        let authority = self
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        let name = format!("the token URL at {authority}");
        let peer = Peer {
            name: &name,
            setting: "token_uri in the credential file",
        };
        let request = transport::form(self.uri.clone(), form(fields));
        let answer = self.transport.call(request, peer).await?;
        if !answer.status.is_success() {
            let advice = Advice {
                denied: "is the account disabled, or its key deleted?",
                refused: "was the credential revoked, or is the clock wrong? renew the file",
            };
            let secrets = [secrets, &target::secrets(self.uri.query())].concat();
            return Err(explain(&answer, peer, advice, &secrets));
        }
        grant(&answer.body)
            .map_err(|Useless(what)| Error::new(Kind::BadAnswer, format!("{name} {what}")))
    }
}

impl fmt::Debug for Granting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Granting")
            .field(&target::shown(&self.uri))
            .finish()
    }
}
