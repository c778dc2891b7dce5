//! What holds for the whole: the architecture, and the binary on a real mount.

mod architecture;
