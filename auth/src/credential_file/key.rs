//! A key of a service account. With Google's own token URL nobody is asked: the account signs a
//! token itself, which Google's APIs take as it is ("self-signed JWT", AIP-4111). With another URL,
//! or where that will not do, the signature is exchanged (RFC 7523).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Uri;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::CredentialFileConfig;
use super::login::Granting;
use crate::error::{Error, Kind, SourceFault};
use crate::exchange::{Exchange, Grant, Identity};
use crate::secret::AccessSecret;
use crate::transport::target;
use crate::universe::Universe;

/// The longest that Google accepts.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Begun this much in the past, so that a clock that is a little fast does no harm.
const SKEW: Duration = Duration::from_secs(10);

/// The fields of the file.
#[derive(Deserialize)]
pub(super) struct ServiceAccount {
    client_email: String,
    private_key: AccessSecret,
    #[serde(default)]
    private_key_id: String,
    #[serde(default)]
    token_uri: String,
}

impl ServiceAccount {
    pub(super) fn exchange(
        self,
        config: &CredentialFileConfig,
        universe: Universe,
    ) -> Result<Arc<dyn Exchange>, Error> {
        let signer = Signer {
            pair: key_pair(&self.private_key).ok_or_else(|| {
                let path = config.path.display();
                let message = format!("the private_key in {path} is not an RSA key in PEM");
                Error::new(Kind::Source(SourceFault::Malformed), message)
            })?,
            id: self.private_key_id,
            account: self.client_email,
            scope: config.scope.clone(),
        };
        let Some(uri) = asked(&self.token_uri, config.self_signed, &universe)? else {
            return Ok(Arc::new(SelfSigned { signer, universe }));
        };
        Ok(Arc::new(Signed {
            granting: Granting::new(uri, config.timeouts)?,
            signer,
            universe,
        }))
    }
}

/// The token URL to ask; none where the signature alone will do.
fn asked(token_uri: &str, self_signed: bool, universe: &Universe) -> Result<Option<Uri>, Error> {
    let usual = format!("https://oauth2.{universe}/token");
    let url = match token_uri {
        "" => &usual,
        url => url,
    };
    let uri = target::parse(url, "token_uri", "https://oauth2.googleapis.com/token", "/")?;
    Ok(Some(uri).filter(|uri| !self_signed || !is_google(uri, universe)))
}

fn is_google(uri: &Uri, universe: &Universe) -> bool {
    universe.owns(uri)
        || Universe::default().owns(uri)
        || target::host(uri) == "accounts.google.com"
}

fn key_pair(pem: &AccessSecret) -> Option<RsaKeyPair> {
    match PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).ok()? {
        PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok(),
        PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok(),
        _ => None,
    }
}

/// Signs statements of the account.
struct Signer {
    pair: RsaKeyPair,
    id: String,
    account: String,
    scope: String,
}

impl Signer {
    /// A JWT (RFC 7515) that says `claims`, besides who, what and when.
    fn sign(&self, claims: &[(&str, &str)], now: SystemTime) -> Result<AccessSecret, Error> {
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if !self.id.is_empty() {
            header["kid"] = json!(self.id);
        }
        let mut payload = json!({
            "iss": self.account,
            "scope": self.scope,
            "iat": now.saturating_sub(SKEW).as_secs(),
            "exp": (now.saturating_sub(SKEW) + LIFETIME).as_secs(),
        });
        for (name, value) in claims {
            payload[name] = json!(value);
        }
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let statement = format!("{}.{}", encode(&header), encode(&payload));
        let mut signature = vec![0; self.pair.public().modulus_len()];
        self.pair
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                statement.as_bytes(),
                &mut signature,
            )
            .map_err(|_| Error::new(Kind::Internal, "the service account's key cannot sign"))?;
        let signature = Zeroizing::new(URL_SAFE_NO_PAD.encode(signature));
        Ok(AccessSecret::new(format!("{statement}.{}", *signature)))
    }

    fn identity(&self) -> Identity {
        Identity {
            subject: Some(self.account.clone()),
            principal: Some(format!("serviceAccount:{}", self.account)),
            ..Identity::default()
        }
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

/// The account's own signature as the token.
#[derive(Debug)]
struct SelfSigned {
    signer: Signer,
    universe: Universe,
}

#[async_trait]
impl Exchange for SelfSigned {
    async fn exchange(&self) -> Result<Grant, Error> {
        let claims = [("sub", &*self.signer.account)];
        Ok(Grant {
            token: self.signer.sign(&claims, SystemTime::now())?,
            lifetime: LIFETIME - SKEW,
        })
    }

    fn identity(&self) -> Identity {
        self.signer.identity()
    }

    fn universe_domain(&self) -> Option<String> {
        self.universe.unusual()
    }
}

/// A token for the account's signature.
#[derive(Debug)]
struct Signed {
    signer: Signer,
    granting: Granting,
    universe: Universe,
}

#[async_trait]
impl Exchange for Signed {
    async fn exchange(&self) -> Result<Grant, Error> {
        let audience = self.granting.uri().to_string();
        let assertion = self
            .signer
            .sign(&[("aud", &*audience)], SystemTime::now())?;
        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
            ("assertion", assertion.expose()),
        ];
        self.granting.ask(&fields, &[assertion.expose()]).await
    }

    fn identity(&self) -> Identity {
        self.signer.identity()
    }

    fn universe_domain(&self) -> Option<String> {
        self.universe.unusual()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_asked_where_the_signature_alone_will_do() {
        let google = "https://oauth2.googleapis.com/token";
        let private = "http://127.0.0.1:80/token";
        let other = Universe::parse("other.goog").unwrap();
        for (token_uri, self_signed, asks) in [
            ("", true, None),
            ("", false, Some("https://oauth2.other.goog/token")),
            (google, true, None),
            (google, false, Some(google)),
            ("https://accounts.google.com/o/oauth2/token", true, None),
            (private, true, Some(private)),
            (private, false, Some(private)),
        ] {
            let asked = asked(token_uri, self_signed, &other).unwrap();
            let asked = asked.map(|uri| uri.to_string());
            assert_eq!(asked.as_deref(), asks, "{token_uri} {self_signed}");
        }
        assert!(asked("nonsense", true, &other).is_err());
    }
}
