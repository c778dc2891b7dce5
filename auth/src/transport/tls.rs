//! TLS with the certificates that the system trusts (`SSL_CERT_FILE` and `SSL_CERT_DIR` are obeyed).
//! A configuration is made once in a process; a thousand identities share it, and the sessions that
//! were begun with it, which spare most of a handshake.

use std::sync::{Arc, OnceLock};

use hyper_rustls::ConfigBuilderExt;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Kind};

/// The configuration for a way with TLS on it, or for one without: that needs no certificates, so
/// that an image that has none can go it.
pub(super) fn config(needed: bool) -> Result<Arc<ClientConfig>, Error> {
    static TRUSTING: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    static UNUSED: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    match needed {
        true => shared(&TRUSTING, trusting),
        false => shared(&UNUSED, unused),
    }
}

fn shared(
    place: &OnceLock<Arc<ClientConfig>>,
    make: fn() -> Result<ClientConfig, Error>,
) -> Result<Arc<ClientConfig>, Error> {
    if let Some(config) = place.get() {
        return Ok(Arc::clone(config));
    }
    let config = Arc::new(make()?);
    Ok(Arc::clone(place.get_or_init(|| config)))
}

fn trusting() -> Result<ClientConfig, Error> {
    let builder = builder()?.with_native_roots().map_err(|error| {
        let message = format!(
            "no certificate authority is known to this system ({error}): install \
             ca-certificates or set SSL_CERT_FILE"
        );
        Error::new(Kind::Config, message)
    })?;
    Ok(builder.with_no_client_auth())
}

fn unused() -> Result<ClientConfig, Error> {
    Ok(builder()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(Kind::Internal, format!("TLS cannot be set up: {error}")))
}
