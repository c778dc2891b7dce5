//! The file that tells the driver what is wrong with a volume.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use gcsmount_k8s_contract::layout::Volume;
use gcsmount_k8s_contract::status;
use nix::fcntl::OFlag;

use crate::mounter::Fault;

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
        if let Err(error) = self.replace(text.as_bytes()) {
            let path = self.path.display();
            tracing::error!(%path, %error, "the driver cannot be told what is wrong");
        }
    }

    /// Says that nothing is wrong any more.
    pub(crate) fn clear(&self) {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = self.path.display();
                tracing::error!(%path, %error, "an error that is over cannot be taken back");
            }
            _ => {}
        }
    }

    /// Other containers of the pod may write to the directory: a link that one of them left is not followed.
    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o644)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .open(&new)?;
        file.write_all(text)?;
        std::fs::rename(new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

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

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let (dir, report) = report();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "whole").unwrap();
        symlink(&victim, &report.path).unwrap();
        symlink(&victim, report.path.with_extension("new")).unwrap();
        report.fault(&fault("said"));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "whole");
        assert!(
            std::fs::read_to_string(&report.path)
                .unwrap()
                .contains("said")
        );
    }
}
