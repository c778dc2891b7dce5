//! What is there now.

use std::collections::HashSet;

use super::Fs;
use crate::observer::Figures;

impl Fs {
    /// Counts what the file system holds. It takes each lock for a moment, and asks nobody.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (file_handles, written) = {
            let files = self.files.lock();
            let written: Vec<_> = files
                .values()
                .filter_map(|file| Some((file.ino, file.writer.clone()?)))
                .collect();
            (files.len(), written)
        };
        let dirty: HashSet<_> = written
            .iter()
            .filter(|(_, writer)| writer.view().dirty)
            .map(|(ino, _)| *ino)
            .collect();
        let (inodes, known_names) = {
            let table = self.table.lock();
            (table.len(), table.known())
        };
        Figures {
            file_handles,
            directory_handles: self.dirs.lock().len(),
            inodes,
            known_names,
            dirty_files: dirty.len(),
            staged_bytes: self.workshop.staged_bytes(),
            streams: self.workshop.open_streams(),
        }
    }
}
