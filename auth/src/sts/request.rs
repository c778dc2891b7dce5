//! The form that asks for an exchange.

use bytes::Bytes;
use form_urlencoded::byte_serialize;
use zeroize::Zeroizing;

use crate::secret::{SubjectToken, zeroed_on_drop};

/// What is asked for: an access token for `audience` that may do `scope`.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) audience: &'a str,
    pub(crate) scope: &'a str,
    pub(crate) subject: &'a SubjectToken,
    pub(crate) subject_type: &'a str,
    /// Further options, in JSON.
    pub(crate) options: Option<&'a str>,
}

/// The type of a token that is a JWT (RFC 8693 section 3).
pub(crate) const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

impl Exchange<'_> {
    /// The body, in memory that is zeroed once it is sent.
    pub(crate) fn body(&self) -> Bytes {
        let fields = [
            (
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ),
            (
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:access_token",
            ),
            ("subject_token_type", self.subject_type),
            ("audience", self.audience),
            ("scope", self.scope),
            ("subject_token", self.subject.expose()),
        ];
        let options = self.options.map(|options| ("options", options));
        let fields: Vec<_> = fields.into_iter().chain(options).collect();
        form(&fields)
    }
}

/// The body of a form with these fields, in memory that is zeroed once it is sent.
pub(crate) fn form(fields: &[(&str, &str)]) -> Bytes {
    // An escaped byte takes three, so nothing grows and no copy of a secret is left behind.
    let room = fields
        .iter()
        .map(|(name, value)| name.len() + 3 * value.len() + 2)
        .sum();
    let mut form = Zeroizing::new(Vec::with_capacity(room));
    for (name, value) in fields {
        if !form.is_empty() {
            form.push(b'&');
        }
        form.extend_from_slice(name.as_bytes());
        form.push(b'=');
        for piece in byte_serialize(value.as_bytes()) {
            form.extend_from_slice(piece.as_bytes());
        }
    }
    zeroed_on_drop(std::mem::take(&mut *form))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_form_has_the_fields_of_rfc_8693() {
        let subject = SubjectToken::new("a.b+c&d.e".to_owned()).unwrap();
        let audience = "identitynamespace:p.svc.id.goog:https://container.googleapis.com/v1/x";
        let body = Exchange {
            audience,
            scope: "https://scope",
            subject: &subject,
            subject_type: JWT,
            options: None,
        }
        .body();
        let fields: HashMap<_, _> = form_urlencoded::parse(&body).into_owned().collect();
        for (name, value) in [
            (
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ),
            (
                "requested_token_type",
                "urn:ietf:params:oauth:token-type:access_token",
            ),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt"),
            ("audience", audience),
            ("scope", "https://scope"),
            ("subject_token", "a.b+c&d.e"),
        ] {
            assert_eq!(fields.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(fields.len(), 6);
    }
}
