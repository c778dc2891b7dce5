//! What a JWT says about itself: issuer, audiences, subject, expiry. Read to find the way to the
//! token service and to explain its answers, never to authorise anything: no signature is checked
//! here, and none needs to be, since the token service checks it. Every claim is optional; a claim
//! of an unexpected type counts as absent.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::secret::SubjectToken;

/// The claims that the broker looks at (RFC 7519 section 4.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// `iss`: who made the token; on GKE the URL of the cluster.
    pub issuer: Option<String>,
    /// `aud`: for whom it was made; a single audience or several.
    pub audiences: Vec<String>,
    /// `sub`: whom it is about, on Kubernetes `system:serviceaccount:NAMESPACE:NAME`.
    pub subject: Option<String>,
    /// `exp`: when it ends, in wall-clock time.
    pub expires_at: Option<SystemTime>,
}

/// A Kubernetes service account, as a subject names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceAccount<'a> {
    /// The namespace.
    pub namespace: &'a str,
    /// The name in it.
    pub name: &'a str,
}

/// The token is not a JWT: which rule it breaks, without any part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not three parts with dots between.
    Parts,
    /// The middle part is not base64url.
    Encoding,
    /// The middle part is not a JSON object.
    Json,
    /// Another part holds characters that base64url does not have, such as a line break.
    Characters,
}

impl Malformed {
    /// The rule in words, to follow "the token ".
    #[must_use]
    pub fn explain(self) -> &'static str {
        match self {
            Self::Parts => "is not three parts with dots between",
            Self::Encoding => "has a payload that is not base64url",
            Self::Json => "has a payload that is not a JSON object",
            Self::Characters => "holds characters that no JWT has",
        }
    }
}

impl Claims {
    /// Reads the payload of a JWT.
    ///
    /// # Errors
    /// [`Malformed`] says which rule of RFC 7519 the text breaks.
    pub fn of(token: &SubjectToken) -> Result<Self, Malformed> {
        let mut parts = token.expose().split('.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Malformed::Parts);
        };
        let payload = Zeroizing::new(
            URL_SAFE_NO_PAD
                .decode(payload.trim_end_matches('='))
                .map_err(|_| Malformed::Encoding)?,
        );
        match serde_json::from_slice(&payload) {
            Ok(Value::Object(_)) if !is_base64url(header) || !is_base64url(signature) => {
                Err(Malformed::Characters)
            }
            Ok(Value::Object(claims)) => Ok(Self {
                issuer: text(claims.get("iss")),
                audiences: audiences(claims.get("aud")),
                subject: text(claims.get("sub")),
                expires_at: claims.get("exp").and_then(numeric_date),
            }),
            Ok(_) | Err(_) => Err(Malformed::Json),
        }
    }

    /// The Kubernetes service account that the subject names, if it names one.
    #[must_use]
    pub fn service_account(&self) -> Option<ServiceAccount<'_>> {
        let (namespace, name) = self
            .subject
            .as_deref()?
            .strip_prefix("system:serviceaccount:")?
            .split_once(':')?;
        Some(ServiceAccount { namespace, name })
    }
}

fn is_base64url(part: &str) -> bool {
    part.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'='))
}

/// A text that can be shown: no identity has control characters in it, and a terminal or a log
/// would obey them.
fn text(claim: Option<&Value>) -> Option<String> {
    claim?
        .as_str()
        .filter(|text| !text.contains(char::is_control))
        .map(str::to_owned)
}

fn audiences(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        _ => Vec::new(),
    }
}

/// Seconds since 1970, possibly with a fraction (RFC 7519 section 2, NumericDate).
fn numeric_date(claim: &Value) -> Option<SystemTime> {
    let since_epoch = match claim.as_u64() {
        Some(seconds) => Duration::from_secs(seconds),
        None => Duration::try_from_secs_f64(claim.as_f64()?).ok()?,
    };
    SystemTime::UNIX_EPOCH.checked_add(since_epoch)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn jwt(payload: &str) -> SubjectToken {
        let payload = URL_SAFE_NO_PAD.encode(payload);
        SubjectToken::new(format!("eyJhbGciOiJSUzI1NiJ9.{payload}.c2ln")).unwrap()
    }

    fn claims(payload: &Value) -> Claims {
        Claims::of(&jwt(&payload.to_string())).unwrap()
    }

    #[test]
    fn a_projected_token_is_read() {
        let claims = claims(&json!({
            "aud": ["my-project.svc.id.goog"],
            "exp": 1_900_000_000,
            "iss": "https://container.googleapis.com/v1/projects/p/locations/l/clusters/c",
            "kubernetes.io": {"namespace": "ns", "serviceaccount": {"name": "ksa", "uid": "u"}},
            "sub": "system:serviceaccount:ns:ksa",
        }));
        assert_eq!(claims.audiences, ["my-project.svc.id.goog"]);
        assert_eq!(
            claims.service_account(),
            Some(ServiceAccount {
                namespace: "ns",
                name: "ksa"
            })
        );
        assert_eq!(
            claims.expires_at,
            Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_900_000_000))
        );
    }

    #[test]
    fn claims_of_another_type_count_as_absent() {
        let none = Claims::default();
        for payload in [
            json!({}),
            json!({"aud": 7, "iss": [], "sub": {}, "exp": "soon"}),
            json!({"aud": null, "exp": -1}),
            json!({"iss": "a\nb", "sub": "\u{1b}[31m"}),
            json!({"exp": 1e300}),
            json!({"exp": u64::MAX}),
        ] {
            assert_eq!(claims(&payload), none, "{payload}");
        }
    }

    #[test]
    fn one_audience_and_several_are_both_lists() {
        assert_eq!(claims(&json!({"aud": "a"})).audiences, ["a"]);
        assert_eq!(claims(&json!({"aud": ["a", 3, "b"]})).audiences, ["a", "b"]);
    }

    #[test]
    fn a_fractional_expiry_is_an_expiry() {
        let half = SystemTime::UNIX_EPOCH + Duration::from_millis(1500);
        assert_eq!(claims(&json!({"exp": 1.5})).expires_at, Some(half));
    }

    #[test]
    fn a_subject_that_is_no_service_account_has_none() {
        for subject in [
            "",
            "user",
            "system:serviceaccount:",
            "system:serviceaccount:only-namespace",
        ] {
            assert_eq!(
                claims(&json!({"sub": subject})).service_account(),
                None,
                "{subject}"
            );
        }
    }

    #[test]
    fn what_is_no_jwt_is_refused_by_the_rule_it_breaks() {
        for (text, rule) in [
            ("opaque", Malformed::Parts),
            ("a.b", Malformed::Parts),
            ("a.b.c.d", Malformed::Parts),
            ("a.!.c", Malformed::Encoding),
            ("a.W10.c", Malformed::Json),  // []
            ("a.eyJh.c", Malformed::Json), // {"a, cut short
            ("..", Malformed::Json),
            ("a\n.e30.c", Malformed::Characters),
            ("a.e30.b\nc", Malformed::Characters),
            ("\u{feff}a.e30.c", Malformed::Characters),
        ] {
            let token = SubjectToken::new(text.to_owned()).unwrap();
            assert_eq!(Claims::of(&token), Err(rule), "{text}");
        }
    }

    #[test]
    fn padding_is_tolerated() {
        let token = SubjectToken::new("a.eyJpc3MiOiJpIn0=.c".to_owned()).unwrap();
        assert_eq!(Claims::of(&token).unwrap().issuer.as_deref(), Some("i"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,300}", payload in "\\PC{0,200}") {
            if let Some(token) = SubjectToken::new(text) {
                let _ = Claims::of(&token);
            }
            let _ = Claims::of(&jwt(&payload));
        }
    }
}
