//! The headers that say who asks, kept between requests by their entity tag.

use google_cloud_auth::credentials::{CacheableResource, Credentials, EntityTag};
use google_cloud_auth::errors::CredentialsError;
use http::{Extensions, HeaderMap, StatusCode, header};
use parking_lot::Mutex;

/// Who a store is talked to as.
#[derive(Debug)]
pub(super) struct Identity {
    credentials: Option<Credentials>,
    /// The last headers that the provider gave.
    kept: Mutex<Option<Proof>>,
}

/// Headers, and the tag by which the provider knows them.
#[derive(Debug, Clone)]
pub(super) struct Proof {
    tag: EntityTag,
    headers: HeaderMap,
}

impl Proof {
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
        Self {
            credentials,
            kept: Mutex::new(None),
        }
    }

    /// Today's headers; `None` where we are anonymous.
    pub(super) async fn proof(&self) -> Result<Option<Proof>, CredentialsError> {
        let Some(credentials) = &self.credentials else {
            return Ok(None);
        };
        let kept = self.kept.lock().clone();
        let mut extensions = Extensions::new();
        if let Some(kept) = &kept {
            extensions.insert(kept.tag.clone());
        }
        match (credentials.headers(extensions).await?, kept) {
            (CacheableResource::New { entity_tag, data }, _) => {
                Ok(Some(self.keep(entity_tag, data)))
            }
            (CacheableResource::NotModified, Some(kept)) => Ok(Some(kept)),
            (CacheableResource::NotModified, None) => Err(CredentialsError::from_msg(
                false,
                "the credentials provider has not changed what it never gave",
            )),
        }
    }

    /// Tells the provider that the store rejects `proof`; another one, if it has one.
    pub(super) async fn reject(&self, proof: &Proof) -> Result<Option<Proof>, CredentialsError> {
        let Some(credentials) = &self.credentials else {
            return Ok(None);
        };
        let newer = self
            .kept
            .lock()
            .clone()
            .filter(|kept| kept.tag != proof.tag);
        if newer.is_some() {
            return Ok(newer);
        }
        let mut extensions = Extensions::new();
        extensions.insert(proof.tag.clone());
        extensions.insert(StatusCode::UNAUTHORIZED);
        match credentials.headers(extensions).await? {
            CacheableResource::New { entity_tag, data } => Ok(Some(self.keep(entity_tag, data))),
            CacheableResource::NotModified => Ok(None),
        }
    }

    fn keep(&self, tag: EntityTag, mut headers: HeaderMap) -> Proof {
        for (name, value) in &mut headers {
            if name == header::AUTHORIZATION {
                value.set_sensitive(true);
            }
        }
        let proof = Proof { tag, headers };
        *self.kept.lock() = Some(proof.clone());
        proof
    }
}
