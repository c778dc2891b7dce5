//! The only module that knows `fuser`.

use std::sync::Arc;

use crate::fs::Fs;

#[derive(Debug)]
pub(crate) struct Adapter(Arc<Fs>);

impl Adapter {
    pub(crate) fn new(fs: Arc<Fs>) -> Self {
        Self(fs)
    }
}

impl fuser::Filesystem for Adapter {}
