//! From a token's claims to the audience that the token service wants to hear, with no metadata
//! server asked. Pure.
//!
//! Two forms exist. A **GKE** pool is named by `aud` (`PROJECT.svc.id.goog`) and its provider, the
//! cluster, by `iss`; the token service wants `identitynamespace:POOL:PROVIDER`. A **workload
//! identity federation** provider is named by `aud` alone
//! (`https://iam.googleapis.com/projects/…/providers/…`), and the token service wants it without
//! the leading `https:`. What an operator gives explicitly wins over both.

use std::fmt;

use crate::claims::Claims;
use crate::error::{Error, Kind};

/// How to find the audience of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Audience {
    /// From the `aud` and `iss` of the subject token, anew at each exchange.
    FromToken,
    /// Exactly this one.
    Explicit(String),
    /// Of this pool and provider (`--identity-pool`, `--identity-provider`). A provider that is
    /// itself a full federation resource name stands alone, and the pool is not looked at.
    PoolAndProvider {
        /// The pool, for example `my-project.svc.id.goog`.
        pool: String,
        /// The provider, for example the URL of a GKE cluster or of a fleet membership.
        provider: String,
    },
}

/// The `audience` parameter of a token exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StsAudience(String);

const FLAGS: &str = "give --identity-pool and --identity-provider";

impl Audience {
    /// The audience for a token with these claims.
    ///
    /// # Errors
    /// [`Kind::Config`] when the claims do not lead to one; the sentence names what they hold and
    /// the flags that settle it.
    pub fn resolve(&self, claims: &Claims) -> Result<StsAudience, Error> {
        match self {
            Self::Explicit(audience) => Ok(StsAudience(audience.clone())),
            Self::PoolAndProvider { pool, provider } => Ok(of_pool_and_provider(pool, provider)),
            Self::FromToken => from_claims(claims),
        }
    }
}

impl StsAudience {
    /// The text to send.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The IAM member that stands for this subject, for an operator to grant a role to. For a GKE
    /// pool the number of the project is not known here, and the text says `PROJECT_NUMBER`; for
    /// federation it takes the usual mapping `google.subject=assertion.sub`. See "Principal
    /// identifiers" in the IAM documentation.
    #[must_use]
    pub fn principal(&self, claims: &Claims) -> Option<String> {
        if let Some(provider) = Federation::parse(&self.0) {
            let subject = claims.subject.as_deref()?;
            return Some(format!("principal:{}/subject/{subject}", provider.pool));
        }
        let pool = self
            .0
            .strip_prefix("identitynamespace:")
            .and_then(pool_of)?;
        let account = claims.service_account()?;
        Some(format!(
            "principal://iam.googleapis.com/projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/{pool}/subject/ns/{}/sa/{}",
            account.namespace, account.name
        ))
    }
}

impl fmt::Display for StsAudience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn of_pool_and_provider(pool: &str, provider: &str) -> StsAudience {
    match Federation::parse(provider) {
        Some(federation) => StsAudience(federation.provider.to_owned()),
        None => StsAudience(format!("identitynamespace:{pool}:{provider}")),
    }
}

fn from_claims(claims: &Claims) -> Result<StsAudience, Error> {
    let audience = match claims.audiences.as_slice() {
        [one] => one,
        [] => return Err(unsettled("names no audience (aud)")),
        several => {
            let names = several
                .iter()
                .take(4)
                .map(|name| shown(name))
                .collect::<Vec<_>>()
                .join(", ");
            return Err(unsettled(&format!("names several audiences ({names})")));
        }
    };
    if let Some(federation) = Federation::parse(audience) {
        return Ok(StsAudience(federation.provider.to_owned()));
    }
    if !is_gke_pool(audience) {
        return Err(unsettled(&format!(
            "was made for {}, which names neither a GKE pool nor a provider",
            shown(audience)
        )));
    }
    match claims.issuer.as_deref() {
        Some(issuer) if is_url(issuer) => Ok(of_pool_and_provider(audience, issuer)),
        Some(issuer) => Err(unsettled(&format!(
            "has an issuer that is not a URL ({})",
            shown(issuer)
        ))),
        None => Err(unsettled("names no issuer (iss)")),
    }
}

fn unsettled(what: &str) -> Error {
    Error::new(
        Kind::Config,
        format!(
            "the audience for the token service is not clear: the subject token {what}; {FLAGS}"
        ),
    )
}

/// A claim in a message: bounded, and with nothing in it that a terminal would obey.
fn shown(claim: &str) -> String {
    format!("\"{}\"", crate::secret::quotable(claim, ""))
}

/// `PROJECT.svc.id.goog`; a project of an organisation's domain has the form `example.com:project`.
fn is_gke_pool(audience: &str) -> bool {
    audience
        .strip_suffix(".svc.id.goog")
        .is_some_and(|project| {
            !project.is_empty()
                && project.bytes().all(|b| {
                    b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.' | b':')
                })
        })
}

/// The pool at the start of `POOL:PROVIDER`. Both halves may hold colons, so the suffix that all
/// pools have decides.
fn pool_of(pool_and_provider: &str) -> Option<&str> {
    const SUFFIX: &str = ".svc.id.goog";
    let end = pool_and_provider.find(".svc.id.goog:")? + SUFFIX.len();
    Some(&pool_and_provider[..end])
}

fn is_url(issuer: &str) -> bool {
    let rest = issuer
        .strip_prefix("https://")
        .or_else(|| issuer.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// A full resource name `//iam.HOST/projects/N/locations/L/workloadIdentityPools/P/providers/R`,
/// with or without `https:`.
struct Federation<'a> {
    /// The whole name, without scheme.
    provider: &'a str,
    /// The name of the pool, without scheme.
    pool: &'a str,
}

impl<'a> Federation<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let provider = name.strip_prefix("https:").unwrap_or(name);
        let segments: Vec<&str> = provider.strip_prefix("//")?.split('/').collect();
        let [
            host,
            "projects",
            project,
            "locations",
            location,
            "workloadIdentityPools",
            pool,
            "providers",
            id,
        ] = segments.as_slice()
        else {
            return None;
        };
        let complete = name.bytes().all(|byte| byte.is_ascii_graphic())
            && host.starts_with("iam.")
            && [project, location, pool, id]
                .iter()
                .all(|part| !part.is_empty());
        let pool = &provider[..provider.len() - "/providers/".len() - id.len()];
        complete.then_some(Self { provider, pool })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WIF: &str = "//iam.googleapis.com/projects/12/locations/global/workloadIdentityPools/pool/providers/cluster";

    fn claims(audiences: &[&str], issuer: Option<&str>) -> Claims {
        Claims {
            audiences: audiences.iter().map(|&a| a.to_owned()).collect(),
            issuer: issuer.map(str::to_owned),
            subject: Some("system:serviceaccount:ns:ksa".to_owned()),
            expires_at: None,
        }
    }

    #[test]
    fn gke_clusters_of_every_shape() {
        for (pool, issuer) in [
            (
                "p.svc.id.goog",
                "https://container.googleapis.com/v1/projects/p/locations/europe-west4/clusters/c",
            ),
            (
                "p.svc.id.goog",
                "https://container.googleapis.com/v1/projects/p/locations/us-central1-a/clusters/c",
            ),
            (
                "p.svc.id.goog",
                "https://us-central1-container.googleapis.com/v1/projects/p/locations/us-central1/clusters/c",
            ),
            (
                "p.svc.id.goog",
                "https://container.sandbox.googleapis.com/v1/projects/p/locations/l/clusters/c",
            ),
            (
                "p.svc.id.goog",
                "https://test-container.sandbox.googleapis.com/v1/projects/p/locations/l/clusters/c",
            ),
            (
                "example.com:p.svc.id.goog",
                "https://container.googleapis.com/v1/projects/example.com:p/locations/l/clusters/c",
            ),
            (
                "p.svc.id.goog",
                "https://gkehub.googleapis.com/projects/p/locations/global/memberships/m",
            ),
        ] {
            let audience = Audience::FromToken
                .resolve(&claims(&[pool], Some(issuer)))
                .unwrap();
            assert_eq!(
                audience.as_str(),
                format!("identitynamespace:{pool}:{issuer}")
            );
        }
    }

    #[test]
    fn a_federation_audience_loses_its_scheme() {
        for aud in [format!("https:{WIF}"), WIF.to_owned()] {
            let audience = Audience::FromToken
                .resolve(&claims(&[&aud], Some("https://issuer.example")))
                .unwrap();
            assert_eq!(audience.as_str(), WIF);
        }
    }

    #[test]
    fn another_universe_has_its_own_host() {
        let aud = format!(
            "https:{}",
            WIF.replace("googleapis.com", "apis-berlin-build0.goog")
        );
        let audience = Audience::FromToken.resolve(&claims(&[&aud], None)).unwrap();
        assert_eq!(audience.as_str(), &aud["https:".len()..]);
    }

    #[test]
    fn claims_that_settle_nothing_name_the_flags() {
        let gke = "https://container.googleapis.com/v1/projects/p/locations/l/clusters/c";
        for (audiences, issuer, named) in [
            (&[][..], Some(gke), "no audience"),
            (
                &["p.svc.id.goog", "other"][..],
                Some(gke),
                "\"p.svc.id.goog\", \"other\"",
            ),
            (&["vault"][..], Some(gke), "\"vault\""),
            (&[""][..], Some(gke), "\"\""),
            (&[".svc.id.goog"][..], Some(gke), ".svc.id.goog"),
            (
                &["https://kubernetes.default.svc"][..],
                Some(gke),
                "kubernetes.default",
            ),
            (&["p.svc.id.goog"][..], None, "no issuer"),
            (
                &["p.svc.id.goog"][..],
                Some("kubernetes/serviceaccount"),
                "kubernetes/serviceaccount",
            ),
            (
                &["//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p"][..],
                Some(gke),
                "workloadIdentityPools",
            ),
            (
                &[
                    "//iam.googleapis.com/projects//locations/global/workloadIdentityPools/p/providers/r",
                ][..],
                Some(gke),
                "providers/r",
            ),
            (
                &["//evil.example/projects/1/locations/global/workloadIdentityPools/p/providers/r"]
                    [..],
                Some(gke),
                "evil.example",
            ),
        ] {
            let error = Audience::FromToken
                .resolve(&claims(audiences, issuer))
                .unwrap_err();
            assert_eq!(error.kind(), Kind::Config);
            assert!(error.is_permanent_for_mount());
            let sentence = error.to_string();
            assert!(sentence.contains(named), "{sentence}");
            assert!(
                sentence.contains("--identity-pool") && sentence.contains("--identity-provider"),
                "{sentence}"
            );
        }
    }

    #[test]
    fn an_audience_in_a_message_is_harmless() {
        let federation = format!("{WIF}\u{1b}[2J");
        for (audience, issuer) in [
            ("\u{1b}[2Jx", "https://issuer"),
            ("p.svc.id.goog", "https://issuer\u{1b}[2J"),
            (&*federation, "https://issuer"),
        ] {
            let error = Audience::FromToken
                .resolve(&claims(&[audience], Some(issuer)))
                .unwrap_err();
            assert!(!error.to_string().contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn explicit_settings_win() {
        let claims = claims(
            &["p.svc.id.goog"],
            Some("https://container.googleapis.com/v1/x"),
        );
        let explicit = Audience::Explicit("anything".to_owned())
            .resolve(&claims)
            .unwrap();
        assert_eq!(explicit.as_str(), "anything");
        let pair = |pool: &str, provider: &str| {
            Audience::PoolAndProvider {
                pool: pool.to_owned(),
                provider: provider.to_owned(),
            }
            .resolve(&claims)
            .unwrap()
        };
        assert_eq!(
            pair("q.svc.id.goog", "https://k8s.example").as_str(),
            "identitynamespace:q.svc.id.goog:https://k8s.example"
        );
        assert_eq!(pair("ignored", WIF).as_str(), WIF);
        assert_eq!(pair("ignored", &format!("https:{WIF}")).as_str(), WIF);
    }

    #[test]
    fn the_principal_to_grant() {
        let gke = StsAudience(
            "identitynamespace:example.com:p.svc.id.goog:https://container.googleapis.com/v1/x"
                .to_owned(),
        );
        assert_eq!(
            gke.principal(&claims(&[], None)).unwrap(),
            "principal://iam.googleapis.com/projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/\
             example.com:p.svc.id.goog/subject/ns/ns/sa/ksa"
        );
        assert_eq!(
            StsAudience(WIF.to_owned())
                .principal(&claims(&[], None))
                .unwrap(),
            "principal://iam.googleapis.com/projects/12/locations/global/workloadIdentityPools/pool/subject/\
             system:serviceaccount:ns:ksa"
        );
        assert_eq!(
            StsAudience("custom".to_owned()).principal(&claims(&[], None)),
            None
        );
        assert_eq!(gke.principal(&Claims::default()), None);
    }

    proptest! {
        #[test]
        fn no_claim_makes_it_panic(audiences in proptest::collection::vec(".{0,60}", 0..3), issuer in proptest::option::of(".{0,60}")) {
            let claims = Claims { audiences, issuer, subject: None, expires_at: None };
            if let Ok(audience) = Audience::FromToken.resolve(&claims) {
                let _ = audience.principal(&claims);
            }
        }
    }
}
