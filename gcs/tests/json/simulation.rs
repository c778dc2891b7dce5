//! Random faults from a seed: whatever goes wrong, the bytes are right or the error is named.
//!
//! A failing seed is replayed with `GCSMOUNT_FAULT_SEED=N`; `GCSMOUNT_FAULT_SCRIPTS=N` runs more of them. Each script
//! has a server and a clock of its own, and the clock stands still while anything moves.

use std::ops::Range;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use gcsmount_gcs::store::{Preconditions, ReadRequest};
use gcsmount_gcs::{Generation, Kind, Object, Result, Store};
use parking_lot::Mutex;

use crate::script::{
    End, Seen, Server, Step, answer, config, drain, json, media_of, object, read, refusal, write,
};

const SCRIPTS: u64 = 10_000;

/// Numbers from a seed (xorshift64*).
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % sides
    }
}

/// A bucket with one object, which obeys the protocol and breaks connections.
struct World {
    dice: Dice,
    /// Faults left; what comes behind them goes well.
    faults: usize,
    generation: i64,
    content: Bytes,
    session: Option<Vec<u8>>,
    /// Whether a byte that differs would be found out: in a read of everything, and in an answer to a write.
    checked: bool,
    /// Whether an answer was not true.
    lied: bool,
}

impl World {
    fn answer(&mut self, seen: &Seen) -> Step {
        match self.fault() {
            0 => Step::Lost,
            1 => Step::Stall,
            2 => refusal(503, "backendError"),
            3 => refusal(429, "rateLimitExceeded"),
            4 => {
                self.act(seen);
                Step::Lost
            }
            5 => {
                self.act(seen);
                refusal(500, "backendError")
            }
            _ => self.act(seen),
        }
    }

    fn fault(&mut self) -> usize {
        if self.faults == 0 || self.dice.roll(2) == 0 {
            return usize::MAX;
        }
        self.faults -= 1;
        self.dice.roll(8)
    }

    fn act(&mut self, seen: &Seen) -> Step {
        let target = seen.target.as_str();
        match seen.method.as_str() {
            "GET" if target.contains("alt=media") => self.media(seen),
            "GET" => json(object(self.generation, &self.content)),
            "POST" | "PUT" if !self.holds(target) => refusal(412, "conditionNotMet"),
            "POST" if target.contains("uploadType=multipart") => self.publish(part(seen)),
            "POST" => {
                self.session = Some(Vec::new());
                answer(200, &[("location", &session_url(target))], "")
            }
            "PUT" => self.chunk(seen),
            other => panic!("{other} {target}"),
        }
    }

    fn holds(&self, target: &str) -> bool {
        let wanted = target.split("ifGenerationMatch=").nth(1);
        wanted.is_none_or(|wanted| wanted.parse() == Ok(self.generation))
    }

    fn publish(&mut self, content: Bytes) -> Step {
        self.generation += 1;
        self.content = content;
        if self.lies() {
            return json(object(self.generation, &garbled(&self.content, 0)));
        }
        json(object(self.generation, &self.content))
    }

    /// Whether to answer what is not so, now and then.
    fn lies(&mut self) -> bool {
        let lies = self.checked && !self.content.is_empty() && self.fault() == 0;
        self.lied |= lies;
        lies
    }

    fn media(&mut self, seen: &Seen) -> Step {
        let pinned = seen.target.split("&generation=").nth(1);
        if pinned.is_some_and(|pinned| pinned.parse() != Ok(self.generation)) {
            return refusal(404, "notFound");
        }
        let range = seen.header("range").strip_prefix("bytes=");
        let first = range.map_or(0, |range| range.split('-').next().unwrap().parse().unwrap());
        let left = self.content.len() - first;
        let (sent, end) = match self.fault() {
            0..=2 => (self.dice.roll(left + 1), End::Broken),
            3..=5 => (self.dice.roll(left + 1), End::Stalled),
            _ => (left, End::Well),
        };
        let (sent, end) = if sent == left {
            (left, End::Well)
        } else {
            (sent, end)
        };
        let crc32c = crc32c::crc32c(&self.content);
        if left > 0 && self.lies() {
            // Another byte, or another generation.
            let wrong = garbled(&self.content, first + self.dice.roll(left));
            let (generation, content) = match self.dice.roll(2) {
                0 => (self.generation, &wrong),
                _ => (self.generation + 1, &self.content),
            };
            return media_of(generation, content, first, left, End::Well, crc32c);
        }
        media_of(self.generation, &self.content, first, sent, end, crc32c)
    }

    fn chunk(&mut self, seen: &Seen) -> Step {
        let Some(held) = &mut self.session else {
            return refusal(410, "gone");
        };
        let (range, total) = content_range(seen);
        if let Some(range) = range {
            assert!(range.start <= held.len(), "a gap");
            assert_eq!(range.len(), seen.body.len());
            let kept = match self.dice.roll(4) {
                // What is behind the total is never kept in part here, so that the end comes.
                0 if total.is_none() => self.dice.roll(range.len() + 1),
                _ => range.len(),
            };
            if range.start + kept > held.len() {
                held.truncate(range.start);
                held.extend_from_slice(&seen.body[..kept]);
            }
        }
        if total == Some(held.len()) {
            let content = Bytes::from(self.session.take().unwrap());
            return self.publish(content);
        }
        match held.len() {
            0 => answer(308, &[], ""),
            length => answer(308, &[("range", &format!("bytes=0-{}", length - 1))], ""),
        }
    }
}

/// The session's URL, which keeps the precondition for its end.
fn session_url(target: &str) -> String {
    let condition = target.split('&').find(|part| part.starts_with("ifGen"));
    format!("http://store.test/session?x=1&{}", condition.unwrap())
}

/// The content in a multipart body.
fn part(seen: &Seen) -> Bytes {
    let open = b"octet-stream\r\n\r\n";
    let start = seen
        .body
        .windows(open.len())
        .position(|window| window == open);
    let end = seen.body.len() - "\r\n--".len() - 32 - "--\r\n".len();
    seen.body.slice(start.unwrap() + open.len()..end)
}

fn content_range(seen: &Seen) -> (Option<Range<usize>>, Option<usize>) {
    let (range, total) = seen
        .header("content-range")
        .strip_prefix("bytes ")
        .and_then(|text| text.split_once('/'))
        .unwrap();
    let range = range
        .split_once('-')
        .map(|(first, last)| first.parse().unwrap()..last.parse::<usize>().unwrap() + 1);
    (range, total.parse().ok())
}

fn garbled(content: &Bytes, at: usize) -> Bytes {
    let mut wrong = content.to_vec();
    wrong[at] ^= 1;
    wrong.into()
}

/// Bytes in which no two windows of a script are alike; contents are slices of them, which cost nothing to make.
static BYTES: LazyLock<Bytes> = LazyLock::new(|| {
    let mut dice = Dice(1);
    (0..1 << 20).map(|_| dice.roll(256) as u8).collect()
});

fn content(dice: &mut Dice) -> Bytes {
    let length = match dice.roll(16) {
        0 => 262_144 * (1 + dice.roll(2)),
        1 => dice.roll(700_000),
        2..=4 => dice.roll(10),
        _ => dice.roll(30_000),
    };
    let start = dice.roll(BYTES.len() - length);
    BYTES.slice(start..start + length)
}

/// Writes, through an upload or in one request.
async fn publish(store: &impl Store, dice: &mut Dice, base: i64, new: &Bytes) -> Result<Object> {
    let request = write("o", Preconditions::generation(Generation(base)));
    if dice.roll(2) == 0 {
        return store.write(&request, new.clone()).await;
    }
    let mut upload = store.upload(&request).await?;
    for piece in new.chunks((new.len() / 20).max(1) + dice.roll(300_000)) {
        upload.write(Bytes::copy_from_slice(piece)).await?;
    }
    upload.finish().await
}

/// One script; whether write and read came through.
async fn run(seed: u64) -> (bool, bool) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let (old, new) = (content(&mut dice), content(&mut dice));
    let world = Arc::new(Mutex::new(World {
        dice: dice.clone(),
        faults: dice.roll(12),
        generation: 100,
        content: old.clone(),
        session: None,
        checked: true,
        lied: false,
    }));
    let state = Arc::clone(&world);
    let server = Server::thinking(move |seen| state.lock().answer(seen));
    let mut config = config(None);
    config.retry.seed = Some(seed);
    let store = server.store_with(config);

    let result = publish(&store, &mut dice, 100, &new).await;
    let (generation, now, lied) = {
        let world = world.lock();
        (world.generation, world.content.clone(), world.lied)
    };
    let written = result.is_ok();
    match result {
        Ok(object) => {
            assert_eq!(
                (generation, &now),
                (101, &new),
                "seed {seed}: published once"
            );
            assert_eq!(object.generation, Generation(101), "seed {seed}");
        }
        Err(error) => {
            let named = matches!(error.kind, Kind::Unavailable | Kind::Throttled | Kind::Gone)
                || (error.kind == Kind::Corrupt && lied);
            assert!(named, "seed {seed}: nobody else writes, and yet: {error:?}");
            let whole = (generation == 100 && now == old) || (generation == 101 && now == new);
            assert!(whole, "seed {seed}: half a write");
        }
    }

    let start = match dice.roll(3) {
        // Everything, and so with its checksum.
        0 => now.len(),
        _ => dice.roll(now.len() + 1),
    };
    {
        let mut world = world.lock();
        world.faults = dice.roll(12);
        world.checked = start == now.len();
        world.lied = false;
    }
    let request = ReadRequest {
        range: (start < now.len()).then_some(start as u64..u64::MAX),
        ..read("o")
    };
    let expected = if start < now.len() {
        now.slice(start..)
    } else {
        now
    };
    match drain(store.read(&request).await).await {
        Ok(bytes) => {
            assert_eq!(bytes, expected, "seed {seed}");
            (written, true)
        }
        Err((bytes, error)) => {
            let lied = world.lock().lied;
            // Pieces are passed on as they come: only the last one tells whether all were right.
            let right = expected.starts_with(&bytes) || (error.kind == Kind::Corrupt && lied);
            assert!(right, "seed {seed}: wrong bytes");
            let named = matches!(error.kind, Kind::Unavailable | Kind::Throttled)
                || (error.kind == Kind::Corrupt && lied);
            assert!(named, "seed {seed}: {error:?}");
            (written, false)
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Scripts, and how many of their writes and reads came through.
#[derive(Clone, Copy, Default)]
struct Tally {
    scripts: u64,
    written: u64,
    read: u64,
}

/// One script on a runtime of its own.
fn play(seed: u64) -> Tally {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    // An hour of the paused clock: far more than all deadlines together.
    let limit = Duration::from_secs(3600);
    let ended = runtime.block_on(async { tokio::time::timeout(limit, run(seed)).await });
    let (written, read) = ended.unwrap_or_else(|_| panic!("seed {seed} hangs"));
    Tally {
        scripts: 1,
        written: u64::from(written),
        read: u64::from(read),
    }
}

/// All of `seeds`, on as many threads as there are cores.
fn play_all(seeds: Range<u64>) -> Tally {
    let threads = thread::available_parallelism().map_or(2, |n| n.get() as u64);
    let tallies: Vec<Tally> = thread::scope(|scope| {
        let shares: Vec<_> = (0..threads)
            .map(|first| {
                let seeds = seeds.clone();
                scope.spawn(move || {
                    let share = seeds.skip(first as usize).step_by(threads as usize);
                    share.map(play).collect::<Vec<_>>()
                })
            })
            .collect();
        shares
            .into_iter()
            .flat_map(|share| share.join().unwrap())
            .collect()
    });
    tallies.iter().fold(Tally::default(), |sum, one| Tally {
        scripts: sum.scripts + one.scripts,
        written: sum.written + one.written,
        read: sum.read + one.read,
    })
}

#[test]
fn every_script_of_faults_ends_in_the_right_bytes_or_a_named_error() {
    let seeds = match number("GCSMOUNT_FAULT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("GCSMOUNT_FAULT_SCRIPTS").unwrap_or(SCRIPTS),
    };
    let Tally {
        scripts,
        written,
        read,
    } = play_all(seeds);
    // Scripts that all came through, or all did not, would show little.
    if scripts >= SCRIPTS {
        for through in [written, read] {
            assert!(
                (scripts / 2..scripts).contains(&through),
                "{through} of {scripts}"
            );
        }
    }
}
