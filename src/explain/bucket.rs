//! Why a bucket cannot be used, and what to do: a function of the refusal, of whose identity was refused, and of where.

use gcsmount_gcs as gcs;
use gcsmount_gcs::error::Cause;

use super::Explanation;
use crate::exit::Exit;
use crate::identity::{Identity, Reason, Source};

/// What was asked of whom, and as whom.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The bucket.
    pub bucket: &'a gcs::BucketName,
    /// Base URL of the store.
    pub endpoint: &'a str,
    /// Who asked, as a person calls it.
    pub who: &'a str,
    /// The IAM member of who asked, where it is known.
    pub principal: Option<&'a str>,
    /// How that was chosen.
    pub identity: &'a Identity,
    /// The project that was named to pay.
    pub payer: Option<&'a str>,
}

/// What helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Advice {
    /// The source of tokens has said what is wrong with it.
    MendSource,
    /// Another name, or a bucket of this one.
    CheckName,
    /// A role on the bucket.
    Grant,
    /// Uniform bucket-level access; a role does not help without it.
    UniformAccess,
    /// A project that pays.
    NamePayer,
    /// Another project that pays, or a role on this one.
    ChangePayer,
    /// Some identity.
    NameIdentity,
    /// The same, towards what the environment calls an emulator.
    NameIdentityOrTurnAuthOff,
    /// A look at the server that gave the token.
    MendTokenServer,
    /// A token service and a store that belong together.
    MatchServices,
    /// A user name for the proxy on the way.
    ProxyPassword,
    /// Another policy of the organization, or another place.
    Policy,
    /// Billing or an API that is off for the project.
    EnableService,
    /// A wider scope of the token.
    Scope,
    /// A way there.
    CheckNetwork,
    /// An address at which a storage service is.
    CheckEndpoint,
}

/// Whether a request lacks a project that pays. Front ends word it either way.
fn wants_payer(error: &gcs::Error) -> bool {
    let reasons = ["userProjectMissing", "UserProjectMissing", "required"];
    error.status == Some(400)
        && error
            .reason
            .as_deref()
            .is_some_and(|r| reasons.contains(&r))
}

fn advice(error: &gcs::Error, source: &Source, why: Reason, pays: bool) -> Advice {
    if error.cause == Some(Cause::Credentials) {
        return Advice::MendSource;
    }
    if !pays && wants_payer(error) {
        return Advice::NamePayer;
    }
    match error.kind {
        gcs::Kind::NotFound => Advice::CheckName,
        gcs::Kind::Denied => refused(error, source, why),
        gcs::Kind::Unauthenticated => unknown(source, why),
        gcs::Kind::Unavailable | gcs::Kind::Throttled | gcs::Kind::Canceled => Advice::CheckNetwork,
        gcs::Kind::Exists
        | gcs::Kind::NotEmpty
        | gcs::Kind::Precondition
        | gcs::Kind::Corrupt
        | gcs::Kind::OutOfRange
        | gcs::Kind::Gone
        | gcs::Kind::TooLarge
        | gcs::Kind::Held
        | gcs::Kind::Unsupported
        | gcs::Kind::Invalid => Advice::CheckEndpoint,
    }
}

/// Whether it is the token that is limited, and not its owner. The reason of Cloud Storage's own refusal is `forbidden`, as
/// of any other, so that its sentence is all there is to tell by; what it decides here is advice alone.
fn lacks_scope(error: &gcs::Error) -> bool {
    let by_reason = matches!(
        error.reason.as_deref(),
        Some("ACCESS_TOKEN_SCOPE_INSUFFICIENT" | "insufficientPermissions")
    );
    by_reason || error.message.contains("scope(s) are not authorized")
}

/// Of an identity that the store knows.
fn refused(error: &gcs::Error, source: &Source, why: Reason) -> Advice {
    if lacks_scope(error) {
        return Advice::Scope;
    }
    match (error.status, error.reason.as_deref()) {
        (Some(407), _) => Advice::ProxyPassword,
        (_, Some("orgPolicyConstraintFailed" | "SECURITY_POLICY_VIOLATED" | "countryBlocked")) => {
            Advice::Policy
        }
        (Some(412), _) => Advice::UniformAccess,
        (
            _,
            Some(
                "userProjectAccessDenied"
                | "userProjectAccountProblem"
                | "userProjectInvalid"
                | "userProjectInconsistent"
                | "USER_PROJECT_DENIED",
            ),
        ) => Advice::ChangePayer,
        (
            _,
            Some(
                "BILLING_DISABLED" | "SERVICE_DISABLED" | "accessNotConfigured" | "accountDisabled",
            ),
        ) => Advice::EnableService,
        _ => match source {
            Source::Anonymous => unknown(source, why),
            Source::Projected { .. }
            | Source::CredentialFile(_)
            | Source::TokenUrl { .. }
            | Source::Metadata { .. } => Advice::Grant,
        },
    }
}

/// Of one that it does not.
fn unknown(source: &Source, why: Reason) -> Advice {
    match (source, why) {
        (Source::Anonymous, Reason::Environment(_)) => Advice::NameIdentityOrTurnAuthOff,
        (Source::Anonymous, _) => Advice::NameIdentity,
        (Source::TokenUrl { .. }, _) => Advice::MendTokenServer,
        (Source::Projected { .. } | Source::CredentialFile(_) | Source::Metadata { .. }, _) => {
            Advice::MatchServices
        }
    }
}

impl Advice {
    fn exit(self) -> Exit {
        match self {
            Self::MendSource => Exit::NoToken,
            Self::CheckName => Exit::NoBucket,
            Self::Grant
            | Self::UniformAccess
            | Self::NamePayer
            | Self::ChangePayer
            | Self::NameIdentity
            | Self::NameIdentityOrTurnAuthOff
            | Self::MendTokenServer
            | Self::MatchServices
            | Self::ProxyPassword
            | Self::Policy
            | Self::EnableService
            | Self::Scope => Exit::Denied,
            Self::CheckNetwork => Exit::Unreachable,
            Self::CheckEndpoint => Exit::Other,
        }
    }
}

/// Why the bucket cannot be used.
#[must_use]
pub fn bucket(error: &gcs::Error, case: &Case<'_>) -> Explanation {
    let advice = advice(
        error,
        &case.identity.source,
        case.identity.why,
        case.payer.is_some(),
    );
    let Case {
        bucket, endpoint, ..
    } = *case;
    let who = numbered(case.who, &error.message);
    // The refusal names the principal once more.
    let message = error.message.replace(&who, "it");
    let refuses = || format!("bucket {bucket} refuses {who} ({message})");
    let (what, fix, command) = match advice {
        Advice::MendSource => (
            format!("there is no token to ask for bucket {bucket} with"),
            message,
            None,
        ),
        Advice::CheckName => (
            format!("bucket {bucket} does not exist at {endpoint}"),
            "check the name, or create the bucket first".into(),
            None,
        ),
        Advice::Grant => {
            let (fix, command) = grant(case, &error.message);
            (refuses(), fix, Some(command))
        }
        Advice::UniformAccess => (
            format!("bucket {bucket} has no uniform bucket-level access, without which it refuses {who} whatever its roles"),
            "turn it on".into(),
            Some(format!(
                "gcloud storage buckets update gs://{bucket} --uniform-bucket-level-access"
            )),
        ),
        Advice::NamePayer => (
            format!("the requesters pay for bucket {bucket}, and no project is named that does"),
            "give --billing-project PROJECT".into(),
            None,
        ),
        Advice::ChangePayer => (
            refuses(),
            format!(
                "the project to pay is {}: name another with --billing-project, or grant the identity roles/serviceusage.serviceUsageConsumer there",
                case.payer.unwrap_or("the identity's own")
            ),
            None,
        ),
        Advice::NameIdentity => (refuses(), "name an identity with --token-file".into(), None),
        Advice::NameIdentityOrTurnAuthOff => (
            refuses(),
            "name an identity with --token-file, and its token service with --sts-endpoint; or start the emulator with --auth off".into(),
            None,
        ),
        Advice::MendTokenServer => (
            format!("bucket {bucket} at {endpoint} does not accept the token that {} gives ({message})", giver(case.identity)),
            "look at that token server; the fault is with it, or it is for another storage service".into(),
            None,
        ),
        Advice::MatchServices => (
            format!("bucket {bucket} at {endpoint} does not accept the token of {who} ({message})"),
            "do --custom-endpoint and the token's issuer (--sts-endpoint) belong together?".into(),
            None,
        ),
        Advice::ProxyPassword => (
            format!("a proxy on the way to {endpoint} lets nobody through unnamed ({message})"),
            "put user name and password into the proxy's URL".into(),
            None,
        ),
        Advice::Policy => (
            refuses(),
            "a policy of the organization forbids it, and no role helps; ask who administers it".into(),
            None,
        ),
        Advice::EnableService => (
            refuses(),
            "turn on billing and the Cloud Storage API for the project".into(),
            None,
        ),
        Advice::Scope => (
            refuses(),
            "the token is limited to too few scopes; its source has to ask for https://www.googleapis.com/auth/cloud-platform, or devstorage.full_control; devstorage.read_write does not keep modification times".into(),
            None,
        ),
        Advice::CheckNetwork => (
            format!("no answer about bucket {bucket} from {endpoint}: {message}"),
            "check --custom-endpoint and the network".into(),
            None,
        ),
        Advice::CheckEndpoint => (
            format!("{endpoint} gives an answer about bucket {bucket} that a storage service does not give ({message})"),
            "check --custom-endpoint".into(),
            None,
        ),
    };
    Explanation {
        exit: advice.exit(),
        what,
        fix,
        command,
    }
}

fn giver(identity: &Identity) -> String {
    match &identity.source {
        Source::TokenUrl { url, .. } => url.to_string(),
        _ => identity.to_string(),
    }
}

/// What to grant: in words, and as a command. `refusal` is what the store has said, if it has.
#[must_use]
pub fn grant(case: &Case<'_>, refusal: &str) -> (String, String) {
    let bucket = case.bucket;
    let principal = case.principal.map(|member| numbered(member, refusal));
    let mut fix = match &principal {
        Some(_) => "grant it roles/storage.objectUser".to_owned(),
        None => "grant roles/storage.objectUser to it, PRINCIPAL being its name in IAM".to_owned(),
    };
    let is_projected = matches!(case.identity.source, Source::Projected { .. });
    if is_projected && case.identity.steps.impersonate.is_none() {
        fix.push_str(
            ", or name the Google service account that it is to act as with --impersonate-service-account",
        );
    }
    if let Some(how) = principal.as_deref().and_then(number_of) {
        fix = format!("{fix} ({how})");
    }
    let member = principal.as_deref().unwrap_or("PRINCIPAL");
    let command = format!(
        "gcloud storage buckets add-iam-policy-binding gs://{bucket} --role roles/storage.objectUser --member '{member}'"
    );
    (fix, command)
}

/// What stands for the number of the project in the principal of a GKE pool, since the token does not tell it.
const NUMBER: &str = "PROJECT_NUMBER";

/// `principal` with the number of its project, where `refusal` names the principal with it. For people to read.
#[must_use]
pub fn numbered(principal: &str, refusal: &str) -> String {
    let known = principal.split_once(NUMBER).and_then(|(before, _)| {
        let (_, rest) = refusal.split_once(before)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        (digits > 0 && rest[digits..].starts_with('/')).then_some(&rest[..digits])
    });
    match known {
        Some(number) => principal.replace(NUMBER, number),
        None => principal.to_owned(),
    }
}

/// How to find the number that `principal` lacks; `None` where it has one.
#[must_use]
pub fn number_of(principal: &str) -> Option<String> {
    let (_, pool) = principal.split_once(NUMBER)?;
    let project = pool
        .split('/')
        .find_map(|part| part.strip_suffix(".svc.id.goog"))
        .unwrap_or("PROJECT");
    Some(format!(
        "{NUMBER}: gcloud projects describe {project} --format='value(projectNumber)'"
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cli::{Invocation, parse};
    use crate::exit::Failure;
    use crate::identity::{Place, choose};

    fn identity(line: &str, env: &[(&str, &str)]) -> Identity {
        let variable = |name: &str| {
            let found = env.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let args = format!("gcsmount mount b /m {line}");
        match parse(args.split_whitespace().map(Into::into), variable).unwrap() {
            Invocation::Run(_, settings) => {
                choose(&settings, Place::Machine, |_: &Path| false, variable).unwrap()
            }
            Invocation::Print(text) => panic!("{text}"),
        }
    }

    fn answer(status: u16, reason: Option<&str>, message: &str) -> gcs::Error {
        let kind = gcs::Kind::of(status, reason, false);
        gcs::Error {
            status: Some(status),
            reason: reason.map(Into::into),
            ..gcs::Error::new(kind, "storage.buckets.get", "my-bucket", message)
        }
    }

    const ME: &str = "principal://iam.googleapis.com/projects/PROJECT_NUMBER/locations/global/workloadIdentityPools/p.svc.id.goog/subject/ns/n/sa/s";

    fn said(error: &gcs::Error, identity: &Identity, payer: Option<&str>) -> Failure {
        let case = Case {
            bucket: &gcs::BucketName::parse("my-bucket").unwrap(),
            endpoint: "http://store",
            who: ME,
            principal: Some(ME),
            identity,
            payer,
        };
        bucket(error, &case).failure()
    }

    #[test]
    fn advice_follows_the_refusal_and_whom_it_struck() {
        let projected = identity("--token-file /t", &[]);
        let anonymous = identity("--anonymous-access", &[]);
        let emulator = identity("", &[("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")]);
        let url = identity("--token-url http://tokens/", &[]);
        let key = identity("--key-file /k", &[]);
        let is = |status, reason| answer(status, reason, "because");
        use Exit::{Denied, NoBucket, Other, Unreachable};
        let table = [
            (
                is(403, None),
                &projected,
                Denied,
                "add-iam-policy-binding gs://my-bucket",
            ),
            (
                is(403, None),
                &projected,
                Denied,
                "--impersonate-service-account",
            ),
            (is(403, None), &key, Denied, "--member 'principal://"),
            (
                is(403, None),
                &url,
                Denied,
                "--role roles/storage.objectUser",
            ),
            (
                is(403, None),
                &anonymous,
                Denied,
                ": name an identity with --token-file",
            ),
            (
                is(401, None),
                &anonymous,
                Denied,
                ": name an identity with --token-file",
            ),
            (is(401, None), &emulator, Denied, "--auth off"),
            (
                is(401, None),
                &url,
                Denied,
                "token that http://tokens/ gives (because): look at that token server",
            ),
            (is(401, None), &projected, Denied, "--sts-endpoint"),
            (
                is(412, Some("conditionNotMet")),
                &projected,
                Denied,
                ": turn it on: gcloud storage buckets update gs://my-bucket --uniform-bucket-level-access",
            ),
            (
                is(412, Some("orgPolicyConstraintFailed")),
                &projected,
                Denied,
                "a policy of the organization",
            ),
            (
                is(400, Some("required")),
                &projected,
                Denied,
                "give --billing-project",
            ),
            (
                is(400, Some("userProjectMissing")),
                &key,
                Denied,
                "give --billing-project",
            ),
            (
                is(403, Some("userProjectAccessDenied")),
                &projected,
                Denied,
                "serviceUsageConsumer",
            ),
            (
                is(403, Some("BILLING_DISABLED")),
                &projected,
                Denied,
                "turn on billing",
            ),
            (
                is(403, Some("ACCESS_TOKEN_SCOPE_INSUFFICIENT")),
                &projected,
                Denied,
                "scopes",
            ),
            (
                answer(
                    403,
                    Some("forbidden"),
                    "Provided scope(s) are not authorized",
                ),
                &projected,
                Denied,
                "cloud-platform",
            ),
            (is(407, None), &projected, Denied, "proxy's URL"),
            (is(404, None), &projected, NoBucket, "check the name"),
            (is(503, None), &projected, Unreachable, "the network"),
            (is(400, None), &projected, Other, "check --custom-endpoint"),
        ];
        for (error, identity, exit, part) in table {
            let failure = said(&error, identity, None);
            assert_eq!(failure.exit, exit, "{error}: {failure}");
            assert!(
                failure.sentence.contains(part),
                "{part:?} is not in {failure}"
            );
            // No role helps where none is missing.
            let grants = failure.sentence.contains("add-iam-policy-binding");
            let alone = error.status == Some(403) && error.reason.is_none();
            assert_eq!(
                grants,
                alone && identity.source != Source::Anonymous,
                "{failure}"
            );
        }
        let paid = said(&answer(400, Some("required"), "because"), &key, Some("p"));
        assert_eq!(paid.exit, Other, "{paid}");
    }

    #[test]
    fn the_number_of_the_project_is_taken_from_the_refusal() {
        let projected = identity("--token-file /t", &[]);
        let named = ME.replace("PROJECT_NUMBER", "123");
        let refusal = format!("{named} does not have storage.objects.list access");
        let failure = said(&answer(403, None, &refusal), &projected, None);
        assert_eq!(
            failure.sentence.matches(&named).count(),
            2,
            "who, and the member: {failure}"
        );
        assert!(!failure.sentence.contains("PROJECT_NUMBER"), "{failure}");
        assert!(failure.sentence.contains("(it does not have"), "{failure}");
        let failure = said(&answer(403, None, "no"), &projected, None);
        let how = "PROJECT_NUMBER: gcloud projects describe p --format='value(projectNumber)'";
        assert!(failure.sentence.contains(how), "{failure}");
        for (refusal, want) in [
            ("", ME),
            ("principal://iam.googleapis.com/projects/", ME),
            ("principal://iam.googleapis.com/projects/12", ME),
            ("principal://iam.googleapis.com/projects/x/", ME),
        ] {
            assert_eq!(numbered(ME, refusal), want, "{refusal}");
        }
    }
}
