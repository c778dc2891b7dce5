//! The parameters of a token request: the form of the RFCs, or Google's JSON in camel case.

use http::{HeaderMap, header};
use serde_json::Value;

use super::Refusal;

/// Parameters under their RFC names. The first of a name counts.
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn parse(headers: &HeaderMap, body: &[u8]) -> Result<Self, Refusal> {
        let content_type = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match essence {
            "application/x-www-form-urlencoded" => {
                Ok(Self(form_urlencoded::parse(body).into_owned().collect()))
            }
            "application/json" => Self::parse_json(body),
            _ => Err(Refusal::request("The content type must be a form or JSON.")),
        }
    }

    /// Google's discovery client sends `grantType` for `grant_type`.
    fn parse_json(body: &[u8]) -> Result<Self, Refusal> {
        let Ok(Value::Object(entries)) = serde_json::from_slice(body) else {
            return Err(Refusal::request("The body is not a JSON object."));
        };
        let pairs = entries.into_iter().filter_map(|(key, value)| match value {
            Value::String(text) => Some((snake_case(&key), text)),
            _ => None,
        });
        Ok(Self(pairs.collect()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str, Refusal> {
        self.get(name)
            .ok_or_else(|| Refusal::request(format!("Missing required parameter: {name}")))
    }
}

fn snake_case(camel: &str) -> String {
    let mut snake = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn camel_case_names_are_the_rfcs() {
        for (camel, snake) in [
            ("grantType", "grant_type"),
            ("subjectTokenType", "subject_token_type"),
            ("scope", "scope"),
        ] {
            assert_eq!(snake_case(camel), snake);
        }
    }
}
