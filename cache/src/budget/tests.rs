use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use super::*;
use Priority::{Prefetch, Reader, Upload};

/// Polls once; the lease, if there is one already.
async fn poll_once(mut acquire: Pin<&mut impl Future<Output = Lease>>) -> Option<Lease> {
    poll_fn(|context| match acquire.as_mut().poll(context) {
        Poll::Ready(lease) => Poll::Ready(Some(lease)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[test]
fn leases_come_back_whole_or_in_parts() {
    let budget = Budget::new(100);
    let mut lease = budget.try_acquire(60, Reader).unwrap();
    let part = lease.split(25);
    assert_eq!((lease.bytes(), part.bytes(), budget.used()), (35, 25, 60));
    assert!(budget.try_acquire(41, Reader).is_none());
    drop(part);
    assert_eq!(budget.used(), 35);
    assert_eq!(lease.split(1000).bytes(), 35, "no more than there is");
    drop(lease);
    assert_eq!((budget.used(), budget.peak()), (0, 60));
}

#[test]
fn each_priority_leaves_a_floor_to_those_above_it() {
    for (priority, most) in [(Prefetch, 75), (Upload, 87), (Reader, 100)] {
        let budget = Budget::new(100);
        let mut leases = Vec::new();
        while let Some(lease) = budget.try_acquire(1, priority) {
            leases.push(lease);
        }
        assert!(
            leases.len().abs_diff(most) <= 1,
            "{priority:?}: {}",
            leases.len()
        );
    }
}

#[tokio::test]
async fn readers_go_before_uploads_and_in_order_of_arrival() {
    let budget = Budget::new(100);
    let all = budget.try_acquire(100, Reader).unwrap();
    let mut upload = pin!(budget.acquire(30, Upload));
    let mut first = pin!(budget.acquire(60, Reader));
    let mut second = pin!(budget.acquire(40, Reader));
    assert!(poll_once(upload.as_mut()).await.is_none());
    assert!(poll_once(first.as_mut()).await.is_none());
    assert!(poll_once(second.as_mut()).await.is_none());
    assert_eq!(budget.waiting(), 3);
    assert!(budget.try_acquire(0, Reader).is_none(), "nobody overtakes");

    drop(all);
    let first = poll_once(first).await.unwrap();
    let second = poll_once(second).await.unwrap();
    assert!(poll_once(upload.as_mut()).await.is_none());
    drop(first);
    assert!(poll_once(upload).await.is_some());
    drop(second);
    assert_eq!(
        (budget.used(), budget.waiting(), budget.peak()),
        (0, 0, 100)
    );
}

#[tokio::test]
async fn a_small_request_does_not_overtake_a_large_one_that_waits() {
    let budget = Budget::new(100);
    let held = budget.try_acquire(50, Reader).unwrap();
    let mut large = pin!(budget.acquire(80, Reader));
    assert!(poll_once(large.as_mut()).await.is_none());
    assert!(budget.try_acquire(10, Reader).is_none());
    assert!(budget.try_acquire(10, Prefetch).is_none());
    drop(held);
    assert_eq!(large.await.bytes(), 80);
}

#[tokio::test]
async fn a_waiter_that_leaves_lets_the_next_one_through() {
    let budget = Budget::new(100);
    let _held = budget.try_acquire(50, Reader).unwrap();
    let mut next = pin!(budget.acquire(50, Reader));
    {
        let mut large = pin!(budget.acquire(80, Reader));
        assert!(poll_once(large.as_mut()).await.is_none());
        assert!(poll_once(next.as_mut()).await.is_none());
    }
    assert!(poll_once(next).await.is_some());
}

#[tokio::test]
async fn a_lease_that_nobody_fetches_comes_back() {
    let budget = Budget::new(100);
    let held = budget.try_acquire(100, Reader).unwrap();
    {
        let mut granted = pin!(budget.acquire(100, Reader));
        assert!(poll_once(granted.as_mut()).await.is_none());
        drop(held);
        assert_eq!(budget.used(), 100);
    }
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn ten_thousand_waiters_are_served_or_forgotten() {
    let budget = Budget::new(10);
    let held = budget.try_acquire(10, Reader).unwrap();
    let mut waiters: Vec<_> = (0..10_000)
        .map(|_| Box::pin(budget.acquire(1, Reader)))
        .collect();
    for waiter in &mut waiters {
        assert!(poll_once(waiter.as_mut()).await.is_none());
    }
    let cancelled: Vec<_> = waiters.drain(..9_000).collect();
    drop(held);
    drop(cancelled);
    for waiter in waiters {
        assert_eq!(waiter.await.bytes(), 1);
    }
    assert_eq!((budget.used(), budget.waiting(), budget.peak()), (0, 0, 10));
}

#[tokio::test]
async fn more_than_the_limit_is_served_alone() {
    let budget = Budget::new(10);
    let held = budget.try_acquire(1, Reader).unwrap();
    let mut large = pin!(budget.acquire(20, Upload));
    assert!(poll_once(large.as_mut()).await.is_none());
    drop(held);
    assert_eq!(large.await.bytes(), 20);
    assert!(
        budget.try_acquire(20, Prefetch).is_none(),
        "it can do without"
    );
}

/// Keeps leases for nobody.
#[derive(Debug, Default)]
struct Shelf(Mutex<Vec<Lease>>);

impl Evict for Shelf {
    fn evict(&self, bytes: usize, priority: Priority) -> usize {
        if priority == Prefetch {
            return 0;
        }
        let mut sum = 0;
        while sum < bytes {
            let Some(lease) = self.0.lock().pop() else {
                break;
            };
            sum += lease.bytes();
        }
        sum
    }
}

#[tokio::test]
async fn what_is_kept_gives_way_and_only_as_much_as_is_needed() {
    let budget = Budget::new(100);
    let shelf = Arc::new(Shelf::default());
    let evictable: Weak<dyn Evict> = Arc::<Shelf>::downgrade(&shelf);
    budget.add_evictable(evictable);
    for _ in 0..10 {
        shelf.0.lock().push(budget.try_acquire(10, Reader).unwrap());
    }
    assert!(budget.try_acquire(10, Prefetch).is_none());
    assert_eq!(budget.acquire(15, Reader).await.bytes(), 15);
    assert_eq!(budget.used(), 80);
}

#[tokio::test]
async fn what_becomes_evictable_later_gives_way_to_those_who_wait() {
    let budget = Budget::new(100);
    let shelf = Arc::new(Shelf::default());
    let evictable: Weak<dyn Evict> = Arc::<Shelf>::downgrade(&shelf);
    budget.add_evictable(evictable);
    let held = budget.try_acquire(100, Reader).unwrap();
    let mut waiting = pin!(budget.acquire(10, Reader));
    assert!(poll_once(waiting.as_mut()).await.is_none());
    shelf.0.lock().push(held);
    budget.relieve();
    assert!(poll_once(waiting).await.is_some());
}
