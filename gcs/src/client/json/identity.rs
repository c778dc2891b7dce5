//! The headers that say who asks.
//!
//! The credentials are asked for each request, with nothing in the extensions, as Google's own clients do: a provider
//! answers from memory, so a copy here would only be another lock and a token that may already be an old one.

use google_cloud_auth::credentials::{CacheableResource, Credentials, EntityTag};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, StatusCode, header};

/// Who a store is talked to as.
#[derive(Debug)]
pub(super) struct Identity(Option<Credentials>);

/// Headers, and the tag by which the provider knows them.
#[derive(Debug)]
pub(super) struct Proof {
    tag: EntityTag,
    headers: HeaderMap,
}

impl Proof {
    fn new(tag: EntityTag, mut headers: HeaderMap) -> Self {
        if let Some(value) = headers.get_mut(header::AUTHORIZATION) {
            value.set_sensitive(true);
        }
        Self { tag, headers }
    }

    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
    }

    /// What must not appear in an error, should the store or a proxy repeat it.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let authorization = self.headers.get_all(header::AUTHORIZATION);
        authorization
            .into_iter()
            .filter_map(|value| value.to_str().ok()?.split_whitespace().last())
    }
}

impl Identity {
    pub(super) fn new(credentials: Option<Credentials>) -> Self {
        Self(credentials)
    }

    /// Whether we are anonymous.
    pub(super) fn is_nobody(&self) -> bool {
        self.0.is_none()
    }

    /// Today's headers; `None` where we are anonymous.
    pub(super) async fn proof(&self) -> Result<Option<Proof>, CredentialsError> {
        let Some(credentials) = &self.0 else {
            return Ok(None);
        };
        match credentials.headers(Extensions::new()).await? {
            CacheableResource::New { entity_tag, data } => Ok(Some(Proof::new(entity_tag, data))),
            CacheableResource::NotModified => Err(CredentialsError::from_msg(
                false,
                "the credentials provider has not changed what it never gave",
            )),
        }
    }

    /// Tells the provider that the store rejects `proof`; another one, if it has one. How many requests report the same
    /// token is the provider's business.
    pub(super) async fn reject(&self, proof: &Proof) -> Result<Option<Proof>, CredentialsError> {
        let Some(credentials) = &self.0 else {
            return Ok(None);
        };
        let mut extensions = Extensions::new();
        extensions.insert(proof.tag.clone());
        extensions.insert(StatusCode::UNAUTHORIZED);
        match credentials.headers(extensions).await? {
            CacheableResource::New { entity_tag, data } => {
                Ok(Some(Proof::new(entity_tag, data)).filter(|newer| newer.tag != proof.tag))
            }
            CacheableResource::NotModified => Ok(None),
        }
    }
}
