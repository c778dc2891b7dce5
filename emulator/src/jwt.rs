//! Signed tokens as a cluster's issuer makes them (RFC 7519, ES256), and their verification.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The claims that STS looks at (RFC 7519 section 4.1). Times are seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Claims {
    pub(crate) iss: String,
    pub(crate) sub: String,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) aud: Vec<String>,
    pub(crate) exp: u64,
    #[serde(default)]
    pub(crate) nbf: u64,
}

/// RFC 7519 section 4.1.3: an audience may be a string or an array of strings.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(deserializer)? {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    })
}

/// Why a token was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JwtError {
    #[error("The subject token is not a JWT.")]
    Malformed,
    #[error("The subject token is signed with an algorithm other than ES256.")]
    Algorithm,
    #[error("The subject token is signed with a key that the issuer does not have.")]
    UnknownKey,
    #[error("The signature of the subject token does not verify.")]
    Signature,
}

/// A key pair that lives as long as the emulator.
pub(crate) struct Signer {
    pair: EcdsaKeyPair,
    rng: SystemRandom,
    key_id: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer")
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    kid: String,
    #[serde(default)]
    typ: Option<String>,
}

impl Signer {
    pub(crate) fn generate() -> Self {
        let rng = SystemRandom::new();
        let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng)
            .ok()
            .and_then(|der| {
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &rng).ok()
            })
            .expect("a fresh P-256 key is well-formed while the system has randomness");
        let key_id = BASE64.encode(digest(&SHA256, pair.public_key().as_ref()));
        Self { pair, rng, key_id }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.key_id, "typ": "JWT"});
        let encode = |part: &Value| BASE64.encode(part.to_string());
        let message = format!("{}.{}", encode(&header), encode(claims));
        let signature = self
            .pair
            .sign(&self.rng, message.as_bytes())
            .expect("signing needs nothing but the system's randomness");
        format!("{message}.{}", BASE64.encode(signature.as_ref()))
    }

    /// The claims of a token that this key signed. Times and audience are the caller's to check.
    pub(crate) fn verify(&self, token: &str) -> Result<Claims, JwtError> {
        let (message, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, claims) = message.split_once('.').ok_or(JwtError::Malformed)?;
        let header: Header = decode(header)?;
        if header.alg != "ES256" {
            return Err(JwtError::Algorithm);
        }
        if header.kid != self.key_id {
            return Err(JwtError::UnknownKey);
        }
        let signature = BASE64.decode(signature).map_err(|_| JwtError::Malformed)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref())
            .verify(message.as_bytes(), &signature)
            .map_err(|_| JwtError::Signature)?;
        decode(claims)
    }

    /// An unguessable identifier in letters and digits that a URL takes.
    pub(crate) fn nonce(&self) -> String {
        let mut bytes = [0; 24];
        self.rng
            .fill(&mut bytes)
            .expect("the system has randomness");
        BASE64.encode(bytes)
    }
}

fn decode<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, JwtError> {
    let bytes = BASE64.decode(part).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| JwtError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Value {
        json!({"iss": "i", "sub": "s", "aud": ["a", "b"], "exp": 9, "nbf": 1})
    }

    #[test]
    fn verifies_what_it_signed() {
        let signer = Signer::generate();
        let read = signer.verify(&signer.sign(&claims())).unwrap();
        assert_eq!(
            (read.iss.as_str(), read.aud.len(), read.exp, read.nbf),
            ("i", 2, 9, 1)
        );
        let single = signer.sign(&json!({"iss": "i", "sub": "s", "aud": "a", "exp": 9}));
        assert_eq!(signer.verify(&single).unwrap().aud, ["a"]);
    }

    #[test]
    fn refuses_what_it_did_not_sign() {
        let signer = Signer::generate();
        let token = signer.sign(&claims());
        let [header, body, signature]: [&str; 3] =
            token.split('.').collect::<Vec<_>>().try_into().unwrap();
        let forged =
            BASE64.encode(json!({"iss": "i", "sub": "root", "aud": "a", "exp": 9}).to_string());
        let none = BASE64.encode(json!({"alg": "none", "kid": signer.key_id}).to_string());
        for (token, why) in [
            (
                format!("{header}.{forged}.{signature}"),
                JwtError::Signature,
            ),
            (format!("{header}.{body}."), JwtError::Signature),
            (format!("{none}.{body}."), JwtError::Algorithm),
            (Signer::generate().sign(&claims()), JwtError::UnknownKey),
            (format!("{header}.{body}"), JwtError::Malformed),
            ("x".to_owned(), JwtError::Malformed),
        ] {
            assert_eq!(signer.verify(&token), Err(why), "{token}");
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let signer = Signer::generate();
        assert!(format!("{signer:?}").starts_with("Signer { key_id:"));
    }
}
