//! Clients that we did not write, against the emulator as it is by default: `tests/referee.py` says which.
//!
//! Runs where the Python of `GCSMOUNT_REFEREE_PYTHON` (else `python3`) has `google-cloud-storage` and `gcsfs`, and
//! asks rclone too where it is beside that Python or in the path. Elsewhere it says so and passes, unless
//! `GCSMOUNT_REQUIRE_REFEREE=1` makes that a failure.

use std::io::Write as _;
use std::time::Duration;

use gcsmount_emulator::Config;
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::{BUCKET, Bench};

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

#[tokio::test]
async fn clients_of_other_hands_agree() {
    if !has_referees().await {
        let required = std::env::var("GCSMOUNT_REQUIRE_REFEREE").is_ok_and(|value| value == "1");
        assert!(
            !required,
            "google-cloud-storage and gcsfs are not installed"
        );
        // To the descriptor itself: what the macros print is swallowed when a test passes.
        let text =
            "NOT RUN: google-cloud-storage and gcsfs are not installed, so no referee was asked";
        let _ = writeln!(std::io::stderr(), "{text}");
        return;
    }
    let bench = Bench::with(Config::default()).await;
    let token = bench.access_token("ns", "referee").await;
    let mut referee = python();
    referee.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/referee.py"));
    referee.args([&bench.emulator.endpoint(), BUCKET, &token]);
    let output = timeout(DEADLINE, referee.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    eprintln!("{said}");
    assert_eq!(bench.admin().counters().metadata_calls, 0);
    bench.emulator.shutdown().await;
}
