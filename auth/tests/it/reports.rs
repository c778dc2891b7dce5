//! What users of other brokers suffered from, each as they would have wanted it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gcsmount_auth::error::Refusal;
use gcsmount_auth::secret::AccessSecret;
use gcsmount_auth::{
    Broker, BrokerConfig, Error, Exchange, FileSource, FromUrl, Grant, Identity, Kind, Routes,
    SocketConfig, Source, Timeouts, TokenSocket, TokenUrl, Tuning,
};
use http::Extensions;
use serde_json::json;
use tempfile::tempdir;
use tokio::time::Instant;

use crate::doubles::{Scripted, Step, TestClock, broker, pass};
use crate::sts::{Reply, Sts, gke_claims, jwt};

#[tokio::test(start_paused = true)]
async fn a_failed_early_refresh_does_not_discard_a_token_that_is_still_good() {
    let exchange = Scripted::new([Step::Grant(300), Step::Fail(Kind::Unavailable)]);
    let (broker, _clock) = broker(&exchange);
    broker.token().await.unwrap();
    for _ in 0..73 {
        assert_eq!(broker.token().await.unwrap().expose(), "tok-1");
        pass(4).await;
    }
    assert!(exchange.count() > 2, "refreshes were tried and failed");
    exchange.now_follow([Step::Grant(300)]);
    pass(31).await;
    assert_ne!(broker.token().await.unwrap().expose(), "tok-1");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_goes_away_is_outlived_by_its_token_and_then_named_in_time() {
    let exchange = Scripted::new([Step::Grant(60), Step::Hang]);
    let (broker, _clock) = broker(&exchange);
    broker.token().await.unwrap();
    pass(56).await;
    assert_eq!(broker.token().await.unwrap().expose(), "tok-1");
    pass(19).await;
    let asked = Instant::now();
    let error = broker.token().await.unwrap_err();
    assert!(
        asked.elapsed() <= Duration::from_secs(15),
        "{:?}",
        asked.elapsed()
    );
    assert!(error.message().contains("/scripted/token"), "{error}");
    exchange.now_follow([Step::Grant(60)]);
    pass(51).await;
    broker.token().await.unwrap();
}

#[test]
fn a_source_and_a_service_that_hang_have_deadlines_of_their_own() {
    let timeouts = Timeouts::default();
    assert!(timeouts.source <= Duration::from_secs(10));
    assert!(timeouts.exchange <= Duration::from_secs(10));
}

/// Asks as a mount does that is about to start: until a token is there, a person has to mend
/// something, or a minute has passed.
async fn start(broker: &Broker) -> Result<Duration, Error> {
    let began = Instant::now();
    loop {
        match broker.token().await {
            Ok(_) => return Ok(began.elapsed()),
            Err(error) if error.is_permanent_for_mount() => return Err(error),
            Err(error) if began.elapsed() > Duration::from_secs(60) => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_before_the_service_is_ready_succeeds_once_it_is() {
    let exchange = Scripted::new([Step::Fail(Kind::Unavailable)]);
    let (broker, _clock) = broker(&exchange);
    let mend = async {
        pass(25).await;
        exchange.now_follow([Step::Grant(3600)]);
    };
    let (started, ()) = tokio::join!(start(&broker), mend);
    let took = started.unwrap();
    assert!(took < Duration::from_secs(32), "{took:?}");
    assert!(exchange.count() <= 12, "{} attempts", exchange.count());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_refused_ends_at_once() {
    for refusal in [Refusal::Request, Refusal::Denied] {
        let exchange = Scripted::new([Step::Fail(Kind::Refused(refusal))]);
        let (broker, _clock) = broker(&exchange);
        let began = Instant::now();
        assert_eq!(
            start(&broker).await.unwrap_err().kind(),
            Kind::Refused(refusal)
        );
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(exchange.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_under_quota_waits_as_it_is_told_and_asks_seldom() {
    let exchange = Scripted::new([Step::Throttle { retry_after: 2 }]);
    let (broker, _clock) = broker(&exchange);
    let mend = async {
        pass(20).await;
        let asked = exchange.count();
        exchange.now_follow([Step::Grant(3600)]);
        asked
    };
    let (started, asked) = tokio::join!(start(&broker), mend);
    started.unwrap();
    assert!(asked < 12, "{asked} requests in 20 s");
    let starts = exchange.starts();
    let apart = starts.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(apart.min().unwrap() >= Duration::from_secs(2));
}

/// Hands out one token until it ends, as a metadata server does.
#[derive(Debug)]
struct Same {
    origin: Instant,
    asked: AtomicUsize,
}

#[async_trait]
impl Exchange for Same {
    async fn exchange(&self) -> Result<Grant, Error> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let life = 120;
        let age = self.origin.elapsed().as_secs();
        let left = life - age % life;
        Ok(Grant {
            token: AccessSecret::new(format!("tok-{}", age / life)),
            lifetime: Duration::from_secs(left),
        })
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hands_out_the_same_token_until_it_ends_is_not_stormed() {
    let exchange = Arc::new(Same {
        origin: Instant::now(),
        asked: AtomicUsize::new(0),
    });
    let tuning = Tuning {
        clock: TestClock::new(),
        seed: 3,
        ..Tuning::default()
    };
    let broker = Broker::with_exchange(Arc::clone(&exchange) as _, tuning);
    for _ in 0..550 {
        broker.token().await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let asked = exchange.asked.load(Ordering::SeqCst);
    assert!(asked < 20, "{asked} requests in 110 s");
}

#[tokio::test]
async fn two_volumes_of_a_pod_on_the_host_s_network_have_each_its_own_broker_and_token() {
    let sts = Sts::start([Reply::Grant(3600)]).await;
    let dir = tempdir().unwrap();
    let mut sockets = Vec::new();
    let mut subjects = Vec::new();
    for volume in ["one", "two"] {
        let mut claims = gke_claims();
        claims["jti"] = json!(volume);
        let subject = jwt(&claims);
        let file = dir.path().join(volume);
        std::fs::write(&file, &subject).unwrap();
        subjects.push(subject);
        let config = BrokerConfig {
            sts: sts.endpoint(),
            ..BrokerConfig::new(Arc::new(FileSource::new(file)))
        };
        let broker = Broker::spawn(config).unwrap();
        let socket = dir.path().join(format!("{volume}.sock"));
        let config = SocketConfig::new(socket, Routes::Any(broker));
        sockets.push(TokenSocket::bind(config).await.unwrap());
    }
    let mut tokens = Vec::new();
    for socket in &sockets {
        let url = TokenUrl::parse(&format!("unix://{}", socket.path().display())).unwrap();
        let from = FromUrl::new(url, Timeouts::default()).unwrap();
        tokens.push(from.exchange().await.unwrap().token.expose().to_owned());
    }
    assert_ne!(tokens[0], tokens[1]);
    // The token service is all that was asked, with the tokens that lay in the files.
    let mut sent: Vec<_> = sts
        .forms()
        .iter()
        .map(|form| form["subject_token"].clone())
        .collect();
    sent.sort();
    subjects.sort();
    assert_eq!(sent, subjects);
}

fn generation(dir: &Path, number: usize) {
    let name = format!("..{number}");
    std::fs::create_dir(dir.join(&name)).unwrap();
    std::fs::write(dir.join(&name).join("token"), format!("a.b.{number}")).unwrap();
    symlink(&name, dir.join("..tmp")).unwrap();
    std::fs::rename(dir.join("..tmp"), dir.join("..data")).unwrap();
    if let Some(previous) = number.checked_sub(1) {
        std::fs::remove_dir_all(dir.join(format!("..{previous}"))).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_races_the_rotation_of_a_projected_token_never_misses_it() {
    let dir = tempdir().unwrap();
    generation(dir.path(), 0);
    symlink("..data/token", dir.path().join("token")).unwrap();
    let source = FileSource::new(dir.path().join("token"));
    let done = Arc::new(AtomicBool::new(false));
    let rotating = tokio::task::spawn_blocking({
        let (dir, done) = (dir.path().to_owned(), Arc::clone(&done));
        move || {
            (1..=300).for_each(|number| generation(&dir, number));
            done.store(true, Ordering::SeqCst);
        }
    });
    let mut reads = 0;
    while !done.load(Ordering::SeqCst) {
        let token = source.subject_token().await.unwrap();
        assert!(token.expose().starts_with("a.b."));
        reads += 1;
    }
    rotating.await.unwrap();
    assert!(reads > 0);
    assert_eq!(source.subject_token().await.unwrap().expose(), "a.b.300");
}

#[tokio::test(start_paused = true)]
async fn without_a_token_there_is_an_error_and_never_a_request_without_one() {
    let exchange = Scripted::new([Step::Fail(Kind::Unavailable)]);
    let (broker, _clock) = broker(&exchange);
    let credentials = broker.credentials();
    for _ in 0..90 {
        assert!(credentials.headers(Extensions::new()).await.is_err());
        pass(1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_long_pause_of_the_process_the_first_request_gets_a_new_token() {
    let exchange = Scripted::new([Step::Grant(30)]);
    let (broker, clock) = broker(&exchange);
    let old = broker.token().await.unwrap();
    clock.suspend(Duration::from_secs(15 * 60));
    let asked = Instant::now();
    let new = broker.token().await.unwrap();
    assert_ne!(new.tag(), old.tag());
    assert!(asked.elapsed() < Duration::from_secs(2));
}
