//! What the sidecar is given: somebody who makes a mount of a bucket's name, options and a descriptor.

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use async_trait::async_trait;
use gcsmount_k8s_contract::defaulting::Defaulting;
use gcsmount_k8s_contract::kernel_params::Parameter;
use gcsmount_k8s_contract::layout::Volume;
use gcsmount_k8s_contract::options::Options;
use gcsmount_k8s_contract::status::Code;

/// One volume as the driver orders it.
#[derive(Debug, Clone)]
pub struct Order {
    /// Where its files are.
    pub volume: Volume,
    /// The bucket; `_` is every bucket that the identity sees.
    pub bucket: String,
    /// The options, sorted out.
    pub options: Options,
    /// What the driver says of the machine, for settings that nobody made.
    pub defaulting: Defaulting,
}

/// Why a volume cannot be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What the driver is to make of it.
    pub code: Code,
    /// What is wrong, where, and how to fix it.
    pub sentence: String,
    /// Whether it stays so until the volume is ordered anew. Whoever waits at the mount point is told at once then; with
    /// any other fault they wait for the next attempt.
    pub lasting: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// Makes mounts.
#[async_trait]
pub trait Mounter: fmt::Debug + Send + Sync + 'static {
    /// Does all that can fail and be tried again: the options, the identity, the bucket.
    ///
    /// # Errors
    /// What is wrong.
    async fn prepare(&self, order: &Order) -> Result<Box<dyn Prepared>, Fault>;
}

/// A volume whose bucket answers.
pub trait Prepared: Send {
    /// Answers the kernel's first request on the descriptor and serves from then on. Blocks until that request is there.
    ///
    /// # Errors
    /// What is wrong. The descriptor is closed by then, so that whoever waits at the mount point is told.
    fn serve(self: Box<Self>, fuse: OwnedFd) -> Result<Box<dyn Session>, Fault>;
}

/// A volume that is being served. It is never unmounted from here: dropped, it goes on until the driver unmounts it or the
/// process ends.
#[async_trait]
pub trait Session: Send + Sync {
    /// Returns when the volume was unmounted or its connection broke. Cancel safe.
    async fn ended(&self);

    /// Saves what is unsaved, and waits for files that are open, for `limit` at most. Returns a sentence for each file that
    /// could not be saved.
    async fn drain(&self, limit: Duration) -> Vec<String>;

    /// What the node should tune for this volume, where the driver takes wishes: asked once, when it begins to be served.
    /// Whoever writes the file itself, as a stock gcsfuse does, has none.
    fn kernel_params(&self) -> Vec<Parameter> {
        Vec::new()
    }

    /// This volume's metrics in the text format of Prometheus. Asked once when the volume begins to be served, and each time
    /// that the driver asks; may block for seconds. `None`: it has none, and no socket is made for them.
    fn metrics(&self) -> Option<String> {
        None
    }
}
