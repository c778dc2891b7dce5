//! Who is behind a token, and the members of a policy that this is.

use std::fmt;

/// The number of the built-in project.
pub(crate) const PROJECT_NUMBER: &str = "123456789012";

const PROJECTS: &str = "iam.googleapis.com/projects/";
const POOLS: &str = "/locations/global/workloadIdentityPools/";

/// The service account that the node's metadata server speaks for.
pub(crate) const NODE_EMAIL: &str = "123456789012-compute@developer.gserviceaccount.com";

/// The identity behind an access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// A workload: a pool, and a subject in it.
    Workload { pool: String, subject: String },
    /// A service account, by its address.
    ServiceAccount(String),
    /// A person, by the address of the account.
    User(String),
    /// The node's own service account, which no bucket lets in.
    Node,
}

impl Principal {
    /// The principal that a member names: `user:EMAIL`, `serviceAccount:EMAIL` or `principal://…/subject/SUBJECT`.
    /// Members that stand for many are none.
    pub(crate) fn from_member(text: &str) -> Option<Self> {
        if let Some(email) = text.strip_prefix("user:") {
            return is_address(email).then(|| Self::User(email.to_owned()));
        }
        if let Some(email) = text.strip_prefix("serviceAccount:") {
            return is_address(email).then(|| Self::ServiceAccount(email.to_owned()));
        }
        let rest = text.strip_prefix("principal://")?.strip_prefix(&pools())?;
        let (pool, subject) = rest.split_once("/subject/")?;
        let named = !pool.is_empty() && !pool.contains('/') && !subject.is_empty();
        named.then(|| Self::Workload {
            pool: pool.to_owned(),
            subject: subject.to_owned(),
        })
    }

    /// The member of a policy that this principal alone is; none for the node, which no policy lets in.
    pub(crate) fn member(&self) -> Option<String> {
        match self {
            Self::Workload { pool, subject } => Some(member(pool, subject)),
            Self::ServiceAccount(email) => Some(format!("serviceAccount:{email}")),
            Self::User(email) => Some(format!("user:{email}")),
            Self::Node => None,
        }
    }

    /// Whether a member of a policy is, or contains, this principal.
    pub(crate) fn is_member(&self, text: &str) -> bool {
        let everyone = text == "allUsers" || text == "allAuthenticatedUsers";
        match self {
            Self::Node => false,
            Self::ServiceAccount(email) => {
                everyone || text.strip_prefix("serviceAccount:") == Some(email)
            }
            Self::User(email) => everyone || text.strip_prefix("user:") == Some(email),
            Self::Workload { pool, subject } => everyone || is_workload(pool, subject, text),
        }
    }
}

/// Asked for each binding of each request, so nothing is put together here: the text is taken apart.
fn is_workload(pool: &str, subject: &str, text: &str) -> bool {
    let account = subject
        .strip_prefix("ns/")
        .and_then(|rest| rest.split_once("/sa/"));
    if let Some(old) = text.strip_prefix("serviceAccount:") {
        // The form that GKE had before `principal://`, and that policies still hold.
        let named = old.strip_prefix(pool).and_then(bracketed);
        return account.is_some_and(|account| named == Some(account));
    }
    if let Some(one) = text.strip_prefix("principal://") {
        let named = within(pool, one).and_then(|rest| rest.strip_prefix("subject/"));
        return named == Some(subject);
    }
    let many = text.strip_prefix("principalSet://");
    match many.and_then(|many| within(pool, many)) {
        Some("*") => true,
        Some(set) => {
            account.is_some_and(|(namespace, _)| set.strip_prefix("namespace/") == Some(namespace))
        }
        None => false,
    }
}

/// `[NAMESPACE/ACCOUNT]`.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.strip_suffix(']')?.split_once('/')
}

/// What stands behind the name of the pool. A project has a number there: its id is not taken, as with Google.
fn within<'t>(pool: &str, text: &'t str) -> Option<&'t str> {
    text.strip_prefix(PROJECTS)?
        .strip_prefix(PROJECT_NUMBER)?
        .strip_prefix(POOLS)?
        .strip_prefix(pool)?
        .strip_prefix('/')
}

/// As the storage API names it in its refusals.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload { pool, subject } => f.write_str(&member(pool, subject)),
            Self::ServiceAccount(email) | Self::User(email) => f.write_str(email),
            Self::Node => f.write_str(NODE_EMAIL),
        }
    }
}

/// Whether this is the address of an account: letters, digits and `@.-_`, nothing that means something in a URL.
pub(crate) fn is_address(text: &str) -> bool {
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || b"@.-_".contains(&byte);
    let halves = text.split_once('@');
    text.len() <= 254
        && text.bytes().all(ordinary)
        && halves
            .is_some_and(|(name, host)| !name.is_empty() && !host.is_empty() && !host.contains('@'))
}

fn pools() -> String {
    format!("{PROJECTS}{PROJECT_NUMBER}{POOLS}")
}

/// The policy member for one subject of a pool.
pub(crate) fn member(pool: &str, subject: &str) -> String {
    format!("principal://{}{pool}/subject/{subject}", pools())
}

/// The policy member for all subjects of a pool.
pub(crate) fn pool_member(pool: &str) -> String {
    format!("principalSet://{}{pool}/*", pools())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "demo.svc.id.goog";

    fn workload(subject: &str) -> Principal {
        Principal::Workload {
            pool: POOL.into(),
            subject: subject.into(),
        }
    }

    #[test]
    fn members_of_a_workload() {
        let principal = workload("ns/a/sa/b");
        let namespace = pool_member(POOL).replace("/*", "/namespace/a");
        for member in [
            &member(POOL, "ns/a/sa/b"),
            &pool_member(POOL),
            &namespace,
            "serviceAccount:demo.svc.id.goog[a/b]",
            "allUsers",
        ] {
            assert!(principal.is_member(member), "{member}");
            assert!(!Principal::Node.is_member(member), "{member}");
        }
        for member in [
            &member(POOL, "ns/a/sa/c"),
            &pool_member("other"),
            &namespace.replace("/a", "/b"),
            &namespace.replace("/namespace", "/group"),
            &member(POOL, "ns/a/sa/b").replace(PROJECT_NUMBER, "demo"),
            &pool_member(POOL).replace(PROJECT_NUMBER, "demo"),
            "serviceAccount:demo.svc.id.goog[a/b",
            "serviceAccount:demo.svc.id.goog",
            "principal://",
            "principalSet://",
            "",
            "serviceAccount:demo.svc.id.goog[a/c]",
            "serviceAccount:a@b",
        ] {
            assert!(!principal.is_member(member), "{member}");
        }
    }

    #[test]
    fn accounts_are_members_by_their_address_and_kind() {
        let robot = Principal::ServiceAccount("a@b.example".into());
        let person = Principal::User("a@b.example".into());
        for everyone in ["allUsers", "allAuthenticatedUsers"] {
            assert!(robot.is_member(everyone) && person.is_member(everyone));
        }
        assert!(robot.is_member("serviceAccount:a@b.example"));
        assert!(!robot.is_member("user:a@b.example") && !robot.is_member(&pool_member(POOL)));
        assert!(person.is_member("user:a@b.example"));
        assert!(!person.is_member("serviceAccount:a@b.example"));
    }

    #[test]
    fn a_member_that_is_one_principal_leads_to_it() {
        for principal in [
            workload("ns/a/sa/b"),
            Principal::ServiceAccount("a@b.example".into()),
            Principal::User("a@b.example".into()),
        ] {
            let member = principal.member().unwrap();
            assert_eq!(Principal::from_member(&member), Some(principal));
        }
        for text in [
            "",
            "allUsers",
            "user:",
            "user:a",
            "user:a@",
            "user:a@b@c",
            "user:a/b@c",
            "serviceAccount:demo.svc.id.goog[a/b]",
            "principal://elsewhere/subject/x",
            &pool_member(POOL),
            &member(POOL, ""),
        ] {
            assert_eq!(Principal::from_member(text), None, "{text}");
        }
        assert_eq!(Principal::Node.member(), None);
    }
}
