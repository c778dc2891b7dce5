//! One volume, from its socket to its end.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use gcsmount_k8s_contract::defaulting::Defaulting;
use gcsmount_k8s_contract::layout::Volume;
use gcsmount_k8s_contract::options::{Mistake, Options};
use gcsmount_k8s_contract::status::Code;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::task::spawn_blocking;

use crate::intake;
use crate::metrics::MetricsSocket;
use crate::mounter::{Fault, Mounter, Order, Prepared, Session};
use crate::report::Report;
use crate::sidecar::Config;
use crate::tuning::{self, Wish};

/// How a volume came to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was served until the driver unmounted it or the sidecar was told to end. What could not be saved.
    Served(Vec<String>),
    /// It never came about: the driver has to order it anew, or the sidecar was told to end before.
    Never,
    /// Its socket gave no volume, and why.
    NotTaken(String),
}

/// What all tasks share.
#[derive(Debug, Clone)]
pub(crate) struct Tending {
    pub(crate) config: Arc<Config>,
    pub(crate) mounter: Arc<dyn Mounter>,
    /// How long each volume may go on saving, once the sidecar is told to end.
    pub(crate) stop: watch::Receiver<Option<Duration>>,
}

impl Tending {
    /// Tends one volume to its end.
    pub(crate) async fn volume(mut self, volume: Volume) -> End {
        let name = volume.name.clone();
        let report = Report::of(&volume);
        let received = tokio::select! {
            received = intake::receive(&volume) => received,
            () = told_to_end(&mut self.stop) => return End::Never,
        };
        let (message, fuse) = match received {
            Ok(received) => received,
            Err(sentence) => return End::NotTaken(sentence),
        };
        if let Err(sentence) = intake::check_device(&fuse, self.config.device) {
            let fault = lasting(Code::Internal, sentence);
            tracing::error!(volume = name, "{fault}");
            report.fault(&fault);
            return End::Never;
        }
        // Of whoever served the volume before.
        tuning::clear(&volume);
        let defaulting = self.defaulting().await;
        let order = match Options::parse(&message.options, self.config.policy) {
            Ok(options) => Order {
                volume,
                bucket: message.bucket_name,
                options,
                defaulting,
            },
            Err(mistakes) => {
                let fault = lasting(Code::InvalidArgument, sentence_of(&mistakes));
                tracing::error!(volume = name, "{fault}");
                report.fault(&fault);
                return End::Never;
            }
        };
        let Some(prepared) = self.prepare(&order, &report, &fuse).await else {
            return End::Never;
        };
        // Before it is served: from then on whoever serves may have something to report itself.
        report.clear();
        let served = tokio::select! {
            // One that has begun to be served has to be drained.
            biased;
            served = serve(prepared, fuse) => served,
            () = told_to_end(&mut self.stop) => return End::Never,
        };
        match served {
            Ok(session) => {
                tracing::info!(volume = name, bucket = order.bucket, "served");
                let session = Arc::from(session);
                let _wish = wish(&order, &session);
                // Side by side: a session that is slow to tell its metrics is drained in time all the same.
                tokio::select! {
                    end = self.attend(&name, &*session) => end,
                    never = tell_metrics(&order, &session) => match never {},
                }
            }
            Err(fault) => {
                tracing::error!(volume = name, "{fault}");
                report.fault(&fault);
                End::Never
            }
        }
    }

    /// What the driver says of the machine. Without it there are defaults that suit any.
    async fn defaulting(&self) -> Defaulting {
        let base = self.config.base.clone();
        let read = spawn_blocking(move || Defaulting::read(&base)).await;
        read.unwrap_or_else(|broken| Err(io::Error::other(broken)))
            .unwrap_or_else(|error| {
                let path = self.config.base.flags_for_defaulting();
                tracing::warn!(path = %path.display(), %error, "what the driver says of the machine is not known");
                Defaulting::default()
            })
    }

    /// Tries until it works. `None`: the fault is a lasting one, the mount is gone, or the sidecar ends.
    async fn prepare(
        &mut self,
        order: &Order,
        report: &Report,
        fuse: &OwnedFd,
    ) -> Option<Box<dyn Prepared>> {
        let name = &order.volume.name;
        let mut failures = 0;
        loop {
            let attempt = tokio::select! {
                attempt = self.mounter.prepare(order) => attempt,
                _ = self.stop.wait_for(Option::is_some) => return None,
            };
            let fault = match attempt {
                Ok(prepared) => return Some(prepared),
                Err(fault) => fault,
            };
            report.fault(&fault);
            if fault.lasting {
                tracing::error!(volume = name, "{fault}");
                return None;
            }
            let pause = self.config.backoff.pause(failures, rand::random());
            tracing::warn!(volume = name, again_in = ?pause, "{fault}");
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = gone(fuse, self.config.look) => {
                    tracing::info!(volume = name, "unmounted before it could be served");
                    return None;
                }
                () = told_to_end(&mut self.stop) => return None,
            }
            failures = failures.saturating_add(1);
        }
    }

    /// Waits for the end of a volume that is served.
    async fn attend(&mut self, name: &str, session: &dyn Session) -> End {
        let limit = tokio::select! {
            () = session.ended() => None,
            stop = self.stop.wait_for(Option::is_some) => stop.ok().and_then(|limit| *limit),
        };
        if limit.is_none() {
            tracing::info!(volume = name, "unmounted");
        }
        let limit = limit.unwrap_or(self.config.grace);
        let unsaved = tokio::select! {
            unsaved = session.drain(limit) => unsaved,
            () = self.hurried(), if !limit.is_zero() => session.drain(Duration::ZERO).await,
        };
        for sentence in &unsaved {
            tracing::error!(volume = name, "{sentence}");
        }
        End::Served(unsaved)
    }

    /// Waits until no more time is left to save in.
    async fn hurried(&mut self) {
        if self
            .stop
            .wait_for(|left| *left == Some(Duration::ZERO))
            .await
            .is_err()
        {
            // Nobody is left to say so.
            std::future::pending::<()>().await;
        }
    }
}

/// Waits until the sidecar is told to end, or nobody is left to tell it.
async fn told_to_end(stop: &mut watch::Receiver<Option<Duration>>) {
    // An error is the end as well.
    let _ = stop.wait_for(Option::is_some).await;
}

/// Waits until the mount is gone.
async fn gone(fuse: &OwnedFd, look: Duration) {
    while !intake::is_gone(fuse) {
        tokio::time::sleep(look).await;
    }
}

/// Serves from a thread of its own: the kernel's first request may never come, and as many such volumes as there may be
/// would use up the runtime's threads, or hold up its end.
async fn serve(prepared: Box<dyn Prepared>, fuse: OwnedFd) -> Result<Box<dyn Session>, Fault> {
    let (done, served) = oneshot::channel();
    let runtime = Handle::current();
    let begun = std::thread::Builder::new()
        .name("volume".into())
        .spawn(move || {
            let _inside = runtime.enter();
            // Nobody waits for it any more where the sidecar ends.
            let _ = done.send(prepared.serve(fuse));
        });
    if let Err(error) = begun {
        let sentence = format!("there is no thread to serve the volume from: {error}");
        return Err(lasting(Code::Internal, sentence));
    }
    served
        .await
        .unwrap_or_else(|_| Err(lasting(Code::Internal, "serving broke off".into())))
}

/// Asks the node to tune, if it takes wishes and there are any.
fn wish<'a>(order: &'a Order, session: &Arc<dyn Session>) -> Option<Wish<'a>> {
    let asked = tuning::is_asked(order);
    let parameters = if asked {
        session.kernel_params()
    } else {
        Vec::new()
    };
    (!parameters.is_empty()).then(|| Wish::make(&order.volume, parameters))
}

/// Tells the driver metrics, if it collects them and there are any, until this is dropped. A volume whose metrics cannot be
/// had is served all the same.
async fn tell_metrics(order: &Order, session: &Arc<dyn Session>) -> Infallible {
    let _socket = metrics_socket(order, session).await;
    std::future::pending().await
}

async fn metrics_socket(order: &Order, session: &Arc<dyn Session>) -> Option<MetricsSocket> {
    if order.options.internal.disable_metrics == Some(true) {
        return None;
    }
    let asked = Arc::clone(session);
    if let Ok(None) = spawn_blocking(move || asked.metrics()).await {
        return None;
    }
    match MetricsSocket::serve(order.volume.clone(), Arc::clone(session)) {
        Ok(socket) => Some(socket),
        Err(error) => {
            let path = order.volume.metrics_socket();
            tracing::warn!(path = %path.display(), %error, "the driver gets no metrics");
            None
        }
    }
}

pub(crate) fn lasting(code: Code, sentence: String) -> Fault {
    Fault {
        code,
        sentence,
        lasting: true,
    }
}

fn sentence_of(mistakes: &[Mistake]) -> String {
    let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    all.join("; ")
}
