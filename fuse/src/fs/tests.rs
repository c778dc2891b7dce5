//! The file system without a kernel: verbs over a bucket in memory.

mod crash;
mod figures;
mod kit;
mod knowledge;
mod names;
mod writes;
