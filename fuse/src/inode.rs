//! What the kernel remembers of the tree.
