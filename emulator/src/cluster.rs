//! The built-in Kubernetes cluster: its issuer, its pool, and the projected tokens that its kubelet hands to pods.

use std::time::Duration;

use serde_json::json;

use crate::clock::Clock;
use crate::jwt::Signer;

/// The workload identity pool of the built-in project; projected tokens carry it as their audience.
pub(crate) const POOL: &str = "demo.svc.id.goog";

/// The issuer of the built-in cluster, in the form that GKE's issuers have.
pub(crate) const ISSUER: &str =
    "https://container.googleapis.com/v1/projects/demo/locations/local/clusters/demo";

/// The federation provider that exists from the start. It trusts the built-in cluster.
pub(crate) const PROVIDER: &str = "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/demo-pool/providers/demo-cluster";

/// What a projected service-account token is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MintRequest {
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub service_account: String,
    /// Name of the pod that the token is bound to.
    pub pod: String,
    /// Life of the token from now; zero makes one that has expired.
    pub ttl: Duration,
    /// Until the token becomes valid, from now.
    pub not_before: Duration,
    /// The `aud` claim; absent for the pool of the built-in cluster.
    pub audience: Option<String>,
    /// The `iss` claim; absent for the built-in cluster.
    pub issuer: Option<String>,
}

impl Default for MintRequest {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            service_account: "default".to_owned(),
            pod: "pod".to_owned(),
            ttl: Duration::from_secs(3600),
            not_before: Duration::ZERO,
            audience: None,
            issuer: None,
        }
    }
}

/// Signs a token with the claims that kubelet's projected tokens have. Returns it with its expiry in seconds
/// since the Unix epoch.
pub(crate) fn mint(signer: &Signer, clock: &Clock, request: &MintRequest) -> (String, u64) {
    let MintRequest {
        namespace,
        service_account,
        pod,
        ..
    } = request;
    let now = clock.now().as_secs();
    let expires = now.saturating_add(request.ttl.as_secs());
    let claims = json!({
        "iss": request.issuer.as_deref().unwrap_or(ISSUER),
        "sub": format!("system:serviceaccount:{namespace}:{service_account}"),
        "aud": [request.audience.as_deref().unwrap_or(POOL)],
        "iat": now,
        "nbf": now.saturating_add(request.not_before.as_secs()),
        "exp": expires,
        "jti": signer.nonce(),
        "kubernetes.io": {
            "namespace": namespace,
            "node": {"name": "node", "uid": "8d6e0b6a-2f0e-4c51-9a63-000000000001"},
            "pod": {"name": pod, "uid": "8d6e0b6a-2f0e-4c51-9a63-000000000002"},
            "serviceaccount": {"name": service_account, "uid": "8d6e0b6a-2f0e-4c51-9a63-000000000003"},
            "warnafter": now.saturating_add(request.ttl.as_secs() / 5 * 4),
        },
    });
    (signer.sign(&claims), expires)
}
