//! What a service account states about itself with its own key: the assertion that `/token` takes for an access
//! token (RFC 7523), and the self-signed token that the storage API takes as it is (AIP-4111).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::Deserialize;

use crate::accounts::Accounts;
use crate::clock::Timestamp;
use crate::object::rfc3339_seconds;
use crate::scope::Scopes;

/// The longest life of a statement.
const LONGEST: u64 = 3600;

/// How far ahead the clock of the account may be.
const SKEW: u64 = 300;

/// The longest statement that is looked at, in bytes. Google's own limit is the one of a header.
const MAX_LENGTH: usize = 16 << 10;

/// Audiences that mean the storage API.
const STORAGE: [&str; 2] = [
    "https://storage.googleapis.com/",
    "https://storage.googleapis.com",
];

/// Why a statement was not believed, as Google's token endpoint puts it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AssertionError {
    #[error("Invalid JWT: it must have a header, claims and a signature in base64url.")]
    Malformed,
    #[error("Invalid JWT: it must be signed with RS256.")]
    Algorithm,
    #[error("Invalid grant: account not found")]
    UnknownAccount,
    #[error("Invalid JWT Signature.")]
    Signature,
    #[error(
        "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. \
         Check your iat and exp values in the JWT claim."
    )]
    Timeframe,
    #[error("Invalid JWT: it expired at {0}.")]
    Expired(String),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
}

/// The claims of a statement that was believed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Statement {
    pub(crate) iss: String,
    #[serde(default)]
    pub(crate) sub: Option<String>,
    #[serde(default)]
    pub(crate) aud: Option<String>,
    #[serde(default)]
    pub(crate) scope: Option<String>,
    iat: u64,
    exp: u64,
}

impl Statement {
    /// Checks the signature against the keys of the account that it names, and the times.
    pub(crate) fn verify(
        token: &str,
        accounts: &Accounts,
        now: Timestamp,
    ) -> Result<Self, AssertionError> {
        if token.len() > MAX_LENGTH {
            return Err(AssertionError::Malformed);
        }
        let (message, signature) = token.rsplit_once('.').ok_or(AssertionError::Malformed)?;
        let (header, claims) = message.split_once('.').ok_or(AssertionError::Malformed)?;
        let header: Header = decode(header)?;
        if header.alg != "RS256" {
            return Err(AssertionError::Algorithm);
        }
        let statement: Self = decode(claims)?;
        let signature = bytes(signature)?;
        if !accounts.knows(&statement.iss) {
            return Err(AssertionError::UnknownAccount);
        }
        let id = header.kid.as_deref().filter(|id| !id.is_empty());
        let keys = accounts.keys(&statement.iss, id);
        if !keys
            .iter()
            .any(|key| key.verifies(message.as_bytes(), &signature))
        {
            return Err(AssertionError::Signature);
        }
        statement.check_times(now.as_secs())?;
        Ok(statement)
    }

    fn check_times(&self, now: u64) -> Result<(), AssertionError> {
        let life = self.exp.checked_sub(self.iat);
        if life.is_none_or(|life| life == 0 || life > LONGEST) || self.iat > now + SKEW {
            return Err(AssertionError::Timeframe);
        }
        if self.exp <= now {
            let exp = rfc3339_seconds(Duration::from_secs(self.exp));
            return Err(AssertionError::Expired(exp));
        }
        Ok(())
    }

    /// The scopes of the token that it is to the storage API, which a caller reaches as `host`. It is one if it is about
    /// the account itself, and has the API as its audience or a scope of it.
    pub(crate) fn storage_scopes(&self, host: &str) -> Option<Scopes> {
        let is_audience = |aud: &str| {
            let own = aud.trim_end_matches('/').split_once("://");
            STORAGE.contains(&aud) || own.is_some_and(|(_, named)| named == host)
        };
        let is_own = self.sub.as_deref() == Some(&*self.iss);
        let scopes = match &self.aud {
            Some(aud) => is_audience(aud).then_some(Scopes::ALL)?,
            None => Scopes::of(self.scope.as_deref()),
        };
        (is_own && scopes.open_storage()).then_some(scopes)
    }
}

fn bytes(part: &str) -> Result<Vec<u8>, AssertionError> {
    BASE64.decode(part).map_err(|_| AssertionError::Malformed)
}

fn decode<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, AssertionError> {
    serde_json::from_slice(&bytes(part)?).map_err(|_| AssertionError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const EMAIL: &str = "robot@demo.iam.gserviceaccount.com";

    fn encode(value: &Value) -> String {
        BASE64.encode(value.to_string())
    }

    #[test]
    fn times_are_those_of_a_short_life_now() {
        const NOW: u64 = 1_000_000;
        let check = |iat, exp| {
            let statement = Statement {
                iat,
                exp,
                ..Statement::default()
            };
            statement.check_times(NOW)
        };
        for (iat, exp) in [
            (NOW, NOW + 3600),
            (NOW - 3599, NOW + 1),
            (NOW + 300, NOW + 3600),
        ] {
            assert_eq!(check(iat, exp), Ok(()), "{iat} {exp}");
        }
        for (iat, exp) in [
            (NOW, NOW + 3601),
            (NOW, NOW),
            (NOW + 301, NOW + 302),
            (NOW, NOW - 1),
            (0, u64::MAX),
        ] {
            assert_eq!(check(iat, exp), Err(AssertionError::Timeframe));
        }
        assert_eq!(
            check(NOW - 60, NOW),
            Err(AssertionError::Expired("1970-01-12T13:46:40Z".into()))
        );
    }

    #[test]
    fn what_opens_the_storage_api() {
        let scope = "openid https://www.googleapis.com/auth/devstorage.read_write";
        for (sub, aud, scope, opens) in [
            (Some("a"), None, Some(scope), true),
            (Some("a"), None, Some("openid"), false),
            (Some("a"), None, None, false),
            (None, None, Some(scope), false),
            (Some("b"), None, Some(scope), false),
            (
                Some("a"),
                Some("https://storage.googleapis.com/"),
                None,
                true,
            ),
            (Some("a"), Some("http://h:1/"), None, true),
            (Some("a"), Some("http://h:2/"), None, false),
            (
                Some("a"),
                Some("https://pubsub.googleapis.com/"),
                Some(scope),
                false,
            ),
        ] {
            let statement = Statement {
                iss: "a".into(),
                sub: sub.map(str::to_owned),
                aud: aud.map(str::to_owned),
                scope: scope.map(str::to_owned),
                ..Statement::default()
            };
            let scopes = statement.storage_scopes("h:1");
            assert_eq!(scopes.is_some(), opens, "{statement:?}");
        }
    }

    #[test]
    fn what_nobody_signed_is_refused() {
        let accounts = Accounts::default();
        let claims = json!({"iss": EMAIL, "sub": EMAIL, "iat": 1, "exp": 3});
        let signed = |alg: &str, claims: &Value| {
            format!("{}.{}.AAAA", encode(&json!({"alg": alg})), encode(claims))
        };
        let verify =
            |token: &str| Statement::verify(token, &accounts, Duration::from_secs(2)).unwrap_err();
        let good = signed("RS256", &claims);
        assert_eq!(verify(&good), AssertionError::UnknownAccount);
        accounts.create(EMAIL).unwrap();
        assert_eq!(verify(&good), AssertionError::Signature);
        accounts
            .add_key(EMAIL, "id", crate::rsa::PublicKey::of_emulator())
            .unwrap();
        assert_eq!(verify(&good), AssertionError::Signature);
        assert_eq!(verify(&signed("none", &claims)), AssertionError::Algorithm);
        assert_eq!(verify(&signed("HS256", &claims)), AssertionError::Algorithm);
        for token in [
            "",
            "a",
            "a.b",
            "a.b.c",
            &signed("RS256", &json!({"iss": 1})),
            &"x".repeat(MAX_LENGTH + 1),
        ] {
            assert_eq!(verify(token), AssertionError::Malformed, "{token}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(token in "\\PC{0,100}", parts in "[a-zA-Z0-9_-]{0,30}(\\.[a-zA-Z0-9_=-]{0,30}){0,3}") {
            let accounts = Accounts::default();
            for token in [&token, &parts] {
                prop_assert!(Statement::verify(token, &accounts, Duration::ZERO).is_err());
            }
        }
    }
}
