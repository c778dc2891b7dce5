//! How fast the emulator serves, on two threads of its own: bytes of large objects, and stats.
//!
//! The client is one thread that does as little as can be, and is still on the same two cores: it writes the same request
//! again, and counts the bytes of the answer. What the server alone costs is told by its threads' own CPU time, which other
//! work on the machine does not change much.

#![expect(clippy::unwrap_used, reason = "a bench that lacks what it needs fails")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gcsmount_emulator::{Auth, Config, Emulator};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const LARGE: usize = 64 << 20;

/// Connections that ask at the same time.
const READERS: u64 = 4;
const STATS: u64 = 16;

/// Stats that the CPU time is told of.
const SAMPLE: u64 = 40_000;

/// The name of the server's threads, by which their CPU time is found.
const SERVER: &str = "emulator";

fn served(runtime: &Runtime) -> Emulator {
    let config = Config {
        auth: Auth::Off,
        buckets: vec!["bench".to_owned()],
        ..Config::default()
    };
    let emulator = runtime.block_on(Emulator::start(config)).unwrap();
    let admin = emulator.admin();
    admin
        .put_object("bench", "large", vec![7; LARGE].into())
        .unwrap();
    admin.put_object("bench", "small", "x".into()).unwrap();
    emulator
}

/// CPU time that the server's threads have had, and all others (`/proc/PID/task/TID/schedstat`, in nanoseconds).
fn cpu_times() -> [Duration; 2] {
    let mut sums = [Duration::ZERO; 2];
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let name = std::fs::read_to_string(task.join("comm")).unwrap();
        let stat = std::fs::read_to_string(task.join("schedstat")).unwrap();
        let spent = stat.split_whitespace().next().unwrap();
        sums[usize::from(name.trim() != SERVER)] += Duration::from_nanos(spent.parse().unwrap());
    }
    sums
}

/// One connection that asks for the same thing again and again.
struct Asker {
    stream: TcpStream,
    request: &'static str,
    buffer: Vec<u8>,
}

impl Asker {
    async fn connect(addr: SocketAddr, request: &'static str) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            request,
            buffer: vec![0; 1 << 18],
        }
    }

    /// Bytes of an answer, which ends where nothing more was announced.
    async fn length(&mut self) -> usize {
        self.stream
            .write_all(self.request.as_bytes())
            .await
            .unwrap();
        let mut seen = Vec::new();
        loop {
            let count = self.stream.read(&mut self.buffer).await.unwrap();
            seen.extend_from_slice(&self.buffer[..count]);
            let text = String::from_utf8_lossy(&seen);
            let Some((head, _)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            assert!(head.starts_with("HTTP/1.1 200"), "{head}");
            let lower = head.to_ascii_lowercase();
            let (_, rest) = lower.split_once("content-length: ").unwrap();
            let body: usize = rest.lines().next().unwrap().trim().parse().unwrap();
            let length = head.len() + 4 + body;
            self.take(length - seen.len()).await;
            return length;
        }
    }

    async fn take(&mut self, mut left: usize) {
        while left > 0 {
            left -= self.stream.read(&mut self.buffer).await.unwrap();
        }
    }

    async fn ask(&mut self, times: u64, length: usize) {
        for _ in 0..times {
            self.stream
                .write_all(self.request.as_bytes())
                .await
                .unwrap();
            self.take(length).await;
        }
    }
}

/// The time that `askers` connections take for `times` answers each.
async fn time(addr: SocketAddr, request: &'static str, askers: u64, times: u64) -> Duration {
    let mut ready = Vec::new();
    for _ in 0..askers {
        let mut asker = Asker::connect(addr, request).await;
        let length = asker.length().await;
        ready.push((asker, length));
    }
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (mut asker, length) in ready {
        tasks.spawn(async move { asker.ask(times, length).await });
    }
    tasks.join_all().await;
    start.elapsed()
}

const LARGE_REQUEST: &str =
    "GET /storage/v1/b/bench/o/large?alt=media HTTP/1.1\r\nhost: localhost\r\n\r\n";
const STAT_REQUEST: &str = "GET /storage/v1/b/bench/o/small HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn serve(c: &mut Criterion) {
    let mut server = Builder::new_multi_thread();
    server.worker_threads(2).thread_name(SERVER).enable_all();
    let server = server.build().unwrap();
    let client = Builder::new_current_thread().enable_all().build().unwrap();
    let emulator = served(&server);
    let addr = emulator.local_addrs()[0];
    let mut group = c.benchmark_group("serve");
    group.sample_size(10);
    for (name, request, askers, throughput) in [
        (
            "reads",
            LARGE_REQUEST,
            READERS,
            Throughput::Bytes(READERS * LARGE as u64),
        ),
        ("stats", STAT_REQUEST, STATS, Throughput::Elements(STATS)),
    ] {
        group.throughput(throughput);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| client.block_on(time(addr, request, askers, times)));
        });
    }
    group.finish();
    let before = cpu_times();
    client.block_on(time(addr, STAT_REQUEST, STATS, SAMPLE / STATS));
    let after = cpu_times();
    let [of_server, of_client] =
        [0, 1].map(|whose| (after[whose] - before[whose]).as_secs_f64() * 1e6 / SAMPLE as f64);
    println!(
        "a stat: {of_server:.1} us of CPU time of the server, {of_client:.1} us of the client; two cores of their own \
         would do {:.0} a second",
        2e6 / (of_server + of_client),
    );
    server.block_on(emulator.shutdown());
}

criterion_group!(benches, serve);
criterion_main!(benches);
