//! How soon the volumes of a pod are there, and what they cost: `cargo bench -p gcsmount --bench sidecar`.
//!
//! The node's part is played here: each volume is mounted, and its descriptor offered, before the sidecar starts. Taken from
//! the start of the process to the answer of the last volume's root directory. Needs root and /dev/fuse.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench that cannot go on panics, and a table is what it is for"
)]

#[path = "../tests/kit.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod kit;
#[path = "../tests/node.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod node;

use std::fs;
use std::time::{Duration, Instant};

use gcsmount_emulator::Config;
use nix::sys::signal::Signal;

use kit::{World, blocking, can_mount};
use node::{Container, Node};

const BUCKET: &str = "bucket-a";
const ROUNDS: usize = 5;

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // cargo test runs benches without this word, to see that they start.
    if !std::env::args().any(|word| word == "--bench") || !can_mount() {
        return;
    }
    println!(
        "volumes  all served after (least of {ROUNDS}, most)  exchanges  memory of an idle one"
    );
    let mut alone = None;
    for volumes in [1, 10, 50] {
        let rounds: Vec<_> = (0..ROUNDS)
            .map(|_| runtime.block_on(round(volumes)))
            .collect();
        let times = rounds.iter().map(|round| round.served.as_millis());
        let (least, most) = (times.clone().min().unwrap(), times.max().unwrap());
        let exchanges = rounds.iter().map(|round| round.exchanges).max().unwrap();
        let memory = rounds.iter().map(|round| round.kib).min().unwrap();
        let one = *alone.get_or_insert(memory);
        let each = match volumes {
            1 => format!("{memory} KiB with the process"),
            n => format!("{} KiB", memory.saturating_sub(one) / (n - 1)),
        };
        println!("{volumes:>7}  {least:>21} ms, {most:>7} ms  {exchanges:>19}  {each:>23}");
    }
}

struct Round {
    served: Duration,
    exchanges: u64,
    /// Of the process.
    kib: u64,
}

async fn round(volumes: u64) -> Round {
    let world = World::with(Config {
        buckets: vec![BUCKET.into()],
        ..Config::default()
    })
    .await;
    fs::create_dir(world.path("token")).unwrap();
    fs::write(
        world.path("token/token"),
        world.mint(Duration::from_secs(3600)),
    )
    .unwrap();
    let node = Node::new(world.path("node"));
    let endpoint = world.emulator.endpoint();
    let container = Container {
        token: Some(world.path("token")),
        native: true,
        flags: ["--custom-endpoint", &endpoint, "--sts-endpoint", &endpoint]
            .map(Into::into)
            .to_vec(),
        ..Container::default()
    };
    let published: Vec<_> = (0..volumes)
        .map(|n| node.publish(&format!("volume-{n}"), BUCKET, &[]))
        .collect();
    let begun = Instant::now();
    let mut sidecar = container.start(&node, env!("CARGO_BIN_EXE_gcsmount").as_ref());
    let targets: Vec<_> = published.iter().map(|v| v.target.clone()).collect();
    blocking(move || {
        for target in targets {
            fs::metadata(target).unwrap();
        }
    })
    .await;
    let served = begun.elapsed();
    let round = Round {
        served,
        exchanges: world.emulator.admin().counters().exchanges,
        kib: sidecar.kib("VmRSS:"),
    };
    sidecar.signal(Signal::SIGTERM);
    let ended = sidecar.ended(Duration::from_secs(30)).await;
    assert_eq!(ended, Some(0), "{}", sidecar.log());
    round
}
