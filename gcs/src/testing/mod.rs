//! Doubles of a store, and the contract suite that every store passes.
