//! statfs.

/// Sizes in the sense of statvfs(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statfs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks in all, and free: a bucket has no end, so this is only large enough for every program.
    pub blocks: u64,
    /// Files in all, and free.
    pub files: u64,
    /// The longest name in bytes.
    pub name_max: u32,
}

impl Statfs {
    /// What every bucket has. 4 PiB: beyond, `df` and installers that add sizes up in signed 32-bit blocks go wrong.
    pub const BUCKET: Self = Self {
        block_size: 1 << 20,
        blocks: 1 << 32,
        files: 1 << 40,
        name_max: 255,
    };
}
