//! What `client/json` costs beside a bare hyper client that sends the same requests over as many connections: CPU time
//! of this process, since the wall clock is the server's and the machine's. Ends with an error where a bound is broken.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod server;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput};
use futures_util::StreamExt;
use futures_util::future::join_all;
use gcsmount_gcs::client::json::{Config, Http, JsonStore, Pool};
use gcsmount_gcs::store::{Preconditions, ReadRequest};
use gcsmount_gcs::{BucketName, ObjectName, Store};
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use nix::time::{ClockId, clock_gettime};
use server::{BUCKET, Server};
use tokio::runtime::Runtime;

const SMALL: usize = 4 << 10;
const BULK: usize = 64 << 20;
const RANGE: usize = 8 << 20;

/// CPU time of this process, in user and kernel mode.
struct CpuTime(WallTime);

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .unwrap()
        .into()
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, start: Duration) -> Duration {
        cpu_time() - start
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        self.0.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self.0.formatter()
    }
}

/// What is asked for.
#[derive(Clone, Copy)]
enum Act {
    Stat,
    SmallRead,
    BulkRead,
}

/// An act on some connections at a time, and how many times the bare client's CPU time it may cost.
struct Case {
    name: &'static str,
    act: Act,
    connections: usize,
    /// Acts in a round of the judgement.
    acts: usize,
    bound: f64,
}

const CASES: [Case; 5] = [
    Case {
        name: "stat, one at a time",
        act: Act::Stat,
        connections: 1,
        acts: 400,
        bound: 1.3,
    },
    Case {
        name: "stat, 16 at a time",
        act: Act::Stat,
        connections: 16,
        acts: 400,
        bound: 1.3,
    },
    Case {
        name: "4 KiB, one at a time",
        act: Act::SmallRead,
        connections: 1,
        acts: 400,
        bound: 1.3,
    },
    Case {
        name: "4 KiB, 16 at a time",
        act: Act::SmallRead,
        connections: 16,
        acts: 400,
        bound: 1.3,
    },
    Case {
        name: "8 MiB ranges, 4 at a time",
        act: Act::BulkRead,
        connections: 4,
        acts: 16,
        bound: 1.1,
    },
];

#[derive(Clone, Copy)]
enum Who {
    Bare,
    Ours,
}

/// Both clients of one server.
struct Clients {
    bare: Client<HttpConnector, Empty<Bytes>>,
    store: JsonStore,
    endpoint: String,
}

impl Clients {
    fn new(server: &Server) -> Self {
        let pool = Pool::default();
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        let config = Config {
            endpoint: server.endpoint.parse().unwrap(),
            ..Config::default()
        };
        let bucket = BucketName::parse(BUCKET).unwrap();
        Self {
            bare: Client::builder(TokioExecutor::new())
                .http1_max_buf_size(pool.read_buffer)
                .build(tcp),
            store: JsonStore::new(&Http::new(&pool), bucket, config).unwrap(),
            endpoint: server.endpoint.clone(),
        }
    }

    /// The bytes that the bare client gets, looked at by nobody.
    async fn bare(&self, act: Act, index: usize) -> usize {
        let endpoint = &self.endpoint;
        let object = |name| format!("{endpoint}/storage/v1/b/{BUCKET}/o/{name}");
        let request = match act {
            Act::Stat => Request::get(object("small")),
            Act::SmallRead => Request::get(object("small?alt=media")),
            Act::BulkRead => {
                let first = offset(index);
                let range = format!("bytes={first}-{}", first + RANGE - 1);
                Request::get(object("bulk?alt=media")).header(header::RANGE, range)
            }
        };
        let request = request.header(header::ACCEPT_ENCODING, "gzip");
        let answer = self.bare.request(request.body(Empty::new()).unwrap());
        let mut body = answer.await.unwrap().into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().into_data().map_or(0, |bytes| bytes.len());
        }
        length
    }

    async fn ours(&self, act: Act, index: usize) -> usize {
        let (name, range) = match act {
            Act::Stat => {
                let name = ObjectName::parse("small").unwrap();
                return usize::try_from(self.store.stat(&name).await.unwrap().size).unwrap();
            }
            Act::SmallRead => ("small", None),
            Act::BulkRead => {
                let first = offset(index) as u64;
                ("bulk", Some(first..first + RANGE as u64))
            }
        };
        let request = ReadRequest {
            name: ObjectName::parse(name).unwrap(),
            generation: None,
            range,
            preconditions: Preconditions::default(),
        };
        let mut body = self.store.read(&request).await.unwrap().body;
        let mut length = 0;
        while let Some(bytes) = body.next().await {
            length += bytes.unwrap().len();
        }
        length
    }

    /// Acts so many times, on the connections of `case`.
    async fn run(&self, case: &Case, who: Who, acts: usize) {
        let lane = |lane: usize| async move {
            for index in (lane..acts).step_by(case.connections) {
                let length = match who {
                    Who::Bare => self.bare(case.act, index).await,
                    Who::Ours => self.ours(case.act, index).await,
                };
                assert!(length >= SMALL.min(100), "{length}");
            }
        };
        join_all((0..case.connections).map(lane)).await;
    }
}

fn offset(index: usize) -> usize {
    index % (BULK / RANGE) * RANGE
}

/// CPU time of so many acts.
fn cost(runtime: &Runtime, clients: &Clients, case: &Case, who: Who, acts: usize) -> Duration {
    let start = cpu_time();
    runtime.block_on(clients.run(case, who, acts));
    cpu_time() - start
}

fn compare(criterion: &mut Criterion<CpuTime>, runtime: &Runtime, clients: &Arc<Clients>) {
    for case in &CASES {
        let mut group = criterion.benchmark_group(case.name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2));
        if matches!(case.act, Act::BulkRead) {
            group.throughput(Throughput::Bytes(RANGE as u64));
        }
        for (name, who) in [("bare hyper", Who::Bare), ("client/json", Who::Ours)] {
            group.bench_function(name, |bencher| {
                bencher.iter_custom(|acts| {
                    let acts = usize::try_from(acts).unwrap();
                    cost(runtime, clients, case, who, acts)
                });
            });
        }
        group.finish();
    }
}

/// So many that the cheapest is one that nothing else on the machine has disturbed.
const ROUNDS: u32 = 100;

/// Lets the clients take turns, and holds the cheapest round of each against the other's.
fn judge(runtime: &Runtime, clients: &Clients) -> bool {
    let mut good = true;
    for case in &CASES {
        let rounds = (0..ROUNDS).map(|_| {
            [Who::Bare, Who::Ours].map(|who| cost(runtime, clients, case, who, case.acts))
        });
        let [bare, ours] = rounds
            .reduce(|best, round| [best[0].min(round[0]), best[1].min(round[1])])
            .unwrap();
        let ratio = ours.as_secs_f64() / bare.as_secs_f64();
        good &= ratio <= case.bound;
        let each = |cost: Duration| cost.as_secs_f64() * 1e6 / case.acts as f64;
        println!(
            "{}: bare hyper {:.1} us, client/json {:.1} us: {ratio:.2} times, at most {}",
            case.name,
            each(bare),
            each(ours),
            case.bound
        );
    }
    good
}

fn main() {
    if server::serves(&[("small", SMALL), ("bulk", BULK)]) {
        return;
    }
    let server = Server::start(None);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let clients = {
        let _inside = runtime.enter();
        Arc::new(Clients::new(&server))
    };
    let criterion = Criterion::default().with_measurement(CpuTime(WallTime));
    let mut criterion = criterion.configure_from_args();
    compare(&mut criterion, &runtime, &clients);
    criterion.final_summary();
    let good = judge(&runtime, &clients);
    drop(server);
    assert!(good, "client/json costs more than its bound");
}
