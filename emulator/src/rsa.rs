//! RSA signatures as service accounts make them (RS256, RFC 7518 section 3.3): public keys, and the one private key
//! that the emulator hands out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};

/// A key that everybody knows and that opens nothing but emulators: `ring` verifies with RSA and does not make keys.
/// Each key file that the emulator mints holds it, under an id of its own.
pub(crate) const EMULATOR_KEY: &str = include_str!("emulator-key.pem");

/// The start of a `SubjectPublicKeyInfo`'s algorithm where that is RSA (RFC 3279 section 2.3.1).
const RSA_ALGORITHM: [u8; 15] = [
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];

/// An `RSAPublicKey` in DER (RFC 8017 appendix A.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicKey(Vec<u8>);

impl PublicKey {
    /// That of [`EMULATOR_KEY`].
    pub(crate) fn of_emulator() -> Self {
        let pair = pem("PRIVATE KEY", EMULATOR_KEY)
            .and_then(|der| RsaKeyPair::from_pkcs8(&der).ok())
            .expect("the key in the source is an RSA key in PKCS#8");
        Self(pair.public_key().as_ref().to_vec())
    }

    /// Reads `-----BEGIN PUBLIC KEY-----`, as `openssl pkey -pubout` prints it, of an RSA key.
    pub(crate) fn from_pem(text: &str) -> Option<Self> {
        let der = pem("PUBLIC KEY", text)?;
        let (info, _) = element(&der, 0x30)?;
        let bits = info.strip_prefix(&RSA_ALGORITHM)?;
        let (bits, _) = element(bits, 0x03)?;
        // A string of whole bytes has no unused bits.
        let key = bits.strip_prefix(&[0])?;
        element(key, 0x30)?;
        Some(Self(key.to_vec()))
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.0)
            .verify(message, signature)
            .is_ok()
    }
}

/// The bytes of a PEM text with one object of this label (RFC 7468).
fn pem(label: &str, text: &str) -> Option<Vec<u8>> {
    let body = text
        .trim()
        .strip_prefix(&format!("-----BEGIN {label}-----"))?
        .strip_suffix(&format!("-----END {label}-----"))?;
    let body: String = body.split_ascii_whitespace().collect();
    BASE64.decode(body).ok()
}

/// The content of a DER element with this tag, and what comes after it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = der.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81 | 0x82 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(short - 0x80))?;
            let length = bytes
                .iter()
                .fold(0, |sum, &byte| sum << 8 | usize::from(byte));
            (length, rest)
        }
        _ => return None,
    };
    (found == tag).then(|| rest.split_at_checked(length))?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::rand::SystemRandom;
    use ring::signature::RSA_PKCS1_SHA256;

    use super::*;

    fn pair() -> RsaKeyPair {
        RsaKeyPair::from_pkcs8(&pem("PRIVATE KEY", EMULATOR_KEY).unwrap()).unwrap()
    }

    /// What `openssl pkey -pubout` makes of a public key.
    fn printed(key: &PublicKey) -> String {
        let length = |content: &[u8]| {
            let length = u16::try_from(content.len()).unwrap().to_be_bytes();
            [&[0x82][..], &length, content].concat()
        };
        let bits = [&[0x03][..], &length(&[&[0][..], &key.0].concat())].concat();
        let der = [&[0x30][..], &length(&[&RSA_ALGORITHM[..], &bits].concat())].concat();
        format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            BASE64.encode(der)
        )
    }

    #[test]
    fn a_signature_is_the_keys_and_the_messages() {
        let mut signature = vec![0; pair().public().modulus_len()];
        let rng = SystemRandom::new();
        pair()
            .sign(&RSA_PKCS1_SHA256, &rng, b"message", &mut signature)
            .unwrap();
        let key = PublicKey::of_emulator();
        assert!(key.verifies(b"message", &signature));
        assert!(!key.verifies(b"another", &signature) && !key.verifies(b"message", b""));
    }

    #[test]
    fn public_keys_are_read_from_pem() {
        let key = PublicKey::of_emulator();
        assert_eq!(PublicKey::from_pem(&printed(&key)), Some(key));
        for text in [
            "",
            EMULATOR_KEY,
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        ] {
            assert_eq!(PublicKey::from_pem(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_key_is_no_panic(at in 0usize..294, byte in any::<u8>(), cut in 0usize..294) {
            let text = printed(&PublicKey::of_emulator());
            let mut der = pem("PUBLIC KEY", &text).unwrap();
            der[at] = byte;
            der.truncate(cut);
            let text = format!(
                "-----BEGIN PUBLIC KEY-----{}-----END PUBLIC KEY-----",
                BASE64.encode(der)
            );
            if let Some(key) = PublicKey::from_pem(&text) {
                prop_assert!(!key.verifies(b"message", &[1; 256]));
            }
        }
    }
}
