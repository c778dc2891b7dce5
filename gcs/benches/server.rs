//! The far end of a bench: the emulator in a process of its own, so that its CPU time is nobody else's.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use gcsmount_emulator::{Auth, Config, Emulator};

/// Set in the process that serves: bytes a second of each body, or nothing for as fast as it goes.
const SERVE: &str = "GCSMOUNT_BENCH_STREAM_RATE";

pub(crate) const BUCKET: &str = "bench";

/// Ends with this value.
pub(crate) struct Server {
    child: Child,
    pub(crate) endpoint: String,
}

impl Server {
    /// Starts this program again, as the server with these objects.
    pub(crate) fn start(stream_rate: Option<u64>) -> Self {
        let rate = stream_rate.map_or_else(String::new, |rate| rate.to_string());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(SERVE, rate)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut endpoint = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut endpoint).unwrap();
        endpoint.truncate(endpoint.trim_end().len());
        Self { child, endpoint }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Serves `objects`, by name and size, until the input ends, if this is the process for it.
pub(crate) fn serves(objects: &[(&str, usize)]) -> bool {
    let Ok(rate) = std::env::var(SERVE) else {
        return false;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let emulator = runtime.block_on(Emulator::start(Config {
        auth: Auth::Off,
        buckets: vec![BUCKET.to_owned()],
        mutation_limit: None,
        stream_rate: rate.parse().ok(),
        md5: false,
        ..Config::default()
    }));
    let emulator = emulator.unwrap();
    for (name, size) in objects {
        let content = vec![7; *size].into();
        emulator.admin().put_object(BUCKET, name, content).unwrap();
    }
    println!("{}", emulator.endpoint());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    true
}
