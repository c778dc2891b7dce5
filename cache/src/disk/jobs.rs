//! Blocking work for somebody who awaits it: so many at a time, and nobody waits for ever.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A bound on blocking jobs.
#[derive(Debug)]
pub(super) struct Jobs {
    permits: Arc<Semaphore>,
    deadline: Duration,
}

/// What became of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome<T, I> {
    /// It is done.
    Done(T),
    /// It was not begun in time: here is what it would have needed.
    NotBegun(I),
    /// It was begun and is not done in time; or it panicked, or the runtime is going down.
    Late,
}

impl Jobs {
    /// At most `at_once` jobs, each of which may wait `deadline` for its turn, and run as long.
    pub(super) fn new(at_once: usize, deadline: Duration) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(at_once)),
            deadline,
        }
    }

    /// Runs `job` on the blocking pool of the current runtime. It goes on when nobody waits for it any more, and
    /// counts until it ends.
    pub(super) async fn run<I: Send + 'static, T: Send + 'static>(
        &self,
        input: I,
        job: impl FnOnce(I) -> T + Send + 'static,
    ) -> Outcome<T, I> {
        let turn = timeout(self.deadline, self.permits.clone().acquire_owned());
        let Ok(Ok(permit)) = turn.await else {
            return Outcome::NotBegun(input);
        };
        let job = tokio::task::spawn_blocking(move || {
            let done = job(input);
            drop(permit);
            done
        });
        match timeout(self.deadline, job).await {
            Ok(Ok(done)) => Outcome::Done(done),
            Ok(Err(_)) | Err(_) => Outcome::Late,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_job_that_hangs_is_late_and_the_next_is_not_begun() {
        let jobs = Jobs::new(1, Duration::from_millis(1));
        let (release, hangs) = mpsc::channel::<()>();
        let late = jobs.run((), move |()| hangs.recv()).await;
        assert_eq!(late, Outcome::Late);
        assert_eq!(jobs.run(7, |_| ()).await, Outcome::NotBegun(7));
        drop(release);
        let _turn = jobs.permits.acquire().await.unwrap();
    }

    #[tokio::test]
    async fn a_job_brings_its_result() {
        let jobs = Jobs::new(1, Duration::from_secs(60));
        assert_eq!(jobs.run(7, |i| i + 1).await, Outcome::Done(8));
        let panicked = jobs.run((), |()| panic!("on purpose")).await;
        assert_eq!(panicked, Outcome::Late);
        assert_eq!(
            jobs.run(7, |i| i + 1).await,
            Outcome::Done(8),
            "it holds no turn"
        );
    }
}
