//! An external account: a subject token from a file, a URL or a program, exchanged at the token
//! service, perhaps with a service account to impersonate (AIP-4117).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::json;

use super::contents::no_executables;
use super::{CredentialFileConfig, LONGEST_PROGRAM};
use crate::audience::Audience;
use crate::error::{Error, Kind};
use crate::exchange::{Exchange, Federation, Impersonate, Steps, Timeouts};
use crate::secret::AccessSecret;
use crate::source::executable::Task;
use crate::source::{ExecutableSource, FileSource, Format, Source, UrlSource};
use crate::sts::Endpoint;
use crate::universe::Universe;

/// The fields of the file.
#[derive(Deserialize)]
pub(super) struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    service_account_impersonation: Option<ImpersonationInfo>,
    credential_source: CredentialSource,
    workforce_pool_user_project: Option<String>,
}

#[derive(Deserialize)]
struct ImpersonationInfo {
    token_lifetime_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct CredentialSource {
    file: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: HashMap<String, AccessSecret>,
    executable: Option<Executable>,
    format: Option<FormatInfo>,
}

#[derive(Deserialize)]
struct FormatInfo {
    r#type: String,
    subject_token_field_name: Option<String>,
}

#[derive(Deserialize)]
struct Executable {
    command: String,
    timeout_millis: Option<u64>,
    output_file: Option<PathBuf>,
}

impl ExternalAccount {
    pub(super) fn exchange(
        self,
        config: &CredentialFileConfig,
        universe: Universe,
    ) -> Result<Arc<dyn Exchange>, Error> {
        let hosts = config.hosts();
        hosts.check(&self.token_url, "token_url")?;
        let endpoint = Endpoint::parse(&self.token_url)?;
        let steps = Steps {
            impersonate: self.impersonate(config)?,
            scope: config.scope.clone(),
            timeouts: config.timeouts,
            ..Steps::default()
        };
        let (source, timeouts) = self.source(config, steps.impersonate.as_ref())?;
        let options = self
            .workforce_pool_user_project
            .map(|project| json!({"userProject": project}).to_string());
        let audience = Audience::Explicit(self.audience);
        let scope = steps.needed_scope().to_owned();
        let federation = Federation::new(source, audience, endpoint, scope, timeouts)?
            .of_type(self.subject_token_type)
            .in_universe(universe)
            .with_options(options);
        steps.after(Arc::new(federation))
    }

    fn impersonate(&self, config: &CredentialFileConfig) -> Result<Option<Impersonate>, Error> {
        let Some(url) = self.service_account_impersonation_url.as_deref() else {
            return Ok(None);
        };
        config
            .hosts()
            .check(url, "service_account_impersonation_url")?;
        let whom = Impersonate::at(url)?;
        let lifetime = self
            .service_account_impersonation
            .as_ref()
            .and_then(|info| info.token_lifetime_seconds);
        Ok(Some(match lifetime {
            Some(seconds) => whom.lasting(Duration::from_secs(seconds)),
            None => whom,
        }))
    }

    fn source(
        &self,
        config: &CredentialFileConfig,
        impersonate: Option<&Impersonate>,
    ) -> Result<(Arc<dyn Source>, Timeouts), Error> {
        let from = &self.credential_source;
        let format = from.format()?;
        let timeouts = config.timeouts;
        match (&from.file, &from.url, &from.executable) {
            (Some(path), None, None) => {
                let source = FileSource::new(path).with_format(format);
                Ok((Arc::new(source), timeouts))
            }
            (None, Some(url), None) => {
                let source = UrlSource::new(url, from.headers()?, format, timeouts)?;
                Ok((Arc::new(source), timeouts))
            }
            (None, None, Some(_)) if !config.executables => Err(no_executables()),
            (None, None, Some(executable)) => {
                let limit = executable.timeout();
                let task = Task {
                    audience: self.audience.clone(),
                    token_type: self.subject_token_type.clone(),
                    impersonated: impersonate.map(|whom| whom.address().to_owned()),
                    output_file: executable.output_file.clone(),
                };
                let source = ExecutableSource::new(&executable.command, task, limit)?;
                let timeouts = Timeouts {
                    source: limit + Duration::from_secs(1),
                    ..timeouts
                };
                Ok((Arc::new(source), timeouts))
            }
            _ => Err(Error::new(
                Kind::Config,
                "credential_source names no source that is known: it takes one of file, url and \
                 executable",
            )),
        }
    }
}

impl CredentialSource {
    fn format(&self) -> Result<Format, Error> {
        let Some(format) = &self.format else {
            return Ok(Format::Text);
        };
        match (&*format.r#type, &format.subject_token_field_name) {
            ("text", _) => Ok(Format::Text),
            ("json", Some(field)) => Ok(Format::Json {
                field: field.clone(),
            }),
            _ => Err(Error::new(
                Kind::Config,
                "credential_source.format takes the type text, or json with a \
                 subject_token_field_name",
            )),
        }
    }

    fn headers(&self) -> Result<HeaderMap, Error> {
        let invalid = || {
            Error::new(
                Kind::Config,
                "credential_source.headers are no headers of HTTP",
            )
        };
        self.headers
            .iter()
            .map(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
                let mut value = HeaderValue::from_str(value.expose()).map_err(|_| invalid())?;
                value.set_sensitive(true);
                Ok((name, value))
            })
            .collect()
    }
}

impl Executable {
    /// Half a minute unless the file says otherwise, within what AIP-4117 allows.
    fn timeout(&self) -> Duration {
        let asked = Duration::from_millis(self.timeout_millis.unwrap_or(30_000));
        asked.clamp(Duration::from_secs(5), LONGEST_PROGRAM)
    }
}
