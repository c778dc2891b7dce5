//! What a credential file says. The kinds of file are told apart by `type`; no message repeats a
//! part of one.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::external::ExternalAccount;
use super::hosts::Hosts;
use super::key::ServiceAccount;
use super::login::AuthorizedUser;
use super::{ALLOW_EXECUTABLES, CredentialFileConfig};
use crate::claims::Claims;
use crate::error::{Error, Kind, SourceFault};
use crate::exchange::{Exchange, Shipped};
use crate::secret::{SubjectToken, quotable};
use crate::universe::Universe;

/// What `type` may be.
const TYPES: [&str; 5] = [
    "service_account",
    "authorized_user",
    "external_account",
    "external_account_authorized_user",
    "impersonated_service_account",
];

/// The kinds of credential file.
pub(super) enum Contents {
    ServiceAccount(Box<ServiceAccount>, Universe),
    AuthorizedUser(AuthorizedUser),
    ExternalAccount(Box<ExternalAccount>, Universe),
    /// One that Google's own library reads.
    Shipped(Shipped),
}

#[derive(Deserialize)]
struct Head {
    r#type: String,
    #[serde(default)]
    universe_domain: String,
}

impl Contents {
    pub(super) fn parse(text: &str, config: &CredentialFileConfig) -> Result<Self, Error> {
        let head: Head = fields(text, config, "a credential")?;
        let universe = match Universe::parse(&head.universe_domain)? {
            // A file that says nothing is of the operator's universe.
            _ if head.universe_domain.is_empty() => config.universe.clone(),
            named => named,
        };
        match &*head.r#type {
            "service_account" => {
                let account = fields(text, config, "a service account's key")?;
                Ok(Self::ServiceAccount(Box::new(account), universe))
            }
            "authorized_user" => Ok(Self::AuthorizedUser(fields(text, config, "a login")?)),
            "external_account" if !external_is_for_the_library(text) => {
                let account = fields(text, config, "an external account")?;
                Ok(Self::ExternalAccount(Box::new(account), universe))
            }
            "external_account"
            | "external_account_authorized_user"
            | "impersonated_service_account" => {
                let value: Value = fields(text, config, "a credential")?;
                check_all(&value, config)?;
                let path = config.path.display().to_string();
                Shipped::new(path, head.r#type, value, &config.scope, universe).map(Self::Shipped)
            }
            other => Err(Error::new(
                Kind::Config,
                format!(
                    "the credential file {} is of the unknown type \"{}\": it may be of {}",
                    config.path.display(),
                    quotable(other, ""),
                    TYPES.join(", ")
                ),
            )),
        }
    }

    /// The way from these contents to a token.
    pub(super) fn exchange(
        self,
        config: &CredentialFileConfig,
    ) -> Result<Arc<dyn Exchange>, Error> {
        match self {
            Self::ServiceAccount(account, universe) => account.exchange(config, universe),
            Self::AuthorizedUser(user) => user.exchange(config),
            Self::ExternalAccount(account, universe) => account.exchange(config, universe),
            Self::Shipped(shipped) => Ok(Arc::new(shipped)),
        }
    }
}

/// Whether an external account takes its token from a cloud whose ways are the library's to know.
fn external_is_for_the_library(text: &str) -> bool {
    #[derive(Deserialize)]
    struct External {
        credential_source: Value,
    }
    serde_json::from_str::<External>(text)
        .is_ok_and(|external| external.credential_source.get("environment_id").is_some())
}

/// Checks, wherever they stand, the servers that the library would send tokens to, and that it
/// would run no program.
fn check_all(value: &Value, config: &CredentialFileConfig) -> Result<(), Error> {
    let hosts: Hosts<'_> = config.hosts();
    match value {
        Value::Object(fields) => {
            fields
                .iter()
                .try_for_each(|(name, value)| match (&**name, value) {
                    (
                        "token_url" | "token_uri" | "service_account_impersonation_url",
                        Value::String(url),
                    ) => hosts.check(url, name).map(drop),
                    ("executable", _) if !config.executables => Err(no_executables()),
                    _ => check_all(value, config),
                })
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_all(value, config)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
    }
}

pub(super) fn no_executables() -> Error {
    let message = format!(
        "the credential file names a program to run, which is not allowed unless \
         {ALLOW_EXECUTABLES}=1 is set"
    );
    Error::new(Kind::Config, message)
}

/// Reads fields. serde's own words repeat values, so of its error only the place is told.
fn fields<T: DeserializeOwned>(
    text: &str,
    config: &CredentialFileConfig,
    what: &str,
) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        let path = config.path.display();
        let message = match is_token(text) {
            true => {
                format!("the credential file {path} holds a token: name it with --token-file")
            }
            false => format!(
                "the credential file {path} is not the JSON of {what} (line {}, column {}): is it \
                 cut short, or another file? get it anew, or name the right one with --key-file",
                error.line(),
                error.column()
            ),
        };
        Error::new(Kind::Source(SourceFault::Malformed), message)
    })
}

/// Whether the text is what a file with a subject token holds.
fn is_token(text: &str) -> bool {
    SubjectToken::new(text.to_owned()).is_some_and(|token| Claims::of(&token).is_ok())
}

/// Whether the text is JSON with one of the types that credential files have.
pub(crate) fn is_credential_file(text: &str) -> bool {
    // Told by its first byte, so that tokens are not parsed in vain.
    text.trim_start().starts_with('{')
        && serde_json::from_str(text).is_ok_and(|head: Head| TYPES.contains(&&*head.r#type))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn config() -> CredentialFileConfig {
        CredentialFileConfig {
            executables: false,
            ..CredentialFileConfig::new("/the/file")
        }
    }

    fn refused(value: &Value) -> Error {
        let config = config();
        match Contents::parse(&value.to_string(), &config)
            .and_then(|contents| contents.exchange(&config))
        {
            Ok(exchange) => panic!("{value} became {exchange:?}"),
            Err(error) => error,
        }
    }

    #[test]
    fn a_token_and_a_credential_file_are_told_apart() {
        let token = format!("{}.{}.c2ln\n", "eyJhbGciOiJSUzI1NiJ9", "eyJhdWQiOiJhIn0");
        let refused = Contents::parse(&token, &config()).err().unwrap();
        assert_eq!(refused.kind(), Kind::Source(SourceFault::Malformed));
        assert!(refused.message().ends_with("--token-file"), "{refused}");
        for (text, is_one) in [
            (r#" {"type":"service_account","private_key":"-"}"#, true),
            (r#"{"type":"external_account"}"#, true),
            (r#"{"type":"service_account""#, false),
            (r#"{"type":"or"}"#, false),
            (r#"{"id_token":"a.b.c"}"#, false),
            (&token, false),
        ] {
            assert_eq!(is_credential_file(text), is_one, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_told_without_its_contents() {
        let malformed = Kind::Source(SourceFault::Malformed);
        let external = |source: Value, token_url: &str| {
            json!({"type": "external_account", "audience": "a", "token_url": token_url,
                   "subject_token_type": "t", "credential_source": source})
        };
        let sts = "https://sts.googleapis.com/v1/token";
        for (value, kind) in [
            (json!("hidden-in-file"), malformed),
            (json!({"type": 7}), malformed),
            (json!({"type": "hidden-type"}), Kind::Config),
            (
                json!({"type": "service_account", "private_key": "hidden-in-file"}),
                malformed,
            ),
            (
                json!({"type": "service_account", "client_email": "e", "private_key": "hidden-in-file"}),
                malformed,
            ),
            (
                json!({"type": "authorized_user", "client_secret": "hidden-in-file"}),
                malformed,
            ),
            (
                json!({"type": "authorized_user", "universe_domain": "hidden-in-file/"}),
                Kind::Config,
            ),
            (external(json!({}), sts), Kind::Config),
            (
                external(json!({"executable": {"command": "x"}}), sts),
                Kind::Config,
            ),
            (
                external(json!({"file": "/f"}), "https://evil.example/"),
                Kind::Config,
            ),
            (
                external(json!({"environment_id": "aws1"}), "https://evil.example/"),
                Kind::Config,
            ),
            (
                json!({"type": "impersonated_service_account",
                       "source_credentials": external(json!({"executable": {}}), sts)}),
                Kind::Config,
            ),
            (
                json!({"type": "external_account", "audience": "a", "token_url": sts,
                       "service_account_impersonation_url": "https://evil.example/x",
                       "subject_token_type": "t", "credential_source": {"file": "/f"}}),
                Kind::Config,
            ),
        ] {
            let error = refused(&value);
            assert_eq!(error.kind(), kind, "{value}: {error}");
            assert!(!error.message().contains("hidden-in-file"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}", field in ".{0,30}") {
            let _ = Contents::parse(&text, &config());
            for kind in ["service_account", "authorized_user", "external_account"] {
                let value = json!({"type": kind, "audience": field, "token_url": field,
                    "client_email": field, "private_key": field, "client_id": field,
                    "client_secret": field, "refresh_token": field, "universe_domain": "",
                    "subject_token_type": field, "credential_source": {"url": field}});
                let config = config();
                let _ = Contents::parse(&value.to_string(), &config)
                    .and_then(|contents| contents.exchange(&config));
            }
        }
    }
}
