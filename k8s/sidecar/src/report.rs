//! The file that tells the driver what is wrong with a volume.

use std::path::PathBuf;

use gcsmount_k8s_contract::layout::Volume;
use gcsmount_k8s_contract::status;

use crate::directory::{remove, replace};
use crate::mounter::Fault;

/// As the stock sidecar makes it.
const MODE: u32 = 0o644;

/// The error file of one volume. It holds the last fault only: the driver makes one answer of all that it finds there, and
/// what was wrong before is in the log.
#[derive(Debug)]
pub(crate) struct Report {
    path: PathBuf,
}

impl Report {
    pub(crate) fn of(volume: &Volume) -> Self {
        Self {
            path: volume.error(),
        }
    }

    /// Replaces what the file says, in one step. A volume that cannot even report is logged, since nobody else would know.
    pub(crate) fn fault(&self, fault: &Fault) {
        let text = status::error_text(fault.code, &fault.sentence);
        if let Err(error) = replace(&self.path, text.as_bytes(), MODE) {
            let path = self.path.display();
            tracing::error!(%path, %error, "the driver cannot be told what is wrong");
        }
    }

    /// Says that nothing is wrong any more.
    pub(crate) fn clear(&self) {
        if let Err(error) = remove(&self.path) {
            let path = self.path.display();
            tracing::error!(%path, %error, "an error that is over cannot be taken back");
        }
    }
}

#[cfg(test)]
mod tests {
    use gcsmount_k8s_contract::status::Code;

    use super::*;

    fn fault(sentence: &str) -> Fault {
        Fault {
            code: Code::PermissionDenied,
            sentence: sentence.into(),
            lasting: false,
        }
    }

    fn report() -> (tempfile::TempDir, Report) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("error");
        (dir, Report { path })
    }

    #[test]
    fn the_last_fault_stands_there_until_it_is_over() {
        let (_dir, report) = report();
        report.fault(&fault("first"));
        report.fault(&fault("second"));
        let text = std::fs::read_to_string(&report.path).unwrap();
        assert!(text.contains("second") && !text.contains("first"), "{text}");
        assert_eq!(status::code_of(&text), Code::PermissionDenied);
        report.clear();
        assert!(!report.path.exists());
        report.clear();
    }
}
