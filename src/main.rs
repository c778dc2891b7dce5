//! The `gcsmount` program.

fn main() {}
