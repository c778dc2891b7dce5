//! What a request pays for its token while a valid one is held: in allocations, and in waiting for
//! others. A binary of its own, since a process has one allocator.

use std::cell::Cell;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use gcsmount_auth::clock::{BootClock, Clock, Moment};
use gcsmount_auth::secret::AccessSecret;
use gcsmount_auth::{Broker, Error, Exchange, Grant, Identity, Tuning};
use google_cloud_auth::credentials::{CacheableResource, Credentials};
use http::{Extensions, HeaderMap};

#[expect(dead_code, reason = "bytes are counted in another binary")]
mod counting;

#[derive(Debug)]
struct Always;

#[async_trait]
impl Exchange for Always {
    async fn exchange(&self) -> Result<Grant, Error> {
        let token = AccessSecret::new("x".repeat(1024));
        Ok(Grant {
            token,
            lifetime: Duration::from_secs(3600),
        })
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}

/// The outcome of a future that is ready at the first look, which is part of the promise.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("a valid token was waited for"),
    }
}

fn allocations_of<T>(future: impl Future<Output = T>) -> usize {
    let before = counting::allocations();
    drop(at_once(future));
    counting::allocations() - before
}

#[tokio::test]
async fn a_token_that_is_held_costs_no_wait_and_next_to_no_allocation() {
    let broker = Broker::with_exchange(Arc::new(Always), Tuning::default());
    broker.token().await.unwrap();
    let credentials = broker.credentials();
    let mut known = Extensions::new();
    known.insert(broker.current().unwrap().tag().clone());
    let paid = || {
        // The first look of a thread at any token sets up its place among the readers.
        assert!(allocations_of(broker.token()) <= 1);
        assert_eq!(allocations_of(broker.token()), 0);
        assert_eq!(allocations_of(async { broker.current() }), 0);
        // The boxed future of the library's `dyn` call, and the two tables of a `HeaderMap`.
        assert_eq!(allocations_of(credentials.headers(Extensions::new())), 3);
        // Of these, what answers that nothing changed needs the first.
        assert_eq!(allocations_of(credentials.headers(known.clone())), 1);
    };
    paid();
    thread::scope(|scope| scope.spawn(paid).join().unwrap());
}

/// A clock at which a thread that wants to can be stopped: in the middle of whatever asks it.
#[derive(Debug)]
struct Gate {
    reached: Barrier,
    go_on: Barrier,
    ahead: AtomicU64,
}

thread_local! {
    static STOPS: Cell<bool> = const { Cell::new(false) };
}

impl Clock for Gate {
    fn now(&self) -> Moment {
        if STOPS.replace(false) {
            self.reached.wait();
            self.go_on.wait();
        }
        BootClock.now() + Duration::from_secs(self.ahead.load(Ordering::SeqCst))
    }
}

fn header(credentials: &Credentials) -> HeaderMap {
    match at_once(credentials.headers(Extensions::new())).expect("a token is held") {
        CacheableResource::New { data, .. } => data,
        CacheableResource::NotModified => panic!("nothing was known"),
    }
}

#[tokio::test]
async fn a_thread_that_stands_still_on_the_hit_path_holds_up_nobody() {
    const LONG: Duration = Duration::from_secs(60);
    let gate = Arc::new(Gate {
        reached: Barrier::new(2),
        go_on: Barrier::new(2),
        ahead: AtomicU64::new(0),
    });
    let tuning = Tuning {
        clock: Arc::clone(&gate) as _,
        ..Tuning::default()
    };
    let broker = Broker::with_exchange(Arc::new(Always), tuning);
    let first = broker.token().await.unwrap();
    let credentials = broker.credentials();
    let stopped = {
        let credentials = credentials.clone();
        thread::spawn(move || {
            STOPS.set(true);
            header(&credentials)
        })
    };
    gate.reached.wait();
    // Another reader.
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(header(&credentials)));
    let read = receive.recv_timeout(LONG).expect("a reader was held up");
    assert_eq!(read.len(), 1);
    // The writer of a new token, long enough after the first one.
    gate.ahead.store(10, Ordering::SeqCst);
    let second = tokio::time::timeout(LONG, broker.replacement(first.tag()));
    let second = second.await.expect("the writer was held up").unwrap();
    assert_ne!(second.tag(), first.tag());
    assert_eq!(broker.status().exchanges_granted, 2);
    gate.go_on.wait();
    assert_eq!(stopped.join().unwrap().len(), 1);
}
