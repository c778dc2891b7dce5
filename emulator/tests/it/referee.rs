//! Clients that we did not write, against the emulator as it is by default: `tests/referee.py` says which, and
//! `tests/identity_referee.py` for the identity services.
//!
//! Runs where the Python of `GCSMOUNT_REFEREE_PYTHON` (else `python3`) has `google-cloud-storage` and `gcsfs`, and
//! asks rclone too where it is beside that Python or in the path. Elsewhere it says so and passes, unless
//! `GCSMOUNT_REQUIRE_REFEREE=1` makes that a failure.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use gcsmount_emulator::{Config, MetadataFlavor, MintRequest, Role, ServiceAccount};
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::{BUCKET, Bench};
use crate::impersonation::ROBOT;

/// The run itself takes a few seconds; importing the libraries on a busy machine takes longer.
const DEADLINE: Duration = Duration::from_secs(240);

fn python() -> Command {
    let python = std::env::var("GCSMOUNT_REFEREE_PYTHON");
    let mut command = Command::new(python.as_deref().unwrap_or("python3"));
    command.kill_on_drop(true);
    command
}

async fn has_referees() -> bool {
    let mut import = python();
    import.args(["-c", "import gcsfs, google.cloud.storage"]);
    let output = timeout(DEADLINE, import.output()).await;
    output.is_ok_and(|output| output.is_ok_and(|output| output.status.success()))
}

/// Whether there are referees; where there are none it says so, or fails where they are required.
async fn are_there() -> bool {
    if has_referees().await {
        return true;
    }
    let required = std::env::var("GCSMOUNT_REQUIRE_REFEREE").is_ok_and(|value| value == "1");
    assert!(
        !required,
        "google-cloud-storage and gcsfs are not installed"
    );
    // To the descriptor itself: what the macros print is swallowed when a test passes.
    let text = "NOT RUN: google-cloud-storage and gcsfs are not installed, so no referee was asked";
    let _ = writeln!(std::io::stderr(), "{text}");
    false
}

/// Runs a script of this directory to its end.
async fn run(script: &str, args: &[&str]) {
    let mut referee = python();
    referee.arg(format!("{}/tests/{script}", env!("CARGO_MANIFEST_DIR")));
    referee.args(args);
    let output = timeout(DEADLINE, referee.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    eprintln!("{said}");
}

#[tokio::test]
async fn clients_of_other_hands_agree() {
    if !are_there().await {
        return;
    }
    let bench = Bench::with(Config::default()).await;
    let token = bench.access_token("ns", "referee").await;
    let endpoint = bench.emulator.endpoint();
    run("referee.py", &[&endpoint, BUCKET, &token]).await;
    assert_eq!(bench.admin().counters().metadata_calls, 0);
    bench.emulator.shutdown().await;
}

/// A bench with a pod's metadata server at the second address, where a person, a service account, a federated pod and
/// the pod of the metadata server may read.
async fn identities() -> Bench {
    let robot = ServiceAccount {
        email: ROBOT.to_owned(),
        impersonators: vec!["user:someone@example.com".to_owned(), FEDERATED.to_owned()],
    };
    let loopback = || "127.0.0.1:0".parse().unwrap();
    let bench = Bench::with(Config {
        listen: vec![loopback(), loopback()],
        service_accounts: vec![robot],
        ..Config::default()
    })
    .await;
    let admin = bench.admin();
    for name in ["in/a", "out/a"] {
        admin.put_object(BUCKET, name, "data".into()).unwrap();
    }
    let members = [
        "user:someone@example.com".to_owned(),
        format!("serviceAccount:{ROBOT}"),
        admin.member("ns", "pod"),
    ];
    let bindings = members.map(|member| (member, Role::ObjectViewer));
    admin.replace_grants(BUCKET, &bindings).unwrap();
    let pod = MetadataFlavor::Pod {
        namespace: "ns".to_owned(),
        service_account: "pod".to_owned(),
    };
    admin.set_metadata_at(bench.emulator.local_addrs()[1], pod);
    bench
}

const FEDERATED: &str = "principal://iam.googleapis.com/projects/123456789012/locations/global/\
                         workloadIdentityPools/demo-pool/subject/system:serviceaccount:ns:sa";

/// The credential files of [`identities`]: a key, a login, and an external account that impersonates.
fn write_files(bench: &Bench, dir: &Path) {
    let admin = bench.admin();
    let endpoint = bench.emulator.endpoint();
    let subject_token = admin.mint_token(&MintRequest {
        namespace: "ns".to_owned(),
        service_account: "sa".to_owned(),
        audience: Some(admin.provider().to_owned()),
        ..MintRequest::default()
    });
    let external = json!({
        "type": "external_account",
        "audience": admin.provider(),
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": format!("{endpoint}/v1/token"),
        "service_account_impersonation_url":
            format!("{endpoint}/v1/projects/-/serviceAccounts/{ROBOT}:generateAccessToken"),
        "credential_source": {"file": dir.join("token")},
    });
    let key = admin.mint_service_account_key(ROBOT, &endpoint).unwrap();
    let login = admin.mint_authorized_user("user:someone@example.com", &endpoint);
    for (name, text) in [
        ("token", subject_token),
        ("external.json", external.to_string()),
        ("key.json", key),
        ("login.json", login.unwrap()),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
}

#[tokio::test]
async fn googles_own_library_gets_every_kind_of_token() {
    if !are_there().await {
        return;
    }
    let bench = identities().await;
    let dir = tempfile::tempdir().unwrap();
    write_files(&bench, dir.path());
    let pod = bench.emulator.local_addrs()[1].to_string();
    let (endpoint, dir) = (bench.emulator.endpoint(), dir.path().to_str().unwrap());
    run("identity_referee.py", &[&endpoint, &pod, BUCKET, dir]).await;
    let counters = bench.admin().counters();
    // How often it asks for one token is the library's own affair.
    assert!(counters.downscopings >= 2 && counters.impersonations >= 2);
    assert!(counters.pod_tokens >= 1 && counters.node_tokens == 0);
    bench.emulator.shutdown().await;
}
