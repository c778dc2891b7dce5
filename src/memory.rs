//! How much memory there is, and how much of it file data may take.

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

use crate::cli::{Origin, Settings};

/// The part of the memory that file data may take where nobody says more: the rest is for the process itself, its
/// connections, and what the kernel counts to it.
const SHARE: u64 = 3;
/// With less there is no reading ahead.
const LEAST: usize = 16 << 20;

/// What this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes, by the limits of the control groups above it, of either version, and by what the machine has.
    pub bytes: u64,
    /// Whether that is less than the machine has.
    pub limited: bool,
}

/// What this process may use; `None` where the system does not tell.
#[must_use]
pub fn available() -> Option<Memory> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    let machine = system.total_memory();
    let own = sysinfo::get_current_pid().ok()?;
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[own]),
        false,
        ProcessRefreshKind::nothing(),
    );
    let group = system
        .process(own)
        .and_then(sysinfo::Process::cgroup_limits)
        .map_or(machine, |limits| limits.total_memory);
    let bytes = group.min(machine);
    (bytes > 0).then_some(Memory {
        bytes,
        limited: bytes < machine,
    })
}

/// Bytes for file data: what `--memory-limit` says, or its default where a third of the memory is not less.
#[must_use]
pub fn for_files(settings: &Settings) -> usize {
    let mebibytes = settings
        .number("memory-limit")
        .and_then(|n| usize::try_from(n).ok());
    let wanted = mebibytes.unwrap_or(128) << 20;
    match settings.origin("memory-limit") {
        Origin::Default => within(wanted, available()),
        // Who names a number means it.
        Origin::Environment(_) | Origin::Flag => wanted,
    }
}

fn within(wanted: usize, memory: Option<Memory>) -> usize {
    let share = memory.map_or(usize::MAX, |memory| {
        usize::try_from(memory.bytes / SHARE).unwrap_or(usize::MAX)
    });
    wanted.min(share).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_data_takes_a_third_of_what_is_scarce() {
        let mebibytes = |wanted: usize, bytes: Option<u64>| {
            let memory = bytes.map(|bytes| Memory {
                bytes: bytes << 20,
                limited: true,
            });
            within(wanted << 20, memory) >> 20
        };
        assert_eq!(mebibytes(128, None), 128);
        assert_eq!(mebibytes(128, Some(1024)), 128);
        assert_eq!(mebibytes(128, Some(256)), 85);
        assert_eq!(mebibytes(128, Some(20)), 16);
    }

    #[test]
    fn the_system_tells() {
        let memory = available().expect("Linux does");
        assert!(memory.bytes > LEAST as u64, "{memory:?}");
    }
}
