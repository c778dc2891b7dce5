//! Credentials that Google's own library knows how to use, for the kinds that this crate leaves to
//! it. The library's refresh ends for good after one error that it takes for permanent; here such
//! credentials are thrown away and made anew at the next attempt.

use std::error::Error as _;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use google_cloud_auth::build_errors::Error as BuildError;
use google_cloud_auth::credentials::{
    AccessTokenCredentials, external_account, external_account_authorized_user, impersonated,
};
use google_cloud_auth::errors::CredentialsError;
use serde_json::Value;

use super::{Exchange, Grant, Identity};
use crate::error::{Error, Kind, Refusal};
use crate::secret::{AccessSecret, quotable};
use crate::universe::Universe;

/// The library does not tell how long its token lives. It replaces one four minutes before the end,
/// and asking it costs nothing while it has one, so a minute is safe and often enough.
const LIFETIME: Duration = Duration::from_secs(60);

/// Gets access tokens from Google's library.
pub struct Shipped {
    source: String,
    kind: String,
    file: Value,
    scope: String,
    universe: Universe,
    /// Held to take and to put, never across I/O. `None` before the first use and after an error.
    current: Mutex<Option<AccessTokenCredentials>>,
}

impl Shipped {
    /// Credentials from the JSON of a credential file of one of the kinds that are left to the
    /// library. `source` names it in messages.
    ///
    /// # Errors
    /// [`Kind::Config`] for another kind.
    pub fn new(
        source: String,
        kind: String,
        file: Value,
        scope: &str,
        universe: Universe,
    ) -> Result<Self, Error> {
        match &*kind {
            "external_account"
            | "external_account_authorized_user"
            | "impersonated_service_account" => Ok(Self {
                source,
                kind,
                file,
                scope: scope.to_owned(),
                universe,
                current: Mutex::default(),
            }),
            _ => Err(Error::new(
                Kind::Config,
                format!("{source} is of a kind that is not left to Google's library"),
            )),
        }
    }

    fn build(&self) -> Result<AccessTokenCredentials, BuildError> {
        let (file, scopes) = (self.file.clone(), self.scope.split_whitespace());
        match &*self.kind {
            "external_account" => external_account::Builder::new(file)
                .with_scopes(scopes)
                .build_access_token_credentials(),
            "external_account_authorized_user" => {
                // Its scopes were chosen at the login.
                external_account_authorized_user::Builder::new(file)
                    .build_access_token_credentials()
            }
            _ => impersonated::Builder::new(file)
                .with_scopes(scopes)
                .build_access_token_credentials(),
        }
    }

    fn credentials(&self) -> Result<AccessTokenCredentials, Error> {
        let held = self.lock().take();
        match held {
            Some(credentials) => Ok(credentials),
            None => self.build().map_err(|error| {
                // Its words may repeat the file.
                let why = match (error.is_parsing(), error.is_missing_field()) {
                    (true, _) => "not in its format",
                    (_, true) => "without a field that it needs",
                    _ => "of no use",
                };
                let message = format!("{} is {why} to Google's library", self.source);
                Error::new(Kind::Config, message)
            }),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<AccessTokenCredentials>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Exchange for Shipped {
    async fn exchange(&self) -> Result<Grant, Error> {
        let credentials = self.credentials()?;
        match credentials.access_token().await {
            Ok(token) => {
                *self.lock() = Some(credentials);
                Ok(Grant {
                    token: AccessSecret::new(token.token),
                    lifetime: LIFETIME,
                })
            }
            // The credentials are dropped: dead or not, the next attempt begins anew.
            Err(error) => {
                let kind = match error.is_transient() {
                    true => Kind::Unavailable,
                    false => Kind::Refused(Refusal::Request),
                };
                let why = quotable(&cause(&error), "");
                let message = format!("Google's library has no token for {}: {why}", self.source);
                Err(Error::new(kind, message))
            }
        }
    }

    fn identity(&self) -> Identity {
        Identity {
            source: self.source.clone(),
            ..Identity::default()
        }
    }

    fn universe_domain(&self) -> Option<String> {
        self.universe.unusual()
    }
}

/// The innermost cause, which is what happened. The library's own sentence says how often it would
/// try again, which is not what becomes of it here.
fn cause(error: &CredentialsError) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes
        .last()
        .map_or_else(|| own_words(&error.to_string()), ToString::to_string)
}

/// The library's sentence without what it adds to each.
fn own_words(sentence: &str) -> String {
    const ADDED: [&str; 2] = [
        " but future attempts may succeed",
        " and future attempts will not succeed",
    ];
    let bare = ADDED.iter().find_map(|added| sentence.strip_suffix(added));
    bare.unwrap_or(sentence).to_owned()
}

impl fmt::Debug for Shipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shipped")
            .field("source", &self.source)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_told_and_not_what_the_library_would_do() {
        let refused = std::io::Error::other("connection refused");
        for (error, told) in [
            (
                CredentialsError::new(true, "in vain.", refused),
                "connection refused",
            ),
            (CredentialsError::from_msg(true, "no role"), "no role"),
            (CredentialsError::from_msg(false, "no role"), "no role"),
        ] {
            assert_eq!(cause(&error), told);
        }
    }
}
