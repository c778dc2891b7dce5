//! How a subject token lies in a text: it is the text, or a field of its JSON. Pure.

use std::collections::HashMap;

use serde_json::Value;

use crate::credential_file::is_credential_file;
use crate::error::{Error, Kind, SourceFault};
use crate::secret::SubjectToken;

/// The format of a subject token's file or answer, as external-account files name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// The whole text, without the white space around it.
    #[default]
    Text,
    /// A field of a JSON object.
    Json {
        /// Its name (`subject_token_field_name`).
        field: String,
    },
}

impl Format {
    /// The token in `text`. `place` begins the sentence about what is wrong.
    pub(crate) fn extract(&self, text: &str, place: &str) -> Result<SubjectToken, Error> {
        let fault =
            |fault, what: String| Error::new(Kind::Source(fault), format!("{place} {what}"));
        let empty = || {
            fault(
                SourceFault::Empty,
                "is empty: is it being written?".to_owned(),
            )
        };
        if text.trim().is_empty() {
            return Err(empty());
        }
        let token = match self {
            Self::Text if is_credential_file(text) => {
                let what = "holds a credential file and no token: name it with --key-file";
                return Err(fault(SourceFault::Malformed, what.to_owned()));
            }
            Self::Text => text.to_owned(),
            Self::Json { field } => {
                let fields: Option<HashMap<String, Value>> = serde_json::from_str(text).ok();
                match fields.and_then(|mut fields| fields.remove(field)) {
                    Some(Value::String(token)) => token,
                    Some(_) | None => {
                        let what = format!(
                            "is not JSON with a text in \"{field}\": check \
                             subject_token_field_name, and what writes it"
                        );
                        return Err(fault(SourceFault::Malformed, what));
                    }
                }
            }
        };
        SubjectToken::new(token).ok_or_else(empty)
    }
}
