//! An observer that remembers.

use parking_lot::Mutex;

use super::{Answered, Observer};

#[derive(Debug, Default)]
pub(crate) struct Recording {
    pub(crate) answered: Mutex<Vec<Answered>>,
    pub(crate) superseded: Mutex<Vec<u64>>,
}

impl Observer for Recording {
    fn answered(&self, request: &Answered) {
        self.answered.lock().push(*request);
    }

    fn superseded(&self, bytes: u64) {
        self.superseded.lock().push(bytes);
    }
}
