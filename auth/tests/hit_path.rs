//! What a request pays for its token while a valid one is held, in allocations, and what an identity
//! pays for being held, in bytes. A binary of its own, since a process has one allocator.

#![expect(
    unsafe_code,
    reason = "an allocator that counts is unsafe to write by definition"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use gcsmount_auth::secret::AccessSecret;
use gcsmount_auth::{
    Broker, BrokerConfig, Endpoint, Error, Exchange, FileSource, Grant, Identities, Identity,
    Tuning,
};
use http::Extensions;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// Bytes that this thread allocated and did not free.
    static HELD: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        HELD.set(HELD.get() + layout.size().cast_signed());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get() - layout.size().cast_signed());
        // SAFETY: `pointer` came from `alloc` above with this layout, as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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

/// The allocations of a future that is ready at the first look, which is part of the promise.
fn allocations_of<T>(future: impl Future<Output = T>) -> usize {
    let before = ALLOCATIONS.get();
    let mut future = pin!(future);
    match future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(_) => {}
        Poll::Pending => panic!("a valid token was waited for"),
    }
    ALLOCATIONS.get() - before
}

#[tokio::test]
async fn a_token_that_is_held_costs_no_wait_and_next_to_no_allocation() {
    let broker = Broker::with_exchange(Arc::new(Always), Tuning::default());
    broker.token().await.unwrap();
    let credentials = broker.credentials();
    assert_eq!(allocations_of(broker.token()), 0);
    assert_eq!(allocations_of(async { broker.current() }), 0);
    // The boxed future of the library's `dyn` call, and the two tables of a `HeaderMap`.
    assert_eq!(allocations_of(credentials.headers(Extensions::new())), 3);
}

#[tokio::test]
async fn an_identity_costs_less_than_16_kib_beyond_its_token() {
    const IDENTITIES: usize = 200;
    let tls = Endpoint::default();
    let plain = Endpoint::parse("http://127.0.0.1:1").unwrap();
    let identities = Identities::new(2 * IDENTITIES);
    for endpoint in [plain, tls] {
        let config = |number: usize| BrokerConfig {
            sts: endpoint.clone(),
            ..BrokerConfig::new(Arc::new(FileSource::new(format!("/nowhere/{number}"))))
        };
        // On a machine that trusts no certificate there are no identities over TLS. What the first
        // one reads, all share.
        let Ok(_first) = identities.broker(&config(0)) else {
            continue;
        };
        let before = HELD.get();
        let held: Vec<_> = (1..=IDENTITIES)
            .map(|number| identities.broker(&config(number)).unwrap())
            .collect();
        // Their tasks have begun, and wait for the file.
        tokio::task::yield_now().await;
        let each = (HELD.get() - before) / IDENTITIES.cast_signed();
        assert!(
            (1..16 << 10).contains(&each),
            "{each} bytes an identity at {endpoint}"
        );
        drop(held);
    }
}
