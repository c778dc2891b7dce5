//! What holds for the whole: the architecture, and the binary on a real mount.

mod architecture;
mod bad_input;
mod files;
mod identity;
mod kit;
mod lifecycle;
mod recovery;
