//! The file system without a kernel: verbs over a bucket in memory.

mod attributes;
mod crash;
mod figures;
mod kit;
mod knowledge;
mod names;
mod writes;
mod xattrs;
