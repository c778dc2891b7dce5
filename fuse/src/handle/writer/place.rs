//! Where a write goes.

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// To this offset in bytes.
    At(u64),
    /// To wherever the end is. The kernel's idea of it may be out of date when somebody else has appended.
    End,
}
